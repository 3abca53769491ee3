"""Run every bench, or those named, and write what they print into RESULTS.md.

`python -m bench [NAME …]` runs those of the embedded store, `python -m bench real` those on the
real engines, which the environment names. `--beside COMMIT` measures that commit in turns with this
checkout. With `--tiny` each does the least that it can, and nothing is written: `make check` shows
so that all of them still run.
"""

import importlib
import logging
import os
import platform
import sqlite3
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import click

from bench import harness
from bench.harness import ROOT, Bench, Side

RESULTS = Path(__file__).parent / "RESULTS.md"
BENCHES: Mapping[str, Bench] = {
    "requests": Bench(
        "requests",
        "few functions, few statements; 6 times the JSON with 1,000 files, 5 times with 20,000;"
        " the last page as fast as the first; searches in 50 ms",
        10,
        {"requests": 1, "manifests": [10], "bundles": 20, "documents": 10},
    ),
    "pages": Bench(
        "pages",
        "each page in 100 ms with 100,000 bundles, also of a bundle of 20,000 files",
        3,
        {"requests": 1, "bundles": 20, "manifest": 30},
    ),
    "queries": Bench(
        "queries",
        "no query slower than before the pages; facets in a tenth of a scan",
        5,
        {"bundles": 100},
    ),
    "search": Bench(
        "search",
        "facets of everything in 60 ms, of few in 20 ms; each page in 100 ms after a write",
        7,
        {"bundles": 50},
    ),
    "checksums": Bench(
        "checksums", "1.8 times sequential hashing, 0.95 of MD5 alone", 9, {"megabytes": 8}
    ),
    "jobs": Bench("jobs", "half of the processor time in batches", 3, {"count": 2}),
    "matching": Bench(
        "matching",
        "10 times the loop at 1,000 and 50 times at 10,000 subscriptions",
        7,
        {"sizes": [20]},
    ),
    "deliveries": Bench(
        "deliveries",
        "as many as the processor can sign and send; others unaffected by a bad receiver",
        3,
        {"count": 20, "one_by_one": 20, "slow_s": 0.1, "held_up": 20},
    ),
    "starts": Bench(
        "starts",
        "help and completion in 150 ms of processor time",
        9,
        {},
        starts_store=True,
    ),
    "bulk": Bench(
        "bulk",
        "20 bundles a second; nothing twice after kill -9",
        1,
        {"rows": 6},
        starts_store=True,
    ),
    "reach": Bench(
        "reach",
        "ready after 4 s of processor time and 3 s, 250 MB, 1.5 % idle, callback within a second",
        5,
        {"bundles": 2, "idle_s": 0, "callbacks": 2},
        starts_store=True,
    ),
    "soak": Bench(
        "soak",
        "memory, descriptors, WAL and open jobs at the end as in the middle (1.1 ×)",
        1,
        {"minutes": 0.05, "per_second": 2},
        starts_store=True,
    ),
    "real-soak": Bench(
        "soak",
        "the same on the real engines, and the table of jobs",
        1,
        {"minutes": 0.05, "per_second": 2},
        sizes={"on_real_engines": True},
        starts_store=True,
    ),
    "real-reach": Bench(
        "reach",
        "callback: median 60 ms, p95 150 ms at 20 bundles a second",
        5,
        {"bundles": 2, "idle_s": 0, "callbacks": 2},
        sizes={"on_real_engines": True, "bundles": 100, "idle_s": 10},
        starts_store=True,
    ),
    "real-standby": Bench(
        "standby",
        "half of what listings and searches cost the primary, and deposits listed in 100 ms",
        4,
        {"bundles": 2, "seconds": 0.5, "per_second": 2},
        starts_store=True,
    ),
    "real-scale": Bench(
        "scale",
        "plans with 10,000,000 bundles as with 100,000, and 1.2 times the time at most",
        1,
        {"sizes": [2_000, 4_000], "keys": 1, "runs": 1},
        starts_store=True,
    ),
    "real-partitions": Bench(
        "partitions",
        "a million rows converted in a minute; no aim for reads, which get slower",
        3,
        {"rows": 1_000, "parts": 2, "calls": 2},
        starts_store=True,
    ),
    "real-transfers": Bench(
        "real",
        "0.8 of s5cmd at 2 GB and 0.5 at 1,000 small files, also with a store in a folder",
        3,
        {"shapes": [[5, 1024], [1, 4096]]},
        starts_store=True,
    ),
}
ON_REQUEST = ("soak", "real-soak", "real-scale")
"""Take an hour, or a disk of 30 GB: run only if they are named."""
REAL = [name for name in BENCHES if name.startswith("real-") and name not in ON_REQUEST]


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(["real", *BENCHES]), metavar="[NAME]...")
@click.option("--beside", metavar="COMMIT", default="", help="Measure this commit in turns.")
@click.option("--rounds", type=int, default=0, help="Measure so often.")
@click.option("--tiny", is_flag=True, help="Only show that the benches run.")
def main(names: tuple[str, ...], beside: str, rounds: int, tiny: bool) -> None:
    """Run benches, by default all of the embedded store but those of an hour."""
    logging.disable(logging.CRITICAL)
    embedded = [name for name in BENCHES if name not in (*REAL, *ON_REQUEST)]
    wanted = REAL if names == ("real",) else names or embedded
    with ExitStack() as stack:
        sides = [Side("here", ROOT)]
        if beside:
            sides.append(stack.enter_context(harness.checkout_of(beside)))
        sections = {} if tiny else _read_sections()
        for name in wanted:
            began = time.perf_counter()
            if tiny:
                _run(BENCHES[name].shrink(), sides, 1)
                click.echo(f"{name}: {time.perf_counter() - began:.1f} s")
                continue
            table = _run(BENCHES[name], sides, rounds)
            click.echo(f"== {name}\n{table}")
            sections[name] = _format_section(name, table, time.perf_counter() - began)
            # After each bench, so that an interrupted run keeps what it has.
            ordered = (sections[name] for name in ("", *BENCHES) if name in sections)
            RESULTS.write_text("\n".join(ordered))


def _run(bench: Bench, sides: list[Side], rounds: int) -> str:
    with ExitStack() as stack:
        if len(sides) == 1:
            measures = {sides[0].name: stack.enter_context(bench.prepare())}
        else:
            measures = {
                side.name: stack.enter_context(harness.measuring(bench, side)) for side in sides
            }
        return harness.format_table(harness.take_turns(measures, rounds or bench.rounds))


def _format_section(name: str, table: str, seconds: float) -> str:
    summary = importlib.import_module(f"bench.{BENCHES[name].module}").__doc__ or ""
    described = ("git", "describe", "--always", "--dirty=+", "--exclude=*")
    commit = subprocess.run(described, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    installed = sorted(path.name for path in (ROOT / ".engines" / "bin").glob("*-v*"))
    engines = f", {', '.join(installed)}" if name.startswith("real-") else ""
    return (
        f"## {name}\n\n{summary.partition(chr(10))[0]} Aim: {BENCHES[name].aim}.\n\n"
        f"```\n{table}\n```\n\n"
        f"{commit}, {datetime.now(UTC).date().isoformat()}, {os.cpu_count()} cores,"
        f" {_processor()}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
        f"{engines}; load {os.getloadavg()[0]:.1f} at the end of {seconds:.0f} s.\n"
    )


def _processor() -> str:
    """The processor's name where the kernel shows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _read_sections() -> dict[str, str]:
    """The sections of the last run by name; the head of the page has an empty one."""
    head, *parts = RESULTS.read_text().split("\n## ")
    return {"": f"{head.rstrip()}\n"} | {
        part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in parts
    }


if __name__ == "__main__":
    main()
