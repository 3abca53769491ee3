"""Choosing how to log in: where a login begins."""

from functools import partial
from urllib.parse import urlencode

from flask import Flask, Request, Response, request

from api.authservice.frame import add_page
from api.authservice.login.logins import Logins
from api.authservice.pages import page
from storage.errors import Invalid

SELECT, LOCAL, UPSTREAM = "/login/select", "/login/local", "/login/upstream"
LOCAL_TITLE = "E-mail address and password"
OVER = "This login is over, or did not begin here. Go back to where you came from and try again."


def register_choice(app: Flask, logins: Logins) -> None:
    """The page of choosing."""
    add_page(app, logins, SELECT, partial(select, logins), "GET")


def first_page(logins: Logins, target: str, *, again: bool) -> str:
    """Where a login begins: the only provider, or a choice of them."""
    ways = _ways(logins, target, again=again)
    known = None if again else logins.session(request)
    if len(ways) == 1 and known is None:
        return ways[0]["href"]
    return select_page(logins, target, again=again)


def select_page(logins: Logins, target: str, *, again: bool = False) -> str:
    """The address of the choice."""
    return logins.settings.auth_url + _page_of(SELECT, target, again=again)


def once_more(logins: Logins, target: str) -> dict[str, str]:
    """A page's way back to the choice, where somebody has to prove anew who they are."""
    return {"href": select_page(logins, target, again=True), "way": "Choose how to log in"}


def select(logins: Logins) -> Response:
    """The providers; who is known already may go on as they are."""
    target = request.args.get("next", "")
    url = target_url(logins, target)
    again = is_again(request)
    known = None if again else logins.session(request)
    return page(
        "select.html",
        "Log in",
        providers=_ways(logins, target, again=again),
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


def _ways(logins: Logins, target: str, *, again: bool) -> list[dict[str, str]]:
    """Every provider: what it is called, and where a login with it begins."""
    ways = [
        {"title": one.upstream.title, "href": _page_of(f"{UPSTREAM}/{name}", target, again=again)}
        for name, one in logins.providers.items()
    ]
    if logins.settings.local_logins:
        ways.append({"title": LOCAL_TITLE, "href": _page_of(LOCAL, target)})
    base = logins.settings.auth_url
    return [{**way, "href": base + way["href"]} for way in ways]


def _page_of(path: str, target: str, *, again: bool = False) -> str:
    return f"{path}?{urlencode({'next': target, **({'prompt': 'login'} if again else {})})}"


def is_again(request: Request) -> bool:
    """Whether somebody has to prove anew who they are."""
    return request.args.get("prompt") == "login"
