"""Operations on users, groups and roles, and on the audit log of their changes."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import orjson
from flask import Response
from marshmallow import Schema

from api.authz.context import AuthRequestContext
from api.authz.schemas.accounts import (
    POLICY_NOT_GIVEN,
    ActionParameters,
    AuditLog,
    AuditParameters,
    ChangeAnswer,
    GroupAnswer,
    GroupList,
    GroupsBody,
    ListParameters,
    NewGroupBody,
    NewRoleBody,
    NewUserBody,
    OwnedList,
    OwnedResourcesParameters,
    PolicyBody,
    RoleAnswer,
    RoleList,
    RolePolicyBody,
    RolesBody,
    StatusParameters,
    UserAnswer,
    UserList,
    UsersBody,
)
from api.http.operation import Operation, ResponseDoc, json_response, operation, page_responses
from api.http.paging import add_paging_headers, next_page_url
from auth import accounts
from auth.accounts import AuditContext, MembershipEdit, NewAccount
from auth.builtin_roles import load_policy
from pipelines.formats import version_from_us, version_to_us
from storage.catalog.accounts import AccountKey, AccountKind, AccountRow, OwnedResource, OwnedType
from storage.catalog.audit import AuditFilter, AuditRecord

CHANGE_ANSWERS = {200: ResponseDoc("Done; `changed` says whether anything changed.", ChangeAnswer)}
ALL_OR_NONE = "All of them or none: one that does not exist is 404, and nothing has changed then."
PAGE_TOKEN_PARAMETER = "next_token"

T = TypeVar("T")
AnyContext = AuthRequestContext[Any, Any]
PageContext = AuthRequestContext[ListParameters, None]


def _declare_list(kind: AccountKind, schema: type[Schema]) -> Operation:
    @operation(
        "GET",
        f"/v1/{kind}s",
        name=f"get_v1_{kind}s",
        summary=f"List {kind}s.",
        tag=f"{kind}s",
        query=ListParameters,
        responses=page_responses(schema),
        paged=f"{kind}s",
        description="Ids in byte order.",
    )
    def list_ids(context: PageContext) -> Response:
        return _reply_id_page(context, kind, read=partial(accounts.list_ids, context.catalog, kind))

    return list_ids


def _declare_creation(
    kind: AccountKind, body: type[Any], schema: type[Schema], **more: Any
) -> Operation:
    @operation(
        "POST",
        f"/v1/{kind}",
        name=f"post_v1_{kind}",
        summary=f"Make a {kind}.",
        tag=f"{kind}s",
        body=body,
        responses={201: ResponseDoc("Created.", schema)},
        **more,
    )
    def create(context: AnyContext) -> Response:
        members = dict(vars(context.body))
        new = NewAccount(AccountKey(kind, members.pop(f"{kind}_id")), **members)
        account = accounts.create_account(context.catalog, new, audit_context(context))
        return _reply_account(context, account, 201)

    return create


def _declare_read(kind: AccountKind, schema: type[Schema]) -> Operation:
    @operation(
        "GET",
        f"/v1/{kind}/{{{kind}_id}}",
        name=f"get_v1_{kind}",
        summary=f"Read a {kind}.",
        tag=f"{kind}s",
        responses={200: ResponseDoc(f"The {kind}.", schema)},
        errors=(404,),
    )
    def read(context: AnyContext) -> Response:
        account = accounts.find_account(context.catalog, _path_account(context, kind))
        return _reply_account(context, account)

    return read


def _declare_deletion(kind: AccountKind, description: str) -> Operation:
    @operation(
        "DELETE",
        f"/v1/{kind}/{{{kind}_id}}",
        name=f"delete_v1_{kind}",
        summary=f"Delete a {kind}.",
        tag=f"{kind}s",
        responses={200: ResponseDoc("Deleted.", ChangeAnswer)},
        errors=(404, 409),
        description=description,
    )
    def delete(context: AnyContext) -> Response:
        name = _path_account(context, kind)
        accounts.delete_account(context.catalog, name, audit_context(context))
        return _reply_changed(True, **context.path)

    return delete


def _declare_links(
    kind: AccountKind, linked: AccountKind, schema: type[Schema], summary: str, **more: Any
) -> Operation:
    """Declare the list of an account's groups, roles or users."""

    @operation(
        "GET",
        f"/v1/{kind}/{{{kind}_id}}/{linked}s",
        name=f"get_v1_{kind}_{linked}s",
        summary=summary,
        tag=f"{kind}s",
        query=ListParameters,
        responses=page_responses(schema),
        errors=(404,),
        paged=f"{linked}s",
        **more,
    )
    def list_links(context: PageContext) -> Response:
        name = _path_account(context, kind)
        read = partial(accounts.list_links, context.catalog, name, linked)
        return _reply_id_page(context, linked, name.id, read=read)

    return list_links


def _declare_links_edit(
    kind: AccountKind,
    linked: AccountKind,
    body: type[Any],
    summary: str,
    errors: tuple[int, ...] = (404, 406, 409),
) -> Operation:
    """Declare the edit of an account's groups, roles or users."""

    @operation(
        "PUT",
        f"/v1/{kind}/{{{kind}_id}}/{linked}s",
        name=f"put_v1_{kind}_{linked}",
        summary=summary,
        tag=f"{kind}s",
        query=ActionParameters,
        body=body,
        body_optional=True,
        responses=CHANGE_ANSWERS,
        errors=errors,
        description=ALL_OR_NONE,
    )
    def edit_links(context: AuthRequestContext[ActionParameters, Any]) -> Response:
        member, action = f"{linked}s", context.query.action
        ids = getattr(context.body, member)
        named = [AccountKey(linked, one) for one in ids]
        edit = MembershipEdit(_path_account(context, kind), member, named, action)
        changed = accounts.edit_memberships(context.catalog, edit, audit_context(context))
        return _reply_changed(changed, **context.path, action=action, **{member: ids})

    return edit_links


def _declare_policy_change(
    kind: AccountKind, body: type[Any], summary: str, **more: Any
) -> Operation:
    @operation(
        "PUT",
        f"/v1/{kind}/{{{kind}_id}}/policy",
        name=f"put_v1_{kind}_policy",
        summary=summary,
        tag=f"{kind}s",
        body=body,
        body_optional=True,
        responses=CHANGE_ANSWERS,
        **more,
    )
    def set_policy(context: AuthRequestContext[None, PolicyBody]) -> Response:
        name, policy = _path_account(context, kind), context.body.policy
        if policy == POLICY_NOT_GIVEN:
            accounts.find_account(context.catalog, name)
            return _reply_changed(False, **context.path)
        changed = accounts.set_account_policy(context.catalog, name, policy, audit_context(context))
        return _reply_changed(changed, **context.path)

    return set_policy


def _path_account(context: AnyContext, kind: AccountKind) -> AccountKey:
    return AccountKey(kind, context.path[f"{kind}_id"])


def audit_context(context: AnyContext) -> AuditContext:
    """Return the caller and the operation for the audit log."""
    return AuditContext(
        who=context.caller.email, what=context.operation, request_id=context.request_id
    )


def _reply_changed(done: bool, **said: Any) -> Response:
    """Respond to a change, which may have had no effect."""
    return json_response({**said, "changed": done})


def _reply_account(context: AnyContext, account: AccountRow, status: int = 200) -> Response:
    name = AccountKey(account.kind, account.id)
    policy = load_policy(name, account.policy, context.services.settings.deployment)
    state = {"status": account.status} if account.kind == "user" else {}
    answer = {
        f"{account.kind}_id": account.id,
        **state,
        "policy": None if policy is None else policy.document,
        "built_in": account.built_in,
        "created": version_from_us(account.created_us),
        "updated": version_from_us(account.changed_us),
    }
    return json_response(answer, status)


def _reply_id_page(
    context: PageContext, kind: AccountKind, *scope: str, read: Callable[..., Sequence[str]]
) -> Response:
    after = _read_page_token(context, *scope)
    ids = read(after=after[0] if after else "", limit=context.query.per_page + 1)
    return _reply_page(
        context, *scope, key=f"{kind}s", found=ids, place=lambda one: [one], format_item=str
    )


def _read_page_token(context: AnyContext, *scope: str) -> list[str] | None:
    """Return the cursor of a page, None for the first; tokens are bound to operation and scope."""
    token = context.query.next_token
    if token is None:
        return None
    scopes = (context.operation, *scope)
    return context.services.cursors.open(scopes, token, parameter=PAGE_TOKEN_PARAMETER)


def _reply_page(
    context: AnyContext,
    *scope: str,
    key: str,
    found: Sequence[T],
    place: Callable[[T], list[str]],
    format_item: Callable[[T], Any],
) -> Response:
    """Respond with one page; `found` has one extra item if another page follows."""
    size = context.query.per_page
    items = found[:size]
    response = json_response({key: [format_item(one) for one in items]})
    if len(found) <= size:
        return add_paging_headers(response, key, None)
    token = context.services.cursors.seal((context.operation, *scope), place(items[-1]))
    url = next_page_url(context.request, context.base, {PAGE_TOKEN_PARAMETER: token})
    return add_paging_headers(response, key, url)


get_v1_users = _declare_list("user", UserList)
post_v1_user = _declare_creation(
    "user",
    NewUserBody,
    UserAnswer,
    errors=(404, 406, 409),
    description="Every user is also in the group user_default. A group or role that"
    " does not exist is 404, and nothing is created then.",
)
get_v1_user = _declare_read("user", UserAnswer)


@operation(
    "PUT",
    "/v1/user/{user_id}",
    tag="users",
    query=StatusParameters,
    responses=CHANGE_ANSWERS,
    errors=(404,),
    description="A disabled user is allowed nothing from now on, whatever tokens they hold.",
)
def put_v1_user(context: AuthRequestContext[StatusParameters, None]) -> Response:
    """Enable or disable a user."""
    status, user_id = context.query.status, context.path["user_id"]
    changed = accounts.set_account_status(context.catalog, user_id, status, audit_context(context))
    return _reply_changed(changed, user_id=user_id, status=status)


@operation(
    "GET",
    "/v1/user/{user_id}/owns",
    tag="users",
    query=OwnedResourcesParameters,
    responses=page_responses(OwnedList),
    errors=(404,),
    paged="resources",
    description="Collections, subscriptions and upload areas.",
)
def get_v1_user_owns(context: AuthRequestContext[OwnedResourcesParameters, None]) -> Response:
    """List what a user owns."""
    scope = (context.path["user_id"], context.query.resource_type or "")
    after = _read_page_token(context, *scope)
    resources = accounts.list_owned(
        context.catalog,
        _path_account(context, "user"),
        context.query.resource_type,
        after=None if after is None else OwnedResource(cast(OwnedType, after[0]), after[1]),
        limit=context.query.per_page + 1,
    )
    arns = f"arn:store:{context.services.settings.deployment}:*:"

    def format_resource(owned: OwnedResource) -> dict[str, Any]:
        arn = f"{arns}{owned.type}s/{owned.uuid}"
        return {"resource_type": owned.type, "uuid": owned.uuid, "arn": arn}

    return _reply_page(
        context, *scope, key="resources", found=resources, place=list, format_item=format_resource
    )


get_v1_user_groups = _declare_links(
    "user", "group", GroupList, "List the groups that a user is in."
)
put_v1_user_group = _declare_links_edit(
    "user", "group", GroupsBody, "Add a user to groups, or remove them."
)
get_v1_user_roles = _declare_links(
    "user",
    "role",
    RoleList,
    "List the roles of a user.",
    description="The user's own roles, without those of their groups.",
)
put_v1_user_role = _declare_links_edit(
    "user", "role", RolesBody, "Give a user roles, or take them away.", errors=(404, 406)
)
put_v1_user_policy = _declare_policy_change(
    "user",
    PolicyBody,
    "Give a user a policy of their own.",
    errors=(404,),
    description="null removes the policy.",
)

get_v1_groups = _declare_list("group", GroupList)
post_v1_group = _declare_creation("group", NewGroupBody, GroupAnswer, errors=(404, 406, 409))
get_v1_group = _declare_read("group", GroupAnswer)
delete_v1_group = _declare_deletion(
    "group", "Removes all its members; its policy and roles no longer apply to them."
)
get_v1_group_roles = _declare_links("group", "role", RoleList, "List the roles of a group.")
put_v1_group_role = _declare_links_edit(
    "group", "role", RolesBody, "Give a group roles, or take them away."
)
get_v1_group_users = _declare_links("group", "user", UserList, "List the users in a group.")
put_v1_group_user = _declare_links_edit(
    "group", "user", UsersBody, "Add users to a group, or remove them."
)
put_v1_group_policy = _declare_policy_change(
    "group",
    PolicyBody,
    "Give a group a policy.",
    errors=(404, 409),
    description="null removes the policy.",
)

get_v1_roles = _declare_list("role", RoleList)
post_v1_role = _declare_creation("role", NewRoleBody, RoleAnswer, errors=(409,))
get_v1_role = _declare_read("role", RoleAnswer)
delete_v1_role = _declare_deletion("role", "No user and no group has it any more.")
put_v1_role_policy = _declare_policy_change(
    "role", RolePolicyBody, "Give a role another policy.", errors=(404, 409)
)


@operation(
    "GET",
    "/v1/audit",
    tag="audit",
    query=AuditParameters,
    responses=page_responses(AuditLog),
    paged="audit",
    description="Every change of users, groups, roles, policies and memberships, and of"
    " everything else that decides permissions; the newest first.",
)
def get_v1_audit(context: AuthRequestContext[AuditParameters, None]) -> Response:
    """Read who changed what."""
    query = context.query
    # Tokens of the time before there were more filters stay valid.
    added = {"until": query.until, "target": query.target}
    more = [f"{name}={value}" for name, value in added.items() if value]
    scope = (query.who or "", query.what or "", query.since or "", *more)
    before = _read_page_token(context, *scope)
    records = accounts.list_changes(
        context.catalog,
        AuditFilter(
            query.who,
            query.what,
            None if query.since is None else version_to_us(query.since),
            query.target,
            None if query.until is None else version_to_us(query.until),
        ),
        before_id=None if before is None else int(before[0]),
        limit=query.per_page + 1,
    )
    return _reply_page(
        context,
        *scope,
        key="audit",
        found=records,
        place=lambda record: [str(record.id)],
        format_item=_format_record,
    )


def _format_record(record: AuditRecord) -> dict[str, Any]:
    return {
        "at": version_from_us(record.at_us),
        "who": record.who,
        "what": record.what,
        "target": record.target,
        "before": None if record.before is None else orjson.Fragment(record.before),
        "after": None if record.after is None else orjson.Fragment(record.after),
        "request_id": record.request_id,
    }
