"""Operations get_login, get_logout and post_logout (OpenID Connect RP-Initiated Logout 1.0).

A request with an ID token of the logged-in user takes effect at once. A cross-site request without
one needs confirmation, because any page could have sent it.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

from flask import Response, request
from marshmallow import validate

from api.authz.context import AuthRequestContext, AuthServices
from api.authz.login import account, providers
from api.authz.login.account import ACCOUNT_PATH
from api.authz.login.providers import (
    STALE_FORM,
    PendingLogin,
    first_page_url,
    is_reauthentication,
)
from api.authz.pages import (
    ANY_FORM_ACTION,
    PAGE_ANSWERS,
    AuthPage,
    LoginServices,
    is_cross_site,
    is_form_of_session,
    limit_logins,
    redirect_to,
    render_message,
    render_page,
    serve_page,
)
from api.http.loading import load_query
from api.http.operation import ResponseDoc, operation
from api.schemas.fields import TextField, lenient_schema
from auth.login.sessions import BrowserSession
from auth.login.targets import MAX_STATE, add_query_parameters
from auth.oauth.clients import is_registered_uri
from auth.oauth.tokens import MAX_ID_TOKEN_HINT, read_id_token_hint
from storage.errors import Invalid

TAG = "login"
LOGOUT_PATH, LOGOUT_DONE_PATH, LOGOUT_CONFIRM_PATH = "/logout", "/logout/done", "/logout/confirm"
LOGGED_OUT = "You are logged out."
LOGOUT_LIFE_S = 900
MAX_URL = 4096


def _optional_text(about: str, most: int) -> TextField:
    return TextField(
        load_default=None,
        validate=validate.Length(max=most),
        metadata={"description": about},
    )


@dataclass(frozen=True)
class LoginParameters:
    """Parameters of get_login: redirect after login."""

    redirect_uri: Annotated[
        str,
        TextField(
            required=True,
            validate=validate.Length(min=1, max=MAX_URL),
            metadata={"description": "A redirect URI that some client registered."},
        ),
    ]
    state: Annotated[
        str | None, _optional_text("Comes back in the query of redirect_uri, as it is.", MAX_STATE)
    ]
    login_hint: Annotated[
        str | None,
        _optional_text("The e-mail address that the person is expected to log in with.", 256),
    ]


@dataclass(frozen=True)
class LogoutParameters:
    """Parameters of get_logout: optional redirect."""

    id_token_hint: Annotated[
        str | None,
        TextField(
            load_default=None,
            metadata={
                "description": "An ID token of this service; it names the client.",
                "maxLength": MAX_ID_TOKEN_HINT,
            },
        ),
    ]
    client_id: Annotated[
        str | None,
        TextField(
            load_default=None,
            metadata={"description": "The application; that of id_token_hint, or the default one."},
        ),
    ]
    post_logout_redirect_uri: Annotated[
        str | None,
        _optional_text("A redirect URI of that application; on loopback, on any port.", MAX_URL),
    ]
    state: Annotated[
        str | None, _optional_text("Comes back in the query of that address, as it is.", MAX_STATE)
    ]


class LogoutRequest(NamedTuple):
    """A valid logout request: the user of its `id_token_hint`, and where to go afterwards."""

    email: str | None
    onward: str


@operation(
    "GET",
    "/login",
    tag=TAG,
    query=LoginParameters,
    responses={302: ResponseDoc("To a choice of identity providers, or to the only one.")},
    errors=(400, 429),
    identified=False,
    counted=False,
)
def get_login(context: AuthRequestContext[LoginParameters, None]) -> Response:
    """Log in the user of this browser, then redirect to redirect_uri with the same state."""
    logins, query = context.services.logins, context.query
    limit_logins(logins.catalog, logins.settings, context.request, logins.clock())
    target = logins.targets.seal_target(query.redirect_uri, query.state, now=logins.clock())
    way = PendingLogin(
        target, again=is_reauthentication(context.request), hint=query.login_hint or ""
    )
    return redirect_to(first_page_url(logins, way))


@operation(
    "GET",
    LOGOUT_PATH,
    tag=TAG,
    query=LogoutParameters,
    responses={
        200: ResponseDoc("A page: the user is logged out, or must confirm first.", page=True),
        302: ResponseDoc("To the provider, which ends its own session, or to the application."),
        **PAGE_ANSWERS,
    },
    identified=False,
    counted=False,
    acts=True,
)
def get_logout(context: AuthRequestContext[LogoutParameters, None]) -> Response:
    """Log out of this service and, if it supports that, of the identity provider."""
    return serve_page(
        context.services.logins, partial(_handle_logout, context.services, context.query)
    )


@operation(
    "POST",
    LOGOUT_PATH,
    tag=TAG,
    responses={303: ResponseDoc("To the same request as a link."), **PAGE_ANSWERS},
    errors=(413,),
    identified=False,
    counted=False,
    while_read_only=True,
)
def post_logout(context: AuthRequestContext[None, None]) -> Response:
    """Log out, with the parameters in a form."""
    return serve_page(context.services.logins, partial(_redirect_form, context.services))


def _handle_logout(services: AuthServices, query: LogoutParameters) -> Response:
    logins, session = services.logins, services.logins.find_session(request)
    try:
        logout = _read_continued(logins) or _check_request(services, query)
    except Invalid as error:
        return _render_refusal(logins, session, error)
    if session is not None and _must_confirm(session, logout):
        return _render_confirmation(logins, session, logout)
    return _log_out(logins, session, logout.onward)


def _redirect_form(services: AuthServices) -> Response:
    """Redirect to the same request as a link: a cross-site form carries no cookie of this site."""
    logins = services.logins
    try:
        logout = _check_request(
            services, load_query(lenient_schema(LogoutParameters), request.form)
        )
    except Invalid as error:
        return _render_refusal(logins, None, error)
    return redirect_to(
        f"{logins.settings.auth_url}{LOGOUT_PATH}?continue={_seal_request(logins, logout)}", 303
    )


def _handle_confirmation(logins: LoginServices) -> Response:
    """Handle the confirmation form, and the logout button of the account page."""
    session, form = logins.find_session(request), request.form
    if session is not None and not is_form_of_session(session, form):
        return render_message(STALE_FORM, status=403)
    if form.get("decision") == "stay":
        return redirect_to(logins.settings.auth_url + ACCOUNT_PATH, 303)
    logout = _open_request(logins, form.get("carried"))
    return _log_out(logins, session, logout.onward if logout else "", 303)


def _finish_logout(logins: LoginServices) -> Response:
    """Continue after the identity provider has ended its session."""
    opened = logins.seals.open("leaving", request.args.get("state"), now=logins.clock())
    return redirect_to(opened[0]) if opened and opened[0] else _render_logged_out(logins)


def _must_confirm(session: BrowserSession, logout: LogoutRequest) -> bool:
    """Return whether the request is cross-site without a hint, or its hint is of another user."""
    return logout.email != session.email if logout.email else is_cross_site(request)


def _log_out(
    logins: LoginServices, session: BrowserSession | None, onward: str, status: int = 302
) -> Response:
    logins.log_out(request, session)
    url = _provider_logout_url(logins, session, onward) or onward
    response = redirect_to(url, status) if url else _render_logged_out(logins)
    return logins.clear_session_cookie(response)


def _provider_logout_url(
    logins: LoginServices, session: BrowserSession | None, onward: str
) -> str | None:
    """Return the logout URL of the identity provider, if it has one."""
    provider = logins.providers.get(session.provider) if session else None
    if provider is None:
        return None
    state = logins.seals.seal("leaving", [onward], ends=logins.clock() + LOGOUT_LIFE_S)
    return provider.logout_url(logins.settings.auth_url + LOGOUT_DONE_PATH, state)


def _render_confirmation(
    logins: LoginServices, session: BrowserSession, logout: LogoutRequest
) -> Response:
    return render_page(
        "logout.html",
        "Log out?",
        form_action=ANY_FORM_ACTION,
        email=session.email,
        leads_to=logins.foreign_host(logout.onward) if logout.onward else None,
        action=logins.settings.auth_url + LOGOUT_CONFIRM_PATH,
        csrf=session.csrf,
        carried=_seal_request(logins, logout),
    )


def _render_logged_out(logins: LoginServices) -> Response:
    again = logins.settings.auth_url + ACCOUNT_PATH
    return render_message(LOGGED_OUT, title="Logged out", href=again, way="Log in again")


def _render_refusal(
    logins: LoginServices, session: BrowserSession | None, error: Invalid
) -> Response:
    """Show the error without a redirect; log out anyway unless the request is cross-site."""
    way = {"href": logins.settings.auth_url + ACCOUNT_PATH, "way": "Show my account"}
    response = render_message(error.detail, status=400, **way)
    if session is not None and not is_cross_site(request):
        logins.log_out(request, session)
        logins.clear_session_cookie(response)
    return response


def _seal_request(logins: LoginServices, logout: LogoutRequest) -> str:
    return logins.seals.seal("logout", list(logout), ends=logins.clock() + LOGOUT_LIFE_S)


def _open_request(logins: LoginServices, sealed: str | None) -> LogoutRequest | None:
    opened: Any = logins.seals.open("logout", sealed, now=logins.clock())
    return LogoutRequest(*opened) if opened else None


def _read_continued(logins: LoginServices) -> LogoutRequest | None:
    """Return the request that came as a form; it was validated before it was sealed."""
    sealed = request.args.get("continue")
    if sealed is None:
        return None
    logout = _open_request(logins, sealed)
    if logout is None:
        raise Invalid("This logout took too long. Go back to the application and begin again.")
    return logout


def _check_request(services: AuthServices, query: LogoutParameters) -> LogoutRequest:
    """Validate a logout request; Invalid names the wrong parameter."""
    hint = (
        read_id_token_hint(services.provider, query.id_token_hint) if query.id_token_hint else None
    )
    if hint and query.client_id not in (None, hint.client):
        raise _parameter_error("client_id", "must be the client of id_token_hint")
    named = query.client_id or (hint.client if hint else None)
    client_id = named or services.settings.default_client
    with services.catalog.read() as tx:
        client = services.provider.client(tx, client_id) if client_id else None
    if named and client is None:
        raise _parameter_error("client_id", "unknown client")
    uri = query.post_logout_redirect_uri
    # No code or token goes there, so any loopback port is acceptable.
    if uri and not (client and is_registered_uri(uri, client.redirect_uris, native=True)):
        raise _parameter_error(
            "post_logout_redirect_uri", "must be a URI that the client has registered"
        )
    onward = add_query_parameters(uri, {"state": query.state}) if uri else ""
    return LogoutRequest(hint.email if hint else None, onward)


def _parameter_error(name: str, reason: str) -> Invalid:
    return Invalid(f"{name}: {reason}", errors={name: [reason]})


PAGES = (
    *providers.PAGES,
    *account.PAGES,
    AuthPage("POST", LOGOUT_CONFIRM_PATH, _handle_confirmation, "post_logout_confirm"),
    AuthPage("GET", LOGOUT_CONFIRM_PATH, account.redirect_to_account),
    AuthPage("GET", LOGOUT_DONE_PATH, _finish_logout),
)
"""The login, account and logout pages."""
