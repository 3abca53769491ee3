"""Our one pass over a file's bytes against plain sequential hashing and against MD5 alone.

Ratios within one run: the contenders take turns, so that a noisy machine slows all of them.
Run as `python -m bench.checksums [MB] [rounds]`.
"""

import hashlib
import os
import statistics
import sys
import time
from collections.abc import Callable

import google_crc32c

from pipelines import checksums
from pipelines.limits import ETAG_CHUNK, MB


def main(megabytes: int = 256, rounds: int = 7) -> None:
    """Time each contender and print rates and ratios (medians over the rounds)."""
    blocks = [os.urandom(MB)] * megabytes
    contenders: dict[str, Callable[[list[bytes]], object]] = {
        "ours": lambda given: checksums.compute(given, len(given) * MB),
        "sequential": sequential,
        "md5 alone": md5_alone,
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            began = time.perf_counter()
            run(blocks)
            seconds[name].append(time.perf_counter() - began)
    print(f"{megabytes} MB in blocks of 1 MB, median of {rounds} rounds, {os.cpu_count()} cores")
    print(f"{'contender':<12}{'MB/s':>8}{'ours is':>10}")
    for name, took in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(took, seconds["ours"], strict=True))
        print(f"{name:<12}{megabytes / statistics.median(took):>8.0f}{ratio:>9.2f}×")


def sequential(blocks: list[bytes]) -> tuple[str, ...]:
    """The four checksums in one thread, one after the other on each block."""
    sha1, sha256, crc = hashlib.sha1(), hashlib.sha256(), 0
    digests, md5, left = [], hashlib.md5(), ETAG_CHUNK
    for block in blocks:
        sha1.update(block)
        sha256.update(block)
        crc = google_crc32c.extend(crc, block)
        md5.update(block)
        left -= len(block)
        if not left:
            digests.append(md5.digest())
            md5, left = hashlib.md5(), ETAG_CHUNK
    return (
        sha1.hexdigest(),
        sha256.hexdigest(),
        f"{crc:08x}",
        hashlib.md5(b"".join(digests)).hexdigest(),
    )


def md5_alone(blocks: list[bytes]) -> str:
    """What no implementation of the etag can beat."""
    md5 = hashlib.md5()
    for block in blocks:
        md5.update(block)
    return md5.hexdigest()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
