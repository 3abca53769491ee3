"""A policy as it is kept once its document is understood."""

import json
from dataclasses import dataclass, field
from typing import Any

from auth.policies.conditions import Condition
from auth.policies.globs import Glob
from auth.policies.patterns import Pattern


@dataclass(frozen=True, slots=True)
class Statement:
    """What is allowed or denied; a negated list speaks of all that is not on it."""

    name: str
    """Its Sid, else its JSON pointer in the policy."""
    allows: bool
    actions: tuple[Glob, ...]
    other_actions: bool
    resources: tuple[Pattern, ...]
    other_resources: bool
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """A document that was understood; two are equal if their documents are."""

    text: str
    """The document, without white space."""
    statements: tuple[Statement, ...] = field(compare=False, repr=False)

    @property
    def document(self) -> Any:
        """The JSON it came from."""
        return json.loads(self.text)
