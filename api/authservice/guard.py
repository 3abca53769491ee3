"""Who may do what in the authorization service: as the policies say, asked for each request."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flask import Request

from api.asking import Asked
from api.circumstances import Circumstances
from auth.accounts.actions import (
    ACTIONS,
    EVALUATE,
    KNOWN,
    OPEN,
    WITH_GROUPS,
    WITH_POLICY,
    Action,
    resources,
)
from auth.accounts.decisions import Decisions
from auth.accounts.judging import require, require_enabled
from storage.model import Principal


def wants(operation: str) -> str | None:
    """What an operation asks of its caller; None when it is open."""
    if operation in OPEN:
        return None
    return "a token" if operation in KNOWN else f"a token that is allowed {ACTIONS[operation].name}"


@dataclass(frozen=True)
class AuthGuard:
    """See `api.asking.Guard`."""

    decisions: Decisions
    deployment: str
    circumstances: Circumstances

    def wants(self, operation: str) -> str | None:
        """What it asks of its caller."""
        return wants(operation)

    def may(self, _principal: Principal | None, _operation: str) -> bool:
        """No body here is large."""
        return True

    def refuse(self, _principal: Principal | None, _operation: str, _request: Request) -> None:
        """Nobody is refused before the body is known: it may name whom it is about."""

    def require(self, operation: str, call: Asked[Any, Any, Any]) -> Asked[Any, Any, Any]:
        """The call, if the policies of the caller allow it on all that the request names."""
        action = ACTIONS.get(operation)
        if action is None:
            if call.principal is not None:
                require_enabled(self.decisions, call.principal)
            return call
        # The path comes last: nothing in a body may stand for what it names.
        named = {**_members(call.query), **_members(call.body), **call.path}
        context = self.circumstances.of(call.request, call.who)
        for each in (action, _besides(operation, named, call.who)):
            if each is not None:
                arns = resources(each, self.deployment, named)
                require(self.decisions, call.who, each.name, arns, context)
        return call


def _besides(operation: str, named: Mapping[str, object], who: Principal) -> Action | None:
    """What is asked as well, because of what the request names."""
    if operation in WITH_POLICY and named["policy"] is not None:
        return WITH_POLICY[operation]
    groups = named.get("groups")
    if operation == EVALUATE and isinstance(groups, list) and not who.groups.issuperset(groups):
        return WITH_GROUPS
    return None


def _members(loaded: object) -> dict[str, object]:
    return {} if loaded is None else dict(vars(loaded))
