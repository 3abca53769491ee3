"""While catalog and buckets disagree, no job starts and nothing is deleted."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import text

from config import Settings
from pipelines import garbage_collection
from pipelines.flow import Step
from storage import keys
from storage.catalog import Catalog, jobs, store_state
from storage.catalog import garbage_collection as catalog_garbage_collection
from storage.model import Job
from storage.stores import Stores
from tests.builders import make_file
from tests.subscription_builders import states, subscribe, tell
from tests.workers.webhook_receivers import delivering, eventually, receiving
from workers.broker import MemoryBroker
from workers.messages import MessageSender
from workers.scheduler import Scheduler, build_scheduler

pytestmark = pytest.mark.spec("OPS-13")

ROW = Job(Step.INDEX, "aws", "b.1")


def doubt(catalog: Catalog, reason: str | None = "Restored.") -> None:
    with catalog.write() as tx:
        store_state.write_value(tx, store_state.EPOCH_IN_DOUBT_KEY, reason)


def claims(catalog: Catalog) -> bool:
    with catalog.write() as tx:
        return jobs.claim(tx, ROW, token="t", lease_s=60, max_claims=5) is not None


def test_a_message_that_outlived_a_restore_is_dropped_and_its_row_stays(catalog: Catalog) -> None:
    with catalog.write() as tx:
        jobs.insert(tx, [ROW])
    doubt(catalog)
    assert not claims(catalog)
    doubt(catalog, None)
    assert claims(catalog)


def test_sends_nothing_while_in_doubt(catalog: Catalog) -> None:
    async def scene() -> None:
        async with receiving() as receiver:
            subscription = subscribe(catalog, receiver.url)
            doubt(catalog)
            tell(catalog, [subscription])
            async with delivering(catalog):
                await asyncio.sleep(0.5)
                assert (receiver.got, states(catalog, subscription)) == ([], ["pending"])
                doubt(catalog, None)
                await eventually(lambda: states(catalog, subscription) == ["delivered"])

    asyncio.run(scene())


def test_a_process_that_delivers_already_stops_too(catalog: Catalog) -> None:
    async def scene() -> None:
        async with receiving() as receiver:
            subscription = subscribe(catalog, receiver.url)
            tell(catalog, [subscription])
            async with delivering(catalog):
                await eventually(lambda: states(catalog, subscription) == ["delivered"])
                doubt(catalog)
                tell(catalog, [subscription])
                await asyncio.sleep(0.5)
                assert len(receiver.got) == 1
                doubt(catalog, None)
                await eventually(lambda: len(receiver.got) == 2)

    asyncio.run(scene())


@pytest.fixture
def clock(settings: Settings, stores: Stores) -> Scheduler:
    brisk = replace(settings, reservation_grace_s=0, blob_grace_s=0, scrub_bytes_s=9)
    ours = Scheduler(brisk, stores, MessageSender(MemoryBroker()))
    ours.renew_leadership()
    return ours


def everything(clock: Scheduler, settings: Settings) -> None:
    """Each job once, as the scheduler has it; the comparison, which would end the doubt, not."""
    for job in build_scheduler(clock, settings).get_jobs():
        if job.func.__qualname__ != clock.begin_epoch.__qualname__:
            job.func()


def rows(stores: Stores) -> dict[str, int]:
    """How many rows each table has, but for the clock's own."""
    with stores.catalog.read() as tx:
        tables = ("todo", "condemned", "presence", "events", "journals", "files", "blob_replicas")
        return {
            name: tx.execute(text(f"SELECT count(*) FROM {name}")).scalar_one() for name in tables
        }


def test_the_clock_changes_nothing(clock: Scheduler, settings: Settings, stores: Stores) -> None:
    lost = make_file(stores, b"its record is gone", everywhere=True)
    with stores.catalog.write() as tx:
        tx.execute(text("UPDATE files SET published_us = published_us - 1000000000"))
    stores.replicas["gcp"].delete(keys.record_key("file", lost))
    stores.replicas["aws"].put(keys.blob_key("ab" * 32), b"nothing refers to it")
    with stores.catalog.write() as tx:
        catalog_garbage_collection.condemn(tx, "aws", ["cd" * 32])
    # Of an epoch that no bucket knows.
    with stores.catalog.write() as tx:
        store_state.write_value(tx, "epoch", "00000000000000000009-x")
        store_state.write_value(tx, store_state.EPOCH_IN_DOUBT_KEY, "Restored.")
    before, listed = rows(stores), [info.key for info in stores.replicas["aws"].list("")]
    everything(clock, settings)
    assert rows(stores) == before
    assert [info.key for info in stores.replicas["aws"].list("")] == listed
    with stores.catalog.write() as tx:
        store_state.write_value(tx, "epoch", None)
        store_state.write_value(tx, store_state.EPOCH_IN_DOUBT_KEY, None)
    everything(clock, settings)
    after = rows(stores)
    assert after["todo"] > before["todo"], "the lost record is to be brought again"
    assert garbage_collection.delete_expired(stores, grace_s=-1) == 0, (
        "the clock has reaped already"
    )
