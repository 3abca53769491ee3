"""Evaluate policies: explicit deny, else allow, else implicit deny.

Each pattern is indexed by the rarest n-gram of its literal text: a resource without it cannot
match. The n-grams of a resource are computed once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Literal

from auth.policies.conditions import BoundCondition, bind_condition
from auth.policies.grammar import AccessPolicy, PolicyStatement
from auth.policies.keys import normalize_key
from auth.policies.patterns import (
    MAX_PATTERNS,
    MAX_RULE_INDEXES,
    MAX_VARIABLE_VALUES,
    Glob,
    Value,
    compile_glob,
    list_values,
)
from storage.errors import Forbidden

Reason = Literal["explicit_deny", "allow", "implicit_deny", "disabled"]


@dataclass(frozen=True, slots=True)
class AttachedPolicy:
    """A policy and its source: `user a@b`, `group g`, `role r`, or `group g, role r`."""

    source: str
    policy: AccessPolicy


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether an action is allowed, and the policy and statement that decide."""

    allowed: bool
    reason: Reason
    source: str | None = None
    statement: str | None = None
    """Its Sid, else its JSON pointer in the policy."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One statement for one principal."""

    decision: Decision
    """The decision if it applies."""
    actions: tuple[Glob, ...]
    other_actions: bool
    resources: tuple[Glob, ...]
    other_resources: bool
    requirements: tuple[BoundCondition, ...]
    """Conditions on the request; the principal's hold already."""

    @property
    def size(self) -> int:
        """The number of patterns."""
        return len(self.resources) + sum(len(each.tests) for each in self.requirements)

    def names_action(self, action: str) -> bool:
        """Return whether it covers a lower-case action."""
        return any(each.matches(action) for each in self.actions) != self.other_actions

    def names(self, resource: str) -> bool:
        """Return whether it names a resource."""
        return any(each.matches(resource) for each in self.resources) != self.other_resources

    def holds(self, context: Mapping[str, Value]) -> bool:
        """Return whether all requirements hold."""
        return all(each.holds(list_values(context.get(each.key))) for each in self.requirements)


def _bind_statement(
    statement: PolicyStatement, source: str, variables: Mapping[str, Value]
) -> Rule | None:
    """Return the rule of a statement; None if it never applies to this principal."""
    resolved = [tuple(each.resolve(variables)) for each in statement.resources]
    bound = [bind_condition(condition, variables) for condition in statement.conditions]
    # "All except ${…}" without a value for the variable would match all: then allow nothing.
    has_unresolved = (statement.other_resources and not all(resolved)) or any(
        each.operator.is_negated and not is_resolved for each, is_resolved in bound
    )
    settled = [each for each, _ in bound if each.key in variables]
    if statement.allows and has_unresolved:
        return None
    if not all(each.holds(list_values(variables[each.key])) for each in settled):
        return None
    return Rule(
        decision=Decision(
            allowed=statement.allows,
            reason="allow" if statement.allows else "explicit_deny",
            source=source,
            statement=statement.name,
        ),
        actions=statement.actions,
        other_actions=statement.other_actions,
        resources=tuple(compile_glob(tokens) for some in resolved for tokens in some),
        other_resources=statement.other_resources,
        requirements=tuple(each for each, _ in bound if each.key not in variables),
    )


PIECE_LENGTH = 6
"""Characters of an n-gram: long enough to be rare, short enough for most patterns."""
MAX_UNINDEXED = 12
"""Up to this many patterns, trying each is faster than an index."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A candidate rule, by one of its patterns."""

    order: int
    rule: Rule
    pattern: Glob | None
    """None: the whole rule must be evaluated."""

    def names(self, resource: str) -> bool:
        """Return whether the pattern covers a resource."""
        if self.pattern is None:
            return self.rule.names(resource)
        return self.pattern.matches(resource)


_entry_order = attrgetter("order")


class RuleIndex:
    """The rules that cover one action, indexed by resource pattern."""

    def __init__(self, rules: Sequence[tuple[int, Rule]]) -> None:
        entries = [
            IndexEntry(at, rule, pattern)
            for at, rule in rules
            for pattern in ((None,) if rule.other_resources else rule.resources)
        ]
        exact: dict[str, list[IndexEntry]] = defaultdict(list)
        filed: dict[str, list[IndexEntry]] = defaultdict(list)
        loose: list[IndexEntry] = []
        common = Counter(piece for entry in entries for piece in _literal_pieces(entry.pattern))
        for entry in entries:
            text = None if entry.pattern is None else entry.pattern.exact
            if text is not None:
                exact[text].append(entry)
            elif pieces := _literal_pieces(entry.pattern):
                filed[min(pieces, key=common.__getitem__)].append(entry)
            else:
                loose.append(entry)
        if sum(map(len, filed.values())) <= MAX_UNINDEXED:
            loose += [entry for some in filed.values() for entry in some]
            filed.clear()
        self._exact: Mapping[str, list[IndexEntry]] = dict(exact)
        self._filed: Mapping[str, list[IndexEntry]] = dict(filed)
        self._loose = sorted(loose, key=_entry_order)

    def candidates(self, resource: str) -> Iterable[IndexEntry]:
        """Return a superset of the matching entries, in order."""
        exact = self._exact.get(resource)
        if not self._filed and exact is None:
            return self._loose
        entries = self._loose + (exact or [])
        if self._filed:
            for piece in self._filed.keys() & _cut_pieces(resource):
                entries += self._filed[piece]
        entries.sort(key=_entry_order)
        return entries


def _literal_pieces(pattern: Glob | None) -> set[str]:
    runs = () if pattern is None else pattern.runs
    return {piece for run in runs for piece in _cut_pieces(run.literal or "")}


def _cut_pieces(text: str) -> set[str]:
    return {text[at : at + PIECE_LENGTH] for at in range(len(text) - PIECE_LENGTH + 1)}


IMPLICIT_DENY = Decision(allowed=False, reason="implicit_deny")
EMPTY_CONTEXT: Mapping[str, Value] = MappingProxyType({})


class CompiledPolicies:
    """The compiled policies of one principal; thread-safe."""

    def __init__(self, holdings: Sequence[AttachedPolicy], variables: Mapping[str, Value]) -> None:
        values = _normalize_context(variables)
        if any(len(list_values(value)) > MAX_VARIABLE_VALUES for value in values.values()):
            raise Forbidden(f"Too many groups or roles: the limit is {MAX_VARIABLE_VALUES}.")
        rules = _compile_rules(holdings, values)
        # Deny rules come first, so that the first rule that applies decides.
        self._rules = sorted(rules, key=lambda rule: rule.decision.allowed)
        # Two threads may build the same table, which is harmless.
        self._tables: dict[str, RuleIndex] = {}
        self._alike: dict[tuple[int, ...], RuleIndex] = {}

    def decide(
        self, action: str, resource: str, context: Mapping[str, Value] = EMPTY_CONTEXT
    ) -> Decision:
        """Decide one action on one resource; the principal's variables override the context."""
        table = self._tables.get(action) or self._find_index(action)
        values: Mapping[str, Value] | None = None
        for entry in table.candidates(resource):
            if entry.names(resource):
                rule = entry.rule
                # Conditions on the principal were evaluated when it was bound.
                if not rule.requirements:
                    return rule.decision
                values = _normalize_context(context) if values is None else values
                if rule.holds(values):
                    return rule.decision
        return IMPLICIT_DENY

    def context_keys(self, action: str, resource: str) -> frozenset[str]:
        """Return the context keys that a decision may depend on."""
        keys: set[str] = set()
        for entry in self._find_index(action).candidates(resource):
            if entry.names(resource):
                if not entry.rule.requirements:
                    # It decides, unless an earlier rule does.
                    break
                keys.update(each.key for each in entry.rule.requirements)
        return frozenset(keys)

    def could_allow(self, action: str) -> bool:
        """Return whether any statement allows the action, on any resource."""
        name = _fold_case(action)
        return any(rule.decision.allowed and rule.names_action(name) for rule in self._rules)

    def list_rules(self, action: str) -> list[Rule]:
        """List the rules that cover an action, on whatever resource; denying ones come first."""
        name = _fold_case(action)
        return [rule for rule in self._rules if rule.names_action(name)]

    def _find_index(self, action: str) -> RuleIndex:
        name = _fold_case(action)
        named = tuple(at for at, rule in enumerate(self._rules) if rule.names_action(name))
        table = self._alike.get(named)
        if table is None:
            table = RuleIndex([(at, self._rules[at]) for at in named])
        if len(self._tables) < MAX_RULE_INDEXES:
            self._alike[named] = self._tables[action] = table
        return table


def _compile_rules(
    holdings: Sequence[AttachedPolicy], variables: Mapping[str, Value]
) -> list[Rule]:
    rules: list[Rule] = []
    room = MAX_PATTERNS
    for holding in holdings:
        for statement in holding.policy.statements:
            rule = _bind_statement(statement, holding.source, variables)
            if rule is None:
                continue
            rules.append(rule)
            room -= rule.size
            if room < 0:
                raise Forbidden(f"Too many policy patterns: the limit is {MAX_PATTERNS}.")
    return rules


def _fold_case(action: str) -> str:
    # Case is ignored in ASCII only: the Kelvin sign is not a K.
    return action.lower() if action.isascii() else action


def _normalize_context(context: Mapping[str, Value]) -> dict[str, Value]:
    return {normalize_key(name): value for name, value in context.items()}
