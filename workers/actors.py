"""The actors: one a step, with its name; each claims its row and does it."""

from collections.abc import Callable, Mapping

import dramatiq

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
from pipelines.notifying import replay, telling
from pipelines.replicating import reservations, sync, verification
from storage.model import Todo
from workers.broker import Broker
from workers.claims import StepFunction, Working, work
from workers.queues import PROMISES

STEPS: Mapping[Step, StepFunction] = {
    Step.VERIFY: ingest.verify,
    Step.VERIFY_LARGE: ingest.verify,
    Step.SYNC: sync.sync,
    Step.SYNC_LARGE: sync.sync,
    Step.INDEX: indexing.index,
    Step.MATCH: telling.match,
    Step.PERCOLATE: telling.percolate,
    Step.AREA_CHECKSUM: area_checking.check,
    Step.AREA_CHECKSUM_LARGE: area_checking.check,
    Step.AREA_REMOVE: area_removing.remove,
    Step.CHECKOUT: checkouts.checkout,
    Step.BURY: tombstones.write_record,
    Step.MARK: purging.mark,
    Step.ERASE: purging.erase,
    Step.FORGET: purging.forget,
    Step.JOURNAL: journals.journal,
    Step.JOURNAL_COPY: journal_copies.copy,
    Step.JOURNAL_DROP: journal_copies.drop,
    Step.REPLAY: replay.replay,
    Step.REPAIR: verification.run_repair,
    Step.PUBLISH: reservations.complete,
    Step.MAIL: checkouts.mail,
}


def declare(broker: Broker, working: Working) -> None:
    """Let the broker's workers run every step."""
    for step, promise in PROMISES.items():
        named = dramatiq.actor(
            actor_name=str(step), queue_name=promise.queue, priority=promise.turn, broker=broker
        )
        named(_actor(step, working))


def _actor(step: Step, working: Working) -> Callable[[str, str, str], None]:
    def run(replica: str, ref: str, _request_id: str = "") -> None:
        work(working, Todo(step, replica, ref))

    return run
