"""What is left to do: jobs, replication lag, deliveries, uploads, and the last backup."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pipelines.replication import COPY_STEPS
from pipelines.report_cache import ReportCache
from storage.catalog import (
    areas,
    deliveries,
    documents,
    endpoints,
    jobs,
    now_us,
    purges,
    store_state,
)
from storage.catalog.endpoints import EndpointStatus
from storage.catalog.jobs import DeadJob, JobCount, OpenJobs
from storage.model import REPLICAS, Replica
from storage.stores import Stores

MAX_LISTED = 100
FRESH_S = 2.0
FRESH_FACTOR = 20
"""A report counts as fresh for so many times as long as it took to count: 5 % of a core."""


@dataclass(frozen=True, slots=True)
class ReplicaBacklog:
    """Versions that a replica lacks, and the age of the oldest, microseconds; 0 without any."""

    waiting: int
    oldest_us: int


@dataclass(frozen=True, slots=True)
class BacklogReport:
    """Counts at `at_us`; `unindexed` are documents that search refused, by replica."""

    at_us: int
    jobs: Sequence[JobCount]
    deliveries_pending: int
    unindexed: Mapping[str, int]
    uploads: int
    last_backup_us: int | None

    @property
    def dead(self) -> int:
        """The number of dead jobs."""
        return sum(one.dead for one in self.jobs)

    def overdue_us(self, one: JobCount) -> int:
        """Return how long the first of these jobs has been due; 0 if none is."""
        return 0 if one.due_us is None else max(0, self.at_us - one.due_us)

    def replication_lags(self) -> dict[Replica, ReplicaBacklog]:
        """Return what each replica lacks, dead jobs included."""
        return {replica: self._measure_lag(replica) for replica in REPLICAS}

    def _measure_lag(self, replica: Replica) -> ReplicaBacklog:
        copies = [one for one in self.jobs if one.replica == replica and one.step in COPY_STEPS]
        oldest_us = max((self.at_us - one.born_us for one in copies), default=0)
        waiting = sum(one.waiting + one.running + one.dead for one in copies)
        return ReplicaBacklog(waiting, max(0, oldest_us))


def build_report(stores: Stores) -> BacklogReport:
    """Count what is left to do; takes a time that grows with it."""
    with stores.catalog.read() as tx:
        return BacklogReport(
            at_us=now_us(tx),
            jobs=jobs.count_by_state(tx),
            deliveries_pending=deliveries.count_pending(tx),
            unindexed=documents.count_unindexed(tx),
            uploads=areas.count_uploads(tx),
            last_backup_us=store_state.find_last_backup_us(tx),
        )


def open_backlog_cache(stores: Stores) -> ReportCache[BacklogReport]:
    """Return a cache of the report."""
    return ReportCache(partial(build_report, stores), fresh_s=FRESH_S, fresh_factor=FRESH_FACTOR)


@dataclass(frozen=True)
class WorkStatus:
    """What workers have to do at `now_us`; lists are bounded, the latest or worst first."""

    now_us: int
    open: list[OpenJobs]
    dead: list[DeadJob]
    dead_count: int
    endpoints: list[EndpointStatus]
    deliveries_pending: int
    last_backup_us: int | None
    purges: list[str]


def read_work_status(stores: Stores) -> WorkStatus:
    """Return the state of work."""
    with stores.catalog.read() as tx:
        return WorkStatus(
            now_us=now_us(tx),
            open=jobs.list_open(tx),
            dead=jobs.list_dead(tx, limit=MAX_LISTED),
            dead_count=jobs.count_dead(tx),
            endpoints=endpoints.list_active(tx, limit=MAX_LISTED),
            deliveries_pending=deliveries.count_pending(tx),
            last_backup_us=store_state.find_last_backup_us(tx),
            purges=[
                f"{one.kind} {one.name}" for one in purges.list_unfinished(tx, limit=MAX_LISTED)
            ],
        )
