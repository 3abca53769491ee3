"""Which built-in role is enough for an operation: worked out from their policies, never listed."""

from auth.access import OPEN, action, arn
from auth.accounts import builtin
from auth.accounts.actions import ACTIONS, resources
from auth.policies.evaluator import Compiled
from auth.policies.keys import USER_EMAIL
from auth.policies.model import Holding

ROLES = (builtin.USER_DEFAULT, builtin.STORE_INGEST, builtin.STORE_ADMIN)
"""The least first."""
DEPLOYMENT, ONESELF = "local", "somebody@example.org"
"""Any would do: the policies name whatever they are of."""


def least_role(operation: str) -> str | None:
    """The least built-in role that may do an operation of the store; None when it is open."""
    if operation in OPEN:
        return None
    return next(role for role in ROLES if allows(role, operation))


def least_role_over_accounts(operation: str) -> str | None:
    """The same of the authorization service, for what a user asks of themselves; None where no
    policy is asked."""
    asked = ACTIONS.get(operation)
    if asked is None:
        return None
    named = dict.fromkeys(("user_id", "principal", "users", "groups", "roles"), ONESELF)
    arns = resources(asked, DEPLOYMENT, {**named, "group_id": ONESELF, "role_id": ONESELF})
    return next(role for role in ROLES if all(_decides(role, asked.name, on) for on in arns))


def allows(role: str, operation: str) -> bool:
    """Whether a built-in role alone allows an operation on all that it may be on."""
    return _decides(role, action(operation), arn(operation, DEPLOYMENT, {}))


def _decides(role: str, asked: str, on: str) -> bool:
    policy = builtin.policy("role", role, DEPLOYMENT)
    holdings = [] if policy is None else [Holding(f"role {role}", policy)]
    return Compiled(holdings, {USER_EMAIL: ONESELF}).decide(asked, on).allowed
