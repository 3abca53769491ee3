"""Processor time of a store's processes, as the kernel counts it (Linux)."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ops.local_store import LocalStore

TICKS = os.sysconf("SC_CLK_TCK")


class Shares(dict[str, float]):
    """Figures by process name, the largest first when printed."""

    def __str__(self) -> str:
        ordered = sorted(self.items(), key=lambda item: -item[1])
        return ", ".join(f"{name} {value:.2f}" for name, value in ordered)


@contextmanager
def used(store: LocalStore, *, per: int = 0, seconds_of_wall: bool = False) -> Iterator[Shares]:
    """Filled when the block ends: milliseconds for each of `per` things, or cores in use."""
    shares, before, began = Shares(), _seconds(store), time.perf_counter()
    yield shares
    wall = time.perf_counter() - began
    for name, total in _seconds(store).items():
        spent = total - before.get(name, 0.0)
        shares[name] = spent / wall if seconds_of_wall else spent * 1000 / max(per, 1)


@dataclass
class Busy:
    """Filled when the block ends: its length, and cores used by some processes and by all."""

    seconds: float = 0.0
    own: float = 0.0
    machine: float = 0.0


@contextmanager
def busy(pids: Sequence[int]) -> Iterator[Busy]:
    """Watch some processes, and the machine that they share."""
    found, began = Busy(), time.perf_counter()
    own, machine = _of(pids), _of_all()
    yield found
    found.seconds = time.perf_counter() - began
    found.own = (_of(pids) - own) / found.seconds
    found.machine = (_of_all() - machine) / found.seconds


def _of(pids: Sequence[int]) -> float:
    return sum(_spent(Path(f"/proc/{pid}/stat")) for pid in pids)


def _spent(path: Path) -> float:
    # The name, which may hold blanks, ends with the last bracket.
    fields = path.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _of_all() -> float:
    """All but what the cores waited: idle, for the disk, or for another machine on the same."""
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    return (sum(map(int, fields[:7])) - int(fields[3]) - int(fields[4])) / TICKS


def _seconds(store: LocalStore) -> dict[str, float]:
    """Every process of the store leads a process group; its children count with it."""
    leaders = {one["pid"]: name for name, one in store.read_processes()["processes"].items()}
    found = dict.fromkeys(leaders.values(), 0.0)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # The name, which may hold blanks, ends with the last bracket.
            fields = path.read_text().rpartition(")")[2].split()
            name = leaders.get(int(fields[2]))
            if name is not None:
                found[name] += (int(fields[11]) + int(fields[12])) / TICKS
    return found
