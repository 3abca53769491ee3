"""Finding the rules that may speak of a resource without trying them all.

Each pattern is filed under one piece of its literal text, the one that fewest patterns have: what
does not hold that piece cannot match. A text is cut into all of its pieces once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from auth.policies.globs import Glob
from auth.policies.rules import Rule

PIECE = 6
"""Characters of a piece: so many that few share one, so few that most patterns have one."""
FEW = 12
"""So many patterns are tried one by one in less time than a text is cut."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A rule that may apply, by one of its patterns."""

    order: int
    rule: Rule
    pattern: Glob | None
    """None: the rule has to be asked as a whole."""

    def names(self, resource: str) -> bool:
        """Whether the rule speaks of this resource, by this pattern."""
        if self.pattern is None:
            return self.rule.names(resource)
        return self.pattern.matches(resource)


_in_order = attrgetter("order")


class Table:
    """The rules that speak of one action, by the resources that they may speak of."""

    def __init__(self, rules: Sequence[tuple[int, Rule]]) -> None:
        entries = [Entry(at, rule, each) for at, rule in rules for each in _patterns(rule)]
        exact: dict[str, list[Entry]] = defaultdict(list)
        filed: dict[str, list[Entry]] = defaultdict(list)
        loose: list[Entry] = []
        common = Counter(piece for entry in entries for piece in _literal_pieces(entry.pattern))
        for entry in entries:
            text = None if entry.pattern is None else entry.pattern.exact
            if text is not None:
                exact[text].append(entry)
            elif pieces := _literal_pieces(entry.pattern):
                filed[min(pieces, key=common.__getitem__)].append(entry)
            else:
                loose.append(entry)
        if sum(map(len, filed.values())) <= FEW:
            loose += [entry for some in filed.values() for entry in some]
            filed.clear()
        self._exact: Mapping[str, list[Entry]] = dict(exact)
        self._filed: Mapping[str, list[Entry]] = dict(filed)
        self._loose = sorted(loose, key=_in_order)

    def candidates(self, resource: str) -> Iterable[Entry]:
        """Entries in their order, among them all whose pattern matches."""
        exact = self._exact.get(resource)
        if not self._filed and exact is None:
            return self._loose
        found = self._loose + (exact or [])
        if self._filed:
            for piece in self._filed.keys() & _pieces(resource):
                found += self._filed[piece]
        found.sort(key=_in_order)
        return found


def _patterns(rule: Rule) -> Iterator[Glob | None]:
    if rule.other_resources:
        yield None
    else:
        yield from rule.resources


def _literal_pieces(pattern: Glob | None) -> set[str]:
    runs = () if pattern is None else pattern.runs
    return {piece for run in runs for piece in _pieces(run.literal or "")}


def _pieces(text: str) -> set[str]:
    return {text[at : at + PIECE] for at in range(len(text) - PIECE + 1)}
