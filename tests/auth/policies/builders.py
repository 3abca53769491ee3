"""Policies of a few words, and asking them."""

from collections.abc import Mapping
from typing import Any

from auth.policies.evaluator import Compiled
from auth.policies.model import Decision, Holding, Value, parse
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


def compiled(*documents: Any, variables: Mapping[str, Value] = ADA) -> Compiled:
    """What somebody may who has these policies."""
    holdings = [Holding(f"role r{n}", parse(each)) for n, each in enumerate(documents)]
    return Compiled(holdings, variables)


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
        parse(given, pointer=pointer)
    except Invalid as error:
        return dict(error.errors)
    return {}
