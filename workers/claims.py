"""Run jobs: claim one or a batch, run the step, send what follows, retry or dead-letter.

A message leads to its own job and, where the step has batches, to more due jobs of the same step.
Jobs that a batch does not complete run one by one under the same claims.
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

from pipelines.flow import Heartbeat, Step
from pipelines.job_batches import CompletedJobs
from pipelines.leases import make_heartbeat
from storage.catalog import jobs
from storage.errors import ClaimLost, DomainError, NotReady, Unavailable
from storage.metrics import CLAIMS_LOST
from storage.model import Job, JobClaim
from storage.stores import Stores
from storage.tracing import Span, split_request
from workers.queues import QUEUE_POLICIES, QueuePolicy

log = logging.getLogger(__name__)

StepFunction = Callable[[Stores, JobClaim, Heartbeat], tuple[Job, ...]]
BatchFunction = Callable[[Stores, Sequence[JobClaim], Heartbeat], CompletedJobs]
OUTAGE_DELAY_S = (2.0, 20.0)
"""Bounds of the random delay while an engine is down, which counts as no attempt."""
PRECLAIMED_LIMIT = 10_000
INTERRUPTED_OUTCOMES = frozenset({"timed out", "interrupted"})
"""Outcomes of jobs that dramatiq interrupted."""
FAILED_OUTCOMES = frozenset({"failed", "dead", "timed out"})


class JobSender(Protocol):
    """Sends a message for each job; the scheduler sends lost ones again."""

    def send(self, rows: Iterable[Job], request_id: str = "") -> None: ...


class PreclaimedJobs:
    """Jobs that this process claimed before their own messages came.

    Only a hint: such a message first checks whether anything is due, which costs less than a claim.
    """

    def __init__(self) -> None:
        self._jobs: dict[Job, bool] = {}
        self._lock = threading.Lock()

    def add(self, jobs: Iterable[Job]) -> None:
        """Add jobs, keeping the latest PRECLAIMED_LIMIT."""
        with self._lock:
            self._jobs.update(dict.fromkeys(jobs, True))
            while len(self._jobs) > PRECLAIMED_LIMIT:
                del self._jobs[next(iter(self._jobs))]

    def discard(self, job: Job) -> bool:
        """Remove a job; return whether it was there."""
        with self._lock:
            return self._jobs.pop(job, False)


@dataclass(frozen=True)
class WorkerContext:
    """Dependencies of a worker process."""

    stores: Stores
    sender: JobSender
    steps: Mapping[Step, StepFunction]
    max_claims: int
    rng: Random
    batches: Mapping[Step, BatchFunction] = field(default_factory=dict)
    preclaimed: PreclaimedJobs = field(default_factory=PreclaimedJobs)


def run_job(working: WorkerContext, row: Job) -> bool:
    """Claim and run a job, and others with it; return whether this job is done."""
    step = Step(row.step)
    policy = QUEUE_POLICIES[step]
    claims = _claim_batch(working, row, policy)
    if not claims:
        return False
    started, started_ns = time.monotonic(), time.time_ns()
    heartbeat = make_heartbeat(working.stores, claims, policy.lease_s)
    outcomes = _run_batch(working, claims, step, heartbeat) if len(claims) > 1 else {}
    for claim in claims:
        if claim.job not in outcomes:
            outcomes[claim.job] = (
                _run_claim(working, claim, step, heartbeat)
                if len(claims) == 1
                else _run_after_batch(working, claim, step, heartbeat, outcomes)
            )
    seconds = time.monotonic() - started
    for claim in claims:
        if outcomes[claim.job] == "lost":
            CLAIMS_LOST.labels(claim.job.step).inc()
        fields = (claim.job.step, claim.job.ref, claim.job.replica, outcomes[claim.job], seconds)
        request_id, traceparent = split_request(claim.request_id)
        log.info("%s %s %s: %s in %.3f s", *fields, extra={"request_id": request_id})
        if traceparent:
            span = working.stores.tracer.start("consumer", traceparent, start_ns=started_ns)
            _end_span(span, claim, outcomes[claim.job], request_id, batch=len(claims))
    return outcomes.get(row) == "done"


def _end_span(span: Span, claim: JobClaim, outcome: str, request_id: str, *, batch: int) -> None:
    """Record a job without its reference, which may name a file."""
    span.end(
        claim.job.step,
        {
            "store.step": claim.job.step,
            "store.replica": claim.job.replica,
            "store.outcome": outcome,
            "store.attempt": claim.attempts,
            "store.batch": batch,
            "store.request_id": request_id,
        },
        failed=outcome in FAILED_OUTCOMES,
    )


def _claim_batch(working: WorkerContext, row: Job, policy: QueuePolicy) -> list[JobClaim]:
    """Claim the job, and more of its step; none if it is not due or the catalog is down."""
    token, lease_s = uuid4().hex, policy.lease_s
    limit = policy.batch if Step(row.step) in working.batches else 1
    try:
        catalog = working.stores.catalog
        if working.preclaimed.discard(row) and not catalog.run_query(
            lambda tx: jobs.is_any_due(tx, row)
        ):
            return []
        with catalog.write(durable=False) as tx:
            own = jobs.claim(tx, row, token=token, lease_s=lease_s, max_claims=working.max_claims)
            claims = [] if own is None else [own]
            if limit > 1 and (own is None or own.attempts == 1):
                more = jobs.claim_more(
                    tx, row, token=token, lease_s=lease_s, limit=limit - len(claims)
                )
                working.preclaimed.add(claim.job for claim in more)
                claims += more
            return claims
    except Unavailable as error:
        log.warning("%s not claimed: %s", row, error.detail)
        return []


def _run_batch(
    working: WorkerContext, claims: Sequence[JobClaim], step: Step, heartbeat: Heartbeat
) -> dict[Job, str]:
    """Run a batch; return outcomes of the jobs that ended with it. The others run one by one."""
    try:
        completed = working.batches[step](working.stores, claims, heartbeat)
    except Unavailable as error:
        for claim in claims:
            delay = working.rng.uniform(*OUTAGE_DELAY_S)
            _postpone_job(working, claim, delay, error.detail, counted=False)
        return {claim.job: "away" for claim in claims}
    except TimeLimitExceeded:
        # Raised once per message: one by one they would have no limit now. As this counts as their
        # first attempt, they run one by one next time.
        for claim in claims:
            _postpone_job(working, claim, 0, "Its batch took too long.", counted=True)
        return {claim.job: "failed" for claim in claims}
    except Exception as error:
        log.info("%d jobs of %s are run one by one: %s", len(claims), step, error)
        return {}
    working.sender.send([job for follow in completed.values() for job in follow])
    return dict.fromkeys(completed, "done")


def _run_after_batch(
    working: WorkerContext,
    claim: JobClaim,
    step: Step,
    heartbeat: Heartbeat,
    outcomes: Mapping[Job, str],
) -> str:
    """Run a job that did not end with its batch.

    Not after an interrupt: dramatiq interrupts a message only once, so the job would have no time
    limit and could delay a shutdown.
    """
    if not INTERRUPTED_OUTCOMES.isdisjoint(outcomes.values()):
        _postpone_job(working, claim, 0, "Another job of its batch was interrupted.", counted=False)
        return "released"
    # The lease may have expired while the job waited for its batch.
    if not _renew_lease(working, claim, QUEUE_POLICIES[step].lease_s):
        return "lost"
    return _run_claim(working, claim, step, heartbeat)


def _renew_lease(working: WorkerContext, claim: JobClaim, lease_s: float) -> bool:
    try:
        with working.stores.catalog.write(durable=False) as tx:
            return jobs.renew(tx, claim, lease_s=lease_s)
    except Unavailable:
        return False


def _run_claim(working: WorkerContext, claim: JobClaim, step: Step, heartbeat: Heartbeat) -> str:
    try:
        follow = working.steps[step](working.stores, claim, heartbeat)
    except ClaimLost:
        return "lost"
    except NotReady as error:
        delay = (error.retry_after_s or 1) * working.rng.uniform(0.8, 1.2)
        _postpone_job(working, claim, delay, error.detail, counted=False, until=error.wakes_on)
        return "away"
    except Unavailable as error:
        _postpone_job(
            working, claim, working.rng.uniform(*OUTAGE_DELAY_S), error.detail, counted=False
        )
        return "away"
    except Shutdown:
        _postpone_job(working, claim, 0, "Its worker was stopped.", counted=False)
        return "interrupted"
    except TimeLimitExceeded as error:
        _record_failure(working, claim, step, error)
        return "timed out"
    except Exception as error:
        return _record_failure(working, claim, step, error)
    working.sender.send(follow, claim.request_id)
    return "done"


def _record_failure(
    working: WorkerContext, claim: JobClaim, step: Step, error: BaseException
) -> str:
    """Schedule a retry, or dead-letter the job after its last attempt."""
    is_expected = isinstance(error, DomainError)
    reason = error.detail if isinstance(error, DomainError) else f"{type(error).__name__}: {error}"
    log.warning("%s failed: %s", claim.job, reason, exc_info=None if is_expected else error)
    delays = QUEUE_POLICIES[step].backoff_s
    if claim.attempts >= working.max_claims:
        try:
            with working.stores.catalog.write() as tx:
                jobs.mark_dead(tx, claim, reason=reason)
        except Unavailable as outage:
            # The next claim does it.
            log.warning("%s cannot be dead-lettered now: %s", claim.job, outage.detail)
            return "away"
        return "dead"
    delay = delays[min(claim.attempts, len(delays)) - 1] * working.rng.uniform(0.8, 1.2)
    _postpone_job(working, claim, delay, reason, counted=True)
    return "failed"


def _postpone_job(
    working: WorkerContext,
    claim: JobClaim,
    delay_s: float,
    reason: str,
    *,
    counted: bool,
    until: str | None = None,
) -> None:
    """Release a job until later; if the catalog is down, its lease expires."""
    try:
        with working.stores.catalog.write() as tx:
            jobs.postpone(tx, claim, delay_s=delay_s, reason=reason, counted=counted, until=until)
    except Unavailable as error:
        log.warning("%s cannot be released now: %s", claim.job, error.detail)
