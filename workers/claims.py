"""Doing one to-do row: claim it, do its step, send what follows; or give it back with a reason."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol
from uuid import uuid4

from dramatiq.middleware import Shutdown, TimeLimitExceeded

from pipelines.flow import Step
from pipelines.keeping.copying import Beat
from storage.catalog import todo
from storage.errors import Lost, StoreError, Unavailable, Waits
from storage.model import Claim, Todo
from storage.stores import Stores
from workers.queues import QUEUE_POLICIES

log = logging.getLogger(__name__)

StepFunction = Callable[[Stores, Claim, Beat], tuple[Todo, ...]]
AWAY_S = (2.0, 20.0)
"""Bounds of the random delay while an engine is away, which is nobody's failed attempt."""


class Sender(Protocol):
    """Sends a message for each row; a row whose message is lost waits for the clock."""

    def send(self, rows: Iterable[Todo], request_id: str = "") -> None: ...


@dataclass(frozen=True)
class Working:
    """What a worker process works with."""

    stores: Stores
    chains: Sender
    steps: Mapping[Step, StepFunction]
    max_claims: int
    rng: Random


def work(working: Working, row: Todo) -> bool:
    """Do a row if it is due and nobody has it; True when it was done."""
    step = Step(row.step)
    lease_s = QUEUE_POLICIES[step].lease_s
    claim = _claimed(working, row, lease_s)
    if claim is None:
        return False
    started = time.monotonic()
    outcome = _attempt(working, claim, step, lease_s)
    log.info(
        "%s %s %s: %s in %.3f s",
        row.step,
        row.ref,
        row.replica,
        outcome,
        time.monotonic() - started,
        extra={"request_id": claim.request_id},
    )
    return outcome == "done"


def _claimed(working: Working, row: Todo, lease_s: float) -> Claim | None:
    """None also while the catalog is away: the row is still there when it returns."""
    try:
        with working.stores.catalog.write(durable=False) as tx:
            return todo.claim(
                tx, row, token=uuid4().hex, lease_s=lease_s, max_claims=working.max_claims
            )
    except Unavailable as error:
        log.warning("%s not claimed: %s", row, error.detail)
        return None


def _attempt(working: Working, claim: Claim, step: Step, lease_s: float) -> str:
    try:
        follow = working.steps[step](working.stores, claim, _beat(working.stores, claim, lease_s))
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
    except (Exception, TimeLimitExceeded) as error:
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


def _beat(stores: Stores, claim: Claim, lease_s: float) -> Beat:
    """Renews the lease as work moves on, three times a lease at the most."""
    due = time.monotonic() + lease_s / 3

    def beat(_moved: int) -> None:
        nonlocal due
        if time.monotonic() < due:
            return
        with stores.catalog.write(durable=False) as tx:
            todo.renew(tx, claim, lease_s=lease_s)
        due = time.monotonic() + lease_s / 3

    return beat
