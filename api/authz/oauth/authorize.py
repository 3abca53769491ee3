"""The authorization endpoint at the browser: login, consent, redirect to the client.

The pages of devices share the error pages, the sealed state and the words of the consent page.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

from flask import Response, g, request

from api.authz.context import AuthRequestContext, AuthServices
from api.authz.login.providers import MAX_LOGIN_HINT
from api.authz.pages import (
    ANY_FORM_ACTION,
    PAGE_ANSWERS,
    AuthPage,
    is_form_of_session,
    redirect_to,
    render_message,
    render_page,
    serve_page,
)
from api.authz.schemas.oauth import AuthorizeQuery
from api.http.operation import ResponseDoc, operation
from auth.login.sessions import BrowserSession
from auth.login.targets import AUTHORIZE_PATH
from auth.oauth import authorize
from auth.oauth.authorize import AuthorizationRequest, LoginPrompt, NextStep
from auth.oauth.provider import OAuthProvider, RedirectedError, UserFacingError
from storage.errors import Forbidden

CONSENT_PATH = "/oauth/consent"
CONTINUE_PURPOSE, CONSENT_PURPOSE = "continue", "consent"
"""Purposes of sealed requests: to continue after a login, and to consent to."""
REQUEST_EXPIRED = "This request has expired. Go back to the application and try again."
SCOPE_TEXTS = {
    "openid": "see your e-mail address",
    "profile": "see your name",
    "groups": "see which groups you are in",
}
ALWAYS_ALLOWED = (
    "do everything you can do in the data store, including managing users and permissions",
    "continue to do so while you are away, until you or an operator revoke access",
)
"""Access tokens have all rights of the user, whatever their scopes; refresh tokens renew them."""
SEALED_LIFE_S = 3_600
MAX_SEALED_LENGTH = 5_400
"""Characters; servers limit request lines to 8,190 bytes."""


def handle_browser_errors(
    view: Callable[[AuthServices], Response],
) -> Callable[[AuthServices], Response]:
    """Decorate a view: show its errors to the user, or redirect them to the client."""

    @wraps(view)
    def handle(services: AuthServices) -> Response:
        try:
            return view(services)
        except UserFacingError as error:
            return render_message(error.description, status=400)
        except RedirectedError as error:
            values = {"error": error.error, "error_description": error.description}
            url = authorize.client_redirect_url(
                services.provider, error.redirect_uri, error.state, values
            )
            return redirect_to(url, 302 if request.method == "GET" else 303)

    return handle


def redirect_to_login(page: str, *, again: bool = False, hint: str = "") -> Response:
    """Redirect to the login page and back to `page`; `again` asks for reauthentication."""
    query = {"redirect_uri": page, **({"prompt": "login"} if again else {})}
    if hint and len(hint) <= MAX_LOGIN_HINT:
        query["login_hint"] = hint
    return redirect_to(f"/login?{urlencode(query)}")


def seal_for_browser(services: AuthServices, purpose: str, state: Mapping[str, Any]) -> str:
    """Seal state, with the current time, for the browser to carry to another page."""
    now = services.clock()
    return services.logins.seals.seal(purpose, [{**state, "at": now}], ends=now + SEALED_LIFE_S)


def open_from_browser(
    services: AuthServices, purpose: str, sealed: str | None
) -> dict[str, Any] | None:
    """Open sealed state, with its time `at`; None if it is forged or has expired."""
    opened = services.logins.seals.open(purpose, sealed, now=services.clock())
    return dict(opened[0]) if opened else None


def describe_scopes(scopes: Iterable[str]) -> list[str]:
    """Return what these scopes allow, in words."""
    return [*ALWAYS_ALLOWED, *(SCOPE_TEXTS[scope] for scope in scopes if scope in SCOPE_TEXTS)]


def describe_address(url: str) -> str:
    """Return the host of a redirect URI, in words for loopback addresses."""
    parts = urlsplit(url)
    if parts.hostname in ("127.0.0.1", "::1"):
        port = f", port {parts.port}" if parts.port else ""
        return f"a program on this computer ({parts.hostname}{port})"
    return parts.hostname or f"an application ({parts.scheme})"


@operation(
    "GET",
    AUTHORIZE_PATH,
    tag="openid",
    responses={
        200: ResponseDoc("A page that asks for consent.", page=True),
        302: ResponseDoc("To the client with a code or an error, or to the login page."),
        **PAGE_ANSWERS,
    },
    query=AuthorizeQuery,
    identified=False,
    counted=False,
    acts=True,
)
def get_oauth_authorize(context: AuthRequestContext[Any, None]) -> Response:
    """Authorize an application to act for the user (RFC 6749, OpenID Connect)."""
    return serve_page(context.services.logins, partial(_handle_request, context.services))


@operation(
    "POST",
    AUTHORIZE_PATH,
    tag="openid",
    responses={303: ResponseDoc("To the same request as a link."), **PAGE_ANSWERS},
    errors=(413,),
    identified=False,
    counted=False,
    while_read_only=True,
)
def post_oauth_authorize(context: AuthRequestContext[None, None]) -> Response:
    """Authorize an application, with the parameters in a form."""
    return serve_page(context.services.logins, partial(_redirect_form, context.services))


@handle_browser_errors
def _handle_request(services: AuthServices) -> Response:
    parameters, prompt = _read_parameters(services)
    session, now = services.logins.find_session(request), services.clock()
    with services.catalog.read() as tx:
        pending = authorize.read_request(tx, services.provider, parameters)
        step = authorize.find_next_step(tx, pending, session, now=now, prompt=prompt)
    authorize.check_prompt_none(pending, step)
    if session is None or step is NextStep.LOGIN:
        return _redirect_to_login(services, parameters, session, pending.login_hint)
    if step is NextStep.CONSENT:
        return _render_consent(services, parameters, pending, session)
    return _redirect_with_code(services.provider, pending, session, agreed=False)


@handle_browser_errors
def _redirect_form(services: AuthServices) -> Response:
    """Redirect to the same request as a link: a cross-site form carries no cookie of this site."""
    request.max_content_length = MAX_SEALED_LENGTH
    parameters = {name: request.form.getlist(name) for name in request.form}
    return redirect_to(
        f"{AUTHORIZE_PATH}?continue={_seal_request(services, CONTINUE_PURPOSE, parameters)}", 303
    )


@handle_browser_errors
def _handle_consent(services: AuthServices) -> Response:
    form, session = request.form, services.logins.find_session(request)
    state = _open_request(services, CONSENT_PURPOSE, form.get("carried", ""))
    if session is None or not is_form_of_session(session, form) or state["session"] != session.id:
        raise UserFacingError("access_denied", REQUEST_EXPIRED)
    with services.catalog.read() as tx:
        pending = authorize.read_request(tx, services.provider, state["given"])
    if form.get("decision") != "allow":
        raise authorize.denied_error(pending, "The user denied access.")
    return _redirect_with_code(services.provider, pending, session, agreed=True)


def _read_parameters(services: AuthServices) -> tuple[dict[str, list[str]], LoginPrompt | None]:
    """Return the request's parameters, and the login that it was sent through, if any."""
    sealed = request.args.get("continue")
    if sealed is None:
        return {name: request.args.getlist(name) for name in request.args}, None
    state = _open_request(services, CONTINUE_PURPOSE, sealed)
    return state["given"], LoginPrompt(state["at"], state["session"]) if state["login"] else None


def _redirect_to_login(
    services: AuthServices,
    parameters: dict[str, list[str]],
    session: BrowserSession | None,
    hint: str,
) -> Response:
    sealed = _seal_request(
        services, CONTINUE_PURPOSE, parameters, login=True, session=session.id if session else ""
    )
    return redirect_to_login(
        f"{AUTHORIZE_PATH}?continue={sealed}", again=session is not None, hint=hint
    )


def _render_consent(
    services: AuthServices,
    parameters: dict[str, list[str]],
    pending: AuthorizationRequest,
    session: BrowserSession,
) -> Response:
    """Show the consent page."""
    return render_page(
        "consent.html",
        "Allow access?",
        form_action=ANY_FORM_ACTION,
        client=pending.client.name,
        email=session.email,
        leads_to=describe_address(pending.redirect_uri),
        unverified=pending.is_unverified,
        meanings=describe_scopes(pending.scopes),
        action=CONSENT_PATH,
        csrf=session.csrf,
        carried=_seal_request(services, CONSENT_PURPOSE, parameters, session=session.id),
    )


def _redirect_with_code(
    provider: OAuthProvider, pending: AuthorizationRequest, session: BrowserSession, *, agreed: bool
) -> Response:
    try:
        with provider.catalog.write() as tx:
            code = authorize.issue_code(tx, provider, pending, session, str(uuid4()))
            if agreed:
                authorize.record_consent(tx, provider, pending, session, g.request_id)
    except Forbidden as error:
        raise authorize.denied_error(pending, "The user is disabled.") from error
    url = authorize.client_redirect_url(
        provider, pending.redirect_uri, pending.state, {"code": code}
    )
    return redirect_to(url, 303 if agreed else 302)


def _seal_request(
    services: AuthServices,
    purpose: str,
    parameters: dict[str, list[str]],
    *,
    login: bool = False,
    session: str = "",
) -> str:
    accepted = {
        name: values for name, values in parameters.items() if name in authorize.KNOWN_PARAMETERS
    }
    sealed = seal_for_browser(
        services, purpose, {"given": accepted, "login": login, "session": session}
    )
    # Servers limit the length of URLs, but not so much that of forms.
    if purpose == CONTINUE_PURPOSE and len(sealed) > MAX_SEALED_LENGTH:
        raise UserFacingError("invalid_request", "The application's request is too long.")
    return sealed


def _open_request(services: AuthServices, purpose: str, sealed: str) -> dict[str, Any]:
    state = open_from_browser(services, purpose, sealed)
    if state is None:
        raise UserFacingError("invalid_request", REQUEST_EXPIRED)
    return state


def _show_expired(_services: AuthServices) -> Response:
    return render_message(REQUEST_EXPIRED, status=400)


PAGES = (
    AuthPage("POST", CONSENT_PATH, _handle_consent, "post_oauth_consent"),
    AuthPage("GET", CONSENT_PATH, _show_expired),
)
