"""What whoever decides is asked of, and the refusal of whom it does not let: alike in the store and
in the authorization service.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from auth.accounts.decisions import Verdict
from auth.policies.model import Value
from storage.errors import Forbidden
from storage.model import Principal


class Deciding(Protocol):
    """Says what the policies say, here or elsewhere."""

    def decide(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: Mapping[str, Value],
    ) -> Verdict:
        """Every action on every resource, all of which must be allowed, as things are."""

    def might(self, principal: Principal, action: str) -> bool:
        """Whether there is anything that the action is allowed on."""

    def enabled(self, principal: Principal) -> bool:
        """Whether the principal may do anything at all."""


def require(
    deciding: Deciding,
    principal: Principal,
    action: str,
    resources: Sequence[str],
    context: Mapping[str, Value],
) -> None:
    """Return if the action is allowed on all of these; else Forbidden, which says why."""
    verdict = deciding.decide(principal, [action], resources, context)
    if not verdict.allowed:
        raise Forbidden(f"{action} is not allowed to you here ({verdict.reason})")


def require_enabled(deciding: Deciding, principal: Principal) -> None:
    """Return if the principal may do anything at all; else Forbidden."""
    if not deciding.enabled(principal):
        raise Forbidden("This user is disabled.")
