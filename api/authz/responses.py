"""Responses shared by users, groups, roles and audit: pages of lists, and changes."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from flask import Response

from api.authz.context import AuthRequestContext
from api.authz.schemas.accounts import POLICY_NOT_GIVEN, ChangeAnswer, ListParameters
from api.http.operation import ResponseDoc, json_response
from api.http.paging import add_paging_headers, next_page_url
from auth import accounts
from auth.accounts import AuditContext, MembershipEdit
from auth.builtin_roles import load_policy
from pipelines.formats import version_from_us
from storage.catalog.accounts import AccountKey, AccountKind, AccountRow

CHANGE_ANSWERS = {200: ResponseDoc("It is so.", ChangeAnswer)}
ALL_OR_NONE = "All of them or none: one that does not exist is 404, and nothing has changed then."


def audit_context(context: AuthRequestContext[Any, Any]) -> AuditContext:
    """Return the caller and the operation for the audit log."""
    return AuditContext(
        who=context.caller.email, what=context.operation, request_id=context.request_id
    )


def reply_changed(done: bool, **said: Any) -> Response:
    """Respond to a change, which may have had no effect."""
    return json_response({**said, "changed": done})


def reply_membership_edit(context: AuthRequestContext[Any, Any], edit: MembershipEdit) -> Response:
    """Edit memberships, and respond."""
    changed = accounts.edit_memberships(context.catalog, edit, audit_context(context))
    ids = [one.id for one in edit.named]
    return reply_changed(changed, **context.path, action=edit.action, **{edit.member: ids})


def reply_policy_change(context: AuthRequestContext[Any, Any], name: AccountKey) -> Response:
    """Set an account's policy to the body's."""
    policy = context.body.policy
    if policy == POLICY_NOT_GIVEN:
        accounts.find_account(context.catalog, name)
        return reply_changed(False, **context.path)
    changed = accounts.set_account_policy(context.catalog, name, policy, audit_context(context))
    return reply_changed(changed, **context.path)


def format_account(account: AccountRow, deployment: str) -> dict[str, Any]:
    """Format an account as JSON."""
    name = AccountKey(account.kind, account.id)
    policy = load_policy(name, account.policy, deployment)
    status = {"status": account.status} if account.kind == "user" else {}
    return {
        f"{account.kind}_id": account.id,
        **status,
        "policy": None if policy is None else policy.document,
        "built_in": account.built_in,
        "created": version_from_us(account.created_us),
        "updated": version_from_us(account.changed_us),
    }


T = TypeVar("T")
PAGE_TOKEN_PARAMETER = "next_token"


def read_page_token(context: AuthRequestContext[Any, None], *scope: str) -> list[str] | None:
    """Return the cursor of a page, None for the first; tokens are bound to operation and scope."""
    query: ListParameters = context.query
    if query.next_token is None:
        return None
    scopes = (context.operation, *scope)
    return context.services.cursors.open(scopes, query.next_token, parameter=PAGE_TOKEN_PARAMETER)


def reply_page(
    context: AuthRequestContext[Any, None],
    *scope: str,
    key: str,
    found: Sequence[T],
    place: Callable[[T], list[str]],
    shown: Callable[[T], Any],
) -> Response:
    """Respond with one page; `found` has one extra item if another page follows."""
    size = context.query.per_page
    items = found[:size]
    response = json_response({key: [shown(one) for one in items]})
    if len(found) <= size:
        return add_paging_headers(response, key, None)
    pointer = context.services.cursors.seal((context.operation, *scope), place(items[-1]))
    return add_paging_headers(
        response, key, next_page_url(context.request, context.base, {PAGE_TOKEN_PARAMETER: pointer})
    )


def reply_ids(context: AuthRequestContext[ListParameters, None], kind: AccountKind) -> Response:
    """Respond with ids of a kind of account."""
    return _reply_id_page(context, kind, read=partial(accounts.list_ids, context.catalog, kind))


def reply_memberships(
    context: AuthRequestContext[ListParameters, None], name: AccountKey, kind: AccountKind
) -> Response:
    """Respond with an account's memberships."""
    return _reply_id_page(
        context, kind, name.id, read=partial(accounts.list_memberships, context.catalog, name, kind)
    )


def reply_members(
    context: AuthRequestContext[ListParameters, None], name: AccountKey, kind: AccountKind
) -> Response:
    """Respond with an account's members."""
    return _reply_id_page(
        context, kind, name.id, read=partial(accounts.list_members, context.catalog, name, kind)
    )


class _IdReader(Protocol):
    def __call__(self, *, after: str, limit: int) -> Sequence[str]:
        """Read ids after one."""


def _reply_id_page(
    context: AuthRequestContext[ListParameters, None],
    kind: AccountKind,
    *scope: str,
    read: _IdReader,
) -> Response:
    after = read_page_token(context, *scope)
    ids = read(after=after[0] if after else "", limit=context.query.per_page + 1)
    return reply_page(
        context, *scope, key=f"{kind}s", found=ids, place=lambda one: [one], shown=str
    )
