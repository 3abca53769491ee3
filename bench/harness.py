"""Rounds of measurements in turns, of this checkout and of another commit, and the table of them.

A bench is a module with a context manager `prepare` that yields a function; each call of
it measures one round and returns figures by name. What the code is compared with (a library, a
tool, a limit) is measured in the same round. The unit is the last word of a figure's name.

Another commit is measured with the benches of this checkout: its code is unpacked into a temporary
folder, `bench/` is replaced by ours, and a process there is called in turns with one of ours.
"""

import importlib
import io
import json
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("config", "storage", "pipelines", "auth", "workers", "api", "ops", "bench")
HIGHER_IS_BETTER = ("/s", "MB/s", "×")
"""Units of rates and of ratios; of times and counts less is better."""

Figures = dict[str, float]
Measure = Callable[[], Figures]


@dataclass(frozen=True)
class Bench:
    """One bench: its module, what it should reach, rounds, and the sizes of the smallest run."""

    module: str
    aim: str
    rounds: int
    tiny: Mapping[str, Any]
    sizes: Mapping[str, Any] = field(default_factory=dict)
    starts_store: bool = False
    """The bench starts a store from the folder `root`, and measures it from this process."""

    def shrink(self) -> "Bench":
        """The same with the smallest sizes."""
        return replace(self, sizes={**self.sizes, **self.tiny})

    def prepare(self, **more: Any) -> AbstractContextManager[Measure]:
        """Set the bench up in this process."""
        prepare: Callable[..., AbstractContextManager[Measure]]
        prepare = importlib.import_module(f"bench.{self.module}").prepare
        return prepare(**{**self.sizes, **more})


@dataclass(frozen=True)
class Side:
    """A checkout that is measured."""

    name: str
    root: Path


@contextmanager
def checkout_of(commit: str) -> Iterator[Side]:
    """The code of a commit with the benches of this checkout; CalledProcessError if unknown."""
    archive = ("git", "archive", "--format=tar", commit)
    packed = subprocess.run(archive, cwd=ROOT, capture_output=True, check=True)
    with tempfile.TemporaryDirectory(prefix="checkout-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
            files.extractall(folder, filter="data")
        shutil.rmtree(f"{folder}/bench", ignore_errors=True)
        shutil.copytree(ROOT / "bench", f"{folder}/bench")
        # As `make run` does: otherwise the first round would pay for the others.
        compile_all = (sys.executable, "-m", "compileall", "-q", *PACKAGES)
        subprocess.run(compile_all, cwd=folder, check=True)
        yield Side(commit, Path(folder))


@contextmanager
def measuring(bench: Bench, side: Side) -> Iterator[Measure]:
    """Measure rounds of a side, in a process that has its code."""
    if bench.starts_store:
        with bench.prepare(root=side.root) as measure:
            yield measure
        return
    command = [sys.executable, "-m", "bench.harness", bench.module, json.dumps(dict(bench.sizes))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=side.root) as process:
        assert process.stdin
        assert process.stdout
        requests, results = process.stdin, process.stdout

        def measure_remotely() -> Figures:
            print("round", file=requests, flush=True)
            found: Figures = json.loads(results.readline() or "null")
            assert found, f"{bench.module} cannot measure {side.name}"
            return found

        yield measure_remotely
        requests.close()


def serve(module: str, sizes: Mapping[str, Any]) -> None:
    """Measure a round for each line of standard input, and print its figures as JSON."""
    out = sys.stdout
    with redirect_stdout(sys.stderr), Bench(module, "", 1, {}, sizes).prepare() as measure:
        for _ in sys.stdin:
            print(json.dumps(measure()), file=out, flush=True)


def take_turns(measures: Mapping[str, Measure], rounds: int) -> dict[str, list[Figures]]:
    """Measure all of them once a round, each time in another order."""
    found: dict[str, list[Figures]] = {name: [] for name in measures}
    names = list(measures)
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            found[name].append(measures[name]())
    return found


def format_table(found: Mapping[str, list[Figures]]) -> str:
    """Median and best round of each figure; of two sides also how good the first is, paired."""
    sides = list(found)
    header = f"{'':<44}" + "".join(f"{name:>15}{'best':>10}" for name in sides)
    lines = [header + ("" if len(sides) == 1 else f"{'as good':>10}")]
    for figure in found[sides[0]][0]:
        rates = figure.split()[-1] in HIGHER_IS_BETTER
        values = [[each[figure] for each in found[side] if figure in each] for side in sides]
        line = f"{figure:<44}"
        for side in values:
            best = max(side, default=0.0) if rates else min(side, default=0.0)
            line += f"{_number(statistics.median(side or [0.0])):>15}{_number(best):>10}"
        if len(sides) > 1:
            pairs = zip(*(values if rates else reversed(values)), strict=False)
            ratios = [one / other for one, other in pairs if other]
            line += f"{statistics.median(ratios or [1.0]):>9.2f}×"
        lines.append(line)
    return "\n".join(lines)


def _number(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


if __name__ == "__main__":
    serve(sys.argv[1], json.loads(sys.argv[2]))
