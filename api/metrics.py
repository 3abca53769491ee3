"""Metrics that each scrape reads from the catalog and from the health checks."""

import logging
import platform
from collections.abc import Iterable
from typing import Any

from api.http.metrics import MetricSample, SampledMetric
from api.http.operation import Services
from config import VERSION
from pipelines import mirrors
from pipelines.backlog import BacklogReport
from pipelines.fixity import FixityReport
from pipelines.mirrors import MirrorReport
from pipelines.report_cache import ReportCache
from storage.errors import DomainError

log = logging.getLogger(__name__)

BUILD_INFO = SampledMetric(
    "store_build_info", "Always 1; the labels are the versions", ("version", "python")
)
PART = SampledMetric(
    "store_part",
    "What `/health` says of a part: 1 for its state, 0 for the others",
    ("part", "state"),
)
PART_STATES = ("ok", "warning", "failed")
JOBS = SampledMetric(
    "store_jobs", "Jobs by state: waiting, running or dead", ("step", "replica", "state")
)
JOB_OLDEST = SampledMetric(
    "store_job_oldest_seconds",
    "Seconds since the first waiting job became due",
    ("step", "replica"),
)
OPEN_JOBS = SampledMetric(
    "store_todo_rows", "Jobs that are waiting or running", ("step", "replica")
)
DEAD_JOBS = SampledMetric("store_todo_parked", "Jobs that failed too often and need an operator")
REPLICATION_LAG = SampledMetric(
    "store_replication_lag_seconds",
    "Age of the oldest version that the replica lacks; 0 if it lacks none",
    ("replica",),
)
REPLICATION_WAITING = SampledMetric(
    "store_replication_waiting", "Versions that the replica lacks", ("replica",)
)
DELIVERIES_PENDING = SampledMetric(
    "store_deliveries_pending", "Deliveries neither made nor given up"
)
UNINDEXED = SampledMetric(
    "store_documents_unindexed", "Documents that search refused", ("replica",)
)
UPLOADS = SampledMetric("store_uploads_open", "Unfinished multipart uploads to upload areas")
BACKUP_AGE = SampledMetric(
    "store_backup_age_seconds", "Seconds since the last backup; absent before the first"
)
MIRROR_SUCCESS_TIME = SampledMetric(
    "store_mirror_success_time_seconds",
    "When a mirror last read or applied events, seconds since 1970; 0: never; absent elsewhere",
)
MIRROR_COMPLETE_TIME = SampledMetric(
    "store_mirror_complete_time_seconds",
    "Until when a mirror has applied the events of the mirrored store, seconds since 1970; 0: none;"
    " absent elsewhere",
)
MIRROR_EVENTS_FAILED = SampledMetric(
    "store_mirror_events_failed",
    "Events that a mirror could not apply, and tries again; absent elsewhere",
)
OBJECTS = SampledMetric(
    "store_objects", "Blobs and records that a replica should hold", ("replica",)
)
DAMAGED = SampledMetric("store_objects_damaged", "Objects that are damaged now", ("replica",))
OLDEST_UNVERIFIED = SampledMetric(
    "store_oldest_unverified_seconds",
    "Longest time since an object was last verified",
    ("replica",),
)
VERIFIED_BYTES = SampledMetric(
    "store_verified_bytes", "Bytes that were read again", ("replica",), "counter"
)
DAMAGE_FOUND = SampledMetric(
    "store_damage_found", "Objects that were found damaged", ("replica",), "counter"
)
REPAIRS = SampledMetric(
    "store_repairs", "Damaged objects that were repaired", ("replica",), "counter"
)
SAMPLED_METRICS = (
    BUILD_INFO,
    PART,
    JOBS,
    JOB_OLDEST,
    OPEN_JOBS,
    DEAD_JOBS,
    REPLICATION_LAG,
    REPLICATION_WAITING,
    DELIVERIES_PENDING,
    UNINDEXED,
    UPLOADS,
    BACKUP_AGE,
    MIRROR_SUCCESS_TIME,
    MIRROR_COMPLETE_TIME,
    MIRROR_EVENTS_FAILED,
    OBJECTS,
    DAMAGED,
    OLDEST_UNVERIFIED,
    VERIFIED_BYTES,
    DAMAGE_FOUND,
    REPAIRS,
)
"""Every metric of this module, in the order of the documentation."""


def collect_samples(
    services: Services, parts: ReportCache[dict[str, dict[str, Any]]]
) -> Iterable[MetricSample]:
    """Yield the samples of one scrape; all are cached, so frequent scrapes cost little.

    `parts` are the results of the health checks. Without the catalog, its samples are left out.
    """
    yield MetricSample(BUILD_INFO, 1, (VERSION, platform.python_version()))
    for part, result in parts.read().items():
        for state in PART_STATES:
            yield MetricSample(PART, float(result["status"] == state), (part, state))
    try:
        backlog, fixity = services.backlog.read(), services.integrity.read()
        url = services.settings.mirror_of
        mirror = mirrors.build_report(services.stores, url) if url else None
    except DomainError as error:
        log.warning("metrics without those of the catalog: %s", error.detail)
        return
    yield from _collect_backlog(backlog)
    yield from _collect_integrity(fixity)
    if mirror is not None:
        yield from _collect_mirror(mirror)


def _collect_backlog(report: BacklogReport) -> Iterable[MetricSample]:
    for one in report.jobs:
        key = (one.step, one.replica)
        for state, count in (
            ("waiting", one.waiting),
            ("running", one.running),
            ("dead", one.dead),
        ):
            yield MetricSample(JOBS, count, (*key, state))
        yield MetricSample(JOB_OLDEST, report.overdue_us(one) / 1e6, key)
        yield MetricSample(OPEN_JOBS, one.waiting + one.running, key)
    yield MetricSample(DEAD_JOBS, report.dead)
    for replica, lag in report.replication_lags().items():
        yield MetricSample(REPLICATION_LAG, lag.oldest_us / 1e6, (replica,))
        yield MetricSample(REPLICATION_WAITING, lag.waiting, (replica,))
    yield MetricSample(DELIVERIES_PENDING, report.deliveries_pending)
    for name, count in report.unindexed.items():
        yield MetricSample(UNINDEXED, count, (name,))
    yield MetricSample(UPLOADS, report.uploads)
    if report.last_backup_us is not None:
        yield MetricSample(BACKUP_AGE, (report.at_us - report.last_backup_us) / 1e6)


def _collect_mirror(report: MirrorReport) -> Iterable[MetricSample]:
    yield MetricSample(MIRROR_SUCCESS_TIME, (report.success_us or 0) / 1e6)
    yield MetricSample(MIRROR_COMPLETE_TIME, (report.complete_us or 0) / 1e6)
    yield MetricSample(MIRROR_EVENTS_FAILED, len(report.failed))


def _collect_integrity(report: FixityReport) -> Iterable[MetricSample]:
    for replica, counts in report.replicas.items():
        yield MetricSample(OBJECTS, counts.objects, (replica,))
        yield MetricSample(DAMAGED, counts.damaged, (replica,))
        yield MetricSample(OLDEST_UNVERIFIED, (counts.oldest_us or 0) / 1e6, (replica,))
        yield MetricSample(VERIFIED_BYTES, counts.verified_bytes, (replica,))
        yield MetricSample(DAMAGE_FOUND, counts.found, (replica,))
        yield MetricSample(REPAIRS, counts.repaired, (replica,))
