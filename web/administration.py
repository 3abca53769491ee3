"""Administration of users, groups and roles, and the audit log."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, cast

from flask import Response

from api.http.errors import http_status
from api.schemas.fields import (
    NoParameters,
    QueryInteger,
    TextField,
    max_length,
    one_of,
    optional_text,
)
from auth import accounts
from auth.accounts import (
    ACCOUNT_ID_RULE,
    EMAIL_RULE,
    EditAction,
    MembershipEdit,
    NewAccount,
    is_account_id,
    is_user_id,
)
from auth.builtin_roles import is_permanent_membership, load_policy
from auth.policies.grammar import AccessPolicy
from storage.catalog.accounts import AccountKey, AccountKind, AccountStatus, Membership
from storage.catalog.audit import AuditFilter, AuditRecord
from storage.errors import ConflictError, DomainError, Forbidden, NotAcceptable, NotFoundError
from storage.model import normalize_identity
from web.account import audit_context, require_accounts
from web.pages import FormErrors, PageContext, page

Context = PageContext[Any]
PAGE_SIZE = 50
MAX_FILTER = 300
"""Characters of a filter of the audit log."""
DATE_RULE = "Must be a date like 2026-01-31."
MAX_SHOWN = 100
"""Members, holders and belongings that a record's page lists."""
LINKED: Mapping[AccountKind, tuple[AccountKind, ...]] = {
    "user": ("group", "role"),
    "group": ("role", "user"),
    "role": (),
}
SECTIONS = (
    ("/admin/users", "Users", "get_v1_users"),
    ("/admin/groups", "Groups", "get_v1_groups"),
    ("/admin/roles", "Roles", "get_v1_roles"),
    ("/admin/why", "Why may someone…?", "post_v1_policies_evaluate"),
    ("/admin/audit", "Audit log", "get_v1_audit"),
    ("/admin/service-accounts", "Service accounts", "get_v1_service_accounts"),
    ("/admin/applications", "Applications", "get_v1_clients"),
)
"""Pages of the administration, and the operation that each of them needs."""


def render_admin(
    context: Context, template: str, title: str, *, status: int = 200, **values: Any
) -> Response:
    """Render a page of the administration with links to the sections that the visitor may open."""
    sections = [
        (path, label)
        for path, label, operation in SECTIONS
        if context.may(operation, path={"principal": "*"}, query=None)
    ]
    return context.render(template, title, status=status, sections=sections, **values)


@page("GET", "/admin", access="get_v1_users")
def show_administration(context: PageContext[NoParameters]) -> Response:
    """Show what can be administered."""
    return render_admin(context, "admin.html", "Administration")


@dataclass(frozen=True)
class AccountListParameters:
    """Parameters of a list of accounts."""

    prefix: Annotated[str, optional_text(128)]
    after: Annotated[str, optional_text(128)]


def _show_accounts(kind: AccountKind, context: PageContext[AccountListParameters]) -> Response:
    return _render_accounts(kind, context, context.query)


def _render_accounts(
    kind: AccountKind,
    context: Context,
    query: AccountListParameters,
    *,
    status: int = 200,
    errors: Mapping[str, list[str]] | None = None,
) -> Response:
    auth = require_accounts(context)
    rows = accounts.list_accounts(
        auth.catalog, kind, prefix=query.prefix, after=query.after, limit=PAGE_SIZE + 1
    )
    more = len(rows) > PAGE_SIZE
    return render_admin(
        context,
        "admin_accounts.html",
        f"{kind.capitalize()}s",
        status=status,
        kind=kind,
        rows=rows[:PAGE_SIZE],
        prefix=query.prefix,
        next_url=context.url(after=rows[PAGE_SIZE - 1].id) if more else "",
        first_url=context.url(after=None) if query.after else "",
        form=context.request.form,
        errors=errors or {},
    )


@dataclass(frozen=True)
class NewAccountForm:
    """The id of a new user or group."""

    id: Annotated[str, TextField(required=True, validate=max_length(128))]


@dataclass(frozen=True)
class NewAccountBody:
    """What the guard reads of a new account, as of the operation's body."""

    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    policy: None = None


def _create_account(kind: AccountKind, context: Context) -> Response:
    """Create a user or group without members; what it may do is added on its page."""
    try:
        account_id = parse_new_id(kind, context.load_form(NewAccountForm).id)
        allowed = context.authorize(
            f"post_v1_{kind}", path={f"{kind}_id": account_id}, body=NewAccountBody()
        )
        new = NewAccount(AccountKey(kind, account_id))
        by = audit_context(context, f"post_v1_{kind}")
        accounts.create_account(require_accounts(allowed).catalog, new, by)
    except (FormErrors, ConflictError) as error:
        context.authorize(f"get_v1_{kind}s")
        errors = error.errors or {"id": [error.detail]}
        query = AccountListParameters("", "")
        return _render_accounts(kind, context, query, status=400, errors=errors)
    return context.redirect(f"/admin/{kind}s/{account_id}", f"The {kind} {account_id} is created.")


def parse_new_id(kind: AccountKind, text: str) -> str:
    """Return the id of a new account; FormErrors if it is not valid."""
    account_id = normalize_identity(text.strip()) if kind == "user" else text.strip()
    if not (is_user_id if kind == "user" else is_account_id)(account_id):
        rule = f"{EMAIL_RULE} {ACCOUNT_ID_RULE}" if kind == "user" else ACCOUNT_ID_RULE
        raise FormErrors("Some fields need a change.", errors={"id": [rule]})
    return account_id


@dataclass(frozen=True)
class AccountParameters:
    """Parameters of an account's page: where the next page of a group's users begins."""

    after: Annotated[str, optional_text(128)]


def _show_account(kind: AccountKind, context: PageContext[AccountParameters]) -> Response:
    return _render_account(kind, context, after=context.query.after)


def path_account(kind: AccountKind, context: Context) -> AccountKey:
    """Return the account that the path names."""
    return AccountKey(kind, context.path[f"{kind}_id"])


def _render_account(
    kind: AccountKind,
    context: Context,
    *,
    after: str = "",
    status: int = 200,
    errors: Mapping[str, list[str]] | None = None,
) -> Response:
    """Render the page of an account; lists that the visitor may not read are left out."""
    auth, name = require_accounts(context), path_account(kind, context)
    account = accounts.find_account(auth.catalog, name)
    policy = load_policy(name, account.policy, auth.settings.deployment)
    links: dict[AccountKind, list[str]] = {}
    for linked in LINKED[kind]:
        if context.may(f"get_v1_{kind}_{linked}s"):
            begin = after if linked == "user" else ""
            links[linked] = accounts.list_links(
                auth.catalog, name, linked, after=begin, limit=MAX_SHOWN + 1
            )
    holders: Mapping[AccountKind, list[str]] = {}
    if kind == "role":
        holders = accounts.list_holders(auth.catalog, name, limit=MAX_SHOWN + 1)
    return render_admin(
        context,
        "admin_account.html",
        f"{kind.capitalize()} {account.id}",
        status=status,
        kind=kind,
        account=account,
        policy=format_policy(policy) if policy else "",
        memberships=links,
        permanent=_list_permanent(name, links),
        holders=holders,
        owned=_list_owned(kind, context, name),
        most=MAX_SHOWN,
        base_path=f"/admin/{kind}s/{name.id}",
        may_set_policy=not account.built_in and context.may(f"put_v1_{kind}_policy"),
        may_set_status=kind == "user" and context.may("put_v1_user"),
        may_delete=kind != "user" and not account.built_in and context.may(f"delete_v1_{kind}"),
        form=context.request.form,
        errors=errors or {},
    )


def _list_permanent(name: AccountKey, links: Mapping[AccountKind, Sequence[str]]) -> set[str]:
    """Return the names of memberships that cannot end."""
    pairs = {
        each: Membership(AccountKey(linked, each), name)
        if linked == "user"
        else Membership(name, AccountKey(linked, each))
        for linked, names in links.items()
        for each in names
    }
    return {each for each, pair in pairs.items() if is_permanent_membership(pair)}


def format_policy(policy: AccessPolicy) -> str:
    """Format a policy for people."""
    return json.dumps(policy.document, indent=2, ensure_ascii=False)


def _list_owned(kind: AccountKind, context: Context, name: AccountKey) -> list[Any]:
    if kind != "user" or not context.may("get_v1_user_owns"):
        return []
    catalog = require_accounts(context).catalog
    return list(accounts.list_owned(catalog, name, None, after=None, limit=MAX_SHOWN))


@dataclass(frozen=True)
class StatusForm:
    """Whether a user is enabled."""

    status: Annotated[
        str,
        TextField(required=True, validate=one_of("enabled", "disabled")),
    ]


@page("POST", "/admin/users/<user_id>/status", access="put_v1_user")
def set_status(context: PageContext[NoParameters]) -> Response:
    """Enable a user, or disable them for every login."""
    auth, form = require_accounts(context), context.load_form(StatusForm)
    user_id, by = context.path["user_id"], audit_context(context, "put_v1_user")
    status = cast(AccountStatus, form.status)
    changed = accounts.set_account_status(auth.catalog, user_id, status, by)
    text = f"{user_id} is {status}." if changed else f"{user_id} was {status} already."
    return context.redirect(f"/admin/users/{user_id}", text)


@dataclass(frozen=True)
class MemberForm:
    """A membership to add or remove: its kind is `user`, `group` or `role`."""

    kind: Annotated[str, TextField(required=True, validate=one_of("user", "group", "role"))]
    name: Annotated[str, TextField(required=True, validate=max_length(128))]
    action: Annotated[str, TextField(required=True, validate=one_of("add", "remove"))]


@dataclass(frozen=True)
class MemberBody:
    """What the guard reads of a change of memberships, as of the operation's body."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


def _edit_members(kind: AccountKind, context: Context) -> Response:
    """Add or remove one group, role or user of an account."""
    form = context.load_form(MemberForm)
    linked = cast(AccountKind, form.kind)
    if linked not in LINKED[kind]:
        raise FormErrors(f"A {kind} has no {linked}s.", errors={"kind": ["Unknown."]})
    member = form.name.strip()
    member = normalize_identity(member) if linked == "user" else member
    body = replace(MemberBody(), **{f"{linked}s": (member,)})
    operation = f"put_v1_{kind}_{linked}"
    context.authorize(operation, body=body)
    action = cast(EditAction, form.action)
    name = path_account(kind, context)
    edit = MembershipEdit(name, f"{linked}s", [AccountKey(linked, member)], action)
    try:
        by = audit_context(context, operation)
        changed = accounts.edit_memberships(require_accounts(context).catalog, edit, by)
    except (NotFoundError, NotAcceptable, ConflictError) as error:
        context.authorize(f"get_v1_{kind}")
        errors: dict[str, list[str]] = {linked: [error.detail]}
        return _render_account(kind, context, status=_form_status(error), errors=errors)
    done = {"add": "added", "remove": "removed"}[action]
    text = f"The {linked} {member} is {done}." if changed else "Nothing changed."
    return context.redirect(f"/admin/{kind}s/{name.id}", text)


def _form_status(error: DomainError) -> int:
    """Return the status of a page with a form's errors: a missing member is no missing page."""
    return 400 if http_status(error) in (404, 406) else http_status(error)


def _confirm_deletion(kind: AccountKind, context: Context) -> Response:
    """Ask before a group or role is deleted."""
    auth, name = require_accounts(context), path_account(kind, context)
    account = accounts.find_account(auth.catalog, name)
    if account.built_in:
        raise Forbidden(f"The {kind} {name.id} is built in: it cannot be deleted.")
    effects = {
        "group": "Its users lose what the policy and the roles of this group allow them.",
        "role": "All users and groups that have it lose what it allows.",
    }
    return render_admin(
        context,
        "admin_confirm.html",
        f"Delete the {kind} {name.id}?",
        effect=f"{effects[kind]} This cannot be undone; the audit log keeps what it was.",
        action=f"/admin/{kind}s/{name.id}/delete",
        button=f"Delete the {kind}",
        back=f"/admin/{kind}s/{name.id}",
        fields={},
    )


def _delete_account(kind: AccountKind, context: Context) -> Response:
    """Delete a group or role."""
    name = path_account(kind, context)
    by = audit_context(context, f"delete_v1_{kind}")
    accounts.delete_account(require_accounts(context).catalog, name, by)
    return context.redirect(f"/admin/{kind}s", f"The {kind} {name.id} is deleted.")


def bind_kind(
    view: Callable[[AccountKind, Any], Response], kind: AccountKind, name: str
) -> Callable[[Any], Response]:
    """Return the view of one kind of accounts, with its own name."""
    bound = partial(view, kind)
    bound.__name__ = name  # type: ignore[attr-defined]
    return bound


def _declare_pages(kind: AccountKind) -> None:
    one, several, path = f"get_v1_{kind}", f"get_v1_{kind}s", f"/admin/{kind}s"
    item = f"{path}/<{kind}_id>"
    page("GET", path, access=several, query=AccountListParameters)(
        bind_kind(_show_accounts, kind, f"list_{kind}s")
    )
    page("GET", item, access=one, query=AccountParameters)(
        bind_kind(_show_account, kind, f"show_{kind}")
    )
    if kind != "role":
        page("POST", path, login=True)(bind_kind(_create_account, kind, f"create_{kind}"))
        edit = bind_kind(_edit_members, kind, f"edit_{kind}_members")
        page("POST", f"{item}/members", login=True)(edit)
    if kind != "user":
        access = f"delete_v1_{kind}"
        ask = bind_kind(_confirm_deletion, kind, f"confirm_{kind}_deletion")
        page("GET", f"{item}/delete", access=access)(ask)
        page("POST", f"{item}/delete", access=access)(
            bind_kind(_delete_account, kind, f"delete_{kind}")
        )


for _kind in LINKED:
    _declare_pages(_kind)


@dataclass(frozen=True)
class AuditLogParameters:
    """Filters of the audit log; days are in UTC, `until` is the last one."""

    who: Annotated[str, optional_text(MAX_FILTER)]
    what: Annotated[str, optional_text(MAX_FILTER)]
    target: Annotated[str, optional_text(MAX_FILTER)]
    since: Annotated[str, optional_text(MAX_FILTER)]
    until: Annotated[str, optional_text(MAX_FILTER)]
    before: Annotated[int | None, QueryInteger(load_default=None)]


@page("GET", "/admin/audit", access="get_v1_audit", query=AuditLogParameters)
def show_audit_log(context: PageContext[AuditLogParameters]) -> Response:
    """Show who changed what, the newest first."""
    query, errors = context.query, dict[str, list[str]]()
    since = _parse_day("since", query.since, errors)
    until = _parse_day("until", query.until, errors)
    criteria = AuditFilter(
        who=query.who.strip() or None,
        what=query.what.strip() or None,
        target=query.target.strip() or None,
        since_us=None if since is None else _to_us(since),
        until_us=None if until is None else _to_us(until + timedelta(days=1)),
    )
    records: list[AuditRecord] = []
    if not errors:
        records = accounts.list_changes(
            require_accounts(context).catalog,
            criteria,
            before_id=query.before,
            limit=PAGE_SIZE + 1,
        )
    more = len(records) > PAGE_SIZE
    shown = records[:PAGE_SIZE]
    return render_admin(
        context,
        "admin_audit.html",
        "Audit log",
        status=400 if errors else 200,
        query=query,
        records=[(one, _target_path(one.target)) for one in shown],
        next_url=context.url(before=str(shown[-1].id)) if more else "",
        first_url=context.url(before=None) if query.before is not None else "",
        errors=errors,
    )


def _parse_day(name: str, text: str, errors: dict[str, list[str]]) -> datetime | None:
    """Parse a day in UTC; report a bad one as an error of the field."""
    if not text.strip():
        return None
    try:
        day = datetime.strptime(text.strip(), "%Y-%m-%d").replace(tzinfo=UTC)
        # The day after the last one of the calendar is beyond it.
        return day if day + timedelta(days=1) else None
    except (ValueError, OverflowError):
        errors[name] = [DATE_RULE]
        return None


def _to_us(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000)


def _target_path(target: str) -> Any:
    """Return the page of what was changed; empty if it has none."""
    kind, _, account_id = target.partition("/")
    return f"/admin/{kind}s/{account_id}" if kind in ("user", "group", "role") else ""
