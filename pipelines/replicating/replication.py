"""How replication stands: of one version, and of the store as a whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipelines.flow import Step
from storage.catalog import Tx, figures, now_us
from storage.catalog import replication as rows
from storage.catalog.replication import Backlog, Diverged, Waiting
from storage.keys import KINDS, Kind
from storage.model import FQID, REPLICAS, Replica
from storage.stores import Stores

State = Literal["present", "pending", "parked", "diverged"]

COPYING = (Step.SYNC, Step.SYNC_LARGE)
REPLICATING = (*COPYING, Step.BURY, Step.INDEX)
"""Steps that stand between a write and its being the same in every replica."""

WINDOW_S = 3_600
WINDOW_VERSIONS = 1_000
"""What is recent: at most so long ago, and among so many of the last that came to a replica."""
SHOWN = 20


@dataclass(frozen=True, slots=True)
class Standing:
    """How a version stands in a replica: since `at_us` if that is known, and why not better."""

    state: State
    at_us: int | None
    reason: str | None = None


def standing(stores: Stores, kind: str, ident: int, fqid: FQID) -> dict[Replica, Standing]:
    """How one version stands in every replica."""
    with stores.catalog.read() as tx:
        seen = rows.seen(tx, kind, ident)
        waiting = rows.under_way(tx, COPYING, f"{kind}:{fqid}")
    return {replica: _standing(seen.get(replica), waiting.get(replica)) for replica in REPLICAS}


def _standing(seen: rows.Seen | None, waiting: Waiting | None) -> Standing:
    if seen is not None:
        return Standing("diverged" if seen.diverged else "present", seen.at_us)
    if waiting is None:
        return Standing("pending", None)
    return Standing("parked" if waiting.parked else "pending", waiting.born_us, waiting.reason)


@dataclass(frozen=True, slots=True)
class Lag:
    """From publication in the origin to being whole in this replica; None when nothing came."""

    kind: Kind
    replica: Replica
    versions: int
    p50_us: int | None
    p99_us: int | None


@dataclass(frozen=True, slots=True)
class Report:
    """Replication as a whole, at `now_us`."""

    now_us: int
    lag: list[Lag]
    backlog: list[Backlog]
    oldest: list[Waiting]
    failures: list[Waiting]
    diverged: list[Diverged]
    unindexed: list[tuple[str, FQID, str]]
    counts: dict[str, int]


def report(stores: Stores) -> Report:
    """Look at everything that may keep the replicas from being the same."""
    with stores.catalog.read() as tx:
        return Report(
            now_us=now_us(tx),
            lag=[_lag(tx, kind, replica) for kind in KINDS for replica in REPLICAS],
            backlog=rows.backlog(tx, REPLICATING),
            oldest=rows.oldest(tx, (*COPYING, Step.BURY)),
            failures=rows.failures(tx, REPLICATING, limit=SHOWN),
            diverged=rows.diverged(tx, limit=SHOWN),
            unindexed=figures.refusals(tx, limit=SHOWN),
            counts=rows.counts(tx),
        )


def _lag(tx: Tx, kind: Kind, replica: Replica) -> Lag:
    window_us = WINDOW_S * 1_000_000
    ascending = rows.lags(tx, kind, replica, window_us=window_us, limit=WINDOW_VERSIONS)
    if not ascending:
        return Lag(kind, replica, 0, None, None)
    p50, p99 = percentile(ascending, 50), percentile(ascending, 99)
    return Lag(kind, replica, len(ascending), p50, p99)


def percentile(ascending: Sequence[int], percent: int) -> int:
    """The least value that so many percent do not exceed."""
    return ascending[max(0, -(-len(ascending) * percent // 100) - 1)]
