"""Deciding: an explicit deny, else an allow, else no."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from auth.policies.index import Table
from auth.policies.keys import spelled
from auth.policies.limits import MAX_PATTERNS, MAX_TABLES, MAX_VALUES
from auth.policies.model import Decision, Holding, Value
from auth.policies.patterns import values
from auth.policies.rules import Rule, rules
from storage.errors import Forbidden

IMPLICIT_DENY = Decision(allowed=False, reason="implicit_deny")
NOTHING: Mapping[str, Value] = MappingProxyType({})


class Compiled:
    """What one principal may do, made ready to be asked often and by many threads."""

    def __init__(self, holdings: Sequence[Holding], variables: Mapping[str, Value]) -> None:
        known = _spelled(variables)
        if any(len(values(value)) > MAX_VALUES for value in known.values()):
            raise Forbidden(f"Nobody with more than {MAX_VALUES} groups or roles can be judged")
        made = _made(holdings, known)
        # Whatever denies comes first, so that the first rule that applies is the answer.
        self._rules = sorted(made, key=lambda rule: rule.decision.allowed)
        # Threads may make a table twice, which is as good as once.
        self._tables: dict[str, Table] = {}
        self._alike: dict[tuple[int, ...], Table] = {}

    def decide(
        self, action: str, resource: str, context: Mapping[str, Value] = NOTHING
    ) -> Decision:
        """Whether the principal may, and why; what is known of the principal beats the context."""
        table = self._tables.get(action) or self._table(action)
        known: Mapping[str, Value] | None = None
        for entry in table.candidates(resource):
            if entry.names(resource):
                rule = entry.rule
                # What is known of the principal was settled when the rule was made.
                if not rule.requirements:
                    return rule.decision
                known = _spelled(context) if known is None else known
                if rule.holds(known):
                    return rule.decision
        return IMPLICIT_DENY

    def asks(self, action: str, resource: str) -> frozenset[str]:
        """The keys of the context that a decision depends on, whatever their values are."""
        found: set[str] = set()
        for entry in self._table(action).candidates(resource):
            if entry.names(resource):
                if not entry.rule.requirements:
                    # It decides, unless one of those before it does.
                    break
                found.update(each.key for each in entry.rule.requirements)
        return frozenset(found)

    def might(self, action: str) -> bool:
        """Whether any statement allows the action, on whatever and whatever else it asks."""
        name = _folded(action)
        return any(rule.decision.allowed and rule.names_action(name) for rule in self._rules)

    def _table(self, action: str) -> Table:
        name = _folded(action)
        named = tuple(at for at, rule in enumerate(self._rules) if rule.names_action(name))
        table = self._alike.get(named)
        if table is None:
            table = Table([(at, self._rules[at]) for at in named])
        if len(self._tables) < MAX_TABLES:
            self._alike[named] = self._tables[action] = table
        return table


def _made(holdings: Sequence[Holding], variables: Mapping[str, Value]) -> list[Rule]:
    made: list[Rule] = []
    room = MAX_PATTERNS
    for holding in holdings:
        for rule in rules(holding, variables):
            made.append(rule)
            room -= rule.size
            if room < 0:
                raise Forbidden(f"Nobody with more than {MAX_PATTERNS} patterns can be judged")
    return made


def _folded(action: str) -> str:
    # Only ASCII has the case that does not count: the Kelvin sign is no K.
    return action.lower() if action.isascii() else action


def _spelled(context: Mapping[str, Value]) -> dict[str, Value]:
    return {spelled(name): value for name, value in context.items()}
