"""Authorization requests (RFC 6749, 4.1.1): parse them and find the next step at the browser."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from auth.login.sessions import BrowserSession
from auth.oauth.clients import WEB_CLIENT, OAuthClient, add_query_parameters, is_native_uri
from auth.oauth.errors import OAuthError, RedirectedError, UserFacingError, invalid_request
from auth.oauth.provider import DEFAULT_SCOPES, SCOPES, OAuthProvider
from storage.catalog import Tx, login, oauth

RequestParameters = Mapping[str, Sequence[str]]
"""All values of each parameter."""

MAX_PARAMETER_LENGTH = 2_048
"""Characters of `state` and of `nonce`."""
CLOCK_SKEW_S = 30
"""How far the clock of the server that logged the user in may be behind this one."""

_CHALLENGE_REGEX = re.compile(r"[A-Za-z0-9_-]{43}")
_SCOPE_REGEX = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*")
_PROMPT_VALUES = frozenset({"none", "login", "consent", "select_account"})
_UNSUPPORTED_PARAMETERS = ("request", "request_uri", "registration")
KNOWN_PARAMETERS = frozenset(
    {
        *("response_type", "response_mode", "client_id", "redirect_uri", "scope", "state", "nonce"),
        *("code_challenge", "code_challenge_method", "prompt", "max_age", "login_hint"),
        *_UNSUPPORTED_PARAMETERS,
    }
)
"""Parameters that are read; all others are ignored."""


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """A valid authorization request of a registered client."""

    client: OAuthClient
    redirect_uri: str
    redirect_named: bool
    """Whether the request named it; then the token request must repeat it."""
    scopes: tuple[str, ...]
    state: str | None
    nonce: str | None
    challenge: str | None
    prompts: frozenset[str]
    max_age_s: int | None
    login_hint: str = ""
    """The e-mail address that the user is expected to log in with."""

    @property
    def is_unverified(self) -> bool:
        """Whether any program on the user's computer can impersonate this public client.

        An earlier consent does not count then (RFC 8252, section 8.6)."""
        return self.client.public and is_native_uri(self.redirect_uri)


class LoginPrompt(NamedTuple):
    """When the user was sent to the login page, and their session id then, or empty."""

    at: float
    session: str


class NextStep(Enum):
    """What must happen next before the request is granted; values are OAuth errors."""

    LOGIN = "login_required"
    CONSENT = "consent_required"
    GRANT = ""


def read_request(
    tx: Tx, provider: OAuthProvider, parameters: RequestParameters
) -> AuthorizationRequest:
    """Parse a request; UserFacingError until the redirect URI is valid, then RedirectedError."""
    try:
        client = _find_client(tx, provider, parameters)
        redirect_uri = _read_redirect_uri(client, parameters)
    except OAuthError as error:
        raise UserFacingError(error.error, error.description) from error
    try:
        return _parse_request(client, redirect_uri, parameters)
    except OAuthError as error:
        raise RedirectedError(error, redirect_uri, _read_state(parameters)) from error


def find_next_step(
    tx: Tx,
    request: AuthorizationRequest,
    session: BrowserSession | None,
    *,
    now: float,
    prompt: LoginPrompt | None,
) -> NextStep:
    """Return the next step; `prompt` is the login that this request has already caused."""
    if session is None or _needs_login(request, session, now, prompt):
        return NextStep.LOGIN
    consented = _has_consent(tx, request, session)
    return NextStep.GRANT if consented and "consent" not in request.prompts else NextStep.CONSENT


def _has_consent(tx: Tx, request: AuthorizationRequest, session: BrowserSession) -> bool:
    """Return whether the user has consented to all these scopes."""
    if request.is_unverified:
        allowed = login.find_session_consent(tx, session.id, request.client.id)
        return allowed.issuperset(request.scopes)
    agreed = oauth.find_consent(tx, session.email, request.client.id)
    return request.client.first_party or agreed.issuperset(request.scopes)


def check_prompt_none(request: AuthorizationRequest, step: NextStep) -> None:
    """Raise RedirectedError if `prompt=none` and a page must be shown."""
    if step is not NextStep.GRANT and "none" in request.prompts:
        raise redirected_error(
            request, OAuthError(step.value, "prompt is none, but the user must log in or consent.")
        )


def redirected_error(request: AuthorizationRequest, error: OAuthError) -> RedirectedError:
    """Return an error that is redirected to the client."""
    return RedirectedError(error, request.redirect_uri, request.state)


def denied_error(request: AuthorizationRequest, description: str) -> RedirectedError:
    """Return the error for a user who denied access or is disabled."""
    return redirected_error(request, OAuthError("access_denied", description))


def code_redirect_url(provider: OAuthProvider, request: AuthorizationRequest, code: str) -> str:
    """Return the redirect to the client with a code."""
    return _answer_url(provider, request.redirect_uri, request.state, {"code": code})


def error_redirect_url(provider: OAuthProvider, error: RedirectedError) -> str:
    """Return the redirect to the client with an error."""
    values = {"error": error.error, "error_description": error.description}
    return _answer_url(provider, error.redirect_uri, error.state, values)


def _answer_url(
    provider: OAuthProvider, uri: str, state: str | None, values: dict[str, str]
) -> str:
    # RFC 9207: prevents mix-up attacks on clients of several issuers.
    query = {**values, "iss": provider.issuer}
    return add_query_parameters(uri, query if state is None else {**query, "state": state})


def _find_client(tx: Tx, provider: OAuthProvider, parameters: RequestParameters) -> OAuthClient:
    client_id = (
        _read_single(parameters, "client_id") or provider.settings.default_client or WEB_CLIENT
    )
    client = provider.client(tx, client_id)
    if client is None:
        raise invalid_request(
            "The application that sent you here is not registered (unknown client_id)."
        )
    return client


def _read_redirect_uri(client: OAuthClient, parameters: RequestParameters) -> str:
    named = _read_single(parameters, "redirect_uri")
    if named is None:
        if len(client.redirect_uris) != 1:
            raise invalid_request(
                "redirect_uri: required, because the application has registered several."
            )
        return client.redirect_uris[0]
    if not client.accepts_redirect(named):
        raise invalid_request("redirect_uri: the application has not registered this address.")
    return named


def _parse_request(
    client: OAuthClient, redirect_uri: str, parameters: RequestParameters
) -> AuthorizationRequest:
    _check_response_type(parameters)
    prompts = frozenset((_read_single(parameters, "prompt") or "").split())
    if not prompts <= _PROMPT_VALUES or ("none" in prompts and len(prompts) > 1):
        raise invalid_request("prompt: must be none, or any of login, consent and select_account.")
    return AuthorizationRequest(
        client=client,
        redirect_uri=redirect_uri,
        redirect_named=_read_single(parameters, "redirect_uri") is not None,
        scopes=parse_scopes(_read_single(parameters, "scope")),
        state=_read_text(parameters, "state"),
        nonce=_read_text(parameters, "nonce"),
        challenge=_read_challenge(client, parameters),
        prompts=prompts,
        max_age_s=_read_max_age(parameters),
        login_hint=_read_text(parameters, "login_hint") or "",
    )


def _check_response_type(parameters: RequestParameters) -> None:
    for name in _UNSUPPORTED_PARAMETERS:
        if _read_single(parameters, name) is not None:
            raise OAuthError(f"{name}_not_supported", f"{name}: not supported.")
    kind = _read_single(parameters, "response_type")
    if kind is None:
        raise invalid_request("response_type: required.")
    if kind != "code":
        raise OAuthError("unsupported_response_type", "response_type: must be code.")
    if _read_single(parameters, "response_mode") not in (None, "query"):
        raise invalid_request("response_mode: must be query.")


def parse_scopes(scope: str | None) -> tuple[str, ...]:
    """Return the supported scopes of a request, in a fixed order."""
    if scope is None:
        return DEFAULT_SCOPES
    if len(scope) > MAX_PARAMETER_LENGTH or not _SCOPE_REGEX.fullmatch(scope):
        raise OAuthError("invalid_scope", "scope: must be words separated by single spaces.")
    requested = set(scope.split(" "))
    if not requested & set(SCOPES):
        raise OAuthError("invalid_scope", "scope: none of these scopes is supported.")
    return tuple(name for name in SCOPES if name in requested)


def _read_challenge(client: OAuthClient, parameters: RequestParameters) -> str | None:
    challenge, method = (
        _read_single(parameters, "code_challenge"),
        _read_single(parameters, "code_challenge_method"),
    )
    if challenge is None:
        if client.public or method is not None:
            raise invalid_request("code_challenge: required.")
        return None
    # The default method `plain` does not protect against an eavesdropper.
    if method != "S256" or not _CHALLENGE_REGEX.fullmatch(challenge):
        raise invalid_request(
            "code_challenge: must be 43 characters, with code_challenge_method=S256."
        )
    return challenge


def _read_max_age(parameters: RequestParameters) -> int | None:
    text = _read_single(parameters, "max_age")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise invalid_request("max_age: must be a number of seconds.")
    return int(text)


def _read_text(parameters: RequestParameters, name: str) -> str | None:
    text = _read_single(parameters, name)
    if text is not None and len(text) > MAX_PARAMETER_LENGTH:
        raise invalid_request(f"{name}: must have at most {MAX_PARAMETER_LENGTH} characters.")
    if text is not None and "\0" in text:
        raise invalid_request(f"{name}: must not contain NUL.")
    return text


def _read_state(parameters: RequestParameters) -> str | None:
    """Return the state for an error redirect; None if the state itself is invalid."""
    try:
        return _read_text(parameters, "state")
    except OAuthError:
        return None


def _read_single(parameters: RequestParameters, name: str) -> str | None:
    """Return a parameter, None if empty; it must not be repeated (RFC 6749, section 3.1)."""
    values = parameters.get(name, ())
    if len(values) > 1:
        raise invalid_request(f"{name}: must not be repeated.")
    return values[0] if values and values[0] else None


def _needs_login(
    request: AuthorizationRequest, session: BrowserSession, now: float, prompt: LoginPrompt | None
) -> bool:
    """Return whether a logged-in user must log in again."""
    if prompt is not None and _is_session_after(session, prompt):
        return False
    if request.prompts & {"login", "select_account"}:
        return True
    return request.max_age_s is not None and now - session.at_s > request.max_age_s


def _is_session_after(session: BrowserSession, prompt: LoginPrompt) -> bool:
    """Return whether a session began after the login prompt, allowing for clock skew."""
    return session.id != prompt.session and session.at_s >= prompt.at - CLOCK_SKEW_S
