"""All checksums of a file in one pass, beside sequential hashing and MD5 alone (the limit)."""

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import google_crc32c

from bench.harness import Figures, Measure
from pipelines import checksums
from pipelines.limits import ETAG_CHUNK, MB


@contextmanager
def prepare(megabytes: int = 256) -> Iterator[Measure]:
    """Hash so many blocks of 1 MB in each way."""
    blocks = [os.urandom(MB)] * megabytes
    ways: dict[str, Callable[[list[bytes]], object]] = {
        "one pass": lambda given: checksums.compute_checksums(given, len(given) * MB),
        "sequential": hash_sequentially,
        "MD5 alone": hash_by_md5,
    }

    def measure() -> Figures:
        rates = {}
        for name, run in ways.items():
            began = time.perf_counter()
            run(blocks)
            rates[name] = megabytes / (time.perf_counter() - began)
        ours = rates["one pass"]
        return {
            **{f"{name} MB/s": rate for name, rate in rates.items()},
            "one pass / sequential ×": ours / rates["sequential"],
            "one pass / MD5 alone ×": ours / rates["MD5 alone"],
        }

    yield measure


def hash_sequentially(blocks: list[bytes]) -> tuple[str, ...]:
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
    etag = hashlib.md5(b"".join(digests)).hexdigest()
    return sha1.hexdigest(), sha256.hexdigest(), f"{crc:08x}", etag


def hash_by_md5(blocks: list[bytes]) -> str:
    """What no computation of the ETag can beat."""
    md5 = hashlib.md5()
    for block in blocks:
        md5.update(block)
    return md5.hexdigest()
