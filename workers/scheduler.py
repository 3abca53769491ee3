"""The scheduler: sends what is due, numbers events, sweeps.

A lease in the catalog makes a second clock harmless: it waits for the first one to die.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from uuid import uuid4

from apscheduler.schedulers.background import BackgroundScheduler

from config import Settings
from pipelines import passing, repeating, topics
from pipelines.depositing import area_parts, checkouts
from pipelines.flow import DELIVER, Step, deliver_to
from pipelines.journalling import journals
from pipelines.keeping import blob_life
from pipelines.notifying import replay, standing
from pipelines.recovering import epochs
from pipelines.replicating import leftovers, scrub, sweeps
from storage.catalog import endpoints, events, leases, now_us, switches, todo
from storage.errors import StoreError
from storage.stores import Stores
from workers.actors import QUEUES, steps_of
from workers.chains import Chains, batch_heads

log = logging.getLogger(__name__)

LEASE_S = 5.0
_SCRUB_S = 60
_TURN_S = 50.0
"""How long one turn of the scrub goes on, of every `_SCRUB_S`."""
UPLOAD_AGE_S = 86_400.0
_COMMITTED_S = 1.0
"""How long events wait for their numbers when the notice of them was lost."""
_DAY_S = 86_400
_DAY_US = _DAY_S * 1_000_000
_FORGET_S = 60.0
_LATER_S = 600
"""Added to the life of a URL before what it leads to is dropped."""


class Clock:
    """What ticks; every method is one job and may run beside another clock's."""

    def __init__(self, settings: Settings, stores: Stores, chains: Chains) -> None:
        self._settings, self._stores, self._chains = settings, stores, chains
        self._token = uuid4().hex
        self._ours = False
        self._stopping = threading.Event()
        self._pace = scrub.Pace(max(1, settings.scrub_bytes_s), self._stopping.wait)

    def stop(self) -> None:
        """End what takes long."""
        self._stopping.set()

    def lead(self) -> None:
        """Take or keep the lease that lets the other jobs run."""
        with self._stores.catalog.write(durable=False) as tx:
            ours = leases.hold(tx, "clock", token=self._token, lease_s=LEASE_S)
        if ours != self._ours:
            log.info("clock: %s", "leading" if ours else "waiting")
        self._ours = ours

    def leave(self) -> None:
        """Let another clock lead at once."""
        with self._stores.catalog.write() as tx:
            leases.release(tx, "clock", token=self._token)

    def job(self, work: Callable[[], None], *, in_doubt: bool = False) -> Callable[[], None]:
        """Run only while leading and, unless `in_doubt`, while catalog and buckets agree; an engine
        that is away is met again at the next tick."""

        def run() -> None:
            if not self._ours:
                return
            try:
                if in_doubt or not self._doubts():
                    work()
            except StoreError as error:
                log.warning("clock: %s: %s", work.__name__, error.detail)
            except Exception:
                log.exception("clock: %s failed", work.__name__)

        return run

    def _doubts(self) -> bool:
        return (
            self._stores.catalog.ask(lambda tx: switches.value(tx, switches.IN_DOUBT)) is not None
        )

    def refill(self) -> None:
        """Keep every queue filled with a bounded number of due rows; with none while catalog and
        buckets disagree, since what is due may have been done before the catalog was restored."""
        if self._doubts():
            return
        due = self._stores.catalog.ask(lambda tx: todo.steps_due(tx, list(Step)))
        for queue in QUEUES:
            steps = [step for step in steps_of(queue) if step in due]
            waiting = self._chains.depth(queue) if steps else 0
            if waiting < self._settings.refill_rows:
                self._send(steps, self._settings.refill_rows - waiting, empty=waiting == 0)
        self._deliver()

    def _deliver(self) -> None:
        """Send a message for each endpoint with something due that nobody serves."""
        room = self._settings.refill_rows - self._chains.depth(DELIVER)
        if room > 0:
            with self._stores.catalog.read() as tx:
                waiting = endpoints.waiting(tx, limit=room)
            self._chains.send(deliver_to(waiting))

    def _send(self, steps: Iterable[Step], room: int, *, empty: bool) -> None:
        for step in steps:
            with self._stores.catalog.write(durable=False) as tx:
                rows = todo.due(tx, step, limit=room, resend=empty)
            # What failed before is taken into no batch.
            heads = set(batch_heads(row for row, _, attempts in rows if not attempts))
            for row, request_id, attempts in rows:
                if attempts or row in heads:
                    self._chains.send([row], request_id)

    def number(self) -> None:
        """Give committed events their place in the feeds; none while catalog and buckets disagree,
        since the buckets' journals may know their numbers."""
        if not self._stores.catalog.ask(events.unnumbered) or self._doubts():
            return
        with self._stores.catalog.write() as tx:
            events.number(tx)
        self._stores.notices.publish(topics.EVENTS)

    def sequence(self) -> None:
        """Number events as they are committed, until stopped."""
        number = self.job(self.number, in_doubt=True)
        with self._stores.notices.listen(topics.COMMITTED) as committed:
            while not self._stopping.wait(self._settings.sequencer_s):
                number()
                committed.wait(_COMMITTED_S)

    def journal(self) -> None:
        """Have numbered events journalled, and old journals dropped."""
        journals.tend(self._stores, age_s=self._settings.signed_url_s + _LATER_S)

    def complete(self) -> None:
        """Have reservations completed whose writer died."""
        leftovers.reservations(self._stores, grace_s=self._settings.reservation_grace_s)

    def sweep(self) -> None:
        """Compare buckets and catalog."""
        for swept in sweeps.replication(self._stores):
            log.info("sweep: %s", swept)

    def search_again(self) -> None:
        """Compare indexes and catalog."""
        for swept in sweeps.indexing(self._stores):
            log.info("sweep: %s", swept)

    def settle(self) -> None:
        """Let deliveries go that nothing holds back any more; a refill finds them."""
        standing.settle(self._stores)

    def forget(self) -> None:
        """Forget deliveries, and replays, that came to an end long ago."""
        days, undelivered = self._settings.delivery_keep_days, self._settings.undelivered_keep_days
        standing.expire(self._stores, standing.Keeping(days * _DAY_S, undelivered * _DAY_S))
        # An answer that is given again tells of its replay.
        days = max(self._settings.delivery_keep_days, self._settings.idempotency_keep_days)
        replay.expire(self._stores, keep_s=days * _DAY_US / 1e6)

    def mark(self) -> None:
        """Compare the catalog's epoch with the buckets', and begin another one."""
        epochs.begin(self._stores)

    def reap(self) -> None:
        """Condemn what nothing refers to, and delete what has been condemned for long. Is looked at
        anew: the last comparison may be older than a restored catalog."""
        if epochs.judge(self._stores) is None:
            blob_life.condemn_orphans(self._stores)
            blob_life.reap(self._stores, grace_s=self._settings.blob_grace_s)

    def scrub(self) -> None:
        """Read stored objects again that were not verified for long."""
        budget = scrub.Budget(
            self._settings.scrub_bytes_s,
            self._settings.scrub_bytes_day,
            self._settings.scrub_period_days,
        )
        scrub.scrub(self._stores, budget, self._pace, turn_s=_TURN_S)

    def tidy(self) -> None:
        """Clean up what is too old."""
        leftovers.unfinished_uploads(self._stores, older_than_s=UPLOAD_AGE_S)
        area_parts.sweep(self._stores, older_than_s=UPLOAD_AGE_S)
        leftovers.temporaries(self._stores, older_than_s=UPLOAD_AGE_S, now=time.time())
        with self._stores.catalog.read() as tx:
            now = now_us(tx)
        checkouts.expire(self._stores, now - self._settings.checkout_keep_days * _DAY_US)
        repeating.forget(self._stores, now - self._settings.idempotency_keep_days * _DAY_US)
        if self._settings.logins_keep_days:
            passing.forget(self._stores, now - self._settings.logins_keep_days * _DAY_US)


def scheduled(clock: Clock, settings: Settings) -> BackgroundScheduler:
    """Every job with its interval; a job that is late runs once, never beside itself."""
    scheduler = BackgroundScheduler(
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        timezone="UTC",
    )
    scheduler.add_job(_quietly(clock.lead), "interval", seconds=LEASE_S / 3)
    for work, seconds in (
        # These look for themselves, or find out, whether catalog and buckets agree.
        (clock.refill, settings.tick_s),
        (clock.mark, settings.epoch_s),
        (clock.reap, settings.sweep_s),
    ):
        scheduler.add_job(clock.job(work, in_doubt=True), "interval", seconds=seconds)
    for work, seconds in (
        (clock.journal, settings.journal_s),
        (clock.settle, settings.tick_s),
        (clock.forget, _FORGET_S),
        (clock.complete, settings.reservation_grace_s / 3),
        (clock.sweep, settings.sweep_s),
        (clock.search_again, settings.sweep_s),
        (clock.tidy, settings.sweep_s),
        (clock.scrub, _SCRUB_S),
    ):
        scheduler.add_job(clock.job(work), "interval", seconds=seconds)
    return scheduler


def _quietly(work: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        try:
            work()
        except StoreError as error:
            log.warning("clock: %s", error.detail)

    return run


@contextmanager
def ticking(clock: Clock, settings: Settings) -> Iterator[None]:
    """Tick while the block runs."""
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    _quietly(clock.lead)()
    clock.job(clock.mark, in_doubt=True)()
    scheduler = scheduled(clock, settings)
    scheduler.start()
    sequencer = threading.Thread(target=clock.sequence, name="sequencer", daemon=True)
    sequencer.start()
    try:
        yield
    finally:
        clock.stop()
        scheduler.shutdown(wait=True)
        sequencer.join()
        _quietly(clock.leave)()
