"""Users: people by their e-mail addresses, with the groups they are in and the roles they have."""

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
    GroupList,
    OwnedList,
    RoleList,
    UserAnswer,
    UserList,
)
from api.authservice.schemas.accounts import (
    ActionAsked,
    ActionQuery,
    Groups,
    GroupsBody,
    Listed,
    ListQuery,
    NewPolicy,
    NewUser,
    NewUserBody,
    OwnsAsked,
    OwnsQuery,
    PolicyBody,
    Roles,
    RolesBody,
    StatusAsked,
    StatusQuery,
)
from api.authservice.services import Call
from api.operation import Answer, operation, reply
from auth.accounts import reading, records
from auth.accounts.memberships import Edit
from auth.accounts.records import New
from storage.catalog.accounts import Name
from storage.catalog.owning import Thing

TAG = "users"


@operation(
    "GET",
    "/v1/users",
    tag=TAG,
    query=ListQuery,
    answers=pages(UserList),
    paged="users",
    about="Ids in byte order.",
)
def get_v1_users(call: Call[Listed, None]) -> Response:
    """List users."""
    return listing.every(call, "user")


@operation(
    "POST",
    "/v1/user",
    tag=TAG,
    body=NewUserBody,
    answers={201: Answer("Made.", UserAnswer)},
    errors=(404, 406, 409),
    about="Every user is in the group user_default, too. A group or role that does not exist is"
    " 404, and nothing is made then.",
)
def post_v1_user(call: Call[None, NewUser]) -> Response:
    """Make a user."""
    body = call.body
    name = Name("user", body.user_id)
    new = New(name, policy=body.policy, groups=body.groups, roles=body.roles)
    made = records.create(call.catalog, new, by(call))
    return reply(record_shown(made, call.services.settings.deployment), 201)


@operation(
    "GET",
    "/v1/user/{user_id}",
    tag=TAG,
    answers={200: Answer("The user.", UserAnswer)},
    errors=(404,),
)
def get_v1_user(call: Call[None, None]) -> Response:
    """Read a user."""
    found = reading.account(call.catalog, _user(call))
    return reply(record_shown(found, call.services.settings.deployment))


@operation(
    "PUT",
    "/v1/user/{user_id}",
    tag=TAG,
    query=StatusQuery,
    answers=CHANGED,
    errors=(404,),
    about="Who is disabled is allowed nothing from this moment, whatever tokens they hold.",
)
def put_v1_user(call: Call[StatusAsked, None]) -> Response:
    """Enable or disable a user."""
    status, user_id = call.query.status, call.path["user_id"]
    done = records.set_status(call.catalog, user_id, status, by(call))
    return changed(done, user_id=user_id, status=status)


@operation(
    "GET",
    "/v1/user/{user_id}/owns",
    tag=TAG,
    query=OwnsQuery,
    answers=pages(OwnedList),
    errors=(404,),
    paged="resources",
    about="Collections, subscriptions and upload areas.",
)
def get_v1_user_owns(call: Call[OwnsAsked, None]) -> Response:
    """List what a user owns."""
    scope = (call.path["user_id"], call.query.resource_type or "")
    after = listing.position(call, *scope)
    found = reading.owned(
        call.catalog,
        _user(call),
        call.query.resource_type,
        after=None if after is None else reading.thing(*after),
        limit=call.query.per_page + 1,
    )
    deployment = call.services.settings.deployment

    def shown(thing: Thing) -> dict[str, Any]:
        arn = f"arn:store:{deployment}:*:{thing.type}s/{thing.uuid}"
        return {"resource_type": thing.type, "uuid": thing.uuid, "arn": arn}

    return listing.page(call, *scope, key="resources", found=found, place=list, shown=shown)


@operation(
    "GET",
    "/v1/user/{user_id}/groups",
    tag=TAG,
    query=ListQuery,
    answers=pages(GroupList),
    errors=(404,),
    paged="groups",
)
def get_v1_user_groups(call: Call[Listed, None]) -> Response:
    """List the groups that a user is in."""
    return listing.held(call, _user(call), "group")


@operation(
    "PUT",
    "/v1/user/{user_id}/groups",
    tag=TAG,
    query=ActionQuery,
    body=GroupsBody,
    body_optional=True,
    answers=CHANGED,
    errors=(404, 406, 409),
    about=ALL_OR_NONE,
)
def put_v1_user_group(call: Call[ActionAsked, Groups]) -> Response:
    """Add a user to groups, or remove them."""
    groups = [Name("group", one) for one in call.body.groups]
    return edited(call, Edit(_user(call), "groups", groups, call.query.action))


@operation(
    "GET",
    "/v1/user/{user_id}/roles",
    tag=TAG,
    query=ListQuery,
    answers=pages(RoleList),
    errors=(404,),
    paged="roles",
    about="The user's own; those of their groups are at the groups.",
)
def get_v1_user_roles(call: Call[Listed, None]) -> Response:
    """List the roles of a user."""
    return listing.held(call, _user(call), "role")


@operation(
    "PUT",
    "/v1/user/{user_id}/roles",
    tag=TAG,
    query=ActionQuery,
    body=RolesBody,
    body_optional=True,
    answers=CHANGED,
    errors=(404, 406),
    about=ALL_OR_NONE,
)
def put_v1_user_role(call: Call[ActionAsked, Roles]) -> Response:
    """Give a user roles, or take them away."""
    roles = [Name("role", one) for one in call.body.roles]
    return edited(call, Edit(_user(call), "roles", roles, call.query.action))


@operation(
    "PUT",
    "/v1/user/{user_id}/policy",
    tag=TAG,
    body=PolicyBody,
    body_optional=True,
    answers=CHANGED,
    errors=(404,),
    about="null takes the policy away.",
)
def put_v1_user_policy(call: Call[None, NewPolicy]) -> Response:
    """Give a user a policy of their own."""
    return policy_put(call, _user(call))


def _user(call: Call[Any, Any]) -> Name:
    return Name("user", call.path["user_id"])


OPERATIONS = (
    get_v1_users,
    post_v1_user,
    get_v1_user,
    put_v1_user,
    get_v1_user_owns,
    get_v1_user_groups,
    put_v1_user_group,
    get_v1_user_roles,
    put_v1_user_role,
    put_v1_user_policy,
)
