"""Lease, backoff and batch size of each step, and dramatiq's constants.

A step's queue, priority and time limit are at its actor (`workers/actors.py`). Attempts are counted
on the job's row, not by the broker.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.flow import Step


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """Lease and backoff of a step's jobs.

    `lease_s`: life of a claim without a heartbeat. `backoff_s`: delays before the next attempts.
    `batch`: most jobs of one claim; it takes those that are due and waits for none.
    """

    lease_s: float
    backoff_s: tuple[float, ...]
    batch: int = 1


BATCH_SIZE = 16
"""Small jobs of one claim: more save little, and delay the last of them."""

_SHORT_BACKOFF_S = (1, 5, 30, 120)
_REMOTE_BACKOFF_S = (1, 10, 60, 600)

QUEUE_POLICIES: Mapping[Step, QueuePolicy] = {
    # Finished jobs are completed at once, so a large batch delays none of them.
    Step.VERIFY: QueuePolicy(30, _REMOTE_BACKOFF_S, batch=4 * BATCH_SIZE),
    Step.VERIFY_LARGE: QueuePolicy(60, _REMOTE_BACKOFF_S),
    Step.SYNC: QueuePolicy(30, _REMOTE_BACKOFF_S, batch=BATCH_SIZE),
    Step.SYNC_LARGE: QueuePolicy(60, _REMOTE_BACKOFF_S),
    Step.REPAIR: QueuePolicy(60, _REMOTE_BACKOFF_S),
    Step.INDEX: QueuePolicy(60, _SHORT_BACKOFF_S, batch=BATCH_SIZE),
    Step.MATCH: QueuePolicy(30, _SHORT_BACKOFF_S, batch=BATCH_SIZE),
    Step.PERCOLATE: QueuePolicy(30, _SHORT_BACKOFF_S, batch=BATCH_SIZE),
    Step.AREA_CHECKSUM: QueuePolicy(30, _REMOTE_BACKOFF_S),
    Step.AREA_CHECKSUM_LARGE: QueuePolicy(60, _REMOTE_BACKOFF_S),
    Step.AREA_REMOVE: QueuePolicy(60, _REMOTE_BACKOFF_S),
    Step.DEPOSIT: QueuePolicy(60, _REMOTE_BACKOFF_S),
    Step.CHECKOUT: QueuePolicy(60, _REMOTE_BACKOFF_S),
    Step.BURY: QueuePolicy(30, _REMOTE_BACKOFF_S),
    Step.PUBLISH: QueuePolicy(30, _REMOTE_BACKOFF_S),
    Step.MARK: QueuePolicy(30, _REMOTE_BACKOFF_S),
    Step.ERASE: QueuePolicy(60, _REMOTE_BACKOFF_S),
    Step.FORGET: QueuePolicy(60, _REMOTE_BACKOFF_S),
    Step.JOURNAL: QueuePolicy(60, _SHORT_BACKOFF_S),
    Step.JOURNAL_COPY: QueuePolicy(60, _REMOTE_BACKOFF_S),
    Step.JOURNAL_DROP: QueuePolicy(30, _REMOTE_BACKOFF_S),
    Step.REPLAY: QueuePolicy(60, _SHORT_BACKOFF_S),
    Step.MAIL: QueuePolicy(60, (60, 600, 3600)),
}

PREFETCHED_MESSAGES = 64
"""Messages a worker holds: twice its threads, the default, halves the throughput."""
RESTART_MS = 500
"""Pause of a worker before it reconnects."""
HEARTBEAT_TIMEOUT_MS = 5_000
"""Silence after which a worker's messages go to others."""
MAINTENANCE_CHANCE = 10_000
"""Chance in a million that a broker command also looks for dead workers."""
IDLE_POLL_MS = 1_000
"""Interval at which idle worker threads check whether to stop."""
STOP_TIMEOUT_MS = 8_000
"""Grace period of running jobs, shorter than the supervisor's."""
