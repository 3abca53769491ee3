"""The token end point: a code, a device's code or a refresh token becomes tokens (RFC 6749)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from store_client.errors import NotAllowed, Refused
from store_client.login.expiry import claims, expires_s, identity, printable, seconds
from store_client.transport.limits import SMALL_ANSWER
from store_client.transport.session import Session

if TYPE_CHECKING:
    import httpx

CLIENT_ID = "store-cli"
SCOPE = "openid email groups offline_access"
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}


@dataclass(frozen=True, slots=True)
class Granted:
    """The answer of a token end point."""

    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)
    expires_in: float | None = None

    def expires(self, now_s: float) -> float | None:
        """When the access token ends, by the clock that says `now_s`."""
        if self.expires_in is not None:
            return now_s + self.expires_in
        return expires_s(claims(self.access_token))

    @property
    def email(self) -> str:
        """Whom the tokens are of, as they say."""
        return identity(claims(self.id_token)) or identity(claims(self.access_token))


class OAuthRefusal(NotAllowed):
    """What the service refused with: `error` is its word."""

    @property
    def error(self) -> str:
        """The service's word for the reason, "" when it gave none."""
        return printable(self.problem.get("error", ""))


def granted(session: Session, endpoint: str, form: Mapping[str, str], *, again: bool) -> Granted:
    """Tokens; OAuthRefusal with the service's word. `again`: whether asking twice is harmless."""
    answer = post(session, endpoint, {"client_id": CLIENT_ID, **form}, again=again)
    said = _object(answer)
    token, kind = said.get("access_token"), str(said.get("token_type", "bearer"))
    if not isinstance(token, str) or not token or kind.lower() != "bearer":
        raise Refused("the authorization service answered with no bearer token")
    return Granted(
        token,
        _text(said, "refresh_token"),
        _text(said, "id_token"),
        seconds(said.get("expires_in")),
    )


def post(session: Session, url: str, form: Mapping[str, str], *, again: bool) -> "httpx.Response":
    """One form to the authorization service; OAuthRefusal when it says no."""
    body = urlencode(form).encode()
    try:
        return session.ask(
            "POST",
            url,
            content=body,
            headers=FORM,
            repeatable=again,
            authorize=False,
            limit=SMALL_ANSWER,
        )
    except Refused as error:
        said = error.problem.get("error_description") or error.problem.get("error") or str(error)
        raise OAuthRefusal(
            f"the authorization service says no: {printable(said)}",
            status=error.status,
            problem=error.problem,
        ) from error


def _object(answer: "httpx.Response") -> dict[str, Any]:
    try:
        said = json.loads(answer.content)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Refused("the authorization service answered with no JSON object")
    return said


def _text(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name, "")
    return value if isinstance(value, str) else ""
