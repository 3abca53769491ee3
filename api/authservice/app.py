"""Composition of the authorization service: its operations, its definition, its pages."""

import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from flask import Flask

from api.asking import Verify
from api.authservice.definition import SERVICE
from api.authservice.frame import error_page
from api.authservice.guard import AuthGuard
from api.authservice.login.endpoints import register_logins
from api.authservice.login.logins import open_logins
from api.authservice.openid.authorize import register_consent
from api.authservice.openid.device import register_device
from api.authservice.operations import OPERATIONS
from api.authservice.origins import origins_by_path
from api.authservice.service import register_page
from api.authservice.services import AuthServices, Call
from api.circumstances import Circumstances
from api.conventions import register_conventions, uncounted
from api.definition import definition
from api.dispatch import endpoint
from api.paging import Cursors
from api.problems import new_request_id
from api.readonly import ReadOnly
from api.routing import register_operations
from api.throttle import register_limits
from auth.accounts.decisions import Decisions
from auth.openid.discovery import CONFIGURATION
from auth.openid.people import RecordedPeople
from auth.openid.presenting import verified_by
from auth.openid.provider import Provider
from auth.tokens.grants import Grants
from auth.tokens.key_file import KeyFile, seal_keys
from config.settings import Settings
from storage.catalog import Catalog
from storage.connecting import catalog_probes
from storage.rates import Rates
from storage.sealing import derive


def create_auth_app(
    settings: Settings,
    catalog: Catalog,
    *,
    verify: Verify,
    rates: Rates | None = None,
    clock: Callable[[], float] = time.time,
    request_ids: Callable[[], str] = new_request_id,
) -> Flask:
    """The application; its signing keys are made here if this home has none yet."""
    services = _services(settings, catalog, verify, rates, clock)
    app = Flask(__name__, static_folder=None)
    app.url_map.strict_slashes = False
    register_conventions(
        app,
        origins_of=origins_by_path(services.provider, settings.cors_origins),
        request_ids=request_ids,
        count=uncounted,
        page=error_page,
    )
    register_limits(app)
    register_operations(app, OPERATIONS, partial(endpoint, services=services, calls=Call))
    register_page(app, services)
    register_consent(app, services)
    register_device(app, services)
    register_logins(app, services.logins)
    return app


def _services(
    settings: Settings,
    catalog: Catalog,
    verify: Verify,
    rates: Rates | None,
    clock: Callable[[], float],
) -> AuthServices:
    keys, secret = _keys(settings), settings.secret_key.encode()
    decisions = Decisions(catalog, settings)
    provider = Provider(settings, catalog, keys, RecordedPeople(settings), secret, clock)
    return AuthServices(
        settings=settings,
        catalog=catalog,
        probes=catalog_probes(settings, catalog),
        keys=keys,
        cursors=Cursors(derive(secret, b"page pointers")),
        decisions=decisions,
        verify=verify,
        rates=rates,
        read_only=ReadOnly(catalog, always=settings.read_only),
        guard=AuthGuard(decisions, settings.deployment, Circumstances(settings.proxies, clock)),
        clock=clock,
        logins=open_logins(settings, catalog, clock),
        provider=provider,
        verified=verified_by(provider),
        grants=Grants(catalog, clock),
        definition=cache(partial(_definition, settings.auth_url)),
    )


def _definition(url: str) -> Mapping[str, Any]:
    return definition(OPERATIONS, server=url, openid_url=url + CONFIGURATION, about=SERVICE)


def _keys(settings: Settings) -> KeyFile:
    """Made where there are none yet, sealed where there is a secret, and readable."""
    seal_keys(settings.home, settings.secret_key)
    keys = KeyFile(settings.home, settings.secret_key)
    keys.read()
    return keys
