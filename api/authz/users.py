"""Operations on users: their status, policy, groups, roles and owned resources."""

from typing import Any

from flask import Response

from api.authz import responses
from api.authz.context import AuthRequestContext
from api.authz.responses import (
    ALL_OR_NONE,
    CHANGE_ANSWERS,
    audit_context,
    format_account,
    reply_changed,
    reply_membership_edit,
    reply_policy_change,
)
from api.authz.schemas.accounts import (
    ActionParameters,
    ActionQuery,
    GroupList,
    GroupNames,
    GroupsBody,
    ListParameters,
    ListQuery,
    NewUser,
    NewUserBody,
    OwnedList,
    OwnedResourcesParameters,
    OwnedResourcesQuery,
    PolicyBody,
    PolicyChange,
    RoleList,
    RoleNames,
    RolesBody,
    StatusParameters,
    StatusQuery,
    UserAnswer,
    UserList,
)
from api.http.operation import ResponseDoc, json_response, operation, page_responses
from auth import accounts
from auth.accounts import MembershipEdit, NewAccount
from storage.catalog.accounts import AccountKey, OwnedResource

TAG = "users"


@operation(
    "GET",
    "/v1/users",
    tag=TAG,
    query=ListQuery,
    responses=page_responses(UserList),
    paged="users",
    description="Ids in byte order.",
)
def get_v1_users(context: AuthRequestContext[ListParameters, None]) -> Response:
    """List users."""
    return responses.reply_ids(context, "user")


@operation(
    "POST",
    "/v1/user",
    tag=TAG,
    body=NewUserBody,
    responses={201: ResponseDoc("Made.", UserAnswer)},
    errors=(404, 406, 409),
    description="Every user is in the group user_default, too. A group or role that does not exist"
    " is 404, and nothing is made then.",
)
def post_v1_user(context: AuthRequestContext[None, NewUser]) -> Response:
    """Make a user."""
    body = context.body
    name = AccountKey("user", body.user_id)
    new = NewAccount(name, policy=body.policy, groups=body.groups, roles=body.roles)
    account = accounts.create_account(context.catalog, new, audit_context(context))
    return json_response(format_account(account, context.services.settings.deployment), 201)


@operation(
    "GET",
    "/v1/user/{user_id}",
    tag=TAG,
    responses={200: ResponseDoc("The user.", UserAnswer)},
    errors=(404,),
)
def get_v1_user(context: AuthRequestContext[None, None]) -> Response:
    """Read a user."""
    account = accounts.find_account(context.catalog, _user_name(context))
    return json_response(format_account(account, context.services.settings.deployment))


@operation(
    "PUT",
    "/v1/user/{user_id}",
    tag=TAG,
    query=StatusQuery,
    responses=CHANGE_ANSWERS,
    errors=(404,),
    description="Who is disabled is allowed nothing from this moment, whatever tokens they hold.",
)
def put_v1_user(context: AuthRequestContext[StatusParameters, None]) -> Response:
    """Enable or disable a user."""
    status, user_id = context.query.status, context.path["user_id"]
    changed = accounts.set_account_status(context.catalog, user_id, status, audit_context(context))
    return reply_changed(changed, user_id=user_id, status=status)


@operation(
    "GET",
    "/v1/user/{user_id}/owns",
    tag=TAG,
    query=OwnedResourcesQuery,
    responses=page_responses(OwnedList),
    errors=(404,),
    paged="resources",
    description="Collections, subscriptions and upload areas.",
)
def get_v1_user_owns(context: AuthRequestContext[OwnedResourcesParameters, None]) -> Response:
    """List what a user owns."""
    scope = (context.path["user_id"], context.query.resource_type or "")
    after = responses.read_page_token(context, *scope)
    resources = accounts.list_owned(
        context.catalog,
        _user_name(context),
        context.query.resource_type,
        after=None if after is None else accounts.parse_owned_thing(*after),
        limit=context.query.per_page + 1,
    )
    deployment = context.services.settings.deployment

    def shown(thing: OwnedResource) -> dict[str, Any]:
        arn = f"arn:store:{deployment}:*:{thing.type}s/{thing.uuid}"
        return {"resource_type": thing.type, "uuid": thing.uuid, "arn": arn}

    return responses.reply_page(
        context, *scope, key="resources", found=resources, place=list, shown=shown
    )


@operation(
    "GET",
    "/v1/user/{user_id}/groups",
    tag=TAG,
    query=ListQuery,
    responses=page_responses(GroupList),
    errors=(404,),
    paged="groups",
)
def get_v1_user_groups(context: AuthRequestContext[ListParameters, None]) -> Response:
    """List the groups that a user is in."""
    return responses.reply_memberships(context, _user_name(context), "group")


@operation(
    "PUT",
    "/v1/user/{user_id}/groups",
    tag=TAG,
    query=ActionQuery,
    body=GroupsBody,
    body_optional=True,
    responses=CHANGE_ANSWERS,
    errors=(404, 406, 409),
    description=ALL_OR_NONE,
)
def put_v1_user_group(context: AuthRequestContext[ActionParameters, GroupNames]) -> Response:
    """Add a user to groups, or remove them."""
    groups = [AccountKey("group", one) for one in context.body.groups]
    return reply_membership_edit(
        context, MembershipEdit(_user_name(context), "groups", groups, context.query.action)
    )


@operation(
    "GET",
    "/v1/user/{user_id}/roles",
    tag=TAG,
    query=ListQuery,
    responses=page_responses(RoleList),
    errors=(404,),
    paged="roles",
    description="The user's own; those of their groups are at the groups.",
)
def get_v1_user_roles(context: AuthRequestContext[ListParameters, None]) -> Response:
    """List the roles of a user."""
    return responses.reply_memberships(context, _user_name(context), "role")


@operation(
    "PUT",
    "/v1/user/{user_id}/roles",
    tag=TAG,
    query=ActionQuery,
    body=RolesBody,
    body_optional=True,
    responses=CHANGE_ANSWERS,
    errors=(404, 406),
    description=ALL_OR_NONE,
)
def put_v1_user_role(context: AuthRequestContext[ActionParameters, RoleNames]) -> Response:
    """Give a user roles, or take them away."""
    roles = [AccountKey("role", one) for one in context.body.roles]
    return reply_membership_edit(
        context, MembershipEdit(_user_name(context), "roles", roles, context.query.action)
    )


@operation(
    "PUT",
    "/v1/user/{user_id}/policy",
    tag=TAG,
    body=PolicyBody,
    body_optional=True,
    responses=CHANGE_ANSWERS,
    errors=(404,),
    description="null takes the policy away.",
)
def put_v1_user_policy(context: AuthRequestContext[None, PolicyChange]) -> Response:
    """Give a user a policy of their own."""
    return reply_policy_change(context, _user_name(context))


def _user_name(context: AuthRequestContext[Any, Any]) -> AccountKey:
    return AccountKey("user", context.path["user_id"])
