"""What a principal may do, operation by operation, with the statements that decide."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from auth.account_operations import ACCOUNT_ACTIONS
from auth.authorization import RESOURCES, action_name, resource_arn
from auth.builtin_roles import STORE_ADMIN, load_policy
from auth.decisions import EffectivePermissions, list_effective_entries
from auth.policies.evaluator import AttachedPolicy, CompiledPolicies
from auth.policies.keys import GROUPS, ROLES, USER_EMAIL
from auth.policies.patterns import Value
from auth.settings import AuthSettings
from storage.catalog import Catalog, accounts
from storage.catalog.accounts import AccountKey
from storage.model import Principal

Extent = Literal["open", "everywhere", "partly", "nowhere"]
"""`partly`: on some resources, or under conditions. `open`: without a token."""


class DecidingStatement(NamedTuple):
    """A statement about an action: whose policy, its name there, and what it says."""

    source: str
    name: str
    allows: bool
    conditional: bool


@dataclass(frozen=True, slots=True)
class OperationPermission:
    """What a principal may do by one operation; denying statements come first."""

    operation: str
    action: str
    extent: Extent
    statements: tuple[DecidingStatement, ...]


def list_permissions(
    found: EffectivePermissions, deployment: str, open_operations: Collection[str]
) -> list[OperationPermission]:
    """List the operations of the store, then those of the authorization service."""
    store = {name: resource_arn(name, deployment, {}) for name in RESOURCES}
    return [
        *(
            _describe_permission(found, name, action_name(name), arn, name in open_operations)
            for name, arn in store.items()
        ),
        *(
            _describe_permission(found, name, action.name, arn, False)
            for name, action in ACCOUNT_ACTIONS.items()
            for arn in [f"arn:auth:{deployment}:*:{action.resources[0].partition('/')[0]}/*"]
        ),
    ]


def _describe_permission(
    found: EffectivePermissions, operation: str, action: str, arn: str, is_open: bool
) -> OperationPermission:
    """`arn` has wildcards in place of names: only a pattern that covers all of them matches."""
    if not found.enabled:
        return OperationPermission(operation, action, "nowhere", ())
    statements = tuple(
        DecidingStatement(
            rule.decision.source or "",
            rule.decision.statement or "",
            rule.decision.allowed,
            bool(rule.requirements),
        )
        for rule in found.compiled.list_rules(action)
    )
    extent: Extent = "open" if is_open else "nowhere"
    if not is_open and any(one.allows for one in statements):
        is_denied = any(not one.allows for one in statements)
        everywhere = found.compiled.decide(action, arn).allowed and not is_denied
        extent = "everywhere" if everywhere else "partly"
    return OperationPermission(operation, action, extent, statements)


def list_role_sources(
    catalog: Catalog, principal: Principal, rights: AuthSettings
) -> Mapping[str, tuple[str, ...]]:
    """Return the effective roles, each with its groups; an empty name stands for the user."""
    with catalog.read() as tx:
        entries = list_effective_entries(tx, principal.email, principal.groups, rights)
    roles = sorted({one.id for one in entries if one.kind == "role"})
    return {
        role: tuple(sorted({one.via for one in entries if one.kind == "role" and one.id == role}))
        for role in roles
    }


MAX_ROLES_TRIED = 200


def find_allowing_roles(
    catalog: Catalog,
    principal: Principal,
    action: str,
    resource: str,
    deployment: str,
    context: Mapping[str, Value],
) -> list[str]:
    """List the roles whose policy alone would allow an action to a principal; store_admin last."""
    with catalog.read() as tx:
        rows = accounts.list_rows(tx, "role", prefix="", after="", limit=MAX_ROLES_TRIED)
    variables: dict[str, Value] = {USER_EMAIL: principal.email, GROUPS: (), ROLES: ()}
    allowing = []
    for row in rows:
        policy = load_policy(AccountKey("role", row.id), row.policy, deployment)
        attached = [AttachedPolicy(f"role {row.id}", policy)] if policy else []
        if CompiledPolicies(attached, variables).decide(action, resource, context).allowed:
            allowing.append(row.id)
    return sorted(allowing, key=lambda role: role == STORE_ADMIN)
