"""Directories as labs have them."""

import json
import os
import time
from pathlib import Path
from random import Random

MB = 1024 * 1024
NAMES = ["empty.txt", "reads/lane 1/R1.fastq.gz", "reads/lane 1/R2.fastq.gz", "sample.json"]


def filled(folder: Path, *, seed: int = 0) -> Path:
    """Metadata, data in folders, an empty file; all of it older than a few seconds."""
    rng = Random(seed)
    (folder / "reads" / "lane 1").mkdir(parents=True)
    (folder / "sample.json").write_text(json.dumps({"organism": "Danio rerio", "donor": seed}))
    (folder / "empty.txt").write_bytes(b"")
    (folder / "reads" / "lane 1" / "R1.fastq.gz").write_bytes(rng.randbytes(300_000))
    (folder / "reads" / "lane 1" / "R2.fastq.gz").write_bytes(rng.randbytes(6 * MB))
    return aged(folder)


def aged(folder: Path, seconds: float = 3600) -> Path:
    """As if nobody had written to it for a while."""
    then = time.time() - seconds
    for path in folder.rglob("*"):
        os.utime(path, (then, then))
    return folder


def large(path: Path, size: int, *, seed: int = 0) -> Path:
    """A file that begins and ends with some bytes, and is mostly a hole."""
    rng = Random(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(rng.randbytes(1000))
        file.seek(size - 1000)
        file.write(rng.randbytes(1000))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """All files by their names."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}
