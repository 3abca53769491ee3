"""The public status page, and the operators' page of health, jobs, deliveries and settings."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any

from flask import Response

from api.http.operation import Services
from api.schemas.fields import NoParameters, optional_text
from api.service import HealthCheck, list_checks, run_check
from config import reference
from pipelines import replication
from pipelines.backlog import read_work_status
from pipelines.dead_jobs import retry_dead_jobs
from storage.catalog.jobs import DeadJobFilter
from web.pages import PageContext, page

CHECK_WITHIN_S = 1.5
"""How long a page waits for the health of all parts."""
FRESH_S = 5.0
NO_ANSWER = {"status": "failed", "reason": f"no answer within {CHECK_WITHIN_S:g} s"}
PARTS = {
    "catalog": "Catalog",
    "queue": "Job queue",
    "clock": "Scheduler",
    "work": "Jobs",
    "replication": "Replication",
    "unindexed": "Search documents",
    "integrity": "Integrity",
    "writes": "Deposits",
    "disk": "Disk",
    "backup": "Backup",
    "bucket.aws": "Bucket aws",
    "bucket.gcp": "Bucket gcp",
    "search.aws": "Search aws",
    "search.gcp": "Search gcp",
    "policies": "Authorization service",
    "mirror": "Mirror",
}


class HealthMonitor:
    """Runs health checks so that no page waits for an engine that is away.

    A check that has not finished is not started again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="health")
        self._running: dict[str, tuple[float, Future[dict[str, Any]]]] = {}

    def read(self, checks: dict[str, HealthCheck]) -> dict[str, dict[str, Any]]:
        """Return status and reason of each part, a few seconds old at most."""
        began = time.monotonic()
        with self._lock:
            for name, check in checks.items():
                started, running = self._running.get(name, (0.0, None))
                stale = began - started >= FRESH_S
                if running is None or (running.done() and stale):
                    self._running[name] = (began, self._pool.submit(run_check, name, check))
            futures = {name: self._running[name][1] for name in checks}
        return {name: self._wait(future, began) for name, future in futures.items()}

    def _wait(self, future: Future[dict[str, Any]], began: float) -> dict[str, Any]:
        try:
            return future.result(max(0.0, began + CHECK_WITHIN_S - time.monotonic()))
        except TimeoutError:
            return NO_ANSWER


_monitor = HealthMonitor()


def read_health(services: Services, *, details: bool) -> list[tuple[str, str, str]]:
    """Return name, status and reason of every part; only operators get the details."""
    parts = _monitor.read(list_checks(services, lambda: True))
    shown = []
    for name, part in parts.items():
        reason = part["reason"] if details else ""
        shown.append((PARTS.get(name, name), part["status"], reason))
    return shown


def find_worst(parts: list[tuple[str, str, str]]) -> str:
    """Return the worst status: failed, warning or ok."""
    found = {status for _, status, _ in parts}
    return next(one for one in ("failed", "warning", "ok") if one in found or one == "ok")


@page("GET", "/status", access="get_health")
def show_status(context: PageContext[NoParameters]) -> Response:
    """Show a summary of health, replicas and integrity to everyone."""
    services, stores = context.services, context.stores
    parts = read_health(services, details=False)
    lag = replication.build_report(stores).lag if context.may("get_replication") else []
    fixity = services.integrity.read() if context.may("get_integrity") else None
    may_count = context.may("get_bundles_all")
    return context.render(
        "status.html",
        "Status",
        parts=parts,
        worst=find_worst(parts),
        counts=context.site.statistics.read().counts if may_count else None,
        lag=lag,
        fixity=fixity,
        read_only=services.read_only.reason(),
        operator=context.may("get_metrics"),
    )


@page("GET", "/operations", access="get_metrics", login=True)
def show_operations(context: PageContext[NoParameters]) -> Response:
    """Show operators what the store does, what fails and why."""
    services, stores = context.services, context.stores
    parts = read_health(services, details=True)
    settings = [line for line in reference.list_current_values(services.settings) if line[1] != ""]
    return context.render(
        "operations.html",
        "Operations",
        parts=parts,
        worst=find_worst(parts),
        work=read_work_status(stores),
        report=replication.build_report(stores),
        fixity=services.integrity.read(),
        statistics=context.site.statistics.read(),
        settings_in_force=settings,
        may_retry=context.may("retry_jobs"),
    )


@dataclass(frozen=True)
class DeadJobsForm:
    """Which dead jobs to retry: all, or those of a step or reference."""

    step: Annotated[str | None, optional_text(64, None)]
    ref: Annotated[str | None, optional_text(512, None)]


@page("POST", "/operations/retry", access="retry_jobs", login=True)
def retry_jobs(context: PageContext[NoParameters]) -> Response:
    """Retry dead jobs."""
    form = context.load_form(DeadJobsForm)
    chosen = DeadJobFilter(step=form.step, ref=form.ref)
    jobs = retry_dead_jobs(context.stores.catalog, chosen, sent=True)
    context.send(jobs)
    noun = "job is" if len(jobs) == 1 else "jobs are"
    return context.redirect("/operations#jobs", f"{len(jobs)} dead {noun} due again.")
