"""The index of equalities: from what a document says at some paths to the questions that need it.

A question is filed under the keys of one of its clauses, the one that fewest others share, and is
a candidate where all of its clauses hold.
"""

from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar

from pipelines.conditions import Clause, Conditions, Key, Path, Sort, is_loose, slot

Asked = TypeVar("Asked", bound=Hashable)


class Look:
    """One document, walked at most once to each path."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._seen: dict[Path, Any] = {}

    def value(self, path: Path) -> Any:
        """What JMESPath finds at a plain path."""
        if path not in self._seen:
            self._seen[path] = _walked(self._document, path)
        return self._seen[path]

    def holds(self, key: Key) -> bool:
        """Whether the document satisfies a key."""
        value = self.value(key.path)
        return value is not None if key.value is Sort.PRESENT else slot(value) == key.value

    def satisfies(self, conditions: Conditions) -> bool:
        """Whether every clause holds."""
        return all(any(map(self.holds, clause)) for clause in conditions.clauses)


def _walked(value: Any, path: Path) -> Any:
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = _element(value, step) if isinstance(value, list) else None
        if value is None:
            return None
    return value


def _element(values: list[Any], number: int) -> Any:
    return values[number] if -len(values) <= number < len(values) else None


class Index(Generic[Asked]):
    """Questions by the keys that they wait for; not safe to change while another thread looks."""

    def __init__(self) -> None:
        self._slots: dict[Path, dict[Hashable, dict[Asked, None]]] = {}
        self._placed: dict[Asked, Clause] = {}
        self._always: dict[Asked, None] = {}

    def add(self, asked: Asked, conditions: Conditions) -> None:
        """File a question; one without clauses is always a candidate."""
        if not conditions.clauses:
            self._always[asked] = None
            return
        clause = min(conditions.clauses, key=lambda one: (is_loose(one), self._shared(one)))
        self._placed[asked] = clause
        for path, value in clause:
            self._slots.setdefault(path, {}).setdefault(value, {})[asked] = None

    def remove(self, asked: Asked) -> None:
        """Take a question out again."""
        self._always.pop(asked, None)
        for path, value in self._placed.pop(asked, ()):
            slots = self._slots[path]
            del slots[value][asked]
            if not slots[value]:
                del slots[value]
            if not slots:
                del self._slots[path]

    def waiting_for(self, look: Look) -> Iterator[Asked]:
        """Every question of which a filed key holds, each once."""
        found = dict(self._always)
        for path, slots in self._slots.items():
            value = look.value(path)
            found.update(slots.get(slot(value), {}))
            if value is not None:
                found.update(slots.get(Sort.PRESENT, {}))
        yield from found

    def _shared(self, clause: Clause) -> int:
        return sum(len(self._slots.get(path, {}).get(value, ())) for path, value in clause)
