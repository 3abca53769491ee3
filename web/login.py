"""Log in and out as a client of the authorization service: code flow with PKCE.

The session is an encrypted cookie with the tokens; the store keeps nothing. The access token is the
same that applications get, so the store verifies it, and notices a revoked grant, as for the API.
"""

import logging
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Annotated, Any
from urllib.parse import urlencode, urlsplit

import orjson
from flask import Response, after_this_request

from api.schemas.fields import NoParameters, TextField, max_length, optional_text
from auth.http_client import HttpClient
from auth.oauth.clients import PAGES_CLIENT
from auth.secret_values import (
    decode_base64url,
    encode_base64url,
    is_equal_secret,
    pkce_challenge,
)
from storage.errors import Invalid, Unauthorized, Unavailable
from web.pages import (
    PageContext,
    PostForm,
    Site,
    WebSession,
    cookie_name,
    page,
    read_cookie,
    redirect_to,
    set_cookie,
)

log = logging.getLogger(__name__)

CALLBACK_PATH = "/login/callback"
SESSION_COOKIE, BROWSER_COOKIE = "store-web", "store-web-login"
SESSION_PURPOSE, STATE_PURPOSE = "web session", "web login"
MAX_COOKIE = 3_800
"""Browsers drop cookies of more than 4,096 bytes."""
LOGIN_S = 900
SCOPES = "openid email"
MAX_NEXT = 2_000
REFRESH_BEFORE_S = 300
"""The access token is renewed when it expires this soon."""


def build_oauth_client(auth_url: str, timeout_s: float) -> PostForm:
    """Return a client of the authorization service's OAuth endpoints."""
    http = HttpClient(timeout_s)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}

    def post(path: str, form: Mapping[str, str]) -> Mapping[str, Any]:
        answer = http.request("POST", auth_url + path, headers, urlencode(form).encode())
        if 400 <= answer.status < 500 and answer.status != 429:
            raise Invalid("The authorization service refused the login. Log in again.")
        return answer.object() if answer.body else {}

    return post


def find_session(site: Site) -> WebSession | None:
    """Return the live session of the current request; renew its access token in time."""
    session = open_session(site, read_cookie(site, SESSION_COOKIE))
    if session is None or site.clock() < session.expires_at - REFRESH_BEFORE_S:
        return session
    form = {
        "grant_type": "refresh_token",
        "refresh_token": session.refresh_token,
        "client_id": PAGES_CLIENT,
    }
    try:
        renewed = read_tokens(
            site, site.post_form("/oauth/token", form), session.id, session.ends_at
        )
    except Unavailable as error:
        log.warning("cannot renew a session of the web pages: %s", error.detail)
        return session if site.clock() < session.expires_at else None
    except Invalid:
        return None

    @after_this_request
    def store(response: Response) -> Response:
        # A login or logout has set the cookie already.
        set_already = [line.partition("=")[0] for line in response.headers.getlist("Set-Cookie")]
        if cookie_name(site, SESSION_COOKIE) in set_already:
            return response
        return store_session(site, response, renewed)

    return renewed


def read_tokens(
    site: Site, answer: Mapping[str, Any], session_id: str, ends_at: float
) -> WebSession:
    """Return the session that a response of the token endpoint makes; Unavailable if malformed."""
    try:
        return WebSession(
            session_id,
            str(answer["access_token"]),
            str(answer.get("refresh_token", "")),
            str(answer.get("id_token", "")),
            site.clock() + float(answer["expires_in"]),
            ends_at,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Unavailable("The authorization service gave no usable token") from error


def store_session(site: Site, response: Response, session: WebSession) -> Response:
    """Set the session cookie; without the ID token if it would be too large."""
    for id_token in (session.id_token, ""):
        fields = list(astuple(replace(session, id_token=id_token)))
        packed = encode_base64url(zlib.compress(orjson.dumps(fields)))
        sealed = site.sealer.seal(SESSION_PURPOSE, [packed], ends=session.ends_at)
        if len(sealed) <= MAX_COOKIE:
            lifetime_s = max(1, int(session.ends_at - site.clock()))
            set_cookie(site, response, SESSION_COOKIE, sealed, lifetime_s)
            return response
    raise Invalid("You are in too many groups for a session cookie. Ask an administrator.")


def open_session(site: Site, sealed: str | None) -> WebSession | None:
    """Return the session of a cookie; None if it is invalid or has ended."""
    opened = site.sealer.open(SESSION_PURPOSE, sealed, now=site.clock())
    if opened is None:
        return None
    packed = decode_base64url(str(opened[0]))
    return WebSession(*orjson.loads(zlib.decompress(packed)))


@dataclass(frozen=True)
class LoginPageParameters:
    """Parameters of the login page: where to go afterwards."""

    next: Annotated[str, TextField(load_default="/", validate=max_length(MAX_NEXT))]


def is_local_path(path: str) -> bool:
    """Return whether a redirect target is a path of this site, and no other host."""
    parts = urlsplit(path)
    plain = path.isprintable() and "\\" not in path
    return plain and path[:1] == "/" and path[1:2] != "/" and not (parts.scheme or parts.netloc)


@page("GET", "/login", query=LoginPageParameters, acts=True)
def log_in(context: PageContext[LoginPageParameters]) -> Response:
    """Redirect to the authorization service."""
    site, settings = context.site, context.services.settings
    target = context.query.next if is_local_path(context.query.next) else "/"
    if context.base != settings.site_url:
        # Cookies and the registered redirect URI belong to one host name.
        return redirect_to(f"{settings.site_url}/login?{urlencode({'next': target})}")
    browser = read_cookie(site, BROWSER_COOKIE) or secrets.token_urlsafe(24)
    nonce, ends = secrets.token_urlsafe(16), site.clock() + LOGIN_S
    state = site.sealer.seal(STATE_PURPOSE, [nonce, browser, target], ends=ends)
    parameters = {
        "response_type": "code",
        "client_id": PAGES_CLIENT,
        "redirect_uri": settings.site_url + CALLBACK_PATH,
        "scope": SCOPES,
        "state": state,
        "code_challenge": pkce_challenge(_verifier(site, nonce, browser)),
        "code_challenge_method": "S256",
    }
    response = redirect_to(f"{settings.auth_url}/oauth/authorize?{urlencode(parameters)}")
    set_cookie(site, response, BROWSER_COOKIE, browser, LOGIN_S)
    return response


def _verifier(site: Site, nonce: str, browser: str) -> str:
    """Return the PKCE verifier of a login, which only this browser can complete."""
    return site.sealer.derive_value("web login verifier", f"{nonce} {browser}")


@dataclass(frozen=True)
class CallbackParameters:
    """Parameters of the redirect from the authorization service."""

    code: Annotated[str, optional_text(1_000)]
    state: Annotated[str, optional_text(8_000)]
    error: Annotated[str, optional_text(100)]
    iss: Annotated[str, optional_text(1_000)]


@page("GET", CALLBACK_PATH, query=CallbackParameters, acts=True)
def complete_login(context: PageContext[CallbackParameters]) -> Response:
    """Exchange the code for tokens and set the session cookie."""
    site, query = context.site, context.query
    settings, browser = context.services.settings, read_cookie(site, BROWSER_COOKIE) or ""
    opened = site.sealer.open(STATE_PURPOSE, query.state, now=site.clock())
    if opened is None or not browser or not is_equal_secret(browser, opened[1]):
        raise Invalid("This login has expired, or began in another browser. Log in again.")
    nonce, _, target = opened
    if query.error or query.iss != settings.auth_url:
        raise Invalid("The login was not completed. Log in again.")
    form = {
        "grant_type": "authorization_code",
        "code": query.code,
        "redirect_uri": settings.site_url + CALLBACK_PATH,
        "client_id": PAGES_CLIENT,
        "code_verifier": _verifier(site, nonce, browser),
    }
    answer, ends = site.post_form("/oauth/token", form), site.clock() + settings.session_s
    session = read_tokens(site, answer, secrets.token_urlsafe(16), ends)
    try:
        context.services.verify(session.token)
    except Unauthorized as error:
        # Otherwise every page, and this one, would send the browser here again.
        reason = f"The store does not accept this login ({error.detail}). Ask an administrator."
        raise Invalid(reason) from error
    response = redirect_to(target)
    set_cookie(site, response, BROWSER_COOKIE, "", 0)
    return store_session(site, response, session)


@page("POST", "/logout", login=True, while_read_only=True)
def log_out(context: PageContext[NoParameters]) -> Response:
    """End the session here, then at the authorization service."""
    settings, session = context.services.settings, context.session
    if session is not None:
        try:
            form = {"token": session.refresh_token, "client_id": PAGES_CLIENT}
            context.site.post_form("/oauth/revoke", form)
        except (Invalid, Unavailable) as error:
            log.warning("cannot revoke the tokens of a session: %s", error.detail)
    hint = {"id_token_hint": session.id_token} if session and session.id_token else {}
    response = redirect_to(f"{settings.auth_url}/logout?{urlencode(hint)}")
    set_cookie(context.site, response, SESSION_COOKIE, "", 0)
    return response
