"""Conditions of a statement: an operator, a key of the request, what the policy wants of it."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from auth.policies.operators import OPERATORS, Prepared, Scalar, Test
from auth.policies.patterns import Value

Quantifier = Literal["any", "all"]
PREFIXES: Mapping[str, Quantifier] = {"ForAnyValue:": "any", "ForAllValues:": "all"}
IF_EXISTS = "IfExists"
NULL = "Null"


@dataclass(frozen=True, slots=True)
class Asked:
    """An operator as it is written: `ForAnyValue:StringLikeIfExists`."""

    name: str
    quantifier: Quantifier | None
    if_exists: bool

    @property
    def negated(self) -> bool:
        """Whether it asks that nothing matches."""
        return OPERATORS[self.name].negated


@dataclass(frozen=True, slots=True)
class Condition:
    """What one key is asked, for whoever it may be."""

    asked: Asked
    key: str
    wanted: tuple[Prepared, ...]


@dataclass(frozen=True, slots=True)
class Requirement:
    """The same for one principal."""

    asked: Asked
    key: str
    tests: tuple[Test, ...]

    def holds(self, found: tuple[Scalar, ...]) -> bool:
        """Whether the values of the key, none when it is absent, are as the policy wants."""
        asked = self.asked
        if asked.name == NULL:
            return self._matches(not found)
        if not found:
            return self._holds_absent()
        if asked.quantifier == "all":
            return all(self._matches(value) != asked.negated for value in found)
        if asked.quantifier == "any":
            return any(self._matches(value) != asked.negated for value in found)
        return any(map(self._matches, found)) != asked.negated

    def _holds_absent(self) -> bool:
        """Whether it holds where the key has no value: `ForAnyValue` wants one, even with
        `IfExists`, and `ForAllValues` wants none."""
        if self.asked.quantifier is not None:
            return self.asked.quantifier == "all"
        return self.asked.negated or self.asked.if_exists

    def _matches(self, value: Scalar) -> bool:
        return any(test(value) for test in self.tests)


def asked(written: str) -> Asked | None:
    """The operator that this spells; None if it is none."""
    prefix = next((prefix for prefix in PREFIXES if written.startswith(prefix)), "")
    bare = written.removeprefix(prefix)
    name = bare.removesuffix(IF_EXISTS)
    if name not in OPERATORS or (name == NULL and written != NULL):
        return None
    return Asked(name, PREFIXES.get(prefix), name != bare)


def requirement(condition: Condition, variables: Mapping[str, Value]) -> tuple[Requirement, bool]:
    """The condition for one principal, and whether the principal has every value that it wants."""
    tests = [tuple(prepared(variables)) for prepared in condition.wanted]
    return Requirement(condition.asked, condition.key, tuple(itertools.chain(*tests))), all(tests)
