"""Actions and resources that each operation of the authorization service requires.

`{name}` is a parameter of the request, from its path, query or body; for a list, each item is
checked. A change of membership requires permission on both sides: a permission on some users
must not grant every role.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from types import MappingProxyType

from auth.decisions import DecisionPoint, require_allowed, require_enabled
from auth.policies.patterns import Value
from storage.errors import Unauthorized
from storage.model import Principal

OPEN_OPERATIONS: frozenset[str] = frozenset(
    {
        "get_definition",
        "get_echo",
        "get_health",
        "get_jwks.json",
        "get_openid_configuration",
        # Before login there is no token; each of these checks its own credentials.
        "get_login",
        "get_logout",
        "post_logout",
        "get_oauth_authorize",
        "post_oauth_revoke",
        "post_oauth_token",
        "post_oauth_authorize",
        "post_oauth_device",
    }
)
"""Operations that take no token."""

AUTHENTICATED_OPERATIONS: frozenset[str] = frozenset(
    {"get_oauth_userinfo", "post_oauth_userinfo", "get_v1_account", "get_v1_policies_version"}
)
"""Operations that any token may call."""


@dataclass(frozen=True, slots=True)
class RequiredAction:
    """An action and its resources, without the prefix of their ARNs."""

    name: str
    resources: tuple[str, ...]


_RESOURCES = {
    "get_v1_users": ("user/*",),
    "post_v1_user": ("user/{user_id}", "group/{groups}", "role/{roles}"),
    "get_v1_user": ("user/{user_id}",),
    "put_v1_user": ("user/{user_id}",),
    "get_v1_user_owns": ("user/{user_id}",),
    "get_v1_user_groups": ("user/{user_id}",),
    "put_v1_user_group": ("user/{user_id}", "group/{groups}"),
    "get_v1_user_roles": ("user/{user_id}",),
    "put_v1_user_role": ("user/{user_id}", "role/{roles}"),
    "put_v1_user_policy": ("user/{user_id}",),
    "get_v1_groups": ("group/*",),
    "post_v1_group": ("group/{group_id}", "role/{roles}"),
    "get_v1_group": ("group/{group_id}",),
    "delete_v1_group": ("group/{group_id}",),
    "get_v1_group_roles": ("group/{group_id}",),
    "put_v1_group_role": ("group/{group_id}", "role/{roles}"),
    "get_v1_group_users": ("group/{group_id}",),
    "put_v1_group_user": ("group/{group_id}", "user/{users}"),
    "put_v1_group_policy": ("group/{group_id}",),
    "get_v1_roles": ("role/*",),
    "post_v1_role": ("role/{role_id}",),
    "get_v1_role": ("role/{role_id}",),
    "delete_v1_role": ("role/{role_id}",),
    "put_v1_role_policy": ("role/{role_id}",),
    "post_v1_policies_evaluate": ("user/{principal}",),
    "get_v1_audit": ("audit/*",),
}


def _action_name(operation: str) -> str:
    words = operation.replace("_v1_", "_").split("_")
    return "auth:" + "".join(word.capitalize() for word in words)


REQUIRED_ACTIONS: Mapping[str, RequiredAction] = MappingProxyType(
    {name: RequiredAction(_action_name(name), resources) for name, resources in _RESOURCES.items()}
)

PAGE_ACTIONS: Mapping[str, RequiredAction] = MappingProxyType(
    {
        name: RequiredAction(_action_name(name), (resource,))
        for name, resource in {
            "get_v1_service_accounts": "user/*",
            "put_v1_service_account": "user/{user_id}",
            "get_v1_clients": "client/*",
            "put_v1_client": "client/{client_id}",
        }.items()
    }
)
"""What the administration's web pages do and no operation of the service does."""
ACCOUNT_ACTIONS: Mapping[str, RequiredAction] = MappingProxyType(
    {**REQUIRED_ACTIONS, **PAGE_ACTIONS}
)
"""Everything about accounts that policies decide."""

POLICY_ACTIONS: Mapping[str, RequiredAction] = MappingProxyType(
    {
        "post_v1_user": REQUIRED_ACTIONS["put_v1_user_policy"],
        "post_v1_group": REQUIRED_ACTIONS["put_v1_group_policy"],
    }
)
"""Required in addition to create an account with a policy: permission to create users must not
suffice to create an administrator."""
EVALUATE_OPERATION = "post_v1_policies_evaluate"
EVALUATE_GROUPS_ACTION = RequiredAction(REQUIRED_ACTIONS[EVALUATE_OPERATION].name, ("user/*",))
"""Required in addition to evaluate groups that the caller's token does not claim: users may
evaluate themselves, but must not learn the permissions of other groups."""


def resource_arns(
    action: RequiredAction, deployment: str, named: Mapping[str, object]
) -> list[str]:
    """Return a request's resources as unique ARNs."""
    lead = f"arn:auth:{deployment}:*:"
    arns = (
        lead + each for resource in action.resources for each in _fill_resource(resource, named)
    )
    return list(dict.fromkeys(arns))


def _fill_resource(resource: str, named: Mapping[str, object]) -> Collection[str]:
    fields = [field for _, field, _, _ in Formatter().parse(resource) if field]
    if not fields:
        return [resource]
    value = named.get(fields[0])
    values: Sequence[object] = value if isinstance(value, list | tuple) else [value]
    return [resource.format_map({fields[0]: each}) for each in values if each is not None]


def describe_requirement(operation: str) -> str | None:
    """Describe what an operation requires; None if it is open."""
    if operation in OPEN_OPERATIONS:
        return None
    if operation in AUTHENTICATED_OPERATIONS:
        return "a token"
    return f"a token that is allowed {ACCOUNT_ACTIONS[operation].name}"


def require_account_operation(
    decisions: DecisionPoint,
    deployment: str,
    principal: Principal | None,
    operation: str,
    named: Mapping[str, object],
    context: Mapping[str, Value],
) -> None:
    """Raise Forbidden unless policies allow the operation on all named resources.

    Unauthorized without a principal if it requires an action; disabled users are always rejected.
    """
    action = ACCOUNT_ACTIONS.get(operation)
    if action is None:
        if principal is not None:
            require_enabled(decisions, principal)
        return
    if principal is None:
        raise Unauthorized(f"{operation} needs {describe_requirement(operation)}")
    for each in (action, _find_extra_action(operation, named, principal)):
        if each is not None:
            arns = resource_arns(each, deployment, named)
            require_allowed(decisions, principal, each.name, arns, context)


def _find_extra_action(
    operation: str, named: Mapping[str, object], caller: Principal
) -> RequiredAction | None:
    """Find the action that the request requires in addition."""
    if operation in POLICY_ACTIONS and named.get("policy") is not None:
        return POLICY_ACTIONS[operation]
    groups = named.get("groups")
    if (
        operation == EVALUATE_OPERATION
        and isinstance(groups, list)
        and not caller.groups.issuperset(groups)
    ):
        return EVALUATE_GROUPS_ACTION
    return None
