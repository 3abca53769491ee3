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

Summary = Callable[[list[float]], float]
BY: tuple[Summary, Summary] = (statistics.median, min)
"""The best round of each is what the machine can do when it is idle."""


def main(megabytes: int = 256, rounds: int = 9) -> None:
    """Time each contender and print rates in MB/s, and how many times as fast ours is."""
    blocks = [os.urandom(MB)] * megabytes
    contenders: dict[str, Callable[[list[bytes]], object]] = {
        "ours": lambda given: checksums.compute_checksums(given, len(given) * MB),
        "sequential": sequential,
        "md5 alone": md5_alone,
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            began = time.perf_counter()
            run(blocks)
            seconds[name].append(time.perf_counter() - began)
    print(f"{megabytes} MB in blocks of 1 MB, {rounds} rounds, {os.cpu_count()} cores")
    print(f"{'':<12}{'median':>8}{'ours is':>9}{'best':>9}{'ours is':>9}")
    for name, took in seconds.items():
        print(f"{name:<12}", *(_compared(megabytes, took, seconds["ours"], by) for by in BY))


def _compared(megabytes: int, took: list[float], ours: list[float], by: Summary) -> str:
    return f"{megabytes / by(took):>6.0f}{by(took) / by(ours):>9.2f}×"


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
