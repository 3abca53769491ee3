"""The index of equalities, and of what is like them: from what a document says to the questions
that need it.

A question is filed under the keys of one of its clauses, the one that fewest others share, and is
a candidate where all of its clauses hold.
"""

from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar

from pipelines.queries.conditions import Clause, Conditions, looseness
from pipelines.queries.slots import Slots, slots
from pipelines.queries.terms import CHECKS, Check, Key, Look, Term

Asked = TypeVar("Asked", bound=Hashable)


def satisfies(look: Look, conditions: Conditions) -> bool:
    """Whether every clause holds."""
    return all(any(map(look.holds, clause)) for clause in conditions.clauses)


class Index(Generic[Asked]):
    """Questions by the keys that they wait for; not safe to change while another thread looks."""

    def __init__(self) -> None:
        self._terms: dict[Term, dict[Check, Slots[Asked]]] = {}
        self._placed: dict[Asked, Clause] = {}
        self._always: dict[Asked, None] = {}

    def add(self, asked: Asked, conditions: Conditions) -> None:
        """File a question; one without clauses is always a candidate."""
        if not conditions.clauses:
            self._always[asked] = None
            return
        clause = min(conditions.clauses, key=lambda one: (looseness(one), self._shared(one)))
        self._placed[asked] = clause
        for key in clause:
            checks = self._terms.setdefault(key.term, {})
            if key.check not in checks:
                checks[key.check] = slots(key.check, CHECKS[key.check])
            checks[key.check].add(key.value, asked)

    def remove(self, asked: Asked) -> None:
        """Take a question out again."""
        self._always.pop(asked, None)
        for key in self._placed.pop(asked, ()):
            checks = self._terms[key.term]
            checks[key.check].remove(key.value, asked)
            if not checks[key.check]:
                del checks[key.check]
            if not checks:
                del self._terms[key.term]

    def waiting_for(self, look: Look) -> Iterator[Asked]:
        """Every question of which a filed key holds, each once."""
        found = dict(self._always)
        for term, checks in self._terms.items():
            sight = look.see(term)
            for filed in checks.values():
                for slot in filed.all() if sight is None else filed.found(sight):
                    found.update(slot)
        yield from found

    def _shared(self, clause: Clause) -> int:
        return sum(self._sharing(key) for key in clause)

    def _sharing(self, key: Key) -> Any:
        filed = self._terms.get(key.term, {}).get(key.check)
        return 0 if filed is None else filed.sharing(key.value)
