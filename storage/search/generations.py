"""Which file of an embedded index is searched, and which is being built beside it.

Each generation is a SQLite file of its own, so that dropping the old one is deleting a file. A
small JSON file names them; it is replaced whole, under the lock that every writer holds.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from storage.errors import NotFound, Unavailable
from storage.query.words import ANALYSIS

TABLES = "t1"
"""Names the layout of the tables; part of a generation's name, as the analysis is."""


@dataclass(frozen=True, slots=True)
class Generations:
    """`current` is searched, `building` only written; `count` numbers those there ever were."""

    current: str
    building: str | None
    count: int

    def written(self) -> tuple[str, ...]:
        """The generations that a write goes to: those that this version of the code can write."""
        names = (self.current, self.building)
        ours = tuple(name for name in names if name is not None and is_ours(name))
        if not ours:
            raise _other_version()
        return ours


def is_ours(name: str) -> bool:
    """Whether a generation was made with this analysis and these tables."""
    return name.rpartition("-")[0].endswith(f"-{ANALYSIS}-{TABLES}")


def _other_version() -> Unavailable:
    return Unavailable("the search index was made by another version: rebuild it")


class GenerationFiles:
    """The files of one embedded index: `<stem>-<analysis>-<tables>-<number>.sqlite` in a folder."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        self.stem = path.stem
        self._names = self.folder / f"{self.stem}.generations"

    def path(self, name: str) -> Path:
        """Where a generation lies."""
        return self.folder / f"{name}.sqlite"

    @contextmanager
    def locked(self) -> Iterator[Generations]:
        """The turn to write, queued for in the kernel, and what is to be written meanwhile."""
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / f"{self.stem}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield self._read() or self._save(Generations(self._name(1), None, 1))
        finally:
            os.close(descriptor)

    def now(self) -> Generations:
        """What is searched at this moment."""
        found = self._read()
        if found is None:
            with self.locked() as found:
                pass
        if not is_ours(found.current):
            raise _other_version()
        return found

    def begin(self, generations: Generations) -> str:
        """Name a generation to build, or the one that is being built already. Within the lock."""
        if generations.building is not None and is_ours(generations.building):
            return generations.building
        if generations.building is not None:
            self._remove(generations.building)
        count = generations.count + 1
        name = self._name(count)
        self._save(replace(generations, building=name, count=count))
        return name

    def finish(self, generations: Generations, name: str) -> None:
        """Search the generation that was being built; again is no error. Within the lock."""
        if name == generations.current:
            return
        if name != generations.building:
            raise NotFound(f"no generation '{name}' is being built")
        self._save(replace(generations, current=name, building=None))
        self._remove(generations.current)

    def _name(self, number: int) -> str:
        return f"{self.stem}-{ANALYSIS}-{TABLES}-{number}"

    def _read(self) -> Generations | None:
        try:
            return Generations(**json.loads(self._names.read_bytes()))
        except FileNotFoundError:
            return None

    def _save(self, generations: Generations) -> Generations:
        fresh = self._names.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(asdict(generations), file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._names)
        return generations

    def _remove(self, name: str) -> None:
        # Whoever still reads it keeps the open file; new readers find the new name.
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path(name)}{suffix}").unlink(missing_ok=True)
