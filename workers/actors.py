"""The actors: one function per step, with its queue, priority and time limit.

A message says that a job may be due. `claims_job` claims the job's row, calls the function, and
sends the messages of the jobs that follow. Actors are declared before a process knows its broker;
`declare` moves them to it.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import unwrap
from random import Random

import dramatiq

from config import Settings
from pipelines.depositing import (
    area_checking,
    area_removing,
    checkouts,
    ingest,
    purging,
    tombstones,
)
from pipelines.finding import indexing
from pipelines.flow import Step
from pipelines.journalling import journal_copies, journals
from pipelines.keeping.copying import Beat
from pipelines.notifying import replay, telling
from pipelines.replicating import reservations, sync, verification
from storage.model import Claim, Todo
from storage.stores import Stores
from workers.broker import UNDECLARED
from workers.claims import BatchFunction, Sender, StepFunction, Working, work

MINUTES = 60_000
"""Milliseconds: the unit of dramatiq's time limits."""
NO_LIMIT = float("inf")
"""For work that takes what its bytes take. The cloud's read timeout ends a call that hangs, and
the lease of a job runs out when no bytes move."""

Jobs = tuple[Todo, ...]
"""Jobs that follow from a completed one, already in the catalog."""
Handler = Callable[[str, str, str], None]

_working: Working | None = None


def claims_job(step: Step) -> Callable[[StepFunction], Handler]:
    """Turn the function of a step into a message handler that claims the job first."""

    def decorate(function: StepFunction) -> Handler:
        @wraps(function)
        def handle(replica: str, ref: str, _request_id: str = "") -> None:
            if _working is None:
                raise RuntimeError("no worker runs in this process: call `declare` first")
            work(_working, Todo(step, replica, ref))

        return handle

    return decorate


dramatiq.set_broker(UNDECLARED)

# No actor is retried by dramatiq (max_retries=0): attempts, backoff and dead jobs are columns of
# the job's row, and only the claim on that row decides who runs it and when. A priority orders all
# messages that a process holds, whatever their queue; the lowest goes first.


@dramatiq.actor(queue_name="verify", priority=0, time_limit=30 * MINUTES, max_retries=0)
@claims_job(Step.VERIFY)
def verify(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Read a small source once, store its bytes and publish the file; a request may wait."""
    return ingest.verify(stores, claim, heartbeat)


@dramatiq.actor(
    queue_name="verify_large",
    priority=1,
    time_limit=NO_LIMIT,
    max_retries=0,
    notify_shutdown=True,
)
@claims_job(Step.VERIFY_LARGE)
def verify_large(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Read a large source once; on a queue of its own, so that small ones never wait."""
    return ingest.verify(stores, claim, heartbeat)


@dramatiq.actor(queue_name="verify", priority=2, time_limit=30 * MINUTES, max_retries=0)
@claims_job(Step.AREA_CHECKSUM)
def area_checksum(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Compute the checksums of a small file in an upload area."""
    return area_checking.check(stores, claim, heartbeat)


@dramatiq.actor(
    queue_name="verify_large",
    priority=2,
    time_limit=NO_LIMIT,
    max_retries=0,
    notify_shutdown=True,
)
@claims_job(Step.AREA_CHECKSUM_LARGE)
def area_checksum_large(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Compute the checksums of a large file in an upload area."""
    return area_checking.check(stores, claim, heartbeat)


@dramatiq.actor(
    actor_name="sync", queue_name="sync", priority=1, time_limit=30 * MINUTES, max_retries=0
)
@claims_job(Step.SYNC)
def sync_small(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Copy a small file, a bundle's record or a collection's to this replica."""
    return sync.sync(stores, claim, heartbeat)


@dramatiq.actor(
    queue_name="sync_large",
    priority=1,
    time_limit=NO_LIMIT,
    max_retries=0,
    notify_shutdown=True,
)
@claims_job(Step.SYNC_LARGE)
def sync_large(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Copy a large file; on a queue of its own, so that small copies never wait."""
    return sync.sync(stores, claim, heartbeat)


@dramatiq.actor(
    queue_name="sync_large",
    priority=0,
    time_limit=NO_LIMIT,
    max_retries=0,
    notify_shutdown=True,
)
@claims_job(Step.REPAIR)
def repair(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Read a whole stored object again and replace it if it is damaged."""
    return verification.run_repair(stores, claim, heartbeat)


@dramatiq.actor(queue_name="index", priority=1, time_limit=10 * MINUTES, max_retries=0)
@claims_job(Step.INDEX)
def index(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Put a bundle's document into the search index, or remove it."""
    return indexing.index(stores, claim, heartbeat)


@dramatiq.actor(queue_name="match", priority=0, time_limit=10 * MINUTES, max_retries=0)
@claims_job(Step.MATCH)
def match(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Match an event with the JMESPath subscriptions; subscribers wait for it."""
    return telling.match(stores, claim, heartbeat)


@dramatiq.actor(queue_name="match", priority=0, time_limit=10 * MINUTES, max_retries=0)
@claims_job(Step.PERCOLATE)
def percolate(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Match an event with the Elasticsearch subscriptions, once search finds the bundle."""
    return telling.percolate(stores, claim, heartbeat)


@dramatiq.actor(
    actor_name="replay",
    queue_name="match",
    priority=2,
    time_limit=NO_LIMIT,
    max_retries=0,
    notify_shutdown=True,
)
@claims_job(Step.REPLAY)
def replay_window(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Match a window of past events, as long as it may be, with one subscription."""
    return replay.replay(stores, claim, heartbeat)


@dramatiq.actor(
    queue_name="checkout", priority=1, time_limit=NO_LIMIT, max_retries=0, notify_shutdown=True
)
@claims_job(Step.CHECKOUT)
def checkout(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Copy a bundle to where people compute."""
    return checkouts.checkout(stores, claim, heartbeat)


@dramatiq.actor(queue_name="chores", priority=1, time_limit=10 * MINUTES, max_retries=0)
@claims_job(Step.MAIL)
def mail(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Mail the requester of a checkout; the mail server may be slow."""
    return checkouts.mail(stores, claim, heartbeat)


@dramatiq.actor(queue_name="chores", priority=1, time_limit=10 * MINUTES, max_retries=0)
@claims_job(Step.BURY)
def bury(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Write the record of a tombstone; what it deletes is hidden already."""
    return tombstones.write_record(stores, claim, heartbeat)


@dramatiq.actor(queue_name="chores", priority=1, time_limit=30 * MINUTES, max_retries=0)
@claims_job(Step.PUBLISH)
def publish(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Complete a reservation whose writer died."""
    return reservations.complete(stores, claim, heartbeat)


@dramatiq.actor(queue_name="chores", priority=1, time_limit=10 * MINUTES, max_retries=0)
@claims_job(Step.JOURNAL)
def journal(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Write numbered events to the bucket, or merge small journals."""
    return journals.journal(stores, claim, heartbeat)


@dramatiq.actor(queue_name="chores", priority=1, time_limit=30 * MINUTES, max_retries=0)
@claims_job(Step.JOURNAL_COPY)
def journal_copy(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Copy a journal to the other bucket."""
    return journal_copies.copy(stores, claim, heartbeat)


@dramatiq.actor(queue_name="chores", priority=1, time_limit=10 * MINUTES, max_retries=0)
@claims_job(Step.JOURNAL_DROP)
def journal_drop(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Delete a merged journal from every bucket."""
    return journal_copies.drop(stores, claim, heartbeat)


@dramatiq.actor(
    queue_name="purge", priority=1, time_limit=NO_LIMIT, max_retries=0, notify_shutdown=True
)
@claims_job(Step.AREA_REMOVE)
def area_remove(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Delete an upload area, which may hold thousands of files."""
    return area_removing.remove(stores, claim, heartbeat)


@dramatiq.actor(queue_name="purge", priority=1, time_limit=10 * MINUTES, max_retries=0)
@claims_job(Step.MARK)
def mark(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Write to this bucket that a document is purged; it is hidden already."""
    return purging.mark(stores, claim, heartbeat)


@dramatiq.actor(queue_name="purge", priority=1, time_limit=30 * MINUTES, max_retries=0)
@claims_job(Step.ERASE)
def erase(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Delete a purged record from this bucket, once nothing reads it."""
    return purging.erase(stores, claim, heartbeat)


@dramatiq.actor(
    queue_name="purge", priority=1, time_limit=NO_LIMIT, max_retries=0, notify_shutdown=True
)
@claims_job(Step.FORGET)
def forget(stores: Stores, claim: Claim, heartbeat: Beat) -> Jobs:
    """Delete a purged document, with its thousands of files, from the catalog."""
    return purging.forget(stores, claim, heartbeat)


ACTORS: Mapping[Step, dramatiq.Actor[[str, str, str], None]] = {
    step: dramatiq.get_broker().get_actor(str(step)) for step in Step
}
STEPS: Mapping[Step, StepFunction] = {step: unwrap(actor.fn) for step, actor in ACTORS.items()}
"""What the actors run, without claiming."""
BATCHES: Mapping[Step, BatchFunction] = {
    Step.MATCH: telling.match_batch,
    Step.PERCOLATE: telling.percolate_batch,
    Step.VERIFY: ingest.verify_batch,
    Step.SYNC: sync.sync_batch,
    Step.INDEX: indexing.index_batch,
}
"""The steps whose jobs run in batches (`workers/claims.py`)."""
QUEUES: tuple[str, ...] = tuple(dict.fromkeys(actor.queue_name for actor in ACTORS.values()))


def steps_of(queue: str) -> list[Step]:
    """The steps whose messages travel on a queue."""
    return [step for step, actor in ACTORS.items() if actor.queue_name == queue]


def working(stores: Stores, chains: Sender, settings: Settings) -> Working:
    """What a process works with that runs the actors with these settings."""
    return Working(stores, chains, STEPS, settings.max_claims, Random(), BATCHES)


def declare(broker: dramatiq.Broker, working: Working | None = None) -> None:
    """Move the actors to this process's broker; a process that only sends has no `working`."""
    global _working
    dramatiq.set_broker(broker)
    for actor in ACTORS.values():
        actor.broker = broker
        broker.declare_actor(actor)
    if working is not None:
        _working = working
