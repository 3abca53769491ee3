"""Authorization requests (RFC 6749, 4.1.1), the next step at the browser, codes and consents."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from auth.accounts import AuditContext, admit_at_login, record_audit
from auth.login.sessions import BrowserSession
from auth.login.targets import add_query_parameters
from auth.oauth.clients import (
    PAGES_CLIENT,
    WEB_CLIENT,
    find_client,
    is_native_uri,
    is_registered_uri,
)
from auth.oauth.provider import (
    DEFAULT_SCOPES,
    SCOPES,
    OAuthError,
    OAuthProvider,
    RedirectedError,
    UserFacingError,
    invalid_request,
)
from auth.secret_values import create_secret, hash_secret
from storage.catalog import Catalog, Tx, login, oauth
from storage.catalog.oauth import OAuthClient

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

        An earlier consent does not count then (RFC 8252, section 8.6). The web pages' own port is
        taken by the store."""
        is_own_page = (
            self.client.id == PAGES_CLIENT and self.redirect_uri in self.client.redirect_uris
        )
        return self.client.public and is_native_uri(self.redirect_uri) and not is_own_page


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


def client_redirect_url(
    provider: OAuthProvider, uri: str, state: str | None, values: dict[str, str]
) -> str:
    """Return the redirect to the client with a code or an error."""
    # RFC 9207: prevents mix-up attacks on clients of several issuers.
    return add_query_parameters(uri, {**values, "iss": provider.issuer, "state": state})


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
    if not is_registered_uri(named, client.redirect_uris, native=client.public):
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
    is_other = prompt is not None and session.id != prompt.session
    if prompt and is_other and session.at_s >= prompt.at - CLOCK_SKEW_S:
        # The login that this request has caused led to this session.
        return False
    if request.prompts & {"login", "select_account"}:
        return True
    return request.max_age_s is not None and now - session.at_s > request.max_age_s


def issue_code(
    tx: Tx,
    provider: OAuthProvider,
    request: AuthorizationRequest,
    session: BrowserSession,
    grant_id: str,
) -> str:
    """Create a grant with an authorization code; Forbidden if the user is disabled."""
    admit_at_login(tx, session.email)
    code, now = create_secret(), provider.now_us()
    ends = now + provider.settings.code_s * 1_000_000
    row = oauth.GrantRow(
        id=grant_id,
        client=request.client.id,
        email=session.email,
        scope=" ".join(request.scopes),
        auth_us=session.at_us,
        code=hash_secret(code),
        code_ends_us=ends,
        redirect_uri=request.redirect_uri if request.redirect_named else None,
        challenge=request.challenge,
        nonce=request.nonce,
        created_us=now,
        ends_us=ends,
    )
    oauth.insert_grant(tx, row)
    return code


def record_consent(
    tx: Tx,
    provider: OAuthProvider,
    request: AuthorizationRequest,
    session: BrowserSession,
    request_id: str,
) -> None:
    """Record consent to these scopes, for this session and permanently, with an audit entry."""
    scopes, client_id, email = frozenset(request.scopes), request.client.id, session.email
    login.insert_session_consent(tx, session.id, client_id, scopes)
    before = sorted(oauth.find_consent(tx, email, client_id))
    oauth.record_consent(tx, email, client_id, scopes, provider.now_us())
    record_audit(
        tx,
        AuditContext(email, "consent", request_id),
        f"client/{client_id}",
        before={"scope": before} if before else None,
        after={"scope": sorted(scopes.union(before))},
    )


MAX_GRANTS_SHOWN = 100
"""The page shows the newest grants only."""


@dataclass(frozen=True, slots=True)
class ApplicationGrant:
    """An active grant, as account pages show it.

    `used_us` is the last token refresh, or the last use of a personal token, if it was used.
    """

    id: str
    client: str
    client_id: str
    since_us: int
    used_us: int | None
    scopes: tuple[str, ...]
    token_name: str | None = None
    """Name of a personal token."""


def list_application_grants(
    tx: Tx, own: Mapping[str, OAuthClient], email: str, now_us: int
) -> list[ApplicationGrant]:
    """List the active grants of a user, newest first."""
    rows = oauth.list_active_grants(tx, email, now_us, limit=MAX_GRANTS_SHOWN)
    found = {id_: find_client(tx, own, id_) for id_ in {row.client for row in rows}}
    names = {id_: client.name if client else id_ for id_, client in found.items()}
    return [
        ApplicationGrant(
            row.id,
            names[row.client] if row.name is None else f"Personal token: {row.name}",
            row.client,
            row.since_us,
            row.used_us,
            tuple(row.scope.split()),
            row.name,
        )
        for row in rows
    ]


def revoke_grant(tx: Tx, email: str, grant_id: str, now_us: int, request_id: str) -> bool:
    """Revoke a user's grant and the consents to its client; False if it is not theirs."""
    grant = oauth.find_grant(tx, grant_id)
    if grant is None or grant.email != email or not oauth.revoke_grant(tx, grant_id, now_us):
        return False
    if grant.name is not None:
        by = AuditContext(email, "revoke_personal_token", request_id)
        record_audit(tx, by, f"token/{grant_id}", before={"name": grant.name}, after=None)
        return True
    before = {"scope": sorted(oauth.find_consent(tx, email, grant.client))}
    oauth.delete_consent(tx, email, grant.client)
    login.delete_session_consents(tx, grant.client, email=email)
    by = AuditContext(email, "end_grant", request_id)
    record_audit(tx, by, f"client/{grant.client}", before=before, after=None)
    return True


def end_browser_session(catalog: Catalog, session_id: str, by: AuditContext, now: float) -> bool:
    """End a session of the user `by.who`; False if they have no such session.

    The web pages of that browser are logged out, too: their grant is of the same login.
    """
    with catalog.write() as tx:
        row = login.find_session(tx, session_id)
        if row is None or row.email != by.who or not login.end_session(tx, session_id):
            return False
        oauth.revoke_grants_of_login(
            tx, int(now * 1e6), email=row.email, client=PAGES_CLIENT, auth_us=row.created_us
        )
        after = {"provider": row.provider}
        record_audit(tx, by, f"user/{row.email}", before=after, after=None)
    return True


def revoke_own_grant(
    catalog: Catalog, email: str, grant_id: str, now: float, request_id: str
) -> bool:
    """Revoke a user's grant in one transaction; False if it is not theirs."""
    with catalog.write() as tx:
        return revoke_grant(tx, email, grant_id, int(now * 1e6), request_id)


def list_own_grants(
    catalog: Catalog, own: Mapping[str, OAuthClient], email: str, now: float
) -> list[ApplicationGrant]:
    """List the active grants of a user, newest first."""
    with catalog.read() as tx:
        return list_application_grants(tx, own, email, int(now * 1e6))
