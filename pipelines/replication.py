"""Report the replication status of a version, and the lag and backlog of the store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipelines.flow import Step
from storage.catalog import Tx, documents, now_us, replication
from storage.catalog.replication import DivergedVersion, ReplicationBacklog, WaitingJob
from storage.keys import KINDS, Kind
from storage.model import FQID, REPLICAS, Replica
from storage.stores import Stores

ReplicaState = Literal["present", "pending", "parked", "diverged"]

COPY_STEPS = (Step.SYNC, Step.SYNC_LARGE)
REPLICATION_STEPS = (*COPY_STEPS, Step.BURY, Step.INDEX)
"""Steps that stand between a write and its being the same in every replica."""

WINDOW_S = 3_600
WINDOW_VERSIONS = 1_000
"""What is recent: at most so long ago, and among so many of the last that came to a replica."""
MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """How a version stands in a replica: since `at_us` if that is known, and why not better."""

    state: ReplicaState
    at_us: int | None
    reason: str | None = None


def find_status(stores: Stores, kind: str, ident: int, fqid: FQID) -> dict[Replica, ReplicaStatus]:
    """How one version stands in every replica."""
    with stores.catalog.read() as tx:
        seen = replication.find_stored_records(tx, kind, ident)
        waiting = replication.find_waiting(tx, COPY_STEPS, f"{kind}:{fqid}")
    return {replica: _build_status(seen.get(replica), waiting.get(replica)) for replica in REPLICAS}


def _build_status(
    seen: replication.StoredRecord | None, waiting: WaitingJob | None
) -> ReplicaStatus:
    if seen is not None:
        return ReplicaStatus("diverged" if seen.diverged else "present", seen.at_us)
    if waiting is None:
        return ReplicaStatus("pending", None)
    return ReplicaStatus("parked" if waiting.parked else "pending", waiting.born_us, waiting.reason)


@dataclass(frozen=True, slots=True)
class ReplicationLag:
    """From publication in the origin to being whole in this replica; None when nothing came."""

    kind: Kind
    replica: Replica
    versions: int
    p50_us: int | None
    p99_us: int | None


@dataclass(frozen=True, slots=True)
class ReplicationReport:
    """Replication as a whole, at `now_us`."""

    now_us: int
    lag: list[ReplicationLag]
    backlog: list[ReplicationBacklog]
    oldest: list[WaitingJob]
    failures: list[WaitingJob]
    diverged: list[DivergedVersion]
    unindexed: list[tuple[str, FQID, str]]
    counts: dict[str, int]


def build_report(stores: Stores) -> ReplicationReport:
    """Look at everything that may keep the replicas from being the same."""
    with stores.catalog.read() as tx:
        return ReplicationReport(
            now_us=now_us(tx),
            lag=[_measure_lag(tx, kind, replica) for kind in KINDS for replica in REPLICAS],
            backlog=replication.list_backlog(tx, REPLICATION_STEPS),
            oldest=replication.list_oldest(tx, (*COPY_STEPS, Step.BURY)),
            failures=replication.list_failures(tx, REPLICATION_STEPS, limit=MAX_SHOWN),
            diverged=replication.list_diverged(tx, limit=MAX_SHOWN),
            unindexed=documents.list_unindexed(tx, limit=MAX_SHOWN),
            counts=replication.count_problems(tx),
        )


def _measure_lag(tx: Tx, kind: Kind, replica: Replica) -> ReplicationLag:
    window_us = WINDOW_S * 1_000_000
    ascending = replication.list_lags(tx, kind, replica, window_us=window_us, limit=WINDOW_VERSIONS)
    if not ascending:
        return ReplicationLag(kind, replica, 0, None, None)
    p50, p99 = percentile(ascending, 50), percentile(ascending, 99)
    return ReplicationLag(kind, replica, len(ascending), p50, p99)


def percentile(ascending: Sequence[int], percent: int) -> int:
    """The least value that so many percent do not exceed."""
    return ascending[max(0, -(-len(ascending) * percent // 100) - 1)]
