"""Declare pages, authorize their callers as the API does, and render them with strict headers.

A page names the API operation that it shows or does as its `access`: the same guard with the same
policies judges both. Its path and query parameters are those of that operation where they matter.
Every POST needs the session's CSRF token.
"""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit

from flask import Flask, Request, Response, current_app, g, render_template, request
from markupsafe import Markup

from api.authz.context import AuthServices
from api.authz.pages import set_host_cookie
from api.http.auth import Guard, Q, RequestContext
from api.http.dispatch import add_rule, identify_and_count
from api.http.errors import REQUEST_ID_HEADER
from api.http.form_files import UploadedFiles
from api.http.limits import check_rate_limit
from api.http.loading import load_form, load_path, load_query
from api.http.operation import Services, StoreContext, read_stale
from api.http.waiting import ServerSentEvents
from api.schemas.fields import NoParameters, lenient_schema
from auth.account_operations import ACCOUNT_ACTIONS, describe_requirement
from auth.login.sessions import host_cookie_name
from auth.secret_values import ValueSealer, is_equal_secret
from pipelines.facets import FacetFieldCaches
from pipelines.report_cache import ReportCache
from pipelines.statistics import StoreStatistics
from storage.errors import Forbidden, Invalid, Unauthorized
from storage.model import Principal
from web import formats
from web.live import PAUSE_S, START, LivePage, read_changes, wants_stream

log = logging.getLogger(__name__)

F = TypeVar("F")
R = TypeVar("R")
SITE_KEY = "store.site"
MAX_FORM_BYTES = 1024 * 1024
MAX_FORM_PARTS = 1000
FLASH_COOKIE = "store-flash"
FLASH_S = 60


@dataclass(frozen=True)
class WebSession:
    """A user who is logged in at the pages; the cookie holds it, encrypted."""

    id: str
    token: str
    refresh_token: str
    id_token: str
    expires_at: float
    """When the access token expires, in seconds since 1970."""
    ends_at: float
    """When the user must log in again."""


PostForm = Callable[[str, Mapping[str, str]], Mapping[str, Any]]
"""Posts a form to a path of the authorization service and returns its JSON; Invalid if it is
refused, Unavailable without an answer."""


@dataclass(frozen=True)
class Site:
    """Services of the pages; `auth` is None if a remote service manages the accounts."""

    services: Services
    auth: AuthServices | None
    sealer: ValueSealer
    clock: Callable[[], float]
    find_session: Callable[["Site"], WebSession | None]
    """Returns the session of the current request."""
    post_form: PostForm
    streams: ServerSentEvents
    statistics: ReportCache[StoreStatistics]
    facet_fields: FacetFieldCaches

    def csrf_token(self, session: WebSession) -> str:
        """Return a new token for a form of this session.

        It differs each time: pages are compressed, and a constant secret beside the visitor's own
        words could be guessed from their length (BREACH).
        """
        return self._csrf_token(session, secrets.token_urlsafe(12))

    def is_csrf_token(self, session: WebSession, sent: str) -> bool:
        """Return whether a form's token belongs to this session."""
        return is_equal_secret(sent, self._csrf_token(session, sent.partition(".")[0]))

    def _csrf_token(self, session: WebSession, nonce: str) -> str:
        return f"{nonce}.{self.sealer.derive_value('web form', f'{nonce} {session.id}')}"

    def guard_of(self, operation: str) -> Guard:
        """Return the guard of the application that has this operation."""
        if operation not in ACCOUNT_ACTIONS:
            return self.services.guard
        return self.auth.guard if self.auth else RemoteGuard(self.services.settings.auth_url)


@dataclass(frozen=True)
class RemoteGuard:
    """Refuses what a remote authorization service manages, and says where that is."""

    auth_url: str

    def wants(self, operation: str) -> str | None:
        """Describe the requirement."""
        return describe_requirement(operation)

    def may(self, _principal: Principal | None, _operation: str) -> bool:
        """Allow nothing here."""
        return False

    def refuse(self, _principal: Principal | None, operation: str, _request: Request) -> None:
        """Say where accounts are managed."""
        raise Forbidden(f"Accounts of this store are managed at {self.auth_url} ({operation}).")

    def require(
        self, operation: str, context: RequestContext[Any, Any, Any]
    ) -> RequestContext[Any, Any, Any]:
        """Say where accounts are managed."""
        self.refuse(context.principal, operation, context.request)
        return context


class FormErrors(Invalid):
    """A form has errors; `errors` maps fields to messages."""


@dataclass(frozen=True)
class PageContext(StoreContext[Q, None]):
    """One request for a page, loaded and authorized."""

    site: Site
    session: WebSession | None

    def authorize(
        self,
        operation: str,
        *,
        path: Mapping[str, str] | None = None,
        query: Any = None,
        body: Any = None,
    ) -> Self:
        """Return the context for another operation, with resolved defaults, if policies allow it.

        Raises Unauthorized without a session, else Forbidden.
        """
        changed: Any = replace(
            self,
            operation=operation,
            path=self.path if path is None else path,
            query=self.query if query is None else query,
            body=body,
        )
        guard = self.site.guard_of(operation)
        if self.principal is None and guard.wants(operation) is not None:
            raise Unauthorized("Log in first.")
        allowed: Any = guard.require(operation, changed)
        return cast(Self, allowed)

    def may(self, operation: str, **given: Any) -> bool:
        """Return whether policies allow the caller an operation, to show or hide its button."""
        try:
            self.authorize(operation, **given)
        except (Unauthorized, Forbidden):
            return False
        return True

    def load_form(self, form: type[F]) -> F:
        """Load the form's fields into a dataclass; empty fields count as absent. FormErrors."""
        try:
            loaded: F = load_form(lenient_schema(form), self.request.form)
        except Invalid as error:
            raise FormErrors(error.detail, errors=error.errors) from error
        return loaded

    @property
    def form_files(self) -> UploadedFiles | None:
        """The files of a form that `uploads`; None if it was sent without any."""
        uploaded: UploadedFiles | None = g.get("web_upload")
        return uploaded

    def cut_page(
        self, rows: Sequence[R], size: int, scope: Sequence[str], locate: Callable[[R], list[str]]
    ) -> tuple[Sequence[R], str | None]:
        """Return the first `size` rows, and the token of the next page if there are more."""
        shown = rows[:size]
        if len(rows) <= size:
            return shown, None
        return shown, self.services.cursors.seal(scope, locate(shown[-1]))

    def render(
        self, template: str, title: str, *, status: int = 200, connect: str = "", **values: Any
    ) -> Response:
        """Render a page; `title` is its heading, too; see render_page."""
        return render_page(template, title, status=status, page=self, connect=connect, **values)

    def redirect(self, path: str, flash: str = "") -> Response:
        """Redirect to a page of this site after a POST; `flash` is shown there once."""
        response = redirect_to(path)
        if flash:
            ends = self.site.clock() + FLASH_S
            sealed = self.site.sealer.seal("web flash", [flash], ends=ends)
            set_cookie(self.site, response, FLASH_COOKIE, sealed, FLASH_S)
        return response

    def url(self, **changes: str | None) -> str:
        """Return this page's URL with other query parameters; None removes one."""
        pairs = [
            (name, v) for name, v in self.request.args.items(multi=True) if name not in changes
        ]
        pairs += [(name, value) for name, value in changes.items() if value is not None]
        return quote(self.request.path) + ("?" + urlencode(pairs) if pairs else "")


PageView = Callable[[Any], Response | LivePage]


@dataclass(frozen=True)
class Page:
    """The declaration of a page and its view."""

    name: str
    method: str
    path: str
    view: PageView
    access: str
    """The API operation whose policies decide; empty for pages open to all."""
    login: bool
    """Whether the caller must be logged in, beyond what `access` requires."""
    query: Any
    while_read_only: bool
    acts: bool
    """Whether it is a GET with side effects, for which HEAD is refused."""
    uploads: bool
    """Whether its form has files: they are read as a stream, up to the limit of a file each."""
    may_lag: bool
    """Whether visitors who are not logged in may see what a standby of the catalog has."""
    bearer: bool
    """Whether programs may send a bearer token, as to the API, instead of a session."""


_PAGES: list[Page] = []


def page(
    method: str,
    path: str,
    *,
    access: str = "",
    login: bool = False,
    query: type[object] = NoParameters,
    while_read_only: bool = False,
    acts: bool = False,
    uploads: bool = False,
    may_lag: bool = False,
    bearer: bool = False,
) -> Callable[[PageView], PageView]:
    """Declare the decorated view as a page."""

    def declare(view: PageView) -> PageView:
        schema = lenient_schema(query)
        name = getattr(view, "__name__", "")
        read_only = while_read_only or method == "GET"
        flags = (read_only, acts, uploads, may_lag, bearer)
        _PAGES.append(Page(name, method, path, view, access, login, schema, *flags))
        return view

    return declare


def list_pages() -> list[Page]:
    """Return all declared pages."""
    return list(_PAGES)


def register_pages(app: Flask, site: Site) -> None:
    """Serve all declared pages."""
    app.extensions[SITE_KEY] = site
    app.jinja_env.filters.update(formats.FILTERS)
    app.jinja_env.tests["web_url"] = formats.is_web_url
    app.jinja_env.globals["zip"] = zip
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    for one in _PAGES:
        endpoint = f"page {one.method} {one.name}"
        add_rule(app, one.method, one.path, endpoint, _make_page_view(one, site), acts=one.acts)


def _make_page_view(one: Page, site: Site) -> Callable[..., Response]:
    def view(**path: str) -> Response:
        g.operation = f"web_{one.name}"
        try:
            return _serve_page(one, site, path)
        except Unauthorized:
            is_program = wants_stream(request) or _has_bearer(one)
            if one.method != "GET" or g.get("principal") or is_program:
                raise
            return redirect_to(login_url())

    return view


def _serve_page(one: Page, site: Site, path: dict[str, str]) -> Response:
    services = site.services
    session: WebSession | None = None
    if _has_bearer(one):
        principal = identify_and_count(services, request.headers["Authorization"])
    else:
        session, principal = _identify(site)
        check_rate_limit(services.rates, services.settings, request, principal)
    g.principal = principal.email if principal else None
    g.web_session, g.web_principal = session, principal
    is_closed = bool(one.access) and site.guard_of(one.access).wants(one.access) is not None
    if principal is None and (one.login or is_closed):
        raise Unauthorized("Log in first.")
    if one.method == "POST":
        _check_form(site, session, uploads=one.uploads)
    if not one.while_read_only:
        services.read_only.require_writable()
    query = load_query(one.query, request.args)
    base = services.base(request)
    context: PageContext[Any] = PageContext(
        services,
        one.access or one.name,
        request,
        g.request_id,
        load_path(path),
        query,
        None,
        principal,
        base,
        site,
        session,
    )
    if one.access:
        context = context.authorize(one.access)
    # Who is logged in may look for what they have just written.
    may_lag = one.may_lag and principal is None
    answer = read_stale(one.view, context) if may_lag else one.view(context)
    if isinstance(answer, Response):
        return answer
    if wants_stream(request):
        return _stream_part(one, context, answer.topics)
    values = {"is_over": answer.is_over, **answer.read()}
    return context.render(answer.template, answer.title, live_url=context.url(), **values)


def _has_bearer(one: Page) -> bool:
    """Return whether the request is a program's, whose token counts, and not its cookies."""
    scheme = request.headers.get("Authorization", "").strip().partition(" ")[0]
    return one.bearer and scheme.lower() == "bearer"


def _stream_part(one: Page, context: PageContext[Any], topics: Sequence[str]) -> Response:
    """Send the part of a live page whenever it has changed, as long as its caller may see it."""
    app, site, environ = current_app._get_current_object(), context.site, request.environ  # type: ignore[attr-defined]

    def look(version: Any) -> tuple[LivePage, str] | None:
        with app.request_context(environ):
            current = _authorize_again(one, context)
            page = one.view(current)
            assert isinstance(page, LivePage)
            if page.version == version:
                return None
            values = {"is_over": page.is_over, "live_url": current.url(), **page.read()}
            return page, render_template(page.part, **_shared_values(site, current), **values)

    response = site.streams.respond(
        read_changes(look),
        client=context.client,
        start=START,
        topics=topics,
        environ=environ,
        pause_s=PAUSE_S,
    )
    return protect(response, site)


def _authorize_again(one: Page, context: PageContext[Any]) -> PageContext[Any]:
    """Return the context of a page for another look, by the session that it was opened with.

    The access token is not renewed: no response could carry the new one.
    """
    session, principal = context.session, None
    if session is not None:
        if context.site.clock() >= session.ends_at:
            raise Unauthorized("Your session has ended.")
        principal = context.services.verify(session.token)
    g.request_id, g.web_session, g.web_principal = context.request_id, session, principal
    current = replace(context, principal=principal)
    return current.authorize(one.access) if one.access else current


def _identify(site: Site) -> tuple[WebSession | None, Principal | None]:
    """Return the request's session and its user; a session whose token was revoked is none."""
    session = site.find_session(site)
    if session is None:
        return None, None
    try:
        return session, site.services.verify(session.token)
    except Unauthorized:
        return None, None


def _check_form(site: Site, session: WebSession | None, *, uploads: bool) -> None:
    """Raise Forbidden unless the form was rendered for this session, by this site."""
    request.max_content_length, request.max_form_parts = MAX_FORM_BYTES, MAX_FORM_PARTS
    if session is None:
        raise Unauthorized("Your session has ended. Log in, go back, and send the form again.")
    same_site = request.headers.get("Sec-Fetch-Site", "same-origin") in ("same-origin", "none")
    if uploads and request.mimetype == "multipart/form-data":
        # Each file has its own limit; the form has none, as it is never in memory or on disk.
        request.max_content_length = None
        g.web_upload = UploadedFiles(request)
        sent = g.web_upload.read_first_field("csrf")
    else:
        sent = request.form.get("csrf", "")
    if not same_site or not site.is_csrf_token(session, sent):
        raise Forbidden("This form is out of date. Go back, reload the page, and send it again.")


def login_url() -> str:
    """Return the URL of the login, which leads back to the current page."""
    path = request.full_path.rstrip("?") if request.method == "GET" else "/"
    return "/login?" + urlencode({"next": path})


NAVIGATION = (
    ("/search", "Search"),
    ("/collections", "Collections"),
    ("/areas", "Deposit"),
    ("/subscriptions", "Subscriptions"),
    ("/docs", "API"),
    ("/status", "Status"),
)
"""Links of every page, if the page exists."""
OPERATOR_NAVIGATION = (("/operations", "Operations"), ("/admin", "Administration"))
"""Links for those who may open the page."""


def _list_links(app: Flask, context: PageContext[Any] | None) -> list[tuple[str, str]]:
    pages = {one.path: one for one in _PAGES if one.method == "GET"}
    links = [(path, label) for path, label in NAVIGATION if path in pages]
    for path, label in OPERATOR_NAVIGATION:
        wanted = pages.get(path)
        if wanted and context and context.principal and context.may(wanted.access):
            links.append((path, label))
    return links


CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src {connect}; frame-src 'self'; form-action {forms}; base-uri 'none';"
    " frame-ancestors 'none'"
)


def render_page(
    template: str,
    title: str,
    *,
    status: int = 200,
    page: PageContext[Any] | None = None,
    connect: str = "",
    **values: Any,
) -> Response:
    """Render a template with what every page shows, and its security headers.

    `connect` is an address besides the site's own to which the page's scripts may send requests.
    """
    site: Site = current_app.extensions[SITE_KEY]
    flash = _take_flash(site)
    body = render_template(
        template,
        title=title,
        links=_list_links(current_app, page),
        login_url=login_url(),
        flash=flash,
        **_shared_values(site, page),
        **values,
    )
    response = Response(body, status, content_type="text/html; charset=utf-8")
    if flash:
        set_cookie(site, response, FLASH_COOKIE, "", 0)
    return protect(response, site, connect)


def _shared_values(site: Site, page: PageContext[Any] | None) -> dict[str, Any]:
    """Return what the templates of pages and of their parts use."""
    session: WebSession | None = g.get("web_session")
    return {
        "page": page,
        "settings": site.services.settings,
        "user": g.get("web_principal"),
        "csrf": lambda: _csrf_field(site, session),
    }


def _csrf_field(site: Site, session: WebSession | None) -> Markup:
    token = site.csrf_token(session) if session else ""
    return Markup('<input type="hidden" name="csrf" value="{}">').format(token)


def _take_flash(site: Site) -> str:
    sealed = read_cookie(site, FLASH_COOKIE)
    opened = site.sealer.open("web flash", sealed, now=site.clock())
    return str(opened[0]) if opened else ""


def auth_origin(site: Site) -> str:
    """Return the origin of the authorization service."""
    parts = urlsplit(site.services.settings.auth_url)
    return f"{parts.scheme}://{parts.netloc}"


def protect(response: Response, site: Site, connect: str = "") -> Response:
    """Add headers against scripts, framing, MIME sniffing, caching and leaking the referrer."""
    policy = CONTENT_SECURITY_POLICY.format(
        connect=f"'self' {connect}".rstrip(), forms=f"'self' {auth_origin(site)}"
    )
    response.headers.setdefault("Content-Security-Policy", policy)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.setdefault("X-Frame-Options", "DENY")
    response.headers.setdefault("Cross-Origin-Opener-Policy", "same-origin")
    response.headers["Referrer-Policy"] = "same-origin"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def redirect_to(path: str) -> Response:
    """Redirect with 303, so that a POST is followed by a GET."""
    headers = {"Location": path, "Cache-Control": "no-store"}
    return Response(b"", 303, headers=headers, mimetype="text/plain")


def cookie_name(site: Site, name: str) -> str:
    """Return the name of a cookie of the pages."""
    return host_cookie_name(name, site.services.settings.site_url)


def set_cookie(site: Site, response: Response, name: str, value: str, max_age_s: int) -> None:
    """Set an HttpOnly cookie for `max_age_s` seconds; 0 deletes it."""
    set_host_cookie(response, site.services.settings.site_url, name, value, max_age_s)


def read_cookie(site: Site, name: str) -> str | None:
    """Return the value of the request's cookie."""
    return request.cookies.get(cookie_name(site, name))


ERROR_TITLES = {
    400: "Check your input",
    401: "Log in first",
    403: "You are not allowed to do this",
    404: "Not found",
    429: "Too many requests",
    503: "Unavailable for a moment",
}


def render_error(status: int, detail: str) -> Response:
    """Render the error page that browsers get, with the request's id."""
    site: Site = current_app.extensions[SITE_KEY]
    if status == 404 and request.url_rule is None:
        detail = "There is no page at this address."
    values = {"detail": detail, "code": status, "request_id": g.get("request_id", "")}
    title = ERROR_TITLES.get(status, "Something went wrong")
    try:
        response = render_page("error.html", title, status=status, **values)
    except Exception:
        # For example the catalog is away, which the navigation needs.
        log.warning("cannot render the error page", exc_info=True)
        response = protect(Response(detail, status, mimetype="text/plain"), site)
    response.headers[REQUEST_ID_HEADER] = g.get("request_id", "")
    return response
