"""Create the storage API's Flask application, and build the authorization service's.

The settings select the verifier of tokens and the decision point of both.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flask import Flask

from api import (
    archives,
    area_uploads,
    areas,
    bundles,
    checkouts,
    collections,
    deliveries,
    drs,
    events,
    files,
    integrity,
    replication,
    search,
    subscriptions,
)
from api.authz import create_auth_app
from api.http.auth import PolicyContextBuilder, StoreGuard, VerifyToken
from api.http.dispatch import make_view, register_operations
from api.http.errors import ErrorPage
from api.http.limits import FairSemaphore, ReadOnlyMode, new_memory_budget
from api.http.metrics import RequestMetrics
from api.http.openapi import register_definition
from api.http.operation import JobQueue, Services, StoreContext, operations_of
from api.http.paging import Cursors
from api.http.probes import register_probes
from api.http.responses import register_conventions
from api.http.waiting import LongPolling, ServerSentEvents
from api.objects import register_objects
from api.service import register_service
from auth.authorization import StoreAuthorizer
from auth.decisions import DecisionPoint, LocalDecisionPoint
from auth.http_client import HttpClient
from auth.remote import DecisionCache, PolicyServiceClient, RemoteDecisionPoint, StoreTokenSigner
from auth.service_accounts import ServiceAccounts, own_address_check
from auth.tokens.signing_keys import SigningKeyFile
from auth.tokens.verification import (
    GrantChecker,
    KeyAges,
    KeyRing,
    TokenVerifier,
    build_own_ring,
    fetch_json,
)
from config import Settings
from pipelines.backlog import open_backlog_cache
from pipelines.fixity import open_report_cache
from pipelines.subscriptions import SECRET_PURPOSE
from storage.catalog import Catalog
from storage.encryption import SecretBox, derive_keys
from storage.engines import open_rate_limiter
from storage.errors import Invalid, exit_on_error
from storage.metrics import find_shared_folder
from storage.stores import Stores
from storage.tracing import Tracer

OPERATIONS = operations_of(
    bundles,
    archives,
    checkouts,
    files,
    collections,
    search,
    events,
    subscriptions,
    deliveries,
    replication,
    integrity,
    drs,
    areas,
    area_uploads,
)
URL_PREFIX = "/v1"
SERVICES_KEY = "store.services"


def create_app(
    settings: Settings,
    stores: Stores,
    *,
    job_queue: JobQueue,
    verify: VerifyToken,
    clock: Callable[[], float] = time.time,
    error_page: ErrorPage | None = None,
) -> Flask:
    """Create the storage API on open stores; `clock` returns seconds since 1970 for policies.

    Browsers get `error_page`, if it is given. The services are `app.extensions[SERVICES_KEY]`.
    """
    services = _build_services(settings, stores, job_queue, verify, clock)
    app = Flask(__name__, static_folder=None)
    register_conventions(
        app,
        find_origins=lambda _path: settings.cors_origins,
        counter=services.metrics,
        page=error_page,
        tracer=stores.tracer,
    )
    register_service(app, services)
    register_probes(app, stores.catalog)
    view_of = partial(make_view, services=services, context_type=StoreContext)
    register_operations(app, OPERATIONS, view_of, URL_PREFIX)
    # Also without `/v1`, beside `/health`, for operators.
    app.add_url_rule("/replication", "replication", view_of(replication.get_replication))
    app.add_url_rule("/integrity", "integrity", view_of(integrity.get_integrity))
    # The place that the DRS specification gives them.
    for one in operations_of(drs):
        path = one.path.replace("{", "<").replace("}", ">")
        app.add_url_rule(path, f"{one.name} at the root", view_of(one), methods=[one.method])
    register_objects(app, services)
    area_uploads.register_signed_uploads(app, services)
    register_definition(app, services, OPERATIONS)
    app.extensions[SERVICES_KEY] = services
    return app


def _build_services(
    settings: Settings,
    stores: Stores,
    job_queue: JobQueue,
    verify: VerifyToken,
    clock: Callable[[], float],
) -> Services:
    cursor_key, *former_keys = derive_keys(settings.secret_keys, b"page pointers")
    stores = replace(stores, memory=new_memory_budget())
    access = StoreAuthorizer(
        open_decision_point(settings, stores.catalog, stores.tracer),
        settings.deployment,
        settings.authorized_domains,
        settings.closed_operations,
    )
    waits = FairSemaphore("waiting requests", settings.api_waits, settings.client_waits)
    most_streams = min(settings.feed_streams, settings.api_threads // 4)
    streams = FairSemaphore("streams", most_streams, settings.client_streams)
    subscription_secrets = SecretBox(*derive_keys(settings.secret_keys, SECRET_PURPOSE))
    return Services(
        settings=settings,
        stores=stores,
        rates=stores.rate_limiter,
        memory=stores.memory,
        cursors=Cursors(cursor_key, tuple(former_keys)),
        waiting=LongPolling(stores.pubsub, waits),
        streams=ServerSentEvents(
            stores.pubsub, streams, settings.feed_life_s, settings.feed_heartbeat_s
        ),
        archives=FairSemaphore(
            "archives",
            min(settings.archive_streams, settings.api_threads // 4),
            settings.client_archives,
        ),
        verify=verify,
        seal=subscription_secrets.seal,
        unseal=subscription_secrets.open,
        job_queue=job_queue,
        metrics=RequestMetrics(find_shared_folder()),
        read_only=ReadOnlyMode(
            stores.catalog, always=settings.read_only, mirror_of=settings.mirror_of
        ),
        integrity=open_report_cache(stores, settings.scrub_period_days),
        backlog=open_backlog_cache(stores),
        access=access,
        guard=StoreGuard(
            access, stores.catalog, stores.sources, PolicyContextBuilder(settings.proxies, clock)
        ),
    )


_BOOT_FAILED_EXIT_CODE = 3
"""Makes gunicorn stop instead of restarting the worker."""


def exit_on_boot_failure() -> AbstractContextManager[None]:
    """Exit with an error message if the block cannot build the application."""
    return exit_on_error(lambda _: _BOOT_FAILED_EXIT_CODE)


def build_auth_app(settings: Settings, catalog: Catalog, tracer: Tracer | None = None) -> Flask:
    """Build the authorization service from settings."""
    verify = build_catalog_verifier(settings, catalog, GrantChecker(catalog, time.time))
    rates = open_rate_limiter(settings)
    return create_auth_app(settings, catalog, verify=verify, rates=rates, tracer=tracer)


def build_catalog_verifier(
    settings: Settings, catalog: Catalog, grants: GrantChecker | None
) -> VerifyToken:
    """Build the verifier of tokens, also of service accounts that the catalog knows."""
    accounts = ServiceAccounts(catalog, lifetime_s=settings.service_token_s)
    return build_verifier(settings, time.time, accounts=accounts, grants=grants).verify


def build_verifier(
    settings: Settings,
    clock: Callable[[], float],
    fetch: Callable[[str], Mapping[str, Any]] = fetch_json,
    *,
    accounts: ServiceAccounts | None = None,
    grants: GrantChecker | None = None,
) -> TokenVerifier:
    """Build a verifier from settings; own keys are read from their file."""
    accepted = settings.issuers or {settings.auth_url: ""}
    return TokenVerifier(
        {issuer: _build_key_ring(settings, issuer, clock, fetch) for issuer in accepted},
        audiences=settings.audiences,
        algorithms=settings.token_algorithms,
        clock=clock,
        accounts=accounts,
        grants=grants,
        own=settings.auth_url,
        is_own_address=own_address_check(settings.external_url, settings.allowed_hosts),
    )


def _build_key_ring(
    settings: Settings,
    issuer: str,
    clock: Callable[[], float],
    fetch: Callable[[str], Mapping[str, Any]],
) -> KeyRing:
    # With a remote authorization service, this home has no signing keys.
    if issuer == settings.auth_url and not settings.policies_url:
        return build_own_ring(SigningKeyFile(settings.home, settings.secret_keys), clock)
    address = settings.issuers[issuer]
    if not address.startswith(("https://", "http://")):
        raise Invalid(f"STORE_ISSUERS gives {issuer} no http(s) address of its keys")
    ages = KeyAges(settings.keys_refresh_s, settings.keys_cooldown_s)
    return KeyRing(partial(fetch, address), clock, ages)


def open_decision_point(
    settings: Settings, catalog: Catalog, tracer: Tracer | None = None
) -> DecisionPoint:
    """Open the decision point that the settings select: the catalog or a remote service."""
    if not settings.policies_url:
        return LocalDecisionPoint(catalog, settings)
    url = settings.policies_url.rstrip("/")
    if not _is_base_url(url):
        raise Invalid("STORE_POLICIES_URL: must be an http or https base URL")
    if settings.auth_url not in settings.issuers:
        # Otherwise groups in its tokens would count like those of a foreign issuer.
        raise Invalid(
            "With STORE_POLICIES_URL, STORE_AUTH_EXTERNAL_URL is the issuer of that service, and"
            " STORE_ISSUERS names it with the address of its keys"
        )
    tokens = StoreTokenSigner(Path(settings.policies_credentials))
    # Half of the threads stay free for requests that need no decision of the service.
    http = HttpClient(settings.policies_timeout_s, connections=max(1, settings.api_threads // 2))
    return RemoteDecisionPoint(
        PolicyServiceClient(url, tokens, http, tracer or Tracer()),
        DecisionCache(settings.policies_kept),
        settings.policies_check_ms / 1000,
    )


def _is_base_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    plain = parts.username is None and not parts.query and not parts.fragment
    return named and plain and parts.scheme in ("https", "http") and url.isprintable()
