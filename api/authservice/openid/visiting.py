"""Who is at the browser, whether a form is of that very session, and what it carries from one page
to the next; for the pages that ask a person something on behalf of an application.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any
from urllib.parse import urlencode, urlsplit

from flask import Request, Response, request

from api.authservice.frame import message
from api.authservice.login.choosing import MAX_HINT
from api.authservice.login.logins import from_elsewhere
from api.authservice.pages import go
from api.authservice.services import AuthServices
from auth.digests import same
from auth.login.sessions import Session
from auth.openid.authorizing import answer_with_error
from auth.openid.errors import SentBack, Shown

MEANINGS = {
    "openid": "know who you are, by your e-mail address",
    "profile": "know your name",
    "groups": "know which groups you are in",
}
ALWAYS = (
    "do everything you can do in the data store, including managing users and permissions",
    "continue to do so while you are away, until you or an operator end it",
)
"""An access token is its person's, whatever its scopes are, and a refresh token comes with it."""
CARRIED_S = 3_600
MAX_CARRIED = 5_400
"""Characters: servers read request lines of 8,190 bytes."""


def at_browser(
    view: Callable[[AuthServices], Response],
) -> Callable[[AuthServices], Response]:
    """Have a view's refusals shown to the person, or brought to the client."""

    @wraps(view)
    def refusing(services: AuthServices) -> Response:
        try:
            return view(services)
        except Shown as error:
            return message(error.description, status=400)
        except SentBack as error:
            status = 302 if request.method == "GET" else 303
            return go(answer_with_error(services.provider, error), status)

    return refusing


def visitor(services: AuthServices, request: Request) -> Session | None:
    """The session of the browser that asks."""
    return services.logins.session(request)


def to_login(page: str, *, again: bool = False, hint: str = "") -> Response:
    """Have the person log in, `again` even if somebody is, and come back to a page of ours; `hint`:
    as whom the person is expected to."""
    told = {"redirect_uri": page, **({"prompt": "login"} if again else {})}
    if hint and len(hint) <= MAX_HINT:
        told["login_hint"] = hint
    return go(f"/login?{urlencode(told)}")


def is_of(session: Session, form: Mapping[str, str]) -> bool:
    """Whether the form that was sent is from a page that this session was shown."""
    return same(form.get("csrf", ""), session.csrf) and not from_elsewhere(request)


def carry(services: AuthServices, purpose: str, what: Mapping[str, Any]) -> str:
    """What the browser carries to another page of ours, and the time."""
    now = services.clock()
    return services.logins.seals.seal(purpose, [{**what, "at": now}], ends=now + CARRIED_S)


def carried(services: AuthServices, purpose: str, sealed: str | None) -> dict[str, Any] | None:
    """What the browser was given to carry, with `at`; None when it was not, or too long ago."""
    opened = services.logins.seals.open(purpose, sealed, now=services.clock())
    return dict(opened[0]) if opened else None


def meanings(scopes: Iterable[str]) -> list[str]:
    """What somebody allows with these, in words."""
    return [*ALWAYS, *(MEANINGS[scope] for scope in scopes if scope in MEANINGS)]


def place(url: str) -> str:
    """Where an address leads, as much of it as helps a person."""
    parts = urlsplit(url)
    if parts.hostname in ("127.0.0.1", "::1"):
        port = f", port {parts.port}" if parts.port else ""
        return f"a program on this computer ({parts.hostname}{port})"
    return parts.hostname or f"an application ({parts.scheme})"
