"""A deposit of a table, each row a bundle of two files: in one go, again, and killed midway.

The rows are those of all tables of real runs below the folder that STORE_REAL_DATA names, or rows
of the same kind. After each command every row has to be exactly one bundle.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.harness import ROOT, Figures, Measure
from bench.stores import started_store
from ops.local_store import LocalStore

ROWS = 2_548
"""Of all tables of real runs."""
TEMPLATE = {
    "bundle": "{Run_s}",
    "files": {
        "run.json": {"run": "{Run_s}", "organism": "{Organism_s}", "bases": "{MBases_l:number}"},
        "sample.json": {"sample": "{SRA_Sample_s}", "tissue": "{tissue_s}", "sex": "{gender_s}"},
    },
}
COLUMNS = ("Run_s", "Organism_s", "MBases_l", "SRA_Sample_s", "tissue_s", "gender_s")
STORE = "from store_client.cli.main import main; main()"
DEPOSIT = (
    *("upload", "--table", "runs.tsv", "--template", "template.json", "--report", "report.tsv"),
    *("--no-progress", "--output", "lines"),
)
MADE = '"finished":true'
LIMIT_S = 900.0
POLL_S = 0.05

Row = Mapping[str, str]


@contextmanager
def prepare(root: Path = ROOT, rows: int = ROWS) -> Iterator[Measure]:
    """Start a store whose files are in a folder, with the code in `root`."""
    table = read_rows()[:rows]
    with started_store(root, {}) as store:
        yield lambda: _measure(store, root, table)


def read_rows() -> list[Row]:
    """All rows of real runs; rows that look so where there are none."""
    folder = os.environ.get("STORE_REAL_DATA")
    if not folder:
        return [
            {
                "Run_s": f"SRR{number:07}",
                "Organism_s": "Danio rerio" if number % 3 else "",
                "MBases_l": str(number % 700),
                "SRA_Sample_s": f"SRS{number:07}",
                "tissue_s": "liver",
                "gender_s": "female" if number % 2 else "",
            }
            for number in range(ROWS)
        ]
    found: list[Row] = []
    for path in sorted(Path(folder, "runs").glob("*.tsv")):
        with path.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines, delimiter="\t"):
                found.append({name: row.get(name) or "" for name in COLUMNS})
    return found


def _measure(store: LocalStore, root: Path, rows: Sequence[Row]) -> Figures:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        whole = _Depositor(store, root, Path(name) / "whole", rows)
        once = whole.deposit("uploaded")
        again = whole.deposit("unchanged")
        killed = _Depositor(store, root, Path(name) / "killed", rows)
        made, until_death = killed.deposit_and_kill(len(rows) // 2)
        resumed = killed.deposit("uploaded", "unchanged")
    return {
        "bundles": len(rows),
        "in one go, s": once,
        "in one go, bundles/s": len(rows) / once,
        "again without changes, s": again,
        "bundles when killed": made,
        "killed and given again, s": until_death + resumed,
    }


class _Depositor:
    """A user with a table, a template and a home of their own."""

    def __init__(self, store: LocalStore, root: Path, folder: Path, rows: Sequence[Row]) -> None:
        self._root, self._folder, self._rows = root, folder, rows
        self._url, self._token = store.api, store.token
        folder.mkdir()
        with (folder / "runs.tsv").open("w", encoding="utf-8", newline="") as lines:
            table = csv.DictWriter(lines, COLUMNS, delimiter="\t")
            table.writeheader()
            table.writerows(rows)
        (folder / "template.json").write_text(json.dumps(TEMPLATE))
        self._run("login", "--access-token", "-", given=store.token)
        self._before = self._count_bundles()

    def deposit(self, *states: str) -> float:
        """Deposit the table and check what came of it; seconds of the command."""
        began = time.perf_counter()
        self._run(*DEPOSIT)
        took = time.perf_counter() - began
        with (self._folder / "report.tsv").open(encoding="utf-8", newline="") as lines:
            report = list(csv.DictReader(lines, delimiter="\t"))
        assert [one["label"] for one in report] == [row["Run_s"] for row in self._rows]
        assert {one["state"] for one in report} <= set(states), Counter(
            one["state"] for one in report
        )
        assert len({one["uuid"] for one in report}) == len(self._rows)
        found = self._count_bundles() - self._before
        assert found == len(self._rows), f"{found} bundles of {len(self._rows)} rows"
        middle = len(report) // 2
        name = f"{report[middle]['uuid']}.{report[middle]['version']}/sample.json"
        sample = json.loads(self._run("file", "cat", name))
        assert sample["sample"] == self._rows[middle]["SRA_Sample_s"], name
        return took

    def deposit_and_kill(self, bundles: int) -> tuple[int, float]:
        """Kill the command after so many bundles; how many the store has then, and seconds."""
        began = time.perf_counter()
        with self._start(*DEPOSIT) as running:
            while running.poll() is None and self._count_recorded() < bundles:
                time.sleep(POLL_S)
            running.kill()
        took = time.perf_counter() - began
        return self._count_bundles() - self._before, took

    def _count_recorded(self) -> int:
        """Bundles that the client's journal has as made."""
        journals = (self._folder / "client" / "uploads").glob("*.jsonl")
        return sum(path.read_text().count(MADE) for path in journals)

    def _count_bundles(self) -> int:
        headers = {"Authorization": f"Bearer {self._token}"}
        with httpx.Client(headers=headers, timeout=LIMIT_S) as client:
            url, count = f"{self._url}/v1/bundles/all?replica=aws", 0
            while url:
                answer = client.get(url).raise_for_status()
                count += len(answer.json()["bundles"])
                url = answer.links.get("next", {}).get("url", "")
        return count

    def _run(self, *words: str, given: str = "") -> str:
        with self._start(*words) as running:
            out, err = running.communicate(given, timeout=LIMIT_S)
        assert running.returncode == 0, f"store {words[0]}: {err[-2_000:]}"
        return out

    def _start(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            (sys.executable, "-c", STORE, *words),
            cwd=self._folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self._folder),
                "STORE_CLIENT_HOME": str(self._folder / "client"),
                "STORE_CLIENT_URL": self._url,
                "PYTHONPATH": str(self._root / "client"),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
