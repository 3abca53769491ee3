"""The nouns of policies, for those who use them: documents, what is attached to whom, decisions."""

from dataclasses import dataclass
from typing import Literal

from auth.policies.grammar import parse
from auth.policies.patterns import Value
from auth.policies.statements import Policy

__all__ = ["Decision", "Holding", "Policy", "Reason", "Value", "parse"]

Reason = Literal["explicit_deny", "allow", "implicit_deny", "disabled"]


@dataclass(frozen=True, slots=True)
class Holding:
    """A policy, and by what somebody has it: `user a@b`, `group g`, `role r`, `group g, role r`."""

    source: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether something is allowed, and which statement of whose policy says so."""

    allowed: bool
    reason: Reason
    source: str | None = None
    statement: str | None = None
    """Its Sid, else its JSON pointer in the policy."""
