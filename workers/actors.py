"""The dramatiq actors: one function per step, with its queue, priority and time limit.

A message says that a job may be due. `claims_job` claims the job's row, calls the function, and
sends messages for the jobs that follow. Actors are defined before a process knows its broker;
`declare_actors` moves them to it.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import unwrap
from random import Random
from typing import Any

import dramatiq

from config import Settings
from pipelines import (
    area_files,
    area_uploads,
    checkouts,
    deposits,
    events,
    ingest,
    journal_copies,
    journals,
    manifests,
    matching,
    purges,
    replication,
    scrub,
    search,
    sweeps,
)
from pipelines.flow import Heartbeat, Step
from storage.model import Job, JobClaim
from storage.stores import Stores
from workers.broker import UNDECLARED_BROKER
from workers.claims import BatchFunction, JobSender, StepFunction, WorkerContext, run_job

MINUTES = 60_000
"""Milliseconds per minute, for dramatiq's time limits."""
UNLIMITED: dict[str, Any] = {
    "time_limit": float("inf"),
    "max_retries": 0,
    "notify_shutdown": True,
}
"""Options where the time depends on the bytes. The cloud's read timeout ends a call that hangs, the
lease expires when no bytes move, and a stopping worker interrupts the actor."""

FollowingJobs = tuple[Job, ...]
"""Jobs that follow a completed one, already in the catalog."""
MessageHandler = Callable[[str, str, str], None]

_context: WorkerContext | None = None


def claims_job(step: Step) -> Callable[[StepFunction], MessageHandler]:
    """Turn the function of a step into a message handler that claims the job first."""

    def decorate(function: StepFunction) -> MessageHandler:
        @wraps(function)
        def handle(replica: str, ref: str, _request_id: str = "") -> None:
            if _context is None:
                raise RuntimeError("no worker runs in this process: call `declare_actors` first")
            run_job(_context, Job(step, replica, ref))

        return handle

    return decorate


dramatiq.set_broker(UNDECLARED_BROKER)

# dramatiq retries no actor (max_retries=0): attempts, backoff and dead jobs are columns of the
# job's row, and only the claim on that row decides who runs it and when. Priorities order all
# messages that a process holds, across queues; the lowest goes first.


@dramatiq.actor(queue_name="verify", priority=0, time_limit=30 * MINUTES, max_retries=0)
@claims_job(Step.VERIFY)
def verify(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Read a small source once, store its bytes and publish the file; requests may wait for it."""
    return ingest.verify(stores, claim, heartbeat)


@dramatiq.actor(queue_name="verify_large", priority=1, **UNLIMITED)
@claims_job(Step.VERIFY_LARGE)
def verify_large(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Read a large source once; on its own queue, so that small ones never wait."""
    return ingest.verify(stores, claim, heartbeat)


@dramatiq.actor(queue_name="verify", priority=2, time_limit=30 * MINUTES, max_retries=0)
@claims_job(Step.AREA_CHECKSUM)
def area_checksum(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Compute the checksums of a small file in an upload area."""
    return area_files.check_file(stores, claim, heartbeat)


@dramatiq.actor(queue_name="verify_large", priority=2, **UNLIMITED)
@claims_job(Step.AREA_CHECKSUM_LARGE)
def area_checksum_large(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Compute the checksums of a large file in an upload area."""
    return area_files.check_file(stores, claim, heartbeat)


@dramatiq.actor(
    actor_name="sync", queue_name="sync", priority=1, time_limit=30 * MINUTES, max_retries=0
)
@claims_job(Step.SYNC)
def sync_small(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Copy a small file, a bundle's record or a collection's to this replica."""
    return replication.sync_version(stores, claim, heartbeat)


@dramatiq.actor(queue_name="sync_large", priority=1, **UNLIMITED)
@claims_job(Step.SYNC_LARGE)
def sync_large(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Copy a large file; on its own queue, so that small copies never wait."""
    return replication.sync_version(stores, claim, heartbeat)


@dramatiq.actor(queue_name="sync_large", priority=0, **UNLIMITED)
@claims_job(Step.REPAIR)
def repair(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Read a whole stored object again and replace it if it is damaged."""
    return scrub.run_repair_job(stores, claim, heartbeat)


@dramatiq.actor(queue_name="index", priority=1, time_limit=10 * MINUTES, max_retries=0)
@claims_job(Step.INDEX)
def index(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Put a bundle's document into the search index, or remove it."""
    return search.index_bundle(stores, claim, heartbeat)


@dramatiq.actor(queue_name="match", priority=0, time_limit=10 * MINUTES, max_retries=0)
@claims_job(Step.MATCH)
def match(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Match an event with the JMESPath subscriptions."""
    return matching.match_event(stores, claim, heartbeat)


@dramatiq.actor(queue_name="match", priority=0, time_limit=10 * MINUTES, max_retries=0)
@claims_job(Step.PERCOLATE)
def percolate(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Match an event with the Elasticsearch subscriptions, once search finds the bundle."""
    return matching.match_event(stores, claim, heartbeat)


@dramatiq.actor(actor_name="replay", queue_name="match", priority=2, **UNLIMITED)
@claims_job(Step.REPLAY)
def replay_window(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Match a window of past events of any length with one subscription."""
    return events.run_replay(stores, claim, heartbeat)


@dramatiq.actor(queue_name="checkout", priority=1, **UNLIMITED)
@claims_job(Step.CHECKOUT)
def checkout(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Copy a bundle to a checkout or a requester's bucket."""
    return checkouts.run_checkout(stores, claim, heartbeat)


@dramatiq.actor(queue_name="chores", priority=1, time_limit=10 * MINUTES, max_retries=0)
@claims_job(Step.MAIL)
def mail(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Mail the requester of a checkout; the mail server may be slow."""
    return checkouts.send_mail(stores, claim, heartbeat)


@dramatiq.actor(queue_name="chores", priority=1, time_limit=10 * MINUTES, max_retries=0)
@claims_job(Step.BURY)
def bury(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Write the record of a tombstone, which already hides its target."""
    return manifests.write_tombstone(stores, claim, heartbeat)


@dramatiq.actor(queue_name="chores", priority=1, time_limit=30 * MINUTES, max_retries=0)
@claims_job(Step.PUBLISH)
def publish(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Complete a reservation whose writer crashed."""
    return sweeps.complete_reservation(stores, claim, heartbeat)


@dramatiq.actor(queue_name="chores", priority=1, time_limit=10 * MINUTES, max_retries=0)
@claims_job(Step.JOURNAL)
def journal(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Write numbered events to the bucket, or merge small journals."""
    return journals.write_journal(stores, claim, heartbeat)


@dramatiq.actor(queue_name="chores", priority=1, time_limit=30 * MINUTES, max_retries=0)
@claims_job(Step.JOURNAL_COPY)
def journal_copy(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Copy a journal to the other bucket."""
    return journal_copies.copy_journal(stores, claim, heartbeat)


@dramatiq.actor(queue_name="chores", priority=1, time_limit=10 * MINUTES, max_retries=0)
@claims_job(Step.JOURNAL_DROP)
def journal_drop(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Delete a merged journal from every bucket."""
    return journal_copies.drop_journal(stores, claim, heartbeat)


@dramatiq.actor(queue_name="chores", priority=0, time_limit=30 * MINUTES, max_retries=0)
@claims_job(Step.DEPOSIT)
def deposit(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Make a bundle of an upload area, once its files are verified."""
    return deposits.run_deposit(stores, claim, heartbeat)


@dramatiq.actor(queue_name="purge", priority=1, **UNLIMITED)
@claims_job(Step.AREA_REMOVE)
def area_remove(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Delete an upload area, which may hold thousands of files."""
    return area_uploads.remove_area(stores, claim, heartbeat)


@dramatiq.actor(queue_name="purge", priority=1, time_limit=10 * MINUTES, max_retries=0)
@claims_job(Step.MARK)
def mark(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Write the purge marker of a document, which is hidden already."""
    return purges.write_marker(stores, claim, heartbeat)


@dramatiq.actor(queue_name="purge", priority=1, time_limit=30 * MINUTES, max_retries=0)
@claims_job(Step.ERASE)
def erase(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Delete a purged record from this bucket once nothing reads it."""
    return purges.erase_record(stores, claim, heartbeat)


@dramatiq.actor(queue_name="purge", priority=1, **UNLIMITED)
@claims_job(Step.FORGET)
def forget(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> FollowingJobs:
    """Delete a purged document and its thousands of files from the catalog."""
    return purges.delete_rows(stores, claim, heartbeat)


ACTORS: Mapping[Step, dramatiq.Actor[[str, str, str], None]] = {
    step: dramatiq.get_broker().get_actor(str(step)) for step in Step
}
STEP_FUNCTIONS: Mapping[Step, StepFunction] = {
    step: unwrap(actor.fn) for step, actor in ACTORS.items()
}
"""The functions of the steps, without claiming."""
BATCH_FUNCTIONS: Mapping[Step, BatchFunction] = {
    Step.MATCH: matching.match_events,
    Step.PERCOLATE: matching.match_events,
    Step.VERIFY: ingest.verify_batch,
    Step.SYNC: replication.sync_versions,
    Step.INDEX: search.index_bundles,
}
"""The steps whose jobs run in batches (`workers/claims.py`)."""
QUEUES: tuple[str, ...] = tuple(dict.fromkeys(actor.queue_name for actor in ACTORS.values()))


def find_queue_steps(queue: str) -> list[Step]:
    """Return the steps whose messages use a queue."""
    return [step for step, actor in ACTORS.items() if actor.queue_name == queue]


def build_context(stores: Stores, chains: JobSender, settings: Settings) -> WorkerContext:
    """Build the context in which a process runs the actors."""
    return WorkerContext(
        stores, chains, STEP_FUNCTIONS, settings.max_claims, Random(), BATCH_FUNCTIONS
    )


def declare_actors(broker: dramatiq.Broker, working: WorkerContext | None = None) -> None:
    """Move the actors to this process's broker; a process that only sends has no `working`."""
    global _context
    dramatiq.set_broker(broker)
    for actor in ACTORS.values():
        actor.broker = broker
        broker.declare_actor(actor)
    if working is not None:
        _context = working
