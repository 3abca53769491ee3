"""Check a token with the store, and describe the current user.

A token is sent to the store that the user named, and to its issuer if that is the store's own
authorization service; to no other server.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from store_client.atomic_files import parse_json_object
from store_client.auth import credentials as files
from store_client.auth.claims import (
    TokenStatus,
    claims_expiry,
    claims_identity,
    format_moment,
    make_printable,
    read_claims,
    token_status,
)
from store_client.auth.credentials import CREDENTIALS_VARIABLE
from store_client.auth.oauth import AuthService, discover_service
from store_client.auth.tokens import LOG_IN
from store_client.configuration import Configuration
from store_client.errors import Misused, NotAllowed, Refused, StoreError
from store_client.http.retries import MAX_SMALL_ANSWER, TokenSource
from store_client.http.session import HttpSession
from store_client.http.urls import parse_date

if TYPE_CHECKING:
    import httpx

PROBE_PATH = "/v1/subscriptions"
"""A harmless request that any user may make."""
SERVICE_ACCOUNT_HINT = (
    "is the account on the store's list, this machine's clock right, and this the URL that the"
    " store calls itself?"
)
UNAUTHORIZED, FORBIDDEN = 401, 403


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """A token that the store accepts."""

    email: str
    issuer: str
    groups: tuple[str, ...]
    expires: float | None
    """By this machine's clock."""


def extract_jwt(given: str) -> str:
    """Extract the JWT from typed or pasted text; Misused if there is none."""
    token = given.strip()
    if token.lower().startswith("bearer "):
        token = token[7:].strip()
    if not read_claims(token):
        raise Misused("this is not an access token (a JWT: three parts separated by dots)")
    return token


def verify_token(
    session: HttpSession,
    config: Configuration,
    token: str,
    *,
    now: Callable[[], float] = time.time,
) -> VerifiedToken:
    """Check a token with the store; NotAllowed, with the reason, if it is rejected."""
    claims = read_claims(token)
    header = {"Authorization": f"Bearer {token}"}
    query = {"replica": "aws"}
    try:
        answer = session.request("GET", PROBE_PATH, params=query, headers=header, authorize=False)
    except Refused as error:
        # Who may not list subscriptions is known all the same.
        if error.status == FORBIDDEN:
            return _describe_token(session, config, token, ahead_s=0.0)
        if error.status == UNAUTHORIZED:
            raise _token_error(session, config, claims, error) from error
        raise
    ahead = clock_skew(answer, now())
    return _describe_token(session, config, token, ahead_s=ahead)


def clock_skew(answer: "httpx.Response", now_s: float) -> float:
    """Seconds that this machine's clock is ahead of the server's; 0 if unknown."""
    date = parse_date(answer.headers.get("Date", ""))
    return 0.0 if date is None else now_s - date.timestamp()


def _describe_token(
    session: HttpSession, config: Configuration, token: str, *, ahead_s: float
) -> VerifiedToken:
    claims, userinfo = read_claims(token), _fetch_userinfo(session, config, token)
    end, groups = claims_expiry(claims), userinfo.get("groups")
    return VerifiedToken(
        email=claims_identity(userinfo) or claims_identity(claims),
        issuer=make_printable(claims.get("iss", "")),
        groups=tuple(map(make_printable, groups)) if isinstance(groups, list) else (),
        expires=None if end is None else end + ahead_s,
    )


def _fetch_userinfo(session: HttpSession, config: Configuration, token: str) -> Mapping[str, Any]:
    """Fetch the user info, if the issuer is the store's own authorization service."""
    service = _find_service(session, config)
    own = service is not None and service.issuer == read_claims(token).get("iss")
    if service is None or not own or not service.userinfo_endpoint:
        return {}
    header = {"Authorization": f"Bearer {token}"}
    try:
        answer = session.request(
            "GET",
            service.userinfo_endpoint,
            headers=header,
            authorize=False,
            limit=MAX_SMALL_ANSWER,
        )
    except StoreError:
        return {}
    return parse_json_object(answer.content) or {}


def _find_service(session: HttpSession, config: Configuration) -> AuthService | None:
    try:
        return discover_service(session, config)
    except StoreError:
        return None


def _token_error(
    session: HttpSession, config: Configuration, claims: Mapping[str, Any], error: Refused
) -> NotAllowed:
    why = make_printable(error.problem.get("detail") or str(error)).rstrip(".")
    return NotAllowed(
        f"{config.url} rejects this token: {why}{_explain_refusal(session, config, claims)}",
        hint=SERVICE_ACCOUNT_HINT if _is_self_signed(claims) else "log in here: store login",
        status=error.status,
        problem=error.problem,
    )


def _explain_refusal(session: HttpSession, config: Configuration, claims: Mapping[str, Any]) -> str:
    """The likely reason of a rejection, from the token's claims."""
    issuer, end = claims.get("iss"), claims_expiry(claims)
    service = None if _is_self_signed(claims) else _find_service(session, config)
    if service is not None and issuer != service.issuer:
        named = make_printable(issuer)
        return f" (it was issued by {named}, not by {service.issuer})"
    if end is not None and end < time.time():
        return f" (it expired at {format_moment(end)})"
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    if isinstance(audiences, list):
        return f" (it is for {make_printable(', '.join(map(str, audiences)))})"
    return ""


def _is_self_signed(claims: Mapping[str, Any]) -> bool:
    """Whether a service account signed the token itself."""
    return bool(claims.get("iss")) and claims.get("iss") == claims.get("sub")


ANONYMOUS, LOGIN, TOKEN, PROGRAM = "nobody", "login", "token", "service account"


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """The current user; `how` is one of the words above."""

    how: str
    email: str = ""
    issuer: str = ""
    groups: tuple[str, ...] = ()
    expires: float | None = None
    """Of the token; by this machine's clock."""
    renews: bool = False
    """Whether the token is followed by another one when it ends."""
    status: TokenStatus = TokenStatus.GOOD


def local_identity(
    config: Configuration,
    *,
    environ: Mapping[str, str] = os.environ,
    now: Callable[[], float] = time.time,
) -> CallerIdentity:
    """Identity from local files, without any request."""
    if environ.get(CREDENTIALS_VARIABLE):
        return CallerIdentity(PROGRAM, renews=True)
    kept = files.read_login(config)
    if kept is None:
        return CallerIdentity(ANONYMOUS)
    status = TokenStatus.GOOD if kept.refresh_token else token_status(kept.expires, now())
    return CallerIdentity(
        LOGIN if kept.refresh_token or kept.over else TOKEN,
        email=kept.email,
        issuer=kept.issuer,
        expires=kept.expires,
        renews=bool(kept.refresh_token),
        status=TokenStatus.EXPIRED if kept.over else status,
    )


def fetch_identity(
    session: HttpSession,
    config: Configuration,
    tokens: TokenSource,
    *,
    environ: Mapping[str, str] = os.environ,
    now: Callable[[], float] = time.time,
) -> CallerIdentity:
    """Fetch the identity from the store; NotAllowed if not logged in."""
    token = tokens.bearer()
    if token is None:
        raise NotAllowed(
            f"you are not logged in at {config.url}",
            hint=f"to log in: {LOG_IN}" + ("" if config.profile else f" --url {config.url}"),
            status=401,
        )
    try:
        found = verify_token(session, config, token, now=now)
    except NotAllowed:
        another = tokens.renew(token)
        if another is None:
            raise
        found = verify_token(session, config, another, now=now)
    before = local_identity(config, environ=environ, now=now)
    return CallerIdentity(
        before.how,
        email=found.email,
        issuer=found.issuer,
        groups=found.groups,
        expires=found.expires,
        renews=before.renews,
        status=TokenStatus.GOOD if before.renews else token_status(found.expires, now()),
    )
