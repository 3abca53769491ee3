"""Runs every bench, or those named, and writes what they print into RESULTS.md.

Run as `python -m bench [name ...]`, or `python -m bench real` for those on the real engines, which
the environment names; what was not run keeps its figures of before.
"""

import io
import logging
import os
import platform
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path

from bench import checksums, deliveries, latency, listing, load, manifests, matching, policies
from bench.real import callbacks, copies, engines, listings, scaling, transfers
from bench.real import latency as real_latency

RESULTS = Path(__file__).parent / "RESULTS.md"
FENCE = "```"
NOTE = (
    "Ratios of one run can be compared between machines, seconds cannot; a load far above the"
    " number of cores means that others worked at the same time."
)

Benches = Mapping[str, tuple[Callable[[], None], str]]

EMBEDDED: Benches = {
    "checksums": (checksums.main, "aim: 1.8 times sequential hashing, 0.95 of MD5 alone"),
    "manifests": (manifests.main, "aim: at most 10 times the standard library, below 1.5 s"),
    "listing": (listing.main, "aim: the same at every size"),
    "deliveries": (deliveries.main, "aim: as many as the processor can sign and send"),
    "matching": (matching.main, "aim: 10 times at 1,000 and 50 times at 10,000 subscriptions"),
    "policies": (policies.main, "aim: 50,000 a second"),
    "latency": (latency.main, "aim: below a second at 20 bundles a second"),
    "load": (load.main, "aim: none; shows where the processor's time goes"),
}
REAL: Benches = {
    "real-copies": (copies.main, "aim: 0.9 of the best tool, 5 times the plain loop"),
    "real-listings": (listings.main, "aim: 10 times list_objects_v2"),
    "real-callbacks": (callbacks.main, "aim: 4 times an actor with requests"),
    "real-latency": (real_latency.main, "aim: p50 100 ms and p95 300 ms at 50 bundles a second"),
    "real-transfers": (
        transfers.main,
        "aim: up and down 0.7 of s5cmd at 2 GB and 0.3 at 1,000 small files",
    ),
    "real-scaling": (scaling.main, "aim: 1.7 times with two processes"),
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
    wanted = list(REAL) if names == ["real"] else names or list(EMBEDDED)
    unknown = set(wanted) - set(BENCHES)
    if unknown:
        sys.exit(f"no bench {', '.join(sorted(unknown))}; there are real, {', '.join(BENCHES)}")
    sections = _read()
    for name in wanted:
        print(f"== {name}")
        sections[name] = _section(name)
        RESULTS.write_text(_document(sections))


def _section(name: str) -> str:
    run, aim = BENCHES[name]
    began, printed = time.perf_counter(), Both()
    with redirect_stdout(printed):
        run()
    took = time.perf_counter() - began
    about = (sys.modules[run.__module__].__doc__ or "").partition("\n\n")[0]
    return (
        f"## {name}\n\n{about} ({aim})\n\n{FENCE}\n{printed.getvalue().rstrip()}\n{FENCE}\n\n"
        f"{_machine()}{_engines(name)}; load {os.getloadavg()[0]:.1f} at the end of {took:.0f} s.\n"
    )


def _engines(name: str) -> str:
    return f", {engines.versions()}" if name in REAL else ""


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
