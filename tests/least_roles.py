"""Compute which built-in role suffices for an operation."""

from auth import builtin_roles
from auth.account_operations import ACCOUNT_ACTIONS, resource_arns
from auth.authorization import OPEN_OPERATIONS, action_name, resource_arn
from auth.policies.evaluator import AttachedPolicy, CompiledPolicies
from auth.policies.keys import USER_EMAIL

ROLES = (builtin_roles.USER_DEFAULT, builtin_roles.STORE_INGEST, builtin_roles.STORE_ADMIN)
"""The least first."""
DEPLOYMENT, ONESELF = "local", "somebody@example.org"
"""Any would do: the policies name whatever they are of."""


def least_role(operation: str) -> str | None:
    """The least built-in role that may do an operation of the store; None when it is open."""
    if operation in OPEN_OPERATIONS:
        return None
    return next(role for role in ROLES if allows(role, operation))


def least_role_over_accounts(operation: str) -> str | None:
    """The same of the authorization service, for what a user asks of themselves; None where no
    policy is asked."""
    asked = ACCOUNT_ACTIONS.get(operation)
    if asked is None:
        return None
    named = dict.fromkeys(("user_id", "principal", "users", "groups", "roles"), ONESELF)
    arns = resource_arns(asked, DEPLOYMENT, {**named, "group_id": ONESELF, "role_id": ONESELF})
    return next(role for role in ROLES if all(_decides(role, asked.name, on) for on in arns))


def allows(role: str, operation: str) -> bool:
    """Whether a built-in role alone allows an operation on all that it may be on."""
    return _decides(role, action_name(operation), resource_arn(operation, DEPLOYMENT, {}))


def _decides(role: str, asked: str, on: str) -> bool:
    policy = builtin_roles.built_in_policy("role", role, DEPLOYMENT)
    holdings = [] if policy is None else [AttachedPolicy(f"role {role}", policy)]
    return CompiledPolicies(holdings, {USER_EMAIL: ONESELF}).decide(asked, on).allowed
