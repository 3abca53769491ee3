"""Build the application that serves the API and the web pages with their static files."""

import hashlib
import logging
import time
from collections.abc import Callable
from functools import cache, lru_cache, partial
from importlib import import_module
from pathlib import Path

from flask import Flask, Response, g, request

from api.app import SERVICES_KEY, build_catalog_verifier, create_app
from api.authz.app import build_auth_services
from api.authz.context import AuthServices
from api.http.auth import VerifyToken
from api.http.limits import FairSemaphore
from api.http.operation import JobQueue, Services
from api.http.waiting import ServerSentEvents
from auth.secret_values import ValueSealer
from auth.tokens.verification import GrantChecker
from config import Settings
from pipelines.facets import open_facet_field_caches
from pipelines.recovery import epochs
from pipelines.statistics import open_statistics_cache
from storage.catalog import Catalog
from storage.encryption import derive_keys
from storage.engines import open_rate_limiter
from storage.errors import DomainError, NotFoundError
from storage.stores import Stores
from web import login, pages
from web.pages import PostForm, Site

log = logging.getLogger(__name__)

PAGE_MODULES = (
    "account",
    "administration",
    "applications",
    "areas",
    "bundles",
    "collections",
    "deliveries",
    "deposits",
    "exports",
    "files",
    "home",
    "login",
    "operations",
    "policies",
    "search",
    "subscriptions",
)
"""Modules that declare pages when they are imported."""
for name in PAGE_MODULES:
    import_module(f"web.{name}")
LOGIN_TIMEOUT_S = 10.0
WEB = Path(__file__).parent
STATIC = WEB / "static"
STATIC_TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


def build_app(settings: Settings, stores: Stores, job_queue: JobQueue) -> Flask:
    """Build the storage API with the web pages from settings."""
    # The catalog may have been replaced since the last start.
    try:
        epochs.check_epoch(stores)
    except DomainError as error:
        log.warning("cannot check the epoch: %s", error.detail)
    # With remote authorization, only the authorization service knows the logins and accounts.
    remote = bool(settings.policies_url)
    grants = None if remote else GrantChecker(stores.catalog, time.time)
    verify = build_catalog_verifier(settings, stores.catalog, grants)
    auth = None if remote else _build_accounts(settings, stores.catalog, verify)
    post_form = login.build_oauth_client(settings.auth_url, LOGIN_TIMEOUT_S)
    return create_site_app(
        settings, stores, job_queue=job_queue, verify=verify, auth=auth, post_form=post_form
    )


def _build_accounts(settings: Settings, catalog: Catalog, verify: VerifyToken) -> AuthServices:
    return build_auth_services(settings, catalog, verify, open_rate_limiter(settings), time.time)


def create_site_app(
    settings: Settings,
    stores: Stores,
    *,
    job_queue: JobQueue,
    verify: VerifyToken,
    auth: AuthServices | None,
    post_form: PostForm,
    clock: Callable[[], float] = time.time,
) -> Flask:
    """Create the storage API with the web pages on open stores."""
    app = create_app(
        settings,
        stores,
        job_queue=job_queue,
        verify=verify,
        clock=clock,
        error_page=pages.render_error,
    )
    app.template_folder = str(WEB / "templates")
    services: Services = app.extensions[SERVICES_KEY]
    # A separate key: sealed values of the login pages must not pass as sessions.
    secrets = derive_keys(settings.secret_keys, b"web pages")
    # Apart from the API's streams, so that readers of pages take none from programs.
    slots = FairSemaphore("live pages", settings.page_streams, settings.client_streams)
    site = Site(
        services=services,
        auth=auth,
        sealer=ValueSealer.from_secret(*secrets),
        clock=clock,
        find_session=login.find_session,
        post_form=post_form,
        streams=ServerSentEvents(
            stores.pubsub, slots, settings.feed_life_s, settings.feed_heartbeat_s
        ),
        statistics=open_statistics_cache(stores),
        facet_fields=open_facet_field_caches(stores),
    )
    pages.register_pages(app, site)
    _register_static_files(app, settings.web_logo)
    return app


def _register_static_files(app: Flask, logo: str) -> None:
    """Serve scripts, styles and images of the pages, and the logo if there is one."""
    app.jinja_env.globals["static_url"] = static_url
    app.add_url_rule("/static/<path:name>", "static file", _send_static)
    if logo:
        app.add_url_rule("/logo", "logo", partial(_send_logo, Path(logo)))


def static_url(name: str) -> str:
    """Return the URL of a static file, which changes with its content."""
    return f"/static/{name}?v={static_digest(name)}"


@lru_cache(maxsize=64)
def static_digest(name: str) -> str:
    """Return a short hash of a static file."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]


@cache
def _list_static() -> frozenset[str]:
    return frozenset(str(one.relative_to(STATIC)) for one in STATIC.rglob("*.*"))


def _send_static(name: str) -> Response:
    """Send a file of `web/static`; with its digest in the URL it may be cached for ever."""
    g.operation = "web_static"
    path = STATIC / name
    if name not in _list_static() or path.suffix not in STATIC_TYPES:
        raise NotFoundError(f"There is no file {name}.")
    response = Response(path.read_bytes(), mimetype=STATIC_TYPES[path.suffix])
    current = request.args.get("v") == static_digest(name)
    lifetime = "public, max-age=31536000, immutable" if current else "no-cache"
    return _protect_file(response, lifetime)


def _send_logo(path: Path) -> Response:
    """Send the logo that the settings name."""
    g.operation = "web_static"
    kind = STATIC_TYPES.get(path.suffix.lower())
    if kind is None or not path.is_file():
        raise NotFoundError("STORE_WEB_LOGO must name a PNG or SVG file.")
    return _protect_file(Response(path.read_bytes(), mimetype=kind), "public, max-age=3600")


def _protect_file(response: Response, lifetime: str) -> Response:
    response.headers["Cache-Control"] = lifetime
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
