"""How each step's jobs are claimed and retried, and how dramatiq is set up.

Queue, priority and time limit of a step stand at its actor (`workers/actors.py`). Attempts are
counted on the job's row, not by the broker.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.flow import Step


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """Lease and backoff of a step's jobs.

    `lease_s`: life of a claim without a heartbeat. `backoff_s`: delays before the next attempts.
    `batch`: most jobs of one claim; those that are due are taken, none is waited for.
    """

    lease_s: float
    backoff_s: tuple[float, ...]
    batch: int = 1


BATCH = 16
"""Small jobs of one claim: more save little, and hold the last of them up."""

_SHORT = (1, 5, 30, 120)
_REMOTE = (1, 10, 60, 600)

QUEUE_POLICIES: Mapping[Step, QueuePolicy] = {
    # Those that are done are completed meanwhile, so that a large batch holds none of them up.
    Step.VERIFY: QueuePolicy(30, _REMOTE, batch=4 * BATCH),
    Step.VERIFY_LARGE: QueuePolicy(60, _REMOTE),
    Step.SYNC: QueuePolicy(30, _REMOTE, batch=BATCH),
    Step.SYNC_LARGE: QueuePolicy(60, _REMOTE),
    Step.REPAIR: QueuePolicy(60, _REMOTE),
    Step.INDEX: QueuePolicy(60, _SHORT, batch=BATCH),
    Step.MATCH: QueuePolicy(30, _SHORT, batch=BATCH),
    Step.PERCOLATE: QueuePolicy(30, _SHORT, batch=BATCH),
    Step.AREA_CHECKSUM: QueuePolicy(30, _REMOTE),
    Step.AREA_CHECKSUM_LARGE: QueuePolicy(60, _REMOTE),
    Step.AREA_REMOVE: QueuePolicy(60, _REMOTE),
    Step.CHECKOUT: QueuePolicy(60, _REMOTE),
    Step.BURY: QueuePolicy(30, _REMOTE),
    Step.PUBLISH: QueuePolicy(30, _REMOTE),
    Step.MARK: QueuePolicy(30, _REMOTE),
    Step.ERASE: QueuePolicy(60, _REMOTE),
    Step.FORGET: QueuePolicy(60, _REMOTE),
    Step.JOURNAL: QueuePolicy(60, _SHORT),
    Step.JOURNAL_COPY: QueuePolicy(60, _REMOTE),
    Step.JOURNAL_DROP: QueuePolicy(30, _REMOTE),
    Step.REPLAY: QueuePolicy(60, _SHORT),
    Step.MAIL: QueuePolicy(60, (60, 600, 3600)),
}

PREFETCH = 64
"""Messages a worker holds: twice its threads, the default, halves the throughput."""
RESTART_MS = 500
"""Pause of a worker that lost its connection before it asks for another."""
HEARTBEAT_TIMEOUT_MS = 5_000
"""Silence after which a worker's messages are given to others."""
MAINTENANCE_CHANCE = 10_000
"""In a million: how often a command to the broker also looks for dead workers."""
