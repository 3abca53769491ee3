"""The frame of every page: counted by address, its form bounded, and whatever goes wrong there is
told as a page.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from flask import Flask, Response, g, request

from api.authservice.limits import limit_logins
from api.authservice.login.logins import Logins
from api.authservice.pages import again_in, page
from api.errors import status_of, with_retry_after
from api.routing import without_head
from storage.errors import StoreError, TooMany

MAX_FORM = 64 * 1024
FIELDS = 20
TOO_MANY = "Too many tries."


def add_page(
    app: Flask,
    logins: Logins,
    path: str,
    view: Callable[..., Response],
    method: str,
    *,
    name: str = "page",
    acts: bool = False,
) -> None:
    """Give a page its path, and the name that its requests are logged by. To look at one `acts`."""

    def shown(**named: str) -> Response:
        g.operation = name
        return framed(logins, partial(view, **named))

    endpoint = f"page {method} {path}".replace(".", "_")
    app.add_url_rule(path, endpoint, shown, methods=[method])
    if acts:
        without_head(app, endpoint)


def framed(logins: Logins, view: Callable[[], Response]) -> Response:
    """What the view answers, or a page that says why it does not."""
    request.max_content_length, request.max_form_parts = MAX_FORM, FIELDS
    try:
        limit_logins(logins.catalog, logins.settings, request, logins.clock())
        return view()
    except StoreError as error:
        return failed(error)


def failed(error: StoreError, text: str = "", **more: Any) -> Response:
    """A page that says what went wrong."""
    status = status_of(error)
    if isinstance(error, TooMany):
        text = again_in(TOO_MANY, error.retry_after_s)
    answer = message(text or error.detail, status=403 if status == 401 else status, **more)
    return with_retry_after(answer, error.code, error.retry_after_s)


def error_page(status: int, text: str) -> Response:
    """What a browser is shown where a program gets a problem."""
    return message(text, status=status)


def message(text: str, *, status: int = 200, title: str = "", **more: Any) -> Response:
    """A page of one sentence."""
    bad = status >= 400
    shown = {"request_id": g.get("request_id", "") if bad else "", **more}
    heading = title or ("That did not work" if bad else "Done")
    return page("message.html", heading, status=status, text=text, bad=bad, **shown)
