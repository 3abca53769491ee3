"""What the pages of logins share: made once from the settings, nothing else holds state."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from flask import Request, Response

from api.authservice.pages import Cookies
from auth.digests import same
from auth.login import sessions
from auth.login.local import Local
from auth.login.lockout import patience
from auth.login.outgoing import Outgoing
from auth.login.passwords import Passwords, costs
from auth.login.sessions import COOKIE, Lifetimes, Session
from auth.login.targets import Targets
from auth.login.travelling import Travels
from auth.login.upstream import Provider, Upstream
from auth.openid import clients
from auth.private_files import given
from auth.seals import Seals
from auth.tokens.keyring import Ages
from config.settings import Settings
from pipelines.notifying.addresses import check_address
from storage.catalog import Catalog

BROWSER = "store-login"
"""The cookie that a login is bound to, before anybody is known."""
BEFORE = "store-browser"
"""The cookie of a browser that somebody logged in with before."""
BEFORE_S = 90 * 86_400


@dataclass(frozen=True)
class Logins:
    """Settings, the catalog, and what is built from them; `clock` tells seconds."""

    settings: Settings
    catalog: Catalog
    clock: Callable[[], float]
    seals: Seals
    targets: Targets
    local: Local
    providers: Mapping[str, Provider]
    travels: Travels
    cookies: Cookies
    lifetimes: Lifetimes

    def session(self, request: Request) -> Session | None:
        """The session of a request's browser."""
        return sessions.current(self.catalog, self.cookie(request), self.clock())

    def cookie(self, request: Request) -> str | None:
        """What a request brings as its session."""
        return request.cookies.get(self.cookies.name(COOKIE))

    def browser(self, request: Request) -> str:
        """What binds a login to the browser of a request; new for one that has none yet."""
        return request.cookies.get(self.cookies.name(BROWSER)) or secrets.token_urlsafe(24)

    def bind(self, response: Response, browser: str) -> Response:
        """Have the browser bring it along."""
        self.cookies.put(response, BROWSER, browser, None)
        return response

    def form_token(self, browser: str) -> str:
        """What a form of this browser's holds, and no other site can know."""
        return self.seals.derived("form", browser)

    def is_own_form(self, request: Request) -> bool:
        """Whether a form that was sent is one that this browser got from us."""
        browser = request.cookies.get(self.cookies.name(BROWSER))
        sent = request.form.get("csrf", "")
        known = self.form_token(browser) if browser else ""
        return bool(known) and same(sent, known) and not from_elsewhere(request)

    def before(self, request: Request, email: str) -> str | None:
        """The name of a browser that this user logged in with before."""
        sealed = request.cookies.get(self.cookies.name(BEFORE))
        found = self.seals.open("browser", sealed, now=self.clock())
        return found[1] if found and found[0] == email else None

    def remember(self, response: Response, email: str) -> None:
        """This user logged in with this browser."""
        named = [email, secrets.token_urlsafe(12)]
        sealed = self.seals.seal("browser", named, ends=self.clock() + BEFORE_S)
        self.cookies.put(response, BEFORE, sealed, BEFORE_S)

    def logged_in(self, response: Response, cookie: str) -> Response:
        """The session begins in the browser; what bound the login is over."""
        self.cookies.put(response, COOKIE, cookie, self.lifetimes.whole_s)
        self.cookies.clear(response, BROWSER)
        return response

    def leads_to(self, url: str) -> str | None:
        """The host that an address leads to, when it is not ours."""
        own = url.startswith(self.settings.auth_url + "/")
        return None if own else urlsplit(url).hostname or urlsplit(url).scheme


def from_elsewhere(request: Request) -> bool:
    """Whether the browser itself says that another site made this request."""
    return request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none")


def open_logins(settings: Settings, catalog: Catalog, clock: Callable[[], float]) -> Logins:
    """All that the pages of logins need."""
    seals = Seals.of(settings.secret_key.encode())
    return Logins(
        settings=settings,
        catalog=catalog,
        clock=clock,
        seals=seals,
        targets=Targets(settings.auth_url, seals, partial(_registered, settings, catalog)),
        local=Local(catalog, Passwords(costs(settings)), patience(settings)),
        providers=_providers(settings, clock),
        travels=Travels(catalog, seals, clock, settings.login_s),
        cookies=Cookies(settings.auth_url),
        lifetimes=Lifetimes(settings.session_s, settings.session_idle_s),
    )


def _registered(settings: Settings, catalog: Catalog, uri: str) -> bool:
    """Whether any client may be answered there."""
    own = clients.built_in(settings.web_redirect_uris)
    with catalog.read() as tx:
        return any(client.comes_back_to(uri) for client in clients.listing(tx, own))


def _providers(settings: Settings, clock: Callable[[], float]) -> dict[str, Provider]:
    if not settings.providers:
        return {}
    outgoing = Outgoing(
        _nothing if settings.allow_private_callbacks else check_address, settings.provider_timeout_s
    )
    ages = Ages(settings.keys_refresh_s, settings.keys_cooldown_s)
    return {
        name: Provider(_upstream(settings, name), outgoing, clock, ages)
        for name in settings.providers
    }


def _upstream(settings: Settings, name: str) -> Upstream:
    named = settings.providers[name]
    return Upstream(
        name=name,
        title=named.title or name,
        issuer=named.issuer,
        client_id=named.client_id,
        # Without one the client is public.
        secret=settings.provider_secrets.get(name) or given(settings.home, f"provider-{name}"),
        domains=named.domains,
        scopes=named.scopes,
    )


def _nothing(_address: str) -> None:
    """No address is refused."""
