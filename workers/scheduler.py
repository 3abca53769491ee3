"""Scheduled jobs: send what is due, number events, sweep and expire, under one lease.

The lease in the catalog makes a second scheduler harmless: it waits for the first one to end.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import uuid4

from apscheduler.schedulers.background import BackgroundScheduler

from config import Settings, SettingsError
from pipelines import (
    area_uploads,
    checkouts,
    events,
    flow,
    garbage_collection,
    idempotency,
    journals,
    quotas,
    scrub,
    subscriptions,
    sweeps,
)
from pipelines.flow import DELIVER, Step, delivery_jobs
from pipelines.recovery import epochs
from pipelines.recovery.backups import BackupSchedule, run_backup_schedule
from storage.backup_targets import derive_backup_keys, open_backup_target
from storage.catalog import audit, endpoints, jobs, now_us, store_state
from storage.catalog import events as catalog_events
from storage.errors import DomainError
from storage.stores import Stores
from workers.actors import QUEUES, find_queue_steps
from workers.heartbeats import FindStuck
from workers.messages import MessageSender, select_batch_heads

log = logging.getLogger(__name__)

CLOCK_LEASE_S = 5.0
STUCK_S = 120.0
"""How long the scheduler may neither try to renew its lease nor look for events to number."""
_SCRUB_S = 60
_SCRUB_TURN_S = 50.0
"""Length of one turn of the scrub, every `_SCRUB_S`."""
ABANDONED_UPLOAD_S = 86_400.0
_COMMIT_POLL_S = 1.0
"""How long events wait for numbers if their wake-up is lost."""
_DAY_S = 86_400
_DAY_US = _DAY_S * 1_000_000
_EXPIRY_INTERVAL_S = 60.0
_BACKUP_POLL_S = 60
_QUOTA_POLL_S = 10
"""How long deposits may wait until a scheduler that takes over makes the first count."""
_URL_MARGIN_S = 600
"""Added to the life of a URL before its target is deleted."""


class Scheduler:
    """The scheduled jobs, one per method; safe beside another process's scheduler."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        chains: MessageSender,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._settings, self._stores, self._chains = settings, stores, chains
        self._token = uuid4().hex
        self._ours = False
        self._stopping = threading.Event()
        self._last_turns = dict.fromkeys(("lease", "sequencer"), monotonic())
        self._backups = _plan_backups(settings)
        self._pace = scrub.ReadRateLimiter(max(1, settings.scrub_bytes_s), self._stopping.wait)

    def stop(self) -> None:
        """Stop long jobs."""
        self._stopping.set()

    def find_stuck(self) -> str | None:
        """Return what makes no progress; None if everything does."""
        now = self._monotonic()
        for name, began in self._last_turns.items():
            if now - began > STUCK_S:
                return f"the clock's {name} has had no turn for {STUCK_S:.0f} s"
        return None

    def renew_leadership(self) -> None:
        """Acquire or renew the lease that lets the other jobs run."""
        self._last_turns["lease"] = self._monotonic()
        with self._stores.catalog.write(durable=False) as tx:
            is_leading = store_state.acquire_lease(
                tx, "clock", token=self._token, lease_s=CLOCK_LEASE_S
            )
        if is_leading != self._ours:
            log.info("clock: %s", "leading" if is_leading else "waiting")
        self._ours = is_leading

    def release_leadership(self) -> None:
        """Release the lease at once."""
        with self._stores.catalog.write() as tx:
            store_state.release_lease(tx, "clock", token=self._token)

    def guard_job(self, work: Callable[[], None], *, in_doubt: bool = False) -> Callable[[], None]:
        """Wrap a job: it runs only while leading, and logs errors.

        Unless `in_doubt`, it runs only while catalog and buckets agree. The next tick tries again.
        """

        def run() -> None:
            if not self._ours:
                return
            try:
                if in_doubt or not self._is_in_doubt():
                    work()
            except DomainError as error:
                log.warning("clock: %s: %s", work.__name__, error.detail)
            except Exception:
                log.exception("clock: %s failed", work.__name__)

        return run

    def _is_in_doubt(self) -> bool:
        return (
            self._stores.catalog.run_query(
                lambda tx: store_state.read_value(tx, store_state.EPOCH_IN_DOUBT_KEY)
            )
            is not None
        )

    def refill_queues(self) -> None:
        """Send messages for due jobs, up to a bound per queue.

        Not while catalog and buckets disagree: due jobs may have been done before the
        catalog was restored.
        """
        if self._is_in_doubt():
            return
        due = self._stores.catalog.run_query(lambda tx: jobs.find_due_steps(tx, list(Step)))
        for queue in QUEUES:
            steps = [step for step in find_queue_steps(queue) if step in due]
            waiting = self._chains.depth(queue) if steps else 0
            if waiting < self._settings.refill_rows:
                self._send_due(steps, self._settings.refill_rows - waiting, empty=waiting == 0)
        self._send_deliveries()

    def _send_deliveries(self) -> None:
        """Send a message for each endpoint with due deliveries and without a lease."""
        room = self._settings.refill_rows - self._chains.depth(DELIVER)
        if room > 0:
            with self._stores.catalog.read() as tx:
                waiting = endpoints.list_waiting(tx, limit=room)
            self._chains.send(delivery_jobs(waiting))

    def _send_due(self, steps: Iterable[Step], room: int, *, empty: bool) -> None:
        for step in steps:
            with self._stores.catalog.write(durable=False) as tx:
                rows = jobs.take_due(tx, step, limit=room, resend=empty)
            # Jobs that failed before are not claimed in batches.
            heads = set(select_batch_heads(row for row, _, attempts in rows if not attempts))
            for row, request_id, attempts in rows:
                if attempts or row in heads:
                    self._chains.send([row], request_id)

    def number_events(self) -> None:
        """Number committed events.

        Not while catalog and buckets disagree, since the buckets' journals may use those numbers.
        """
        if (
            not self._stores.catalog.run_query(catalog_events.has_unsequenced)
            or self._is_in_doubt()
        ):
            return
        with self._stores.catalog.write() as tx:
            catalog_events.assign_sequence(tx)
        self._stores.pubsub.publish(flow.EVENTS_TOPIC)

    def run_sequencer(self) -> None:
        """Number events as they are committed, until stopped."""
        number = self.guard_job(self.number_events, in_doubt=True)
        with self._stores.pubsub.listen(flow.COMMITTED_TOPIC) as committed:
            while not self._stopping.wait(self._settings.sequencer_s):
                self._last_turns["sequencer"] = self._monotonic()
                number()
                committed.wait(_COMMIT_POLL_S)

    def tend_journals(self) -> None:
        """Enqueue jobs that write journals and drop old ones."""
        journals.enqueue_journal_jobs(
            self._stores, age_s=self._settings.signed_url_s + _URL_MARGIN_S
        )

    def complete_reservations(self) -> None:
        """Enqueue jobs that complete reservations of crashed writers."""
        sweeps.enqueue_reservations(self._stores, grace_s=self._settings.reservation_grace_s)

    def sweep_replicas(self) -> None:
        """Compare buckets and catalog."""
        for swept in sweeps.sweep_replicas(self._stores):
            log.info("sweep: %s", swept)

    def sweep_indexes(self) -> None:
        """Compare indexes and catalog."""
        for swept in sweeps.sweep_indexes(self._stores):
            log.info("sweep: %s", swept)

    def settle_deliveries(self) -> None:
        """Release paused deliveries that nothing blocks any more."""
        subscriptions.release_paused_deliveries(self._stores)

    def expire_deliveries(self) -> None:
        """Delete old deliveries and replays."""
        days, undelivered = self._settings.delivery_keep_days, self._settings.undelivered_keep_days
        subscriptions.expire_deliveries(
            self._stores, subscriptions.DeliveryRetention(days * _DAY_S, undelivered * _DAY_S)
        )
        # An idempotent response refers to its replay.
        days = max(self._settings.delivery_keep_days, self._settings.idempotency_keep_days)
        events.expire_replays(self._stores, keep_s=days * _DAY_US / 1e6)

    def delete_unreferenced_endpoints(self) -> None:
        """Delete endpoints without a subscription that earlier sweeps could not delete."""
        subscriptions.delete_unreferenced_endpoints(self._stores)

    def begin_epoch(self) -> None:
        """Compare the epochs of catalog and buckets, and begin a new one."""
        epochs.begin_epoch(self._stores)

    def collect_garbage(self) -> None:
        """Condemn orphans, and delete those condemned long ago.

        Checks the epoch again: the last comparison may predate a restored catalog.
        """
        if epochs.check_epoch(self._stores) is None:
            garbage_collection.condemn_orphans(self._stores)
            garbage_collection.delete_expired(self._stores, grace_s=self._settings.blob_grace_s)

    def scrub_objects(self) -> None:
        """Verify stored objects that were not verified for long."""
        budget = scrub.ScrubBudget(
            self._settings.scrub_bytes_s,
            self._settings.scrub_bytes_day,
            self._settings.scrub_period_days,
        )
        scrub.run_scrub(self._stores, budget, self._pace, turn_s=_SCRUB_TURN_S)

    def expire_leftovers(self) -> None:
        """Abort stale uploads, and delete expired checkouts, responses and log entries."""
        sweeps.abort_stale_uploads(self._stores, older_than_s=ABANDONED_UPLOAD_S)
        area_uploads.abort_stale(self._stores, older_than_s=ABANDONED_UPLOAD_S)
        sweeps.remove_temporaries(self._stores, older_than_s=ABANDONED_UPLOAD_S, now=time.time())
        with self._stores.catalog.read() as tx:
            now = now_us(tx)
        checkouts.expire(self._stores, now - self._settings.checkout_keep_days * _DAY_US)
        idempotency.expire_responses(
            self._stores, now - self._settings.idempotency_keep_days * _DAY_US
        )
        if self._settings.logins_keep_days:
            self._expire_logins(now - self._settings.logins_keep_days * _DAY_US)

    def count_quotas(self) -> None:
        """Compare what owners use with what is stored, once a day."""
        quotas.count_if_due(self._stores)

    def back_up(self) -> None:
        """Make a backup if one is due."""
        if self._backups is None:
            return
        try:
            name = run_backup_schedule(self._stores, self._backups)
        except OSError as error:
            log.error("backup: STORE_BACKUP_TARGET cannot be written: %s", error.strerror)
        else:
            if name is not None:
                log.info("backup: %s was read again and is complete", name)

    def _expire_logins(self, before_us: int) -> None:
        """Delete old login entries of the audit log, in batches."""
        while True:
            with self._stores.catalog.write(durable=False) as tx:
                if audit.expire(tx, before_us) < audit.EXPIRE_BATCH:
                    return


def _plan_backups(settings: Settings) -> BackupSchedule | None:
    if not settings.backup_target:
        return None
    try:
        target = open_backup_target(settings, settings.backup_target)
    except SettingsError as error:
        raise SettingsError(f"STORE_BACKUP_TARGET: {error}") from error
    return BackupSchedule(
        target,
        derive_backup_keys(settings.secret_keys)[0],
        every_s=settings.backup_every_s,
        keep=settings.backup_keep,
    )


def build_scheduler(clock: Scheduler, settings: Settings) -> BackgroundScheduler:
    """Schedule every job; a late job runs once, never beside itself."""
    scheduler = BackgroundScheduler(
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        timezone="UTC",
    )
    scheduler.add_job(
        _log_domain_errors(clock.renew_leadership), "interval", seconds=CLOCK_LEASE_S / 3
    )
    for work, seconds in (
        # These check for themselves whether catalog and buckets agree.
        (clock.refill_queues, settings.tick_s),
        (clock.begin_epoch, settings.epoch_s),
        (clock.collect_garbage, settings.sweep_s),
    ):
        scheduler.add_job(clock.guard_job(work, in_doubt=True), "interval", seconds=seconds)
    for work, seconds in (
        (clock.tend_journals, settings.journal_s),
        (clock.settle_deliveries, settings.tick_s),
        (clock.expire_deliveries, _EXPIRY_INTERVAL_S),
        (clock.complete_reservations, settings.reservation_grace_s / 3),
        (clock.sweep_replicas, settings.sweep_s),
        (clock.sweep_indexes, settings.sweep_s),
        (clock.expire_leftovers, settings.sweep_s),
        (clock.scrub_objects, _SCRUB_S),
        (clock.back_up, _BACKUP_POLL_S),
    ):
        scheduler.add_job(clock.guard_job(work), "interval", seconds=seconds)
    # Also at the start: deposits wait for the first count.
    for work, seconds in (
        (clock.count_quotas, _QUOTA_POLL_S),
        (clock.delete_unreferenced_endpoints, _DAY_S),
    ):
        scheduler.add_job(
            clock.guard_job(work), "interval", seconds=seconds, next_run_time=datetime.now(UTC)
        )
    return scheduler


def _log_domain_errors(work: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        try:
            work()
        except DomainError as error:
            log.warning("clock: %s", error.detail)

    return run


@contextmanager
def run_scheduler(clock: Scheduler, settings: Settings) -> Iterator[FindStuck]:
    """Run the scheduler while the block runs, which gets a check of its progress."""
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    _log_domain_errors(clock.renew_leadership)()
    clock.guard_job(clock.begin_epoch, in_doubt=True)()
    scheduler = build_scheduler(clock, settings)
    scheduler.start()
    sequencer = threading.Thread(target=clock.run_sequencer, name="sequencer", daemon=True)
    sequencer.start()
    try:
        yield clock.find_stuck
    finally:
        clock.stop()
        scheduler.shutdown(wait=True)
        sequencer.join()
        _log_domain_errors(clock.release_leadership)()
