"""Operations on groups: their policy, roles and members."""

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
    ChangeAnswer,
    GroupAnswer,
    GroupList,
    ListParameters,
    ListQuery,
    NewGroup,
    NewGroupBody,
    PolicyBody,
    PolicyChange,
    RoleList,
    RoleNames,
    RolesBody,
    UserList,
    UserNames,
    UsersBody,
)
from api.http.operation import ResponseDoc, json_response, operation, page_responses
from auth import accounts
from auth.accounts import MembershipEdit, NewAccount
from storage.catalog.accounts import AccountKey

TAG = "groups"


@operation(
    "GET",
    "/v1/groups",
    tag=TAG,
    query=ListQuery,
    responses=page_responses(GroupList),
    paged="groups",
    description="Ids in byte order.",
)
def get_v1_groups(context: AuthRequestContext[ListParameters, None]) -> Response:
    """List groups."""
    return responses.reply_ids(context, "group")


@operation(
    "POST",
    "/v1/group",
    tag=TAG,
    body=NewGroupBody,
    responses={201: ResponseDoc("Made.", GroupAnswer)},
    errors=(404, 406, 409),
)
def post_v1_group(context: AuthRequestContext[None, NewGroup]) -> Response:
    """Make a group."""
    body = context.body
    new = NewAccount(AccountKey("group", body.group_id), policy=body.policy, roles=body.roles)
    account = accounts.create_account(context.catalog, new, audit_context(context))
    return json_response(format_account(account, context.services.settings.deployment), 201)


@operation(
    "GET",
    "/v1/group/{group_id}",
    tag=TAG,
    responses={200: ResponseDoc("The group.", GroupAnswer)},
    errors=(404,),
)
def get_v1_group(context: AuthRequestContext[None, None]) -> Response:
    """Read a group."""
    account = accounts.find_account(context.catalog, _group_name(context))
    return json_response(format_account(account, context.services.settings.deployment))


@operation(
    "DELETE",
    "/v1/group/{group_id}",
    tag=TAG,
    responses={200: ResponseDoc("Deleted.", ChangeAnswer)},
    errors=(404, 409),
    description="Removes all its members; its policy and roles no longer apply to them.",
)
def delete_v1_group(context: AuthRequestContext[None, None]) -> Response:
    """Delete a group."""
    accounts.delete_account(context.catalog, _group_name(context), audit_context(context))
    return reply_changed(True, group_id=context.path["group_id"])


@operation(
    "GET",
    "/v1/group/{group_id}/roles",
    tag=TAG,
    query=ListQuery,
    responses=page_responses(RoleList),
    errors=(404,),
    paged="roles",
)
def get_v1_group_roles(context: AuthRequestContext[ListParameters, None]) -> Response:
    """List the roles of a group."""
    return responses.reply_memberships(context, _group_name(context), "role")


@operation(
    "PUT",
    "/v1/group/{group_id}/roles",
    tag=TAG,
    query=ActionQuery,
    body=RolesBody,
    body_optional=True,
    responses=CHANGE_ANSWERS,
    errors=(404, 406, 409),
    description=ALL_OR_NONE,
)
def put_v1_group_role(context: AuthRequestContext[ActionParameters, RoleNames]) -> Response:
    """Give a group roles, or take them away."""
    roles = [AccountKey("role", one) for one in context.body.roles]
    return reply_membership_edit(
        context, MembershipEdit(_group_name(context), "roles", roles, context.query.action)
    )


@operation(
    "GET",
    "/v1/group/{group_id}/users",
    tag=TAG,
    query=ListQuery,
    responses=page_responses(UserList),
    errors=(404,),
    paged="users",
)
def get_v1_group_users(context: AuthRequestContext[ListParameters, None]) -> Response:
    """List the users in a group."""
    return responses.reply_members(context, _group_name(context), "user")


@operation(
    "PUT",
    "/v1/group/{group_id}/users",
    tag=TAG,
    query=ActionQuery,
    body=UsersBody,
    body_optional=True,
    responses=CHANGE_ANSWERS,
    errors=(404, 406, 409),
    description=ALL_OR_NONE,
)
def put_v1_group_user(context: AuthRequestContext[ActionParameters, UserNames]) -> Response:
    """Add users to a group, or remove them."""
    users = [AccountKey("user", one) for one in context.body.users]
    return reply_membership_edit(
        context, MembershipEdit(_group_name(context), "users", users, context.query.action)
    )


@operation(
    "PUT",
    "/v1/group/{group_id}/policy",
    tag=TAG,
    body=PolicyBody,
    body_optional=True,
    responses=CHANGE_ANSWERS,
    errors=(404, 409),
    description="null takes the policy away.",
)
def put_v1_group_policy(context: AuthRequestContext[None, PolicyChange]) -> Response:
    """Give a group a policy."""
    return reply_policy_change(context, _group_name(context))


def _group_name(context: AuthRequestContext[Any, Any]) -> AccountKey:
    return AccountKey("group", context.path["group_id"])
