"""Pages for people: no script, nothing from elsewhere, in no frame, kept by nobody.

Cookies are this host's alone, out of reach of scripts, and do not come with requests that other
sites make (but when they send the browser here, as providers do).
"""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

from flask import Response, render_template
from markupsafe import Markup

from auth.login.sessions import host_bound

NAME = "Data store"
STYLE = (Path(__file__).parent / "templates" / "page.css").read_text(encoding="utf-8").strip()
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

ANYWHERE = ""
"""For forms whose answer leads to an address that is not known here: browsers hold the redirects
that follow a form to `form-action` as well."""


def page(
    template: str, title: str, *, status: int = 200, form_action: str = "'self'", **values: object
) -> Response:
    """A page of ours; `form_action`: where its forms, and what they are redirected to, may lead."""
    body = render_template(template, title=title, service=NAME, style=Markup(STYLE), **values)
    response = Response(body, status, content_type="text/html; charset=utf-8")
    response.headers["Content-Security-Policy"] = policy(form_action)
    return guarded(response)


def policy(form_action: str = "'self'") -> str:
    """What a browser may do with a page of ours."""
    forms = f"; form-action {form_action}" if form_action else ""
    return (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none';"
        f" frame-ancestors 'none'{forms}"
    )


def guarded(response: Response) -> Response:
    """What is about one person: kept by nobody, framed by nobody, telling nobody where it was."""
    response.headers["Cache-Control"] = "no-store"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["X-Frame-Options"] = "DENY"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault("Content-Security-Policy", policy())
    return response


def go(url: str, status: int = 302) -> Response:
    """An empty answer that leads elsewhere."""
    return guarded(Response(b"", status, headers={"Location": url}, mimetype="text/plain"))


def lasting(seconds: int | None) -> str:
    """How long somebody waits, as people say it."""
    whole = seconds or 1
    if whole > 90:
        return f"{-(-whole // 60)} minutes"
    return "a second" if whole == 1 else f"{whole} seconds"


def again_in(what: str, seconds: int | None) -> str:
    """What happened too often, and when somebody may try again."""
    return f"{what} Try again in {lasting(seconds)}."


@dataclass(frozen=True)
class Cookies:
    """Sets and clears the cookies of one service."""

    base_url: str

    def name(self, short: str) -> str:
        """The name of a cookie here."""
        return host_bound(short, self.base_url)

    def put(self, response: Response, short: str, value: str, max_age_s: int | None) -> None:
        """Set one, until the browser ends or for so long."""
        response.set_cookie(
            self.name(short),
            value,
            max_age=max_age_s,
            path="/",
            secure=self.base_url.startswith("https://"),
            httponly=True,
            samesite="Lax",
        )

    def clear(self, response: Response, short: str) -> None:
        """Forget one."""
        self.put(response, short, "", 0)
