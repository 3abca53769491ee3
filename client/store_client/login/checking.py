"""What a store makes of a token: whether it takes it, and whom it takes its bearer for.

A token is shown to the store that was named by whoever has it, and to the issuer that it says it is
of, if the store names that one too; to nobody else.
"""

import email.utils
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from store_client.configuration import Configuration
from store_client.errors import Misused, NotAllowed, Refused, StoreError
from store_client.login.discovery import Service, service_of
from store_client.login.expiry import claims, expires_s, identity, moment, printable
from store_client.transport.limits import SMALL_ANSWER
from store_client.transport.session import Session

if TYPE_CHECKING:
    import httpx

ASKED = "/v1/subscriptions"
"""Answers everybody, about themselves, and changes nothing."""
PROGRAMS = (
    "is the account on the store's list, this machine's clock right, and this the URL that the"
    " store calls itself?"
)
UNAUTHORIZED, FORBIDDEN = 401, 403


@dataclass(frozen=True, slots=True)
class Checked:
    """A token that the store takes."""

    email: str
    issuer: str
    groups: tuple[str, ...]
    expires: float | None
    """By this machine's clock."""
    ahead_s: float
    """How far this machine's clock is ahead of the store's."""


def jwt_of(given: str) -> str:
    """The token in what somebody typed or pasted; Misused when there is none."""
    token = given.strip()
    if token.lower().startswith("bearer "):
        token = token[7:].strip()
    if not claims(token):
        raise Misused("this is no access token: they are JWTs, three parts with dots between")
    return token


def checked(
    session: Session,
    config: Configuration,
    token: str,
    *,
    now: Callable[[], float] = time.time,
) -> Checked:
    """What the store makes of a token; NotAllowed, with the reason, when it does not take it."""
    said = claims(token)
    header = {"Authorization": f"Bearer {token}"}
    query = {"replica": "aws"}
    try:
        answer = session.ask("GET", ASKED, params=query, headers=header, authorize=False)
    except Refused as error:
        # Who may not list subscriptions is known all the same.
        if error.status == FORBIDDEN:
            return _known(session, config, token, ahead_s=0.0)
        if error.status == UNAUTHORIZED:
            raise _refusal(session, config, said, error) from error
        raise
    ahead = ahead_of(answer, now())
    return _known(session, config, token, ahead_s=ahead)


def ahead_of(answer: "httpx.Response", now_s: float) -> float:
    """Seconds that this machine's clock is ahead of the server's; 0 where that is not known."""
    try:
        said = email.utils.parsedate_to_datetime(answer.headers.get("Date", ""))
        return now_s - said.timestamp()
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _known(session: Session, config: Configuration, token: str, *, ahead_s: float) -> Checked:
    said, told = claims(token), _told(session, config, token)
    end, groups = expires_s(said), told.get("groups")
    return Checked(
        email=identity(told) or identity(said),
        issuer=printable(said.get("iss", "")),
        groups=tuple(map(printable, groups)) if isinstance(groups, list) else (),
        expires=None if end is None else end + ahead_s,
        ahead_s=ahead_s,
    )


def _told(session: Session, config: Configuration, token: str) -> Mapping[str, Any]:
    """What the issuer knows of the bearer, if it is the store's own authorization service."""
    service = _service(session, config)
    if service is None or not service.userinfo_endpoint:
        return {}
    if claims(token).get("iss") != service.issuer:
        return {}
    header = {"Authorization": f"Bearer {token}"}
    try:
        found = session.ask(
            "GET",
            service.userinfo_endpoint,
            headers=header,
            authorize=False,
            limit=SMALL_ANSWER,
        ).json()
    except (StoreError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _service(session: Session, config: Configuration) -> Service | None:
    try:
        return service_of(session, config)
    except StoreError:
        return None


def _refusal(
    session: Session, config: Configuration, said: Mapping[str, Any], error: Refused
) -> NotAllowed:
    why = printable(error.problem.get("detail") or str(error)).rstrip(".")
    return NotAllowed(
        f"{config.url} does not take this token: {why}{_because(session, config, said)}",
        hint=PROGRAMS if _signed_itself(said) else "log in here: store login",
        status=error.status,
        problem=error.problem,
    )


def _because(session: Session, config: Configuration, said: Mapping[str, Any]) -> str:
    """What of the token may have been the reason, in words."""
    issuer, end = said.get("iss"), expires_s(said)
    service = None if _signed_itself(said) else _service(session, config)
    if service is not None and issuer != service.issuer:
        return f" (it was issued by {printable(issuer)}, and those of {service.issuer} are wanted)"
    if end is not None and end < time.time():
        return f" (it ended at {moment(end)})"
    audience = said.get("aud")
    named = [audience] if isinstance(audience, str) else audience
    if isinstance(named, list):
        return f" (it is for {printable(', '.join(map(str, named)))})"
    return ""


def _signed_itself(said: Mapping[str, Any]) -> bool:
    """Whether a program made the token, which is an issuer of its own."""
    return bool(said.get("iss")) and said.get("iss") == said.get("sub")
