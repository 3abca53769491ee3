"""Whether each part of the store answers: for load balancers and people, and figures for scrapers.

A part is `ok`, `warning` (works, but a human should look) or `failed`; one that failed makes the
whole answer 503. Each part says its reason.
"""

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from flask import Flask, Response, g, request

from api import integrity
from api.asking import identify
from api.metrics import CONTENT_TYPE, Sample
from api.operation import reply
from api.services import Services
from auth.apart.elsewhere import Elsewhere
from storage.catalog import figures, leases, todo, visibility
from storage.catalog import integrity as integrity_rows
from storage.errors import NotFound, StoreError
from storage.protocols import BlobStore, SearchIndex
from storage.stores import Stores

log = logging.getLogger(__name__)

Part = dict[str, Any]
Check = Callable[[], Part]
PROBE_KEY = "health/probe"
NAMED = 5
"""How many of the things that went wrong a reason names."""
LATE_S = 60
"""Due for so long, and nobody took it up: the workers are dead, or far too few."""


def register_service(app: Flask, services: Services) -> None:
    """`/health` for everybody, `/metrics` for operators."""

    @app.get("/health")
    def get_health() -> Response:
        g.operation = "get_health"
        return _health(services, _operator_check(services))

    @app.get("/metrics")
    def get_metrics() -> Response:
        g.operation = "get_metrics"
        if not on_ops_port(services.settings.ops_port):
            principal = identify(services.verify, request.headers.get("Authorization"))
            services.guard.refuse(principal, "get_metrics", request)
        page = services.metrics.page(lambda: samples(services))
        return Response(page, content_type=CONTENT_TYPE)

    @app.before_request
    def keep_to_the_port() -> None:
        if on_ops_port(services.settings.ops_port) and request.path not in ("/health", "/metrics"):
            raise NotFound("This port serves /health and /metrics only.")


def on_ops_port(ops_port: int) -> bool:
    """Whether the request came in at the operators' own port."""
    return bool(ops_port) and request.environ.get("SERVER_PORT") == str(ops_port)


def _operator_check(services: Services) -> Callable[[], bool]:
    """Return what tells, in any thread, whether the caller of this request may see details.

    A bad token is no error: monitors need an answer.
    """
    at_ops_port = on_ops_port(services.settings.ops_port)
    authorization = request.headers.get("Authorization")

    def is_operator() -> bool:
        if at_ops_port:
            return True
        try:
            caller = identify(services.verify, authorization)
            return services.access.may(caller, integrity.WHO_MAY_NAME)
        except StoreError:
            return False

    return is_operator


def _health(services: Services, is_operator: Callable[[], bool]) -> Response:
    parts = examine(checks(services, is_operator))
    failed = any(part["status"] == "failed" for part in parts.values())
    status = "failed" if failed else "ok"
    value = {"status": status, "instance": services.instance, "parts": parts}
    return reply(value, 503 if failed else 200, {"Retry-After": "5"} if failed else {})


def checks(services: Services, is_operator: Callable[[], bool]) -> dict[str, Check]:
    """Every part with what asks it; operators are told the keys of damaged objects."""
    stores = services.stores
    found: dict[str, Check] = {
        "catalog": lambda: _ok(stores.catalog.ping()),
        "queue": lambda: _queue(services),
        "clock": lambda: _clock(stores),
        "work": lambda: _work(stores),
        "replication": lambda: _replication(stores),
        "unindexed": lambda: _unindexed(stores),
        "integrity": lambda: _integrity(stores, is_operator),
        "writes": lambda: _writes(services),
        "disk": lambda: _disk(stores),
    }
    for replica, blobs in stores.replicas.items():
        found[f"bucket.{replica}"] = partial(_bucket, blobs)
    for replica, index in stores.search.items():
        found[f"search.{replica}"] = partial(_search, index)
    if isinstance(deciding := services.access.deciding, Elsewhere):
        found["policies"] = lambda: _ok(deciding.ping())
    return found


def examine(found: dict[str, Check]) -> dict[str, Part]:
    """All parts at once: a dead one must not hold the others up."""
    with ThreadPoolExecutor(max_workers=len(found)) as pool:
        asked = {name: pool.submit(_asked, name, check) for name, check in found.items()}
        return {name: answer.result() for name, answer in asked.items()}


def _asked(name: str, check: Check) -> Part:
    try:
        return check()
    except StoreError as error:
        return {"status": "failed", "reason": error.detail}
    except Exception as error:
        log.warning("health of %s: %s", name, error)
        return {"status": "failed", "reason": f"{type(error).__name__}; see the log"}


def _ok(reason: str, **figures: Any) -> Part:
    return {"status": "ok", "reason": reason, **figures}


def _warning_if(bad: bool, reason: str, **figures: Any) -> Part:
    return {"status": "warning" if bad else "ok", "reason": reason, **figures}


def _bucket(blobs: BlobStore) -> Part:
    """A bucket that can say that an object is absent can be read."""
    with suppress(NotFound):
        blobs.head(PROBE_KEY)
    return _ok("can be read")


def _search(index: SearchIndex) -> Part:
    return _ok(index.ping())


def _queue(services: Services) -> Part:
    """Without it nothing is lost: the clock sends later what cannot be sent now."""
    services.chains.ping()
    return _ok("can be reached")


def _clock(stores: Stores) -> Part:
    """Without it messages that were lost stay lost until one leads again."""
    with stores.catalog.read() as tx:
        leading = leases.held(tx, "clock")
    return _warning_if(not leading, "leads" if leading else "no clock runs")


def _work(stores: Stores) -> Part:
    with stores.catalog.read() as tx:
        waiting, parked = todo.backlog(tx), todo.parked(tx, limit=NAMED)
        count, late_s = todo.count_parked(tx), todo.overdue_us(tx) // 1_000_000
    depth: dict[str, int] = {}
    for (step, _), rows in waiting.items():
        depth[step] = depth.get(step, 0) + rows
    named = "; ".join(f"{row.todo.step} {row.todo.ref}: {row.reason}" for row in parked)
    reason = f"{count} rows are parked: {named}" if count else f"{sum(depth.values())} rows wait"
    if late_s >= LATE_S:
        reason += f"; the first has been due for {late_s} s: are the workers running?"
    return _warning_if(count > 0 or late_s >= LATE_S, reason, depth=depth, parked=count)


def _replication(stores: Stores) -> Part:
    with stores.catalog.read() as tx:
        diverged = visibility.count_diverged(tx)
    return _warning_if(diverged > 0, f"{diverged} records differ between buckets")


def _unindexed(stores: Stores) -> Part:
    with stores.catalog.read() as tx:
        refused, some = figures.unindexed(tx), figures.refusals(tx, limit=NAMED)
    named = "; ".join(f"{fqid} in {replica}: {why}" for replica, fqid, why in some)
    reason = f"{sum(refused.values())} documents were refused by the search engine"
    reason += f": {named}" if some else ""
    return _warning_if(bool(refused), reason, replicas=refused)


def _integrity(stores: Stores, is_operator: Callable[[], bool]) -> Part:
    """What no replica could repair so far: a backup may have it."""
    with stores.catalog.read() as tx:
        count = integrity_rows.count_damaged(tx)
    some: list[integrity_rows.Damage] = []
    if count and is_operator():
        with stores.catalog.read() as tx:
            some = integrity_rows.damaged(tx, limit=NAMED)
    named = "; ".join(f"{one.key} in {one.replica}: {one.reason}" for one in some)
    reason = f"{count} objects are damaged" + (f": {named}" if some else "")
    return _warning_if(count > 0, reason, damaged=count)


def _writes(services: Services) -> Part:
    """Refusing them is somebody's decision, and easily forgotten."""
    reason = services.read_only.reason()
    return _warning_if(reason is not None, reason or "are taken", read_only=reason is not None)


def _disk(stores: Stores) -> Part:
    """Whether every folder, and the catalog, took a write just now."""
    failures = stores.probes.failures()
    if not failures:
        return _ok("every place took a write")
    places: dict[str, list[str]] = {}
    for name, reason in sorted(failures.items()):
        places.setdefault(reason, []).append(name)
    named = "; ".join(f"{reason} ({', '.join(names)})" for reason, names in places.items())
    return {"status": "failed", "reason": named, "places": sorted(failures)}


def samples(services: Services) -> Iterable[Sample]:
    """The figures that are read from the catalog for each scrape."""
    yield from integrity.samples(services.integrity.report())
    with services.stores.catalog.read() as tx:
        waiting, parked = todo.backlog(tx), todo.count_parked(tx)
        pending, refused = figures.pending_deliveries(tx), figures.unindexed(tx)
    for (step, replica), rows in waiting.items():
        labels = {"step": step, "replica": replica}
        yield Sample("store_todo_rows", "To-do rows that are open", labels, rows)
    yield Sample("store_todo_parked", "To-do rows put aside for a human", {}, parked)
    yield Sample("store_deliveries_pending", "Deliveries neither made nor given up", {}, pending)
    for replica, count in refused.items():
        about = "Documents that search refused"
        yield Sample("store_documents_unindexed", about, {"replica": replica}, count)
