"""What each operation of the authorization service asks: an action, on which resources.

A name in braces stands for what the request names so, in its path, query or body; where that is a
list, for each of it. Who changes a membership so must be allowed it on both sides: a right over
some users must not be one over every role.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from types import MappingProxyType

OPEN: frozenset[str] = frozenset(
    {
        "get_definition",
        "get_echo",
        "get_health",
        "get_jwks.json",
        "get_openid_configuration",
        # Whoever logs in has no token yet; each of these looks itself at what it is shown.
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

KNOWN: frozenset[str] = frozenset(
    {"get_oauth_userinfo", "post_oauth_userinfo", "get_v1_policies_version"}
)
"""Operations that want a token of anybody's."""


@dataclass(frozen=True, slots=True)
class Action:
    """An action and the resources it is on, without what stands before them in an ARN."""

    name: str
    resources: tuple[str, ...]


def _on(operation: str, *resources: str) -> tuple[str, Action]:
    words = operation.replace("_v1_", "_").split("_")
    return operation, Action(f"auth:{''.join(word.capitalize() for word in words)}", resources)


ACTIONS: Mapping[str, Action] = MappingProxyType(
    dict(
        (
            _on("get_v1_users", "user/*"),
            _on("post_v1_user", "user/{user_id}", "group/{groups}", "role/{roles}"),
            _on("get_v1_user", "user/{user_id}"),
            _on("put_v1_user", "user/{user_id}"),
            _on("get_v1_user_owns", "user/{user_id}"),
            _on("get_v1_user_groups", "user/{user_id}"),
            _on("put_v1_user_group", "user/{user_id}", "group/{groups}"),
            _on("get_v1_user_roles", "user/{user_id}"),
            _on("put_v1_user_role", "user/{user_id}", "role/{roles}"),
            _on("put_v1_user_policy", "user/{user_id}"),
            _on("get_v1_groups", "group/*"),
            _on("post_v1_group", "group/{group_id}", "role/{roles}"),
            _on("get_v1_group", "group/{group_id}"),
            _on("delete_v1_group", "group/{group_id}"),
            _on("get_v1_group_roles", "group/{group_id}"),
            _on("put_v1_group_role", "group/{group_id}", "role/{roles}"),
            _on("get_v1_group_users", "group/{group_id}"),
            _on("put_v1_group_user", "group/{group_id}", "user/{users}"),
            _on("put_v1_group_policy", "group/{group_id}"),
            _on("get_v1_roles", "role/*"),
            _on("post_v1_role", "role/{role_id}"),
            _on("get_v1_role", "role/{role_id}"),
            _on("delete_v1_role", "role/{role_id}"),
            _on("put_v1_role_policy", "role/{role_id}"),
            _on("post_v1_policies_evaluate", "user/{principal}"),
            _on("get_v1_audit", "audit/*"),
        )
    )
)

WITH_POLICY: Mapping[str, Action] = MappingProxyType(
    {
        "post_v1_user": ACTIONS["put_v1_user_policy"],
        "post_v1_group": ACTIONS["put_v1_group_policy"],
    }
)
"""What is asked besides of who makes a record with a policy: a right to make users must not be one
to make somebody who may do everything."""
EVALUATE = "post_v1_policies_evaluate"
WITH_GROUPS = Action(ACTIONS[EVALUATE].name, ("user/*",))
"""What is asked besides of who evaluates with groups that their token does not claim: all may ask
about themselves, which must not tell everybody what each group may."""


def resources(action: Action, deployment: str, named: Mapping[str, object]) -> list[str]:
    """The resources of one request as ARNs, each once."""
    lead = f"arn:auth:{deployment}:*:"
    found = (lead + each for resource in action.resources for each in _filled(resource, named))
    return list(dict.fromkeys(found))


def _filled(resource: str, named: Mapping[str, object]) -> Collection[str]:
    fields = [field for _, field, _, _ in Formatter().parse(resource) if field]
    if not fields:
        return [resource]
    value = named.get(fields[0])
    values: Sequence[object] = value if isinstance(value, list | tuple) else [value]
    return [resource.format_map({fields[0]: each}) for each in values if each is not None]
