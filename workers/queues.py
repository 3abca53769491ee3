"""Each step's promises, one row each: its queue, how long, how often, and why.

The Procfile reads like this table. Attempts are counted on the to-do row, not by the broker.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.flow import Step


@dataclass(frozen=True, slots=True)
class Promise:
    """`lease_s`: life of a claim without a beat. `backoff_s`: delays before the next attempts.
    `turn`: of all that a process holds, whatever the queue, the lowest goes first."""

    step: Step
    queue: str
    lease_s: float
    backoff_s: tuple[float, ...]
    why: str
    turn: int = 1


_SHORT = (1, 5, 30, 120)
_REMOTE = (1, 10, 60, 600)

PROMISES: Mapping[Step, Promise] = {
    row.step: row
    for row in (
        Promise(Step.VERIFY, "verify", 30, _REMOTE, "a request may be waiting for it", 0),
        Promise(Step.VERIFY_LARGE, "verify_large", 60, _REMOTE, "takes the time its bytes take"),
        Promise(Step.SYNC, "sync", 30, _REMOTE, "copies between clouds"),
        Promise(Step.SYNC_LARGE, "sync_large", 60, _REMOTE, "must not hold small copies up"),
        Promise(
            Step.REPAIR, "sync_large", 60, _REMOTE, "reads, and may replace, a whole object", 0
        ),
        Promise(Step.INDEX, "index", 60, _SHORT, "reads metadata; readers wait to find it"),
        Promise(Step.MATCH, "match", 30, _SHORT, "evaluates stored queries; subscribers wait", 0),
        Promise(
            Step.PERCOLATE, "match", 30, _SHORT, "the same, once search can find the bundle", 0
        ),
        Promise(Step.AREA_CHECKSUM, "verify", 30, _REMOTE, "a depositor looks at it again", 2),
        Promise(
            Step.AREA_CHECKSUM_LARGE, "verify_large", 60, _REMOTE, "takes what its bytes take", 2
        ),
        Promise(Step.AREA_REMOVE, "purge", 60, _REMOTE, "an area may hold thousands of files"),
        Promise(Step.CHECKOUT, "checkout", 60, _REMOTE, "copies bundles; a person waits patiently"),
        Promise(Step.BURY, "chores", 30, _REMOTE, "one small object; hidden already"),
        Promise(Step.PUBLISH, "chores", 30, _REMOTE, "finishes what a dead writer reserved"),
        Promise(Step.MARK, "purge", 30, _REMOTE, "one small object; hidden already"),
        Promise(Step.ERASE, "purge", 60, _REMOTE, "waits for what still reads the document"),
        Promise(Step.FORGET, "purge", 60, _REMOTE, "a bundle may take thousands of files along"),
        Promise(Step.JOURNAL, "chores", 60, _SHORT, "reads documents; a minute's events at most"),
        Promise(Step.JOURNAL_COPY, "chores", 60, _REMOTE, "one object between clouds"),
        Promise(Step.JOURNAL_DROP, "chores", 30, _REMOTE, "nobody reads it any more"),
        Promise(Step.REPLAY, "match", 60, _SHORT, "one stored query, many documents", 2),
        Promise(Step.MAIL, "chores", 60, (60, 600, 3600), "one mail; its server may be slow"),
    )
}

QUEUES: tuple[str, ...] = tuple(dict.fromkeys(row.queue for row in PROMISES.values()))

PREFETCH = 64
"""Messages a worker holds: twice its threads, the default, halves the throughput."""
RESTART_MS = 500
"""Pause of a worker that lost its connection before it asks for another."""
HEARTBEAT_TIMEOUT_MS = 5_000
"""Silence after which a worker's messages are given to others."""
MAINTENANCE_CHANCE = 10_000
"""In a million: how often a command to the broker also looks for dead workers."""


def steps_of(queue: str) -> list[Step]:
    """The steps whose messages travel on a queue."""
    return [row.step for row in PROMISES.values() if row.queue == queue]
