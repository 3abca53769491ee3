"""Deciding: an explicit deny, else an allow, else no."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from auth.policies.model import Decision, Holding, Value
from auth.policies.rules import Rule, rules

IMPLICIT_DENY = Decision(allowed=False, reason="implicit_deny")
NOTHING: Mapping[str, Value] = MappingProxyType({})


class Compiled:
    """What one principal may do, made ready to be asked often and by many threads."""

    def __init__(self, holdings: Sequence[Holding], variables: Mapping[str, Value]) -> None:
        self._variables = {name.lower(): value for name, value in variables.items()}
        made = [rule for holding in holdings for rule in rules(holding, self._variables)]
        self._rules = sorted(made, key=lambda rule: rule.decision.allowed)

    def decide(
        self, action: str, resource: str, context: Mapping[str, Value] = NOTHING
    ) -> Decision:
        """Whether the principal may, and why."""
        found = (rule for rule in self._rules if self._applies(rule, action, resource, context))
        rule = next(found, None)
        return IMPLICIT_DENY if rule is None else rule.decision

    def _applies(
        self, rule: Rule, action: str, resource: str, context: Mapping[str, Value]
    ) -> bool:
        given = {name.lower(): value for name, value in context.items()} | self._variables
        return rule.names_action(action.lower()) and rule.names(resource) and rule.holds(given)
