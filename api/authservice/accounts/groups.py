"""Groups: people taken together, with a policy and roles of their own."""

from typing import Any

from flask import Response

from api.authservice.accounts import listing
from api.authservice.accounts.editing import (
    ALL_OR_NONE,
    CHANGED,
    by,
    changed,
    edited,
    policy_put,
    record_shown,
)
from api.authservice.accounts.listing import pages
from api.authservice.schemas.account_answers import (
    Changed,
    GroupAnswer,
    GroupList,
    RoleList,
    UserList,
)
from api.authservice.schemas.accounts import (
    ActionAsked,
    ActionQuery,
    Listed,
    ListQuery,
    NewGroup,
    NewGroupBody,
    NewPolicy,
    PolicyBody,
    Roles,
    RolesBody,
    Users,
    UsersBody,
)
from api.authservice.services import Call
from api.operation import Answer, operation, reply
from auth.accounts import reading, records
from auth.accounts.memberships import Edit
from auth.accounts.records import New
from storage.catalog.accounts import Name

TAG = "groups"


@operation(
    "GET",
    "/v1/groups",
    tag=TAG,
    query=ListQuery,
    answers=pages(GroupList),
    paged="groups",
    about="Ids in byte order.",
)
def get_v1_groups(call: Call[Listed, None]) -> Response:
    """List groups."""
    return listing.every(call, "group")


@operation(
    "POST",
    "/v1/group",
    tag=TAG,
    body=NewGroupBody,
    answers={201: Answer("Made.", GroupAnswer)},
    errors=(404, 406, 409),
)
def post_v1_group(call: Call[None, NewGroup]) -> Response:
    """Make a group."""
    body = call.body
    new = New(Name("group", body.group_id), policy=body.policy, roles=body.roles)
    made = records.create(call.catalog, new, by(call))
    return reply(record_shown(made, call.services.settings.deployment), 201)


@operation(
    "GET",
    "/v1/group/{group_id}",
    tag=TAG,
    answers={200: Answer("The group.", GroupAnswer)},
    errors=(404,),
)
def get_v1_group(call: Call[None, None]) -> Response:
    """Read a group."""
    found = reading.account(call.catalog, _group(call))
    return reply(record_shown(found, call.services.settings.deployment))


@operation(
    "DELETE",
    "/v1/group/{group_id}",
    tag=TAG,
    answers={200: Answer("Deleted.", Changed)},
    errors=(404, 409),
    about="Nobody is in it any more, and its policy and roles hold for nobody because of it.",
)
def delete_v1_group(call: Call[None, None]) -> Response:
    """Delete a group."""
    records.delete(call.catalog, _group(call), by(call))
    return changed(True, group_id=call.path["group_id"])


@operation(
    "GET",
    "/v1/group/{group_id}/roles",
    tag=TAG,
    query=ListQuery,
    answers=pages(RoleList),
    errors=(404,),
    paged="roles",
)
def get_v1_group_roles(call: Call[Listed, None]) -> Response:
    """List the roles of a group."""
    return listing.held(call, _group(call), "role")


@operation(
    "PUT",
    "/v1/group/{group_id}/roles",
    tag=TAG,
    query=ActionQuery,
    body=RolesBody,
    body_optional=True,
    answers=CHANGED,
    errors=(404, 406, 409),
    about=ALL_OR_NONE,
)
def put_v1_group_role(call: Call[ActionAsked, Roles]) -> Response:
    """Give a group roles, or take them away."""
    roles = [Name("role", one) for one in call.body.roles]
    return edited(call, Edit(_group(call), "roles", roles, call.query.action))


@operation(
    "GET",
    "/v1/group/{group_id}/users",
    tag=TAG,
    query=ListQuery,
    answers=pages(UserList),
    errors=(404,),
    paged="users",
)
def get_v1_group_users(call: Call[Listed, None]) -> Response:
    """List the users in a group."""
    return listing.members(call, _group(call), "user")


@operation(
    "PUT",
    "/v1/group/{group_id}/users",
    tag=TAG,
    query=ActionQuery,
    body=UsersBody,
    body_optional=True,
    answers=CHANGED,
    errors=(404, 406, 409),
    about=ALL_OR_NONE,
)
def put_v1_group_user(call: Call[ActionAsked, Users]) -> Response:
    """Add users to a group, or remove them."""
    users = [Name("user", one) for one in call.body.users]
    return edited(call, Edit(_group(call), "users", users, call.query.action))


@operation(
    "PUT",
    "/v1/group/{group_id}/policy",
    tag=TAG,
    body=PolicyBody,
    body_optional=True,
    answers=CHANGED,
    errors=(404, 409),
    about="null takes the policy away.",
)
def put_v1_group_policy(call: Call[None, NewPolicy]) -> Response:
    """Give a group a policy."""
    return policy_put(call, _group(call))


def _group(call: Call[Any, Any]) -> Name:
    return Name("group", call.path["group_id"])


OPERATIONS = (
    get_v1_groups,
    post_v1_group,
    get_v1_group,
    delete_v1_group,
    get_v1_group_roles,
    put_v1_group_role,
    get_v1_group_users,
    put_v1_group_user,
    put_v1_group_policy,
)
