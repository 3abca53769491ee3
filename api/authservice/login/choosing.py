"""Choosing how to log in: where a login begins."""

from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlencode

from flask import Flask, Request, Response, request

from api.authservice.frame import add_page
from api.authservice.login.logins import Logins
from api.authservice.pages import page
from storage.errors import Invalid

SELECT, LOCAL, UPSTREAM = "/login/select", "/login/local", "/login/upstream"
LOCAL_TITLE = "E-mail address and password"
MAX_HINT = 256
"""Characters of a `login_hint`."""
OVER = "This login is over, or did not begin here. Go back to where you came from and try again."


def register_choice(app: Flask, logins: Logins) -> None:
    """The page of choosing."""
    add_page(app, logins, SELECT, partial(select, logins), "GET")


@dataclass(frozen=True, slots=True)
class Way:
    """A login under way: where it leads, whether it must be made anew, and as whom, if the
    application gave a `login_hint`."""

    target: str
    again: bool = False
    hint: str = ""


def first_page(logins: Logins, way: Way) -> str:
    """Where a login begins: the only provider, or a choice of them."""
    ways = _ways(logins, way)
    known = None if way.again else logins.session(request)
    if len(ways) == 1 and known is None:
        return ways[0]["href"]
    return select_page(logins, way)


def select_page(logins: Logins, way: Way) -> str:
    """The address of the choice."""
    return logins.settings.auth_url + _page_of(SELECT, way)


def once_more(logins: Logins, target: str) -> dict[str, str]:
    """A page's way back to the choice, where somebody has to prove anew who they are."""
    return {"href": select_page(logins, Way(target, again=True)), "way": "Choose how to log in"}


def select(logins: Logins) -> Response:
    """The providers; who is known already may go on as they are."""
    way = Way(request.args.get("next", ""), is_again(request), login_hint(request))
    url = target_url(logins, way.target)
    known = None if way.again else logins.session(request)
    return page(
        "select.html",
        "Log in",
        providers=_ways(logins, way),
        email=known.email if known else None,
        onward=url,
        leads_to=logins.leads_to(url),
    )


def target_url(logins: Logins, target: str) -> str:
    """Where a login leads to; Invalid when it is over."""
    url = logins.targets.url(target, now=logins.clock())
    if url is None:
        raise Invalid(OVER)
    return url


def _ways(logins: Logins, way: Way) -> list[dict[str, str]]:
    """Every provider: what it is called, and where a login with it begins."""
    ways = [
        {"title": one.upstream.title, "href": _page_of(f"{UPSTREAM}/{name}", way)}
        for name, one in logins.providers.items()
    ]
    if logins.settings.local_logins:
        ways.append({"title": LOCAL_TITLE, "href": _page_of(LOCAL, replace(way, again=False))})
    base = logins.settings.auth_url
    return [{**one, "href": base + one["href"]} for one in ways]


def _page_of(path: str, way: Way) -> str:
    told = {"next": way.target}
    if way.again:
        told["prompt"] = "login"
    if way.hint:
        told["login_hint"] = way.hint
    return f"{path}?{urlencode(told)}"


def login_hint(request: Request) -> str:
    """Whom the application expects to log in; empty for what it could not have meant."""
    hint = request.args.get("login_hint", "")
    return hint if len(hint) <= MAX_HINT and hint.isprintable() else ""


def is_again(request: Request) -> bool:
    """Whether somebody has to prove anew who they are."""
    return request.args.get("prompt") == "login"
