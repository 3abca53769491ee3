"""Statements made ready for one principal: variables put in, patterns compiled."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from auth.policies.conditions import Requirement, requirement
from auth.policies.globs import Glob, glob
from auth.policies.model import Decision, Holding
from auth.policies.patterns import Value, values
from auth.policies.statements import Statement


@dataclass(frozen=True, slots=True)
class Rule:
    """One statement for one principal."""

    decision: Decision
    """What is answered when it applies."""
    actions: tuple[Glob, ...]
    other_actions: bool
    resources: tuple[Glob, ...]
    other_resources: bool
    requirements: tuple[Requirement, ...]
    """Of the request; those of the principal are answered already."""

    @property
    def size(self) -> int:
        """How many patterns it has."""
        return len(self.resources) + sum(len(each.tests) for each in self.requirements)

    def names_action(self, action: str) -> bool:
        """Whether it speaks of this action, in lower case."""
        return any(each.matches(action) for each in self.actions) != self.other_actions

    def names(self, resource: str) -> bool:
        """Whether it speaks of this resource."""
        return any(each.matches(resource) for each in self.resources) != self.other_resources

    def holds(self, context: Mapping[str, Value]) -> bool:
        """Whether its condition does, if it has one."""
        return all(each.holds(values(context.get(each.key))) for each in self.requirements)


def rules(holding: Holding, variables: Mapping[str, Value]) -> Iterator[Rule]:
    """The statements of a policy, but for those that can never apply to this principal."""
    for statement in holding.policy.statements:
        rule = _rule(statement, holding.source, variables)
        if rule is not None:
            yield rule


def _rule(statement: Statement, source: str, variables: Mapping[str, Value]) -> Rule | None:
    resolved = [tuple(each.resolve(variables)) for each in statement.resources]
    asked = [requirement(condition, variables) for condition in statement.conditions]
    # "All but the one of ${…}" would be all for whoever has no such value: nothing is allowed then.
    unsure = (statement.other_resources and not all(resolved)) or any(
        each.asked.negated and not whole for each, whole in asked
    )
    known = [each for each, _ in asked if each.key in variables]
    if statement.allows and unsure:
        return None
    if not all(each.holds(values(variables[each.key])) for each in known):
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
        resources=tuple(glob(tokens) for some in resolved for tokens in some),
        other_resources=statement.other_resources,
        requirements=tuple(each for each, _ in asked if each.key not in variables),
    )
