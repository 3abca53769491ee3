"""The page of a one-time login link.

GET shows a button and changes nothing, so that previews of links in mails and chats do not use the
link up. The form logs the browser in and leads to the store's web pages.
"""

from flask import Response, request

from api.authz.login.providers import STALE_FORM
from api.authz.pages import LoginServices, Page, redirect_to, render_page
from auth.login import links
from auth.login.links import LINK_PATH, LINK_PROVIDER
from auth.login.targets import url_origin


def show_link(logins: LoginServices) -> Response:
    """Show who logs in by this link, and the button; Invalid if it is used or expired."""
    return _render_link(logins, request.args.get("token", ""))


def submit_link(logins: LoginServices) -> Response:
    """Use the link up, log this browser in, and redirect to the store's web pages."""
    token = request.form.get("token", "")
    if not logins.is_own_form(request):
        return _render_link(logins, token, error=STALE_FORM, status=403)
    email = links.use_link(logins.catalog, token, logins.clock())
    cookie, _ = logins.log_in(request, email, LINK_PROVIDER)
    return logins.set_session_cookie(redirect_to(_web_login_url(logins), 303), cookie)


def _render_link(
    logins: LoginServices, token: str, *, error: str = "", status: int = 200
) -> Response:
    email = links.read_link(logins.catalog, token, logins.clock())
    browser = logins.browser_id(request)
    page = render_page(
        "link.html",
        "Log in",
        status=status,
        # The browser applies the directive to redirects of the form, too.
        form_action=f"'self' {url_origin(_web_login_url(logins))}",
        action=logins.settings.auth_url + LINK_PATH,
        csrf=logins.form_token(browser),
        token=token,
        email=email,
        error=error,
    )
    return logins.bind_browser(page, browser)


def _web_login_url(logins: LoginServices) -> str:
    return f"{logins.settings.site_url}/login?next=/"


PAGES = (
    Page("GET", LINK_PATH, show_link),
    Page("POST", LINK_PATH, submit_link),
)
