"""Runs every bench, or those named, and writes what they print into RESULTS.md.

Run as `python -m bench [name ...]`, or `python -m bench real` for those on the real engines, which
the environment names; what was not run keeps its figures of before. With `--tiny` each does the
least that it can, and nothing is written: `make check` shows so that all of them still run.
"""

import io
import logging
import os
import platform
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench import (
    checksums,
    deliveries,
    jobs,
    latency,
    listing,
    load,
    manifests,
    matching,
    policies,
    reach,
    requests,
    stand,
)
from bench.real import callbacks, copies, engines, listings, scaling, transfers
from bench.real import latency as real_latency
from bench.real import reach as real_reach

RESULTS = Path(__file__).parent / "RESULTS.md"
FENCE = "```"
TINY = "--tiny"
NOTE = (
    "Ratios of one run can be compared between machines, seconds cannot; a load far above the"
    " number of cores means that others worked at the same time."
)


@dataclass(frozen=True)
class Bench:
    """A measurement: what runs it, what it should reach, and arguments with which it is short."""

    run: Callable[..., None]
    aim: str
    tiny: tuple[int | float | str, ...]


Benches = Mapping[str, Bench]

EMBEDDED: Benches = {
    "reach": Bench(
        reach.main,
        "aim: ready after 4 s of processor time and 3 s, 250 MB, 1.5 % idle, 0.35 and 2.5 of it",
        (1, 2, 0, 0),
    ),
    "checksums": Bench(
        checksums.main, "aim: 1.8 times sequential hashing, 0.95 of MD5 alone", (8, 1)
    ),
    "listing": Bench(listing.main, "aim: the same at every size", (1, 10, 20)),
    "deliveries": Bench(
        deliveries.main, "aim: as many as the processor can sign and send", (20, 1, "", 0.1, 20)
    ),
    "matching": Bench(
        matching.main,
        "aim: 10 times at 1,000 and 50 times at 10,000 subscriptions",
        (1, 20),
    ),
    "policies": Bench(policies.main, "aim: 50,000 a second", (20, 1)),
    "latency": Bench(latency.main, "aim: below a second at 20 bundles a second", (4, 20, 1)),
    "jobs": Bench(jobs.main, "aim: half of the processor time in batches", (4,)),
    "load": Bench(load.main, "aim: none; shows where the processor's time goes", (8, 8)),
    "requests": Bench(requests.main, "aim: few calls, few statements", (1, 1)),
    # Last, as its files have no bytes: their replication is tried again for ever.
    "manifests": Bench(
        manifests.main,
        "aim: 6 times the standard library with 1,000 files, 5 times with 20,000",
        (1, 10, 100),
    ),
}
REAL: Benches = {
    "real-reach": Bench(
        real_reach.main,
        "aim: 0.5 of its processor time for a bundle; p50 60 ms, p95 150 ms",
        (1, 2, 0, 20, 0),
    ),
    "real-copies": Bench(
        copies.main, "aim: 0.9 of the best tool, 5 times the plain loop", (1, 100)
    ),
    "real-listings": Bench(listings.main, "aim: 10 times list_objects_v2", (20, 1)),
    "real-callbacks": Bench(callbacks.main, "aim: 4 times an actor with requests", (80, 1)),
    "real-latency": Bench(
        real_latency.main, "aim: p50 100 ms and p95 300 ms at 50 bundles a second", (1, 10)
    ),
    "real-transfers": Bench(
        transfers.main,
        "aim: up and down 0.7 of s5cmd at 2 GB and 0.3 at 1,000 small files",
        (1, 200),
    ),
    "real-scaling": Bench(scaling.main, "aim: 1.7 times with two processes", (8,)),
}
BENCHES: Benches = {**EMBEDDED, **REAL}


class Both(io.StringIO):
    """Keeps what is printed and shows it at once."""

    def write(self, text: str) -> int:
        """See TextIOBase."""
        sys.__stdout__.write(text)  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
        return super().write(text)


def main(names: list[str]) -> None:
    """Run, and write the results after each, so that an interrupted run keeps what it has."""
    logging.disable(logging.CRITICAL)
    tiny = TINY in names
    names = [name for name in names if name != TINY]
    wanted = list(REAL) if names == ["real"] else names or list(EMBEDDED)
    unknown = set(wanted) - set(BENCHES)
    if unknown:
        sys.exit(f"no bench {', '.join(sorted(unknown))}; there are real, {', '.join(BENCHES)}")
    if tiny:
        _run_tiny(wanted)
        return
    sections = _read()
    for name in wanted:
        print(f"== {name}")
        sections[name] = _section(name)
        RESULTS.write_text(_document(sections))


def _run_tiny(names: list[str]) -> None:
    """Run each for as short as it can be, those that need a store on the same one."""
    with stand.shared():
        for name in names:
            began = time.perf_counter()
            with redirect_stdout(io.StringIO()):
                BENCHES[name].run(*BENCHES[name].tiny)
            print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)


def _section(name: str) -> str:
    bench = BENCHES[name]
    began, printed = time.perf_counter(), Both()
    with redirect_stdout(printed):
        bench.run()
    took = time.perf_counter() - began
    about = (sys.modules[bench.run.__module__].__doc__ or "").partition("\n\n")[0]
    return (
        f"## {name}\n\n{about} ({bench.aim})\n\n{FENCE}\n{printed.getvalue().rstrip()}\n{FENCE}\n\n"
        f"{_commit()}, {_machine()}{_engines(name)}; load {os.getloadavg()[0]:.1f} at the end of"
        f" {took:.0f} s.\n"
    )


def _engines(name: str) -> str:
    return f", {engines.versions()}" if name in REAL else ""


def _commit() -> str:
    """The commit that was measured, with a plus if files differed from it."""
    described = ("git", "describe", "--always", "--dirty=+", "--exclude=*")
    done = subprocess.run(described, cwd=RESULTS.parent, capture_output=True, text=True)
    return done.stdout.strip() or "no commit"


def _machine() -> str:
    today = datetime.now(UTC).date().isoformat()
    python = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    return f"{today}, {os.cpu_count()} cores, {_processor()}, {python}"


def _processor() -> str:
    """The processor's own name where the kernel tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _read() -> dict[str, str]:
    """The sections of the last run."""
    try:
        parts = RESULTS.read_text().split("\n## ")[1:]
    except FileNotFoundError:
        return {}
    return {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in parts}


def _document(sections: Mapping[str, str]) -> str:
    """The whole page, in the order of the benches."""
    ordered = [sections[name] for name in BENCHES if name in sections]
    return "\n".join([f"# Results of `make bench` and `make bench-real`\n\n{NOTE}\n", *ordered])


if __name__ == "__main__":
    main(sys.argv[1:])
