"""Which built-in role is enough for an operation: worked out from their policies, never listed."""

from auth.access import OPEN, action, arn
from auth.accounts import builtin
from auth.policies.evaluator import Compiled
from auth.policies.model import Holding

ROLES = (builtin.USER_DEFAULT, builtin.STORE_INGEST, builtin.STORE_ADMIN)
"""The least first."""


def least_role(operation: str) -> str | None:
    """The least built-in role that may do an operation of the store; None when it is open."""
    if operation in OPEN:
        return None
    return next(role for role in ROLES if allows(role, operation))


def allows(role: str, operation: str, deployment: str = "local") -> bool:
    """Whether a built-in role alone allows an operation on all that it may be on."""
    policy = builtin.policy("role", role, deployment)
    holdings = [] if policy is None else [Holding(f"role {role}", policy)]
    compiled = Compiled(holdings, {})
    return compiled.decide(action(operation), arn(operation, deployment, {})).allowed
