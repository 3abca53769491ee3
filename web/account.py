"""The account of the visitor: permissions, browser sessions, applications and personal tokens."""

from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any

from flask import Response

from api.app import OPERATIONS
from api.authz.app import OPERATIONS as AUTH_OPERATIONS
from api.authz.context import AuthServices
from api.schemas.fields import NoParameters, QueryInteger, TextField, in_range, max_length
from auth.accounts import MAX_GRANT_ID, AuditContext
from auth.login import sessions
from auth.oauth import authorize, personal_tokens
from auth.oauth.personal_tokens import DAY_S, MAX_TOKEN_NAME, NewPersonalToken
from auth.permissions import OperationPermission, list_permissions, list_role_sources
from storage.errors import ConflictError, Forbidden, Invalid, Unauthorized
from storage.model import Principal
from web.pages import FormErrors, PageContext, page

Context = PageContext[NoParameters]
DEFAULT_TOKEN_DAYS, MAX_TOKEN_DAYS = 90, 36_500
PROVIDER_TITLES = {"local": "password", "link": "one-time link"}
SUBJECTS = {
    "bundle": "Bundles",
    "bundles": "Bundles",
    "file": "Files",
    "files": "Files",
    "task": "Files",
    "collection": "Collections",
    "collections": "Collections",
    "search": "Search",
    "event": "Events",
    "events": "Events",
    "subscription": "Subscriptions",
    "subscriptions": "Subscriptions",
    "deliveries": "Subscriptions",
    "delivery": "Subscriptions",
    "replay": "Subscriptions",
    "area": "Upload areas",
    "v1": "Accounts",
}
"""Headings of operations, by a word of their names."""
OTHER_SUBJECT = "The service"
SUMMARIES = {one.name: one.summary for one in (*OPERATIONS, *AUTH_OPERATIONS)}
"""What each operation does."""


def require_caller(context: PageContext[Any]) -> Principal:
    """Return the visitor who is logged in; Unauthorized if there is none."""
    if context.principal is None:
        raise Unauthorized("Log in first.")
    return context.principal


def require_accounts(context: PageContext[Any]) -> AuthServices:
    """Return the services of accounts; Forbidden if a remote service manages them."""
    if context.site.auth is None:
        raise Forbidden(f"Accounts are managed at {context.services.settings.auth_url}.")
    return context.site.auth


def audit_context(context: PageContext[Any], what: str) -> AuditContext:
    """Return the visitor and an operation for the audit log."""
    return AuditContext(require_caller(context).email, what, context.request_id)


@page("GET", "/account", login=True)
def show_account(context: Context) -> Response:
    """Show who is logged in, and what acts in their name."""
    return _render_account(context)


def _render_account(
    context: Context,
    *,
    status: int = 200,
    errors: dict[str, list[str]] | None = None,
    created: NewPersonalToken | None = None,
) -> Response:
    caller, auth = require_caller(context), context.site.auth
    if auth is None:
        return context.render("account_remote.html", "Your account")
    now, settings = auth.clock(), auth.settings
    grants = authorize.list_own_grants(auth.catalog, auth.provider.own_clients, caller.email, now)
    found = auth.decisions.find_permissions(caller)
    return context.render(
        "account.html",
        "Your account",
        status=status,
        groups=found.groups,
        roles=list_role_sources(auth.catalog, caller, settings),
        sessions=sessions.list_browser_sessions(auth.catalog, caller.email, now),
        providers={
            **PROVIDER_TITLES,
            **{name: p.upstream.title for name, p in auth.logins.providers.items()},
        },
        applications=[grant for grant in grants if grant.token_name is None],
        grant=caller.grant,
        tokens=personal_tokens.list_personal_tokens(auth.catalog, caller.email, now),
        most_days=settings.personal_token_s // DAY_S,
        days=min(DEFAULT_TOKEN_DAYS, settings.personal_token_s // DAY_S),
        form=context.request.form,
        errors=errors or {},
        created=created,
    )


@page("GET", "/account/permissions", login=True)
def show_own_permissions(context: Context) -> Response:
    """Show what the visitor may do, operation by operation, with the deciding statements."""
    caller = require_caller(context)
    context.authorize("post_v1_policies_evaluate", path={"principal": caller.email})
    return context.render(
        "account_permissions.html", "What you may do", subjects=group_permissions(context, caller)
    )


def group_permissions(
    context: PageContext[Any], principal: Principal
) -> list[tuple[str, list[tuple[str, OperationPermission]]]]:
    """List a principal's permissions by subject, each with what the operation does."""
    auth = require_accounts(context)
    found = auth.decisions.find_permissions(principal)
    listed = list_permissions(found, auth.settings.deployment, auth.open_operations)
    # Operations of one action, such as PUT of one file and of many, are one line.
    listed = list({one.action: one for one in reversed(listed)}.values())
    last = (SUBJECTS["v1"], OTHER_SUBJECT)
    listed.sort(key=lambda one: (_subject_of(one.operation) in last, _subject_of(one.operation)))
    return [
        (name, [(SUMMARIES.get(one.operation, ""), one) for one in some])
        for name, some in groupby(listed, lambda p: _subject_of(p.operation))
    ]


def _subject_of(operation: str) -> str:
    words = operation.split("_")
    return next((SUBJECTS[word] for word in words if word in SUBJECTS), OTHER_SUBJECT)


@dataclass(frozen=True)
class SessionForm:
    """The session to end."""

    session: Annotated[str, TextField(required=True, validate=max_length(128))]


@page("POST", "/account/sessions/end", login=True, while_read_only=True)
def end_session(context: Context) -> Response:
    """End one of the visitor's browser sessions."""
    auth, form = require_accounts(context), context.load_form(SessionForm)
    by = audit_context(context, "end_session")
    ended = authorize.end_browser_session(auth.catalog, form.session, by, auth.clock())
    return context.redirect("/account", "Session ended." if ended else "It had ended already.")


@dataclass(frozen=True)
class GrantForm:
    """The application or token whose access ends."""

    grant: Annotated[str, TextField(required=True, validate=max_length(MAX_GRANT_ID))]


@page("POST", "/account/access/revoke", login=True, while_read_only=True)
def revoke_access(context: Context) -> Response:
    """Revoke the access of an application, or a personal token."""
    auth, form = require_accounts(context), context.load_form(GrantForm)
    email = require_caller(context).email
    ended = authorize.revoke_own_grant(
        auth.catalog, email, form.grant, auth.clock(), context.request_id
    )
    return context.redirect("/account", "Access revoked." if ended else "It was revoked already.")


@dataclass(frozen=True)
class PersonalTokenForm:
    """A personal token to create."""

    name: Annotated[str, TextField(required=True, validate=max_length(MAX_TOKEN_NAME))]
    days: Annotated[
        int,
        QueryInteger(required=True, validate=in_range(1, MAX_TOKEN_DAYS)),
    ]


@page("POST", "/account/tokens", login=True)
def create_token(context: Context) -> Response:
    """Create a personal token and show it, this once."""
    auth, by = require_accounts(context), audit_context(context, "create_personal_token")
    try:
        form = context.load_form(PersonalTokenForm)
        created = personal_tokens.create_personal_token(
            auth.catalog, auth.settings, form.name, form.days * DAY_S, by, auth.clock()
        )
    except FormErrors as error:
        return _render_account(context, status=400, errors=error.errors)
    except (Invalid, ConflictError) as error:
        errors = error.errors or {"name": [error.detail]}
        errors = {"days" if name == "lifetime" else name: told for name, told in errors.items()}
        return _render_account(context, status=400, errors=errors)
    return _render_account(context, created=created)
