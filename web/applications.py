"""Administration of service accounts and of applications (OAuth clients)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from flask import Response

from api.schemas.fields import NoParameters, TextField, max_length, optional_text
from auth import service_accounts
from auth.accounts import EMAIL_RULE, is_user_id
from auth.oauth import clients
from auth.oauth.clients import MAX_CLIENT_NAME, MAX_REDIRECT_URI, MAX_REDIRECTS, NewOAuthClient
from storage.errors import ConflictError, Invalid
from storage.model import normalize_identity
from web.account import audit_context, require_accounts
from web.administration import render_admin
from web.pages import FormErrors, PageContext, page

Context = PageContext[NoParameters]
MAX_KEY_TEXT = 20_000


@page("GET", "/admin/service-accounts", access="get_v1_service_accounts")
def list_service_accounts(context: Context) -> Response:
    """List the programs that sign their own tokens, with their keys."""
    return _render_service_accounts(context)


def _render_service_accounts(
    context: Context, errors: Mapping[str, list[str]] | None = None
) -> Response:
    auth = require_accounts(context)
    return render_admin(
        context,
        "admin_service_accounts.html",
        "Service accounts",
        status=400 if errors else 200,
        found=service_accounts.list_service_accounts(auth.catalog),
        form=context.request.form,
        errors=errors or {},
    )


@dataclass(frozen=True)
class ServiceKeyForm:
    """A public key of an account."""

    email: Annotated[str, TextField(required=True, validate=max_length(128))]
    key: Annotated[str, TextField(required=True, validate=max_length(MAX_KEY_TEXT))]


@page("POST", "/admin/service-accounts", access="get_v1_service_accounts")
def add_service_key(context: Context) -> Response:
    """Register a public key, which creates the account if it is new."""
    try:
        form = context.load_form(ServiceKeyForm)
        email = _parse_account(form.email)
        allowed = context.authorize("put_v1_service_account", path={"user_id": email})
        by = audit_context(context, "add_service_key")
        kid = service_accounts.add_service_key(
            require_accounts(allowed).catalog, email, form.key, by
        )
    except FormErrors as error:
        return _render_service_accounts(context, error.errors)
    except (Invalid, ConflictError) as error:
        return _render_service_accounts(context, error.errors or {"key": [error.detail]})
    return context.redirect("/admin/service-accounts", f"{email} may sign with the key {kid}.")


def _parse_account(text: str) -> str:
    email = normalize_identity(text.strip())
    if not is_user_id(email):
        raise FormErrors("Some fields need a change.", errors={"email": [EMAIL_RULE]})
    return email


@dataclass(frozen=True)
class ServiceKeyParameters:
    """An account's key to remove."""

    email: Annotated[str, TextField(required=True, validate=max_length(128))]
    kid: Annotated[str, TextField(required=True, validate=max_length(128))]


@page(
    "GET",
    "/admin/service-accounts/remove",
    access="get_v1_service_accounts",
    query=ServiceKeyParameters,
)
def confirm_key_removal(context: PageContext[ServiceKeyParameters]) -> Response:
    """Ask before a key is removed."""
    query = context.query
    return render_admin(
        context,
        "admin_confirm.html",
        f"Remove a key of {query.email}?",
        effect=f"Tokens that were signed with the key {query.kid} are refused from the next"
        " request on. The key can be registered again.",
        action="/admin/service-accounts/remove",
        button="Remove the key",
        back="/admin/service-accounts",
        fields={"email": query.email, "kid": query.kid},
    )


@page("POST", "/admin/service-accounts/remove", access="get_v1_service_accounts")
def remove_service_key(context: Context) -> Response:
    """Remove a key; without keys the account is gone."""
    form = context.load_form(ServiceKeyParameters)
    email = _parse_account(form.email)
    allowed = context.authorize("put_v1_service_account", path={"user_id": email})
    by = audit_context(context, "remove_service_key")
    left = service_accounts.remove_service_key(
        require_accounts(allowed).catalog, email, form.kid, by
    )
    text = "The key is removed." if left else f"{email} has no key any more."
    return context.redirect("/admin/service-accounts", text)


@page("GET", "/admin/applications", access="get_v1_clients")
def list_applications(context: Context) -> Response:
    """List the applications that act for people."""
    return _render_applications(context)


def _render_applications(
    context: Context,
    errors: Mapping[str, list[str]] | None = None,
    created: tuple[str, str] | None = None,
) -> Response:
    auth = require_accounts(context)
    return render_admin(
        context,
        "admin_applications.html",
        "Applications",
        status=400 if errors else 200,
        found=clients.list_applications(auth.catalog, auth.settings),
        built_in=auth.provider.own_clients,
        form=context.request.form if errors else {},
        errors=errors or {},
        created=created,
    )


@dataclass(frozen=True)
class ApplicationForm:
    """An application to add; redirect URIs are one a line."""

    id: Annotated[str, TextField(required=True, validate=max_length(64))]
    name: Annotated[str, TextField(required=True, validate=max_length(MAX_CLIENT_NAME))]
    redirect_uris: Annotated[
        str,
        optional_text(MAX_REDIRECTS * (MAX_REDIRECT_URI + 2)),
    ]
    kind: Annotated[str, TextField(load_default="public", validate=max_length(12))]


@page("POST", "/admin/applications", access="get_v1_clients")
def add_application(context: Context) -> Response:
    """Add an application; its secret is shown this once."""
    try:
        form = context.load_form(ApplicationForm)
        allowed = context.authorize("put_v1_client", path={"client_id": form.id})
        auth, uris = require_accounts(allowed), tuple(form.redirect_uris.split())
        new = NewOAuthClient(form.id, form.name, uris, public=form.kind != "confidential")
        by = audit_context(context, "add_client")
        secret = clients.add_application(auth.catalog, auth.settings, new, by, auth.clock())
    except FormErrors as error:
        return _render_applications(context, error.errors)
    except (Invalid, ConflictError) as error:
        field = "id" if isinstance(error, ConflictError) else _field_of(error.detail)
        return _render_applications(context, {field: [error.detail]})
    if secret is not None:
        return _render_applications(context, created=(new.id, secret))
    return context.redirect("/admin/applications", f"The application {new.id} is added.")


def _field_of(detail: str) -> str:
    """Return the field that an error of a client is about."""
    if "redirect" in detail:
        return "redirect_uris"
    return "name" if "name" in detail else "id"


@dataclass(frozen=True)
class ApplicationParameters:
    """An application to remove."""

    id: Annotated[str, TextField(required=True, validate=max_length(64))]


@page("GET", "/admin/applications/remove", access="get_v1_clients", query=ApplicationParameters)
def confirm_application_removal(context: PageContext[ApplicationParameters]) -> Response:
    """Ask before an application is removed."""
    return render_admin(
        context,
        "admin_confirm.html",
        f"Remove the application {context.query.id}?",
        effect="All its tokens end at once, for everyone who uses it. This cannot be undone.",
        action="/admin/applications/remove",
        button="Remove the application",
        back="/admin/applications",
        fields={"id": context.query.id},
    )


@page("POST", "/admin/applications/remove", access="get_v1_clients")
def remove_application(context: Context) -> Response:
    """Remove an application and end its tokens."""
    form = context.load_form(ApplicationParameters)
    allowed = context.authorize("put_v1_client", path={"client_id": form.id})
    auth, by = require_accounts(allowed), audit_context(context, "remove_client")
    clients.remove_application(auth.catalog, form.id, by, auth.clock())
    return context.redirect("/admin/applications", f"The application {form.id} is removed.")
