"""Operations on roles: named policies for users and groups."""

from typing import Any

from flask import Response

from api.authz import responses
from api.authz.context import AuthRequestContext
from api.authz.responses import (
    CHANGE_ANSWERS,
    audit_context,
    format_account,
    reply_changed,
    reply_policy_change,
)
from api.authz.schemas.accounts import (
    ChangeAnswer,
    ListParameters,
    ListQuery,
    NewRole,
    NewRoleBody,
    PolicyChange,
    RoleAnswer,
    RoleList,
    RolePolicyBody,
)
from api.http.operation import ResponseDoc, json_response, operation, page_responses
from auth import accounts
from auth.accounts import NewAccount
from storage.catalog.accounts import AccountKey

TAG = "roles"


@operation(
    "GET",
    "/v1/roles",
    tag=TAG,
    query=ListQuery,
    responses=page_responses(RoleList),
    paged="roles",
    description="Ids in byte order.",
)
def get_v1_roles(context: AuthRequestContext[ListParameters, None]) -> Response:
    """List roles."""
    return responses.reply_ids(context, "role")


@operation(
    "POST",
    "/v1/role",
    tag=TAG,
    body=NewRoleBody,
    responses={201: ResponseDoc("Made.", RoleAnswer)},
    errors=(409,),
)
def post_v1_role(context: AuthRequestContext[None, NewRole]) -> Response:
    """Make a role."""
    new = NewAccount(AccountKey("role", context.body.role_id), policy=context.body.policy)
    account = accounts.create_account(context.catalog, new, audit_context(context))
    return json_response(format_account(account, context.services.settings.deployment), 201)


@operation(
    "GET",
    "/v1/role/{role_id}",
    tag=TAG,
    responses={200: ResponseDoc("The role.", RoleAnswer)},
    errors=(404,),
)
def get_v1_role(context: AuthRequestContext[None, None]) -> Response:
    """Read a role."""
    account = accounts.find_account(context.catalog, _role_name(context))
    return json_response(format_account(account, context.services.settings.deployment))


@operation(
    "DELETE",
    "/v1/role/{role_id}",
    tag=TAG,
    responses={200: ResponseDoc("Deleted.", ChangeAnswer)},
    errors=(404, 409),
    description="No user and no group has it any more.",
)
def delete_v1_role(context: AuthRequestContext[None, None]) -> Response:
    """Delete a role."""
    accounts.delete_account(context.catalog, _role_name(context), audit_context(context))
    return reply_changed(True, role_id=context.path["role_id"])


@operation(
    "PUT",
    "/v1/role/{role_id}/policy",
    tag=TAG,
    body=RolePolicyBody,
    body_optional=True,
    responses=CHANGE_ANSWERS,
    errors=(404, 409),
)
def put_v1_role_policy(context: AuthRequestContext[None, PolicyChange]) -> Response:
    """Give a role another policy."""
    return reply_policy_change(context, _role_name(context))


def _role_name(context: AuthRequestContext[Any, Any]) -> AccountKey:
    return AccountKey("role", context.path["role_id"])
