"""The authorization request (RFC 6749, 4.1.1; OpenID Connect Core, 3.1.2): reading it, and what has
to happen at the browser before it is granted.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from auth.login.sessions import Session
from auth.openid.clients import WEB, Client
from auth.openid.errors import OAuthError, SentBack, Shown, invalid_request
from auth.openid.provider import DEFAULT_SCOPES, SCOPES, Provider
from auth.openid.redirects import is_native, with_parameters
from storage.catalog import grants, logins
from storage.catalog.engine import Tx

Given = Mapping[str, Sequence[str]]
"""The request's parameters, each as often as it came."""

MAX_TEXT = 2_048
"""Characters of `state` and of `nonce`."""
SKEW_S = 30
"""How far the clock of the machine that a person logged in at may be behind that of the one that
sent them there."""

_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*")
_PROMPTS = frozenset({"none", "login", "consent", "select_account"})
_UNSUPPORTED = ("request", "request_uri", "registration")
PARAMETERS = frozenset(
    {
        *("response_type", "response_mode", "client_id", "redirect_uri", "scope", "state", "nonce"),
        *("code_challenge", "code_challenge_method", "prompt", "max_age", "login_hint"),
        *_UNSUPPORTED,
    }
)
"""Those that mean something here."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that could be granted: a client of ours, and where it wants its answer."""

    client: Client
    redirect_uri: str
    redirect_named: bool
    """Whether the request named it: then whoever redeems the code names it again."""
    scopes: tuple[str, ...]
    state: str | None
    nonce: str | None
    challenge: str | None
    prompts: frozenset[str]
    max_age_s: int | None
    login_hint: str = ""
    """The e-mail address that the person is expected to log in with."""

    @property
    def is_unverified(self) -> bool:
        """Whether any program may pretend to be this client: a public one whose answer goes to a
        program on the person's computer. An earlier consent says nothing then (RFC 8252, 8.6)."""
        return self.client.public and is_native(self.redirect_uri)


class Asked(NamedTuple):
    """When somebody was sent to log in, and the id of the session that they had, or empty."""

    at: float
    session: str


class Next(Enum):
    """What has to happen before the request is granted."""

    LOGIN = "login_required"
    CONSENT = "consent_required"
    GRANT = ""


def read(tx: Tx, provider: Provider, given: Given) -> Request:
    """The request; Shown before it is known where an answer would go, SentBack after that."""
    try:
        client = _client(tx, provider, given)
        redirect_uri = _redirect_uri(client, given)
    except OAuthError as error:
        raise Shown(error.error, error.description) from error
    try:
        return _request(client, redirect_uri, given)
    except OAuthError as error:
        raise SentBack(error, redirect_uri, _state(given)) from error


def what_next(
    tx: Tx, request: Request, session: Session | None, *, now: float, asked: Asked | None
) -> Next:
    """What is still to be done; `asked`: how this very request last had the person log in."""
    if session is None or _is_stale(request, session, now, asked):
        return Next.LOGIN
    known = _is_consented(tx, request, session)
    return Next.GRANT if known and "consent" not in request.prompts else Next.CONSENT


def _is_consented(tx: Tx, request: Request, session: Session) -> bool:
    """Whether the person need not be asked again."""
    if request.is_unverified:
        allowed = logins.session_consent(tx, session.id, request.client.id)
        return allowed.issuperset(request.scopes)
    agreed = grants.agreed(tx, session.email, request.client.id)
    return request.client.first_party or agreed.issuperset(request.scopes)


def refuse_prompt(request: Request, following: Next) -> None:
    """SentBack when somebody would have to be asked, and the request wants nobody asked."""
    if following is not Next.GRANT and "none" in request.prompts:
        raise refused(request, OAuthError(following.value, "The person would have to be asked."))


def refused(request: Request, error: OAuthError) -> SentBack:
    """A refusal as the browser brings it to the client."""
    return SentBack(error, request.redirect_uri, request.state)


def denied(request: Request, description: str) -> SentBack:
    """The person, or the service on that person's behalf, said no."""
    return refused(request, OAuthError("access_denied", description))


def answer_with_code(provider: Provider, request: Request, code: str) -> str:
    """Where the browser brings a code."""
    return _answer(provider, request.redirect_uri, request.state, {"code": code})


def answer_with_error(provider: Provider, error: SentBack) -> str:
    """Where the browser brings a refusal."""
    said = {"error": error.error, "error_description": error.description}
    return _answer(provider, error.redirect_uri, error.state, said)


def _answer(provider: Provider, uri: str, state: str | None, said: dict[str, str]) -> str:
    # RFC 9207: a client of several services sees which of them this is from.
    told = {**said, "iss": provider.issuer}
    return with_parameters(uri, told if state is None else {**told, "state": state})


def _client(tx: Tx, provider: Provider, given: Given) -> Client:
    client_id = _one(given, "client_id") or provider.settings.default_client or WEB
    client = provider.client(tx, client_id)
    if client is None:
        raise invalid_request("The application that sent you here is not known to this service.")
    return client


def _redirect_uri(client: Client, given: Given) -> str:
    named = _one(given, "redirect_uri")
    if named is None:
        if len(client.redirect_uris) != 1:
            raise invalid_request("The application did not say where the answer goes.")
        return client.redirect_uris[0]
    if not client.comes_back_to(named):
        raise invalid_request("The application wants the answer at an address that is not its own.")
    return named


def _request(client: Client, redirect_uri: str, given: Given) -> Request:
    _check_kind(given)
    prompts = frozenset((_one(given, "prompt") or "").split())
    if not prompts <= _PROMPTS or ("none" in prompts and len(prompts) > 1):
        raise invalid_request("prompt is none, or of login, consent and select_account.")
    return Request(
        client=client,
        redirect_uri=redirect_uri,
        redirect_named=_one(given, "redirect_uri") is not None,
        scopes=scopes_of(_one(given, "scope")),
        state=_text(given, "state"),
        nonce=_text(given, "nonce"),
        challenge=_challenge(client, given),
        prompts=prompts,
        max_age_s=_max_age(given),
        login_hint=_text(given, "login_hint") or "",
    )


def _check_kind(given: Given) -> None:
    for name in _UNSUPPORTED:
        if _one(given, name) is not None:
            raise OAuthError(f"{name}_not_supported", f"{name} is not understood here.")
    kind = _one(given, "response_type")
    if kind is None:
        raise invalid_request("response_type is missing.")
    if kind != "code":
        raise OAuthError("unsupported_response_type", "response_type is code.")
    if _one(given, "response_mode") not in (None, "query"):
        raise invalid_request("response_mode is query.")


def scopes_of(scope: str | None) -> tuple[str, ...]:
    """The scopes of a request that mean something here, in an order of their own."""
    if scope is None:
        return DEFAULT_SCOPES
    if len(scope) > MAX_TEXT or not _SCOPE.fullmatch(scope):
        raise OAuthError("invalid_scope", "scope is a list of words with one space between them.")
    wanted = set(scope.split(" "))
    if not wanted & set(SCOPES):
        raise OAuthError("invalid_scope", "None of these scopes is known here.")
    return tuple(name for name in SCOPES if name in wanted)


def _challenge(client: Client, given: Given) -> str | None:
    challenge, method = _one(given, "code_challenge"), _one(given, "code_challenge_method")
    if challenge is None:
        if client.public or method is not None:
            raise invalid_request("code_challenge is missing.")
        return None
    # Without a method it would be `plain`, which protects nothing that is seen on the way.
    if method != "S256" or not _CHALLENGE.fullmatch(challenge):
        raise invalid_request("code_challenge_method is S256, code_challenge 43 characters.")
    return challenge


def _max_age(given: Given) -> int | None:
    text = _one(given, "max_age")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise invalid_request("max_age is a number of seconds.")
    return int(text)


def _text(given: Given, name: str) -> str | None:
    text = _one(given, name)
    if text is not None and len(text) > MAX_TEXT:
        raise invalid_request(f"{name} has at most {MAX_TEXT} characters.")
    if text is not None and "\0" in text:
        raise invalid_request(f"{name} has no NUL.")
    return text


def _state(given: Given) -> str | None:
    """The state to tell a refusal with, if that is what was refused."""
    try:
        return _text(given, "state")
    except OAuthError:
        return None


def _one(given: Given, name: str) -> str | None:
    """The parameter, None when it is absent or empty; none may come twice (RFC 6749, 3.1)."""
    values = given.get(name, ())
    if len(values) > 1:
        raise invalid_request(f"{name} is given more than once.")
    return values[0] if values and values[0] else None


def _is_stale(request: Request, session: Session, now: float, asked: Asked | None) -> bool:
    """Whether the person has to log in again although somebody is logged in."""
    if asked is not None and _is_since(session, asked):
        return False
    if request.prompts & {"login", "select_account"}:
        return True
    return request.max_age_s is not None and now - session.at_s > request.max_age_s


def _is_since(session: Session, asked: Asked) -> bool:
    """Whether a session began after the person was sent to log in, by another machine's clock."""
    return session.id != asked.session and session.at_s >= asked.at - SKEW_S
