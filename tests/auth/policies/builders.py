"""Builders of small policies, and helpers that evaluate them."""

from collections.abc import Mapping
from typing import Any

from auth.policies.evaluator import AttachedPolicy, CompiledPolicies, Decision
from auth.policies.grammar import parse_policy
from auth.policies.patterns import Value
from storage.errors import Invalid

ADA: Mapping[str, Value] = {
    "store:user_email": "ada@example.org",
    "store:groups": ("readers", "lab-7"),
    "store:roles": ("curator",),
}


def statement(effect: str = "Allow", **members: Any) -> dict[str, Any]:
    """A statement about everything, but for the members given; None takes one away."""
    whole = {"Effect": effect, "Action": "*", "Resource": "*", **members}
    if "NotAction" in members:
        whole.pop("Action")
    if "NotResource" in members:
        whole.pop("Resource")
    return {name: value for name, value in whole.items() if value is not None}


def document(*statements: Any, **members: Any) -> dict[str, Any]:
    """A policy of these statements."""
    return {"Version": "2012-10-17", "Statement": list(statements), **members}


def compiled(*documents: Any, variables: Mapping[str, Value] = ADA) -> CompiledPolicies:
    """What somebody may who has these policies."""
    holdings = [
        AttachedPolicy(f"role r{n}", parse_policy(each)) for n, each in enumerate(documents)
    ]
    return CompiledPolicies(holdings, variables)


def decide(
    *statements: Any,
    action: str = "store:PutBundle",
    resource: str = "arn:store:local:aws:bundles/1",
    context: Mapping[str, Value] | None = None,
    variables: Mapping[str, Value] = ADA,
) -> Decision:
    """What one policy of these statements decides."""
    return compiled(document(*statements), variables=variables).decide(
        action, resource, context or {}
    )


def faults(given: object, pointer: str = "") -> dict[str, list[str]]:
    """What is wrong with a document, by place; nothing when it is taken."""
    try:
        parse_policy(given, pointer=pointer)
    except Invalid as error:
        return dict(error.errors)
    return {}
