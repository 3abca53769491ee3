"""The guard of the authorization service: checks an operation's policies before its view."""

from dataclasses import dataclass
from typing import Any

from flask import Request

from api.http.auth import PolicyContextBuilder, RequestContext
from auth.account_operations import describe_requirement, require_account_operation
from auth.decisions import LocalDecisionPoint
from storage.model import Principal


@dataclass(frozen=True)
class AuthGuard:
    """See `api.http.auth.Guard`."""

    decisions: LocalDecisionPoint
    deployment: str
    circumstances: PolicyContextBuilder

    def wants(self, operation: str) -> str | None:
        """Describe the requirement."""
        return describe_requirement(operation)

    def may(self, _principal: Principal | None, _operation: str) -> bool:
        """Allow any body size."""
        return True

    def refuse(self, _principal: Principal | None, _operation: str, _request: Request) -> None:
        """Never refuse before the body is read: it may name the resources."""

    def require(
        self, operation: str, context: RequestContext[Any, Any, Any]
    ) -> RequestContext[Any, Any, Any]:
        """Return the context if policies allow the caller all named resources."""
        # The path comes last, so that a body cannot override its parameters.
        named = {**_loaded_fields(context.query), **_loaded_fields(context.body), **context.path}
        values = self.circumstances.build(context.request, context.principal)
        require_account_operation(
            self.decisions, self.deployment, context.principal, operation, named, values
        )
        return context


def _loaded_fields(loaded: object) -> dict[str, object]:
    return {} if loaded is None else dict(vars(loaded))
