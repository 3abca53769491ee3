"""Health checks and Prometheus metrics of the store.

A part is `ok`, `warning` (works, but a human should look) or `failed`; a failed part makes
the response 503. Each part has a reason.
"""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Any

from flask import Flask, Response, g, request

from api import integrity, metrics
from api.http.auth import identify_caller
from api.http.metrics import METRICS_CONTENT_TYPE
from api.http.operation import Services, json_response
from api.http.probes import PROBE_PATHS
from auth.remote import RemoteDecisionPoint
from pipelines import mirrors
from pipelines.formats import version_from_us
from pipelines.report_cache import ReportCache
from storage.catalog import documents, jobs, now_us, store_state, versions
from storage.catalog import integrity as integrity_rows
from storage.catalog.standby import CatalogStandby
from storage.errors import DomainError, NotFoundError
from storage.protocols import BlobStore, SearchIndex
from storage.stores import Stores

log = logging.getLogger(__name__)

PartStatus = dict[str, Any]
HealthCheck = Callable[[], PartStatus]
PROBE_KEY = "health/probe"
PORT_PATHS = PROBE_PATHS | {"/health", "/metrics"}
"""Paths that the operators' port serves."""
SCRAPE_CHECK_S = 3.0
"""Longest time that a scrape of `/metrics` waits for a check."""
SCRAPE_FRESH_S = 5.0
"""How long scrapes repeat the results of the checks."""
MAX_NAMED = 5
"""Most faults that one reason names."""
OVERDUE_S = 60
"""Jobs overdue for longer mean that workers are dead, or far too few."""

MIRROR_LATE_S = 3600
"""A mirror without a success for longer does not run, or the mirrored store gives no answers."""


def register_service(app: Flask, services: Services) -> None:
    """Serve the public `/health`, and `/metrics` for operators."""

    @app.get("/health")
    def get_health() -> Response:
        g.operation = "get_health"
        return _health_response(services, _make_operator_check(services))

    parts = ReportCache(
        lambda: run_checks(list_checks(services, lambda: False), timeout_s=SCRAPE_CHECK_S),
        fresh_s=SCRAPE_FRESH_S,
        fresh_factor=1,
    )

    @app.get("/metrics")
    def get_metrics() -> Response:
        g.operation = "get_metrics"
        if not is_ops_port(services.settings.ops_port):
            principal = identify_caller(services.verify, request.headers.get("Authorization"))
            services.guard.refuse(principal, "get_metrics", request)
        page = services.metrics.render_text(lambda: metrics.collect_samples(services, parts))
        return Response(page, content_type=METRICS_CONTENT_TYPE)

    if services.settings.ops_port:

        @app.before_request
        def keep_to_the_port() -> None:
            is_served = request.path in PORT_PATHS
            if is_ops_port(services.settings.ops_port) and not is_served:
                raise NotFoundError(f"This port serves {', '.join(sorted(PORT_PATHS))} only.")


def is_ops_port(ops_port: int) -> bool:
    """Return whether the request came to the operators' port."""
    return bool(ops_port) and request.environ.get("SERVER_PORT") == str(ops_port)


def _make_operator_check(services: Services) -> Callable[[], bool]:
    """Return a thread-safe check whether the caller may see details.

    A bad token is no error: monitors need an answer.
    """
    at_ops_port = is_ops_port(services.settings.ops_port)
    authorization = request.headers.get("Authorization")

    def is_operator() -> bool:
        if at_ops_port:
            return True
        try:
            caller = identify_caller(services.verify, authorization)
            return services.access.may(caller, integrity.DETAILS_OPERATION)
        except DomainError:
            return False

    return is_operator


def _health_response(services: Services, is_operator: Callable[[], bool]) -> Response:
    parts = run_checks(list_checks(services, is_operator))
    failed = any(part["status"] == "failed" for part in parts.values())
    status = "failed" if failed else "ok"
    value = {"status": status, "instance": services.instance, "parts": parts}
    return json_response(value, 503 if failed else 200, {"Retry-After": "5"} if failed else {})


def list_checks(services: Services, is_operator: Callable[[], bool]) -> dict[str, HealthCheck]:
    """Return the check of every part; only operators see the keys of damaged objects."""
    stores = services.stores
    checks: dict[str, HealthCheck] = {
        "catalog": lambda: _ok_part(stores.catalog.ping()),
        "queue": lambda: _check_queue(services),
        "clock": lambda: _check_scheduler(stores),
        "work": lambda: _check_jobs(stores),
        "replication": lambda: _check_replication(stores),
        "unindexed": lambda: _check_unindexed(stores),
        "integrity": lambda: _check_integrity(stores, is_operator),
        "writes": lambda: _check_writes(services),
        "disk": lambda: _check_disk(stores),
        "backup": lambda: _check_backup(services),
    }
    for replica, blobs in stores.replicas.items():
        checks[f"bucket.{replica}"] = partial(_check_bucket, blobs)
    for replica, index in stores.search.items():
        checks[f"search.{replica}"] = partial(_check_search, index)
    if (standby := stores.catalog.standby) is not None:
        checks["catalog.standby"] = lambda: _check_standby(standby)
    if isinstance(deciding := services.access.decisions, RemoteDecisionPoint):
        checks["policies"] = lambda: _ok_part(deciding.ping())
    if url := services.settings.mirror_of:
        checks["mirror"] = lambda: _check_mirror(stores, url, is_operator)
    return checks


def run_checks(
    checks: dict[str, HealthCheck], *, timeout_s: float | None = None
) -> dict[str, PartStatus]:
    """Run all checks in parallel: a dead part delays no other.

    A check that takes longer than `timeout_s` fails, and ends in the background.
    """
    pool = ThreadPoolExecutor(max_workers=len(checks))
    try:
        futures = {name: pool.submit(run_check, name, check) for name, check in checks.items()}
        wait(futures.values(), timeout_s)
        late: PartStatus = {"status": "failed", "reason": f"no answer within {timeout_s} s"}
        return {
            name: future.result() if future.done() else late for name, future in futures.items()
        }
    finally:
        pool.shutdown(wait=False)


def run_check(name: str, check: HealthCheck) -> PartStatus:
    """Run one check; an error is the status `failed` with its reason."""
    try:
        return check()
    except DomainError as error:
        return {"status": "failed", "reason": error.detail}
    except Exception as error:
        log.warning("health of %s: %s", name, error)
        return {"status": "failed", "reason": f"{type(error).__name__}; see the log"}


def _ok_part(reason: str, **figures: Any) -> PartStatus:
    return {"status": "ok", "reason": reason, **figures}


def _warning_part(bad: bool, reason: str, **figures: Any) -> PartStatus:
    return {"status": "warning" if bad else "ok", "reason": reason, **figures}


def _check_standby(standby: CatalogStandby) -> PartStatus:
    """Measure how far the standby is behind; without it the primary answers."""
    state = standby.measure()
    lag_s = None if state.lag_s is None else round(state.lag_s, 3)
    return _warning_part(not state.is_usable, state.reason, lag_s=lag_s)


def _check_bucket(blobs: BlobStore) -> PartStatus:
    """Check that the bucket answers; the object may be absent."""
    with suppress(NotFoundError):
        blobs.head(PROBE_KEY)
    return _ok_part("can be read")


def _check_search(index: SearchIndex) -> PartStatus:
    return _ok_part(index.ping())


def _check_queue(services: Services) -> PartStatus:
    """Check the queue; without it the scheduler sends messages later."""
    services.job_queue.ping()
    return _ok_part("can be reached")


def _check_scheduler(stores: Stores) -> PartStatus:
    """Check that a scheduler leads: only it resends lost messages."""
    with stores.catalog.read() as tx:
        leading = store_state.is_leased(tx, "clock")
    return _warning_part(not leading, "leads" if leading else "no clock runs")


def _check_jobs(stores: Stores) -> PartStatus:
    with stores.catalog.read() as tx:
        waiting, dead = jobs.count_open(tx), jobs.list_dead(tx, limit=MAX_NAMED)
        count, late_s = jobs.count_dead(tx), jobs.find_max_overdue_us(tx) // 1_000_000
    depth: dict[str, int] = {}
    for (step, _), rows in waiting.items():
        depth[step] = depth.get(step, 0) + rows
    examples = "; ".join(f"{row.todo.step} {row.todo.ref}: {row.reason}" for row in dead)
    waiting_count = sum(depth.values())
    reason = f"{count} dead: {examples}" if count else f"{waiting_count} waiting"
    if late_s >= OVERDUE_S:
        reason += f"; the first has been due for {late_s} s: are the workers running?"
    return _warning_part(count > 0 or late_s >= OVERDUE_S, reason, depth=depth, parked=count)


def _check_replication(stores: Stores) -> PartStatus:
    with stores.catalog.read() as tx:
        diverged = versions.count_diverged(tx)
    return _warning_part(diverged > 0, f"{diverged} records differ between buckets")


def _check_unindexed(stores: Stores) -> PartStatus:
    with stores.catalog.read() as tx:
        counts, rows = (
            documents.count_unindexed(tx),
            documents.list_unindexed(tx, limit=MAX_NAMED),
        )
    examples = "; ".join(f"{fqid} in {replica}: {why}" for replica, fqid, why in rows)
    reason = f"{sum(counts.values())} documents were refused by the search engine"
    reason += f": {examples}" if rows else ""
    return _warning_part(bool(counts), reason, replicas=counts)


def _check_integrity(stores: Stores, is_operator: Callable[[], bool]) -> PartStatus:
    """Check for objects that no replica could repair so far."""
    with stores.catalog.read() as tx:
        count = integrity_rows.count_damaged(tx)
    rows: list[integrity_rows.DamagedObjectRow] = []
    if count and is_operator():
        with stores.catalog.read() as tx:
            rows = integrity_rows.list_damaged(tx, limit=MAX_NAMED)
    examples = "; ".join(f"{row.key} in {row.replica}: {row.reason}" for row in rows)
    reason = f"{count} objects are damaged" + (f": {examples}" if rows else "")
    return _warning_part(count > 0, reason, damaged=count)


def _check_writes(services: Services) -> PartStatus:
    """Warn in read-only mode, which operators easily forget to end."""
    reason = services.read_only.reason()
    return _warning_part(reason is not None, reason or "are taken", read_only=reason is not None)


def _check_backup(services: Services) -> PartStatus:
    """Tell the time of the last backup; warn if scheduled ones are not made."""
    settings = services.settings
    with services.stores.catalog.read() as tx:
        at_us = store_state.find_last_backup_us(tx)
        now = now_us(tx)
    scheduled = bool(settings.backup_target)
    if at_us is None:
        return _warning_part(scheduled, "there was none yet", at=None, age_s=None)
    age_s, made = (now - at_us) // 1_000_000, version_from_us(at_us)
    late = scheduled and age_s > 2 * settings.backup_every_s
    return _warning_part(late, f"the last one was made {made}", at=made, age_s=age_s)


def _check_mirror(stores: Stores, url: str, is_operator: Callable[[], bool]) -> PartStatus:
    """Tell how far the mirror is; warn if it does not advance, or could not apply events.

    Only operators see which events: the other store's answers are in the reasons.
    """
    report = mirrors.build_report(stores, url)
    at, complete = (
        None if us is None else version_from_us(us)
        for us in (report.success_us, report.complete_us)
    )
    age_s = report.success_us and (report.now_us - report.success_us) // 1_000_000
    reason = f"last read {url} {at} ({report.options}), and has its bundles until {complete}"
    if at is None:
        reason = f"has never read {url}"
    failed = len(report.failed)
    if failed:
        shown = report.failed[:MAX_NAMED] if is_operator() else ()
        examples = "; ".join(f"{e.event_type} {e.bundle}: {e.reason}" for e in shown)
        reason += f"; {failed} events are not applied" + (f": {examples}" if examples else "")
    late = age_s is None or age_s > MIRROR_LATE_S
    return _warning_part(
        late or failed > 0, reason, at=at, age_s=age_s, complete=complete, failed=failed
    )


def _check_disk(stores: Stores) -> PartStatus:
    """Check that every folder and the catalog accept writes."""
    failures = stores.write_probes.failures()
    if not failures:
        return _ok_part("every place took a write")
    places: dict[str, list[str]] = {}
    for name, reason in sorted(failures.items()):
        places.setdefault(reason, []).append(name)
    summary = "; ".join(f"{reason} ({', '.join(names)})" for reason, names in places.items())
    return {"status": "failed", "reason": summary, "places": sorted(failures)}
