"""Running jobs: claim one or a batch, run the step, send what follows; or give back with a reason.

A message leads to its own job and, where the step has batches, to more jobs of the same step that
are due. Whatever a batch does not complete is run by itself, with the claims already held.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol
from uuid import uuid4

from dramatiq.middleware import Shutdown, TimeLimitExceeded

from pipelines.batches import Completed
from pipelines.flow import Step
from pipelines.keeping.copying import Beat
from storage.catalog import todo
from storage.errors import Lost, StoreError, Unavailable, Waits
from storage.model import Claim, Todo
from storage.stores import Stores
from workers.queues import QUEUE_POLICIES, QueuePolicy

log = logging.getLogger(__name__)

StepFunction = Callable[[Stores, Claim, Beat], tuple[Todo, ...]]
BatchFunction = Callable[[Stores, Sequence[Claim], Beat], Completed]
AWAY_S = (2.0, 20.0)
"""Bounds of the random delay while an engine is away, which is nobody's failed attempt."""
MOST_TAKEN = 10_000
INTERRUPTED = frozenset({"timed out", "interrupted"})
"""Outcomes of jobs that dramatiq interrupted."""


class Sender(Protocol):
    """Sends a message for each row; a row whose message is lost waits for the clock."""

    def send(self, rows: Iterable[Todo], request_id: str = "") -> None: ...


class Taken:
    """Jobs that this process claimed before their own messages came.

    Only a hint: such a message first looks whether anything is due, which costs less than a claim.
    """

    def __init__(self) -> None:
        self._jobs: dict[Todo, bool] = {}
        self._lock = threading.Lock()

    def remember(self, jobs: Iterable[Todo]) -> None:
        """Note jobs, the latest MOST_TAKEN of them."""
        with self._lock:
            self._jobs.update(dict.fromkeys(jobs, True))
            while len(self._jobs) > MOST_TAKEN:
                del self._jobs[next(iter(self._jobs))]

    def forget(self, job: Todo) -> bool:
        """Whether the job was noted; it is not any more."""
        with self._lock:
            return self._jobs.pop(job, False)


@dataclass(frozen=True)
class Working:
    """What a worker process works with."""

    stores: Stores
    chains: Sender
    steps: Mapping[Step, StepFunction]
    max_claims: int
    rng: Random
    batches: Mapping[Step, BatchFunction] = field(default_factory=dict)
    taken: Taken = field(default_factory=Taken)


def work(working: Working, row: Todo) -> bool:
    """Run a job, if it is due and nobody has it, and others with it; True when it was done."""
    step = Step(row.step)
    policy = QUEUE_POLICIES[step]
    claims = _claimed(working, row, policy)
    if not claims:
        return False
    started = time.monotonic()
    beat = heartbeat(working.stores, claims, policy.lease_s)
    outcomes = _together(working, claims, step, beat) if len(claims) > 1 else {}
    for claim in claims:
        if claim.todo not in outcomes:
            outcomes[claim.todo] = (
                _attempt(working, claim, step, beat)
                if len(claims) == 1
                else _alone(working, claim, step, beat, outcomes)
            )
    seconds = time.monotonic() - started
    for claim in claims:
        named = (claim.todo.step, claim.todo.ref, claim.todo.replica, outcomes[claim.todo], seconds)
        log.info("%s %s %s: %s in %.3f s", *named, extra={"request_id": claim.request_id})
    return outcomes.get(row) == "done"


def _claimed(working: Working, row: Todo, policy: QueuePolicy) -> list[Claim]:
    """None also while the catalog is away: the job is still there when it returns."""
    token, lease_s = uuid4().hex, policy.lease_s
    most = policy.batch if Step(row.step) in working.batches else 1
    try:
        if working.taken.forget(row) and not _is_any_due(working, row):
            return []
        with working.stores.catalog.write(durable=False) as tx:
            own = todo.claim(tx, row, token=token, lease_s=lease_s, max_claims=working.max_claims)
            claims = [] if own is None else [own]
            if most > 1 and (own is None or own.attempts == 1):
                more = todo.claim_more(
                    tx, row, token=token, lease_s=lease_s, limit=most - len(claims)
                )
                working.taken.remember(claim.todo for claim in more)
                claims += more
            return claims
    except Unavailable as error:
        log.warning("%s not claimed: %s", row, error.detail)
        return []


def _is_any_due(working: Working, row: Todo) -> bool:
    return working.stores.catalog.ask(lambda tx: todo.is_any_due(tx, row))


def _together(working: Working, claims: Sequence[Claim], step: Step, beat: Beat) -> dict[Todo, str]:
    """Outcomes of the jobs that ended with the batch; any other is to be run by itself."""
    try:
        completed = working.batches[step](working.stores, claims, beat)
    except Unavailable as error:
        for claim in claims:
            delay = working.rng.uniform(*AWAY_S)
            _give_back(working, claim, delay, error.detail, counted=False)
        return {claim.todo: "away" for claim in claims}
    except TimeLimitExceeded:
        # It is raised once a message: alone they would have no limit now, and as this was their
        # first attempt they run alone the next time.
        for claim in claims:
            _give_back(working, claim, 0, "Its batch took too long.", counted=True)
        return {claim.todo: "failed" for claim in claims}
    except Exception as error:
        log.info("%d jobs of %s are run one by one: %s", len(claims), step, error)
        return {}
    working.chains.send([job for follow in completed.values() for job in follow])
    return dict.fromkeys(completed, "done")


def _alone(
    working: Working,
    claim: Claim,
    step: Step,
    beat: Beat,
    outcomes: Mapping[Todo, str],
) -> str:
    """Run a job of a batch that did not end with it, unless the message was interrupted already:
    that happens only once, and what came after would have neither a limit nor an end."""
    if not INTERRUPTED.isdisjoint(outcomes.values()):
        _give_back(working, claim, 0, "Another job of its batch was interrupted.", counted=False)
        return "given back"
    # What waited for its batch may have lost its lease meanwhile.
    if not _renewed(working, claim, QUEUE_POLICIES[step].lease_s):
        return "lost"
    return _attempt(working, claim, step, beat)


def _renewed(working: Working, claim: Claim, lease_s: float) -> bool:
    try:
        with working.stores.catalog.write(durable=False) as tx:
            return todo.renewed(tx, claim, lease_s=lease_s)
    except Unavailable:
        return False


def _attempt(working: Working, claim: Claim, step: Step, beat: Beat) -> str:
    try:
        follow = working.steps[step](working.stores, claim, beat)
    except Lost:
        return "lost"
    except Waits as error:
        delay = (error.retry_after_s or 1) * working.rng.uniform(0.8, 1.2)
        _give_back(working, claim, delay, error.detail, counted=False, until=error.until)
        return "away"
    except Unavailable as error:
        _give_back(working, claim, working.rng.uniform(*AWAY_S), error.detail, counted=False)
        return "away"
    except Shutdown:
        _give_back(working, claim, 0, "Its worker was stopped.", counted=False)
        return "interrupted"
    except TimeLimitExceeded as error:
        _failed(working, claim, step, error)
        return "timed out"
    except Exception as error:
        return _failed(working, claim, step, error)
    working.chains.send(follow, claim.request_id)
    return "done"


def _failed(working: Working, claim: Claim, step: Step, error: BaseException) -> str:
    """Try again later, or put the row aside when this was the last attempt."""
    ours = isinstance(error, StoreError)
    reason = error.detail if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
    log.warning("%s failed: %s", claim.todo, reason, exc_info=None if ours else error)
    delays = QUEUE_POLICIES[step].backoff_s
    if claim.attempts >= working.max_claims:
        return _put_aside(working, claim, reason)
    delay = delays[min(claim.attempts, len(delays)) - 1] * working.rng.uniform(0.8, 1.2)
    _give_back(working, claim, delay, reason, counted=True)
    return "failed"


def _put_aside(working: Working, claim: Claim, reason: str) -> str:
    """Park; what cannot be written now is parked by whoever claims the row next."""
    try:
        with working.stores.catalog.write() as tx:
            todo.park(tx, claim, reason=reason)
    except Unavailable as error:
        log.warning("%s not parked: %s", claim.todo, error.detail)
        return "away"
    return "parked"


def _give_back(
    working: Working,
    claim: Claim,
    delay_s: float,
    reason: str,
    *,
    counted: bool,
    until: str | None = None,
) -> None:
    """Postpone; if even that cannot be written, the lease runs out by itself."""
    try:
        with working.stores.catalog.write() as tx:
            todo.postpone(tx, claim, delay_s=delay_s, reason=reason, counted=counted, until=until)
    except Unavailable as error:
        log.warning("%s not given back: %s", claim.todo, error.detail)


def heartbeat(stores: Stores, claims: Sequence[Claim], lease_s: float) -> Beat:
    """Renews the leases as work moves on, three times a lease at the most; Lost if none is ours."""
    due = time.monotonic() + lease_s / 3
    # As `todo.finish_all` locks them: two that lock the same rows never wait for each other.
    in_order = sorted(claims, key=lambda claim: claim.todo)

    def beat(_moved: int) -> None:
        nonlocal due
        if time.monotonic() < due:
            return
        # Set first: other threads of the batch need not renew it, too.
        due = time.monotonic() + lease_s / 3
        with stores.catalog.write(durable=False) as tx:
            held = [claim for claim in in_order if todo.renewed(tx, claim, lease_s=lease_s)]
        if not held:
            raise Lost("The claim was lost.")

    return beat
