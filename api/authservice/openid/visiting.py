"""Who is at the browser, and whether a form is of that very session; for the pages that ask a
person something on behalf of an application.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import urlencode, urlsplit

from flask import Request, Response, request

from api.authservice.login.logins import from_elsewhere
from api.authservice.pages import go, lasting, page
from api.authservice.services import AuthServices
from auth.digests import same
from auth.login.sessions import Session
from auth.openid.errors import Shown
from storage.errors import TooMany

MEANINGS = {
    "openid": "know who you are, by your e-mail address",
    "profile": "know your name",
    "groups": "know the groups that you are in",
}
ALWAYS = (
    "do in the data store whatever you may, with users and their rights, too",
    "go on doing so while you are away, until you or an operator end it",
)
"""An access token is its person's, whatever its scopes are, and a refresh token comes with it."""
MAX_FORM = 64 * 1024
FIELDS = 20


def visitor(services: AuthServices, request: Request) -> Session | None:
    """The session of the browser that asks."""
    return services.logins.session(request)


def to_login(page: str, *, again: bool = False) -> Response:
    """Have the person log in, `again` even if somebody is, and come back to a page of ours."""
    told = {"redirect_uri": page, **({"prompt": "login"} if again else {})}
    return go(f"/login?{urlencode(told)}")


def fields(request: Request) -> dict[str, str]:
    """The fields of a form, the first of each name."""
    request.max_content_length, request.max_form_parts = MAX_FORM, FIELDS
    return request.form.to_dict()


def is_of(session: Session, form: Mapping[str, str]) -> bool:
    """Whether the form that was sent is from a page that this session was shown."""
    return same(form.get("csrf", ""), session.csrf) and not from_elsewhere(request)


def meanings(scopes: Iterable[str]) -> list[str]:
    """What somebody allows with these, in words."""
    return [*ALWAYS, *(MEANINGS[scope] for scope in scopes if scope in MEANINGS)]


def place(url: str) -> str:
    """Where an address leads, as much of it as helps a person."""
    parts = urlsplit(url)
    if parts.hostname in ("127.0.0.1", "::1"):
        return "a program on this computer"
    return parts.hostname or f"an application ({parts.scheme})"


def shown(error: Shown) -> Response:
    """A page with what went wrong, for the person alone."""
    return page("message.html", "This did not work", status=400, bad=True, text=error.description)


def too_many(error: TooMany) -> Response:
    """A page that says when to try again."""
    text = f"Too many tries. Try again in {lasting(error.retry_after_s)}."
    response = page("message.html", "Not now", status=429, bad=True, text=text)
    response.headers["Retry-After"] = str(error.retry_after_s or 1)
    return response
