"""Mutation testing: break the logic at one place at a time, and see that tests fail.

`python -m tests.mutants [--only ID ...] [--list FILE] [--root DIR]` copies the tree, and runs the
tests that `mutants.toml` names: first without a mutant, then with each. Exit status 1 if a mutant
survives.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "mutants.toml"
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".engines", ".*_cache", ".hypothesis", "build")
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider")
PASSED, FAILED = 0, 1
"""Exit statuses of pytest; others mean that the tests could not run."""
TIMEOUT_S = 1800.0
LOG = "mutant.log"


@dataclass(frozen=True)
class Mutant:
    """One change of the logic, and the tests that must notice it."""

    id: str
    meaning: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, text: str) -> str:
        """Return the mutated text; ValueError unless `old` is found exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.id}: found {text.count(self.old)} times in {self.file}")
        return text.replace(self.old, self.new)


def read_mutants(path: Path, only: Sequence[str] = ()) -> list[Mutant]:
    """Read a list, or some of it by id."""
    rows = tomllib.loads(path.read_text())["mutant"]
    mutants = [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]
    unknown = set(only) - {one.id for one in mutants}
    if unknown:
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
    return [one for one in mutants if not only or one.id in only]


def run_tests(tree: Path, tests: Iterable[str]) -> str:
    """Return `survived` if the tests pass, `killed` if one fails or they do not end in time."""
    # The client of this tree comes before the installed one.
    path = os.pathsep.join([str(tree), str(tree / "client")])
    command = [sys.executable, *PYTEST, *sorted(set(tests))]
    environ = os.environ | {"PYTHONPATH": path}
    # A file, as processes that a test leaves behind would keep a pipe open.
    with (tree / LOG).open("w") as log:
        try:
            status = subprocess.run(
                command, cwd=tree, env=environ, stdout=log, stderr=log, timeout=TIMEOUT_S
            ).returncode
        except subprocess.TimeoutExpired:
            return "killed"
    if status not in (PASSED, FAILED):
        raise RuntimeError(f"pytest ended with {status}:\n{(tree / LOG).read_text()}")
    return "survived" if status == PASSED else "killed"


def run_mutant(tree: Path, mutant: Mutant) -> str:
    """Run the tests of a mutant in a copy of the tree, and restore the file."""
    file = tree / mutant.file
    text = file.read_text()
    file.write_text(mutant.apply(text))
    try:
        return run_tests(tree, mutant.tests)
    finally:
        file.write_text(text)


def main() -> int:
    """Run the mutants that the arguments name, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    parser.add_argument("--list", type=Path, default=LIST)
    parser.add_argument("--root", type=Path, default=ROOT)
    given = parser.parse_args()
    mutants = read_mutants(given.list, given.only)
    survived = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(given.root, tree, ignore=LEFT_OUT)
        for mutant in mutants:
            mutant.apply((tree / mutant.file).read_text())
        if run_tests(tree, [test for mutant in mutants for test in mutant.tests]) == "killed":
            sys.stdout.write((tree / LOG).read_text() + "Tests fail without a mutant.\n")
            return 1
        for mutant in mutants:
            began = time.monotonic()
            outcome = run_mutant(tree, mutant)
            survived += outcome == "survived"
            seconds = time.monotonic() - began
            sys.stdout.write(f"{outcome:8} {seconds:4.0f} s  {mutant.id}: {mutant.meaning}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(mutants) - survived} of {len(mutants)} mutants killed\n")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
