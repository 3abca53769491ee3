"""Composition of the storage API: its operations, its definition, its pages, its errors."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from flask import Flask

from api import problems
from api.circumstances import Circumstances
from api.conventions import register_conventions
from api.dispatch import endpoint
from api.guard import StoreGuard
from api.health import register_service
from api.integrity import get_integrity
from api.memory import new_budget
from api.metrics import Metrics
from api.objects import register_objects
from api.operation import Call
from api.operations import OPERATIONS
from api.paging import Cursors
from api.readonly import ReadOnly
from api.reference import register_reference
from api.replication import get_replication
from api.routing import register_operations
from api.services import Chains, Services, Verify
from api.signed_uploads import register_uploads
from api.slots import Slots
from api.streaming import Streams
from api.throttle import register_limits
from api.waiting import Waiting
from auth.access import Access
from auth.apart.elsewhere import deciding
from config.settings import Settings
from pipelines.notifying.subscriptions import SEALING
from pipelines.replicating.fixity import Reports
from storage.sealing import Sealer, derive
from storage.stores import Stores

PREFIX = "/v1"


def create_app(
    settings: Settings,
    stores: Stores,
    *,
    chains: Chains,
    verify: Verify,
    request_ids: Callable[[], str] = problems.new_request_id,
    clock: Callable[[], float] = time.time,
) -> Flask:
    """The application on open stores; `clock` tells policies the seconds since 1970."""
    secret = settings.secret_key.encode()
    stores = replace(stores, memory=new_budget())
    access = Access(deciding(settings, stores.catalog), settings)
    services = Services(
        settings=settings,
        stores=stores,
        cursors=Cursors(derive(secret, b"page pointers")),
        waiting=Waiting(stores.notices, _waits(settings)),
        streams=Streams(stores.notices, _streams(settings)),
        verify=verify,
        seal=Sealer(derive(secret, SEALING)).seal,
        chains=chains,
        metrics=Metrics(
            several_processes=settings.api_processes > 1, workers=settings.worker_metrics
        ),
        read_only=ReadOnly(stores.catalog, always=settings.read_only),
        integrity=Reports(stores, settings.scrub_period_days),
        access=access,
        guard=StoreGuard(
            access, stores.catalog, stores.sources, Circumstances(settings.proxies, clock)
        ),
    )
    app = Flask(__name__, static_folder=None)
    register_conventions(
        app,
        origins_of=lambda _path: settings.cors_origins,
        request_ids=request_ids,
        count=services.metrics.count,
    )
    register_limits(app)
    register_service(app, services)
    register_operations(app, OPERATIONS, partial(endpoint, services=services, calls=Call), PREFIX)
    # Beside `/health`, where operators look for it.
    app.add_url_rule("/replication", "replication", endpoint(get_replication, services, Call))
    app.add_url_rule("/integrity", "integrity", endpoint(get_integrity, services, Call))
    register_objects(app, services)
    register_uploads(app, services)
    register_reference(app, services, OPERATIONS)
    return app


def _waits(settings: Settings) -> Slots:
    return Slots("waiting requests", settings.api_waits, settings.client_waits)


def _streams(settings: Settings) -> Slots:
    most = min(settings.feed_streams, settings.api_threads // 4)
    return Slots("streams", most, settings.client_streams)
