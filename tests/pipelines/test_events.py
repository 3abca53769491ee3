"""Readers of an event feed whose catalog was restored miss no event."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines import events, journals
from pipelines.events import EventWindow, FeedPosition, SequenceReset
from pipelines.recovery import epochs
from storage import keys
from storage.catalog import events as catalog_events
from storage.catalog import store_state
from storage.catalog.sql import parse
from storage.circuit_breaker import CircuitBreaker
from storage.errors import Unavailable
from storage.model import FQID
from storage.stores import Stores
from tests.builders import new_uuid, version
from tests.pipelines.bundle_events import drain, happen, make_bundle, number, tend
from tests.property_depth import examples

ALWAYS = EventWindow(None, None)


@dataclass
class Reader:
    """Follows a feed, and keeps what it was told."""

    seen: FeedPosition
    told: list[str]
    warned: bool = False

    def read(self, stores: Stores, limit: int = 3) -> bool:
        """One look; whether there was anything."""
        try:
            found = events.list_events_since(stores, "aws", self.seen, limit)
        except SequenceReset as error:
            self.seen, self.warned = error.safe_position or self.seen, True
            return True
        for one in found:
            self.told.append(one.event.id)
            self.seen = FeedPosition(self.seen.sequence, one.seq, one.seq_us)
        return bool(found)

    def read_all(self, stores: Stores) -> None:
        while self.read(stores):
            pass


def write(stores: Stores, number: int, uuids: Iterator[str] | None = None) -> list[FQID]:
    given = uuids or (new_uuid() for _ in range(number))
    fqids = [FQID(one, version(place)) for place, one in enumerate(islice(given, number))]
    with stores.catalog.write() as tx:
        for fqid in fqids:
            catalog_events.append(tx, "CREATE", "aws", fqid, 0)
    return fqids


def number_some(stores: Stores, limit: int) -> None:
    with stores.catalog.write() as tx:
        catalog_events.assign_sequence(tx, limit=limit)


def restore(stores: Stores, kept: int, *, forgotten: int) -> None:
    """A catalog of earlier: it has the first so many numbers, knows some events of later by the
    buckets' records only, and nothing of those that were forgotten."""
    asked = {"kept": kept, "gone": forgotten}
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("DELETE FROM journals")
        for statement in (
            "DELETE FROM events WHERE seq > :kept AND id IN"
            " (SELECT id FROM events ORDER BY id LIMIT :gone)",
            "UPDATE events SET seq = NULL, seq_us = NULL, byte_offset = NULL, byte_size = NULL"
            " WHERE seq > :kept",
        ):
            tx.execute(parse(statement), asked)
        store_state.write_value(tx, store_state.EPOCH_IN_DOUBT_KEY, "restored")


def every(stores: Stores) -> list[str]:
    with stores.catalog.read() as tx:
        return [each.event.id for each in catalog_events.list_range(tx, "aws", 1, limit=10_000)]


@pytest.mark.spec("EVT-23")
@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_feed_readers_miss_nothing_over_restores(stores: Stores, data: st.DataObject) -> None:
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("DELETE FROM events")
    readers = [Reader(events.first_position(stores), []) for _ in range(3)]
    # The same in every run of an example: ids say which events are forgotten.
    uuids = (str(UUID(int=number)) for number in count(1))
    for _ in range(data.draw(st.integers(1, 3))):
        for _ in range(data.draw(st.integers(0, 3))):
            write(stores, data.draw(st.integers(1, 4)), uuids)
            number_some(stores, data.draw(st.integers(1, 5)))
            for reader in readers:
                for _ in range(data.draw(st.integers(0, 2))):
                    reader.read(stores, data.draw(st.integers(1, 3)))
        with stores.catalog.read() as tx:
            newest = catalog_events.find_latest_sequence(tx, "aws")
        kept = data.draw(st.integers(0, newest))
        restore(stores, kept, forgotten=data.draw(st.integers(0, 2)))
        for reader in readers:
            _read_in_doubt(stores, reader)
        epochs.force_new_epoch(stores)
    for _ in range(20):
        number_some(stores, 2)
    for reader in readers:
        reader.read_all(stores)
        assert set(every(stores)) <= set(reader.told)
        assert reader.warned, "every restoration is told"


def _read_in_doubt(stores: Stores, reader: Reader) -> None:
    """Nothing new is known; who has seen more than the catalog has to wait."""
    before = list(reader.told)
    try:
        reader.read_all(stores)
    except Unavailable:
        assert reader.told[: len(before)] == before


@pytest.mark.spec("EVT-23")
def test_feed_readers_get_only_renumbered_events_twice(stores: Stores) -> None:
    write(stores, 4)
    number(stores)
    reader = Reader(events.first_position(stores), [])
    reader.read_all(stores)
    first = list(reader.told)
    write(stores, 2)
    number(stores)
    reader.read_all(stores)
    later = reader.told[4:]
    restore(stores, 4, forgotten=0)
    epochs.force_new_epoch(stores)
    number(stores)
    write(stores, 1)
    number(stores)
    reader.read_all(stores)
    again = reader.told[6:]
    assert reader.warned
    assert set(again) == set(every(stores)) - set(first)
    assert set(later) < set(again)


@pytest.mark.spec("EVT-23")
def test_rejects_cursor_of_ungiven_number(
    stores: Stores,
) -> None:
    """A copy of a running catalog may be restored without anybody noticing."""
    write(stores, 3)
    for _ in range(3):
        number_some(stores, 1)
    seen = events.latest_position(stores, "aws")
    restore(stores, 1, forgotten=0)
    with pytest.raises(Unavailable):
        events.list_events_since(stores, "aws", seen, 10)
    with stores.catalog.write() as tx:
        store_state.write_value(tx, store_state.EPOCH_IN_DOUBT_KEY, None)
    with pytest.raises(SequenceReset) as refused:
        events.list_events_since(stores, "aws", seen, 10)
    assert refused.value.safe_position is not None
    assert refused.value.safe_position.seq == 1


@pytest.mark.spec("EVT-22")
def test_walk_from_before_restore_is_refused(stores: Stores) -> None:
    for place in range(3):
        make_bundle(stores, place)
        tend(stores)
    _, place = events.list_journal_excerpts(stores, "aws", ALWAYS, None, 1)
    assert place is not None
    assert events.list_journal_excerpts(stores, "aws", ALWAYS, place, 1)[0]
    epochs.force_new_epoch(stores)
    with pytest.raises(SequenceReset):
        events.list_journal_excerpts(stores, "aws", ALWAYS, place, 1)


# Journals while a bucket is down


def lame(stores: Stores, *down: str) -> Stores:
    parts = CircuitBreaker({f"bucket.{name}": _fail for name in ("aws", "gcp")}, start=_never)
    for name in down * 2:
        parts.record_failure(f"bucket.{name}")
    return replace(stores, circuit_breaker=parts)


def _fail() -> None:
    raise OSError("no route to host")


def _never(_work: Any) -> None:
    """No probe comes back."""


@pytest.mark.spec("EVT-21")
def test_journals_are_read_from_the_other_bucket_while_theirs_is_down(stores: Stores) -> None:
    fqid = make_bundle(stores)
    tend(stores)
    happen(stores, "TOMBSTONE", fqid)
    number(stores)
    journals.enqueue_journal_jobs(stores, age_s=3600)
    drain(stores)
    for down, served in (
        ((), "aws"),
        (("aws",), "gcp"),
        (("aws", "gcp"), "aws"),
        (("gcp",), "aws"),
    ):
        found, _ = events.list_journal_excerpts(stores, "aws", ALWAYS, None, 10)
        own = lame(stores, *down)
        assert [events.choose_bucket(own, one.journal) for one in found] == [served, served]
    (first, _) = found
    stores.replicas["gcp"].delete(keys.journal_manifest_key(first.journal.key))
    own = lame(stores, "aws")
    assert [events.choose_bucket(own, one.journal) for one in found] == ["aws", "gcp"]


@pytest.mark.spec("EVT-23")
def test_replaced_bucket_does_not_affect_readers(stores: Stores) -> None:
    epochs.begin_epoch(stores)
    write(stores, 3)
    number(stores)
    seen = events.latest_position(stores, "aws")
    for info in list(stores.replicas["gcp"].list(keys.EPOCHS)):
        stores.replicas["gcp"].delete(info.key)
    assert epochs.check_epoch(stores) is not None
    epochs.force_new_epoch(stores)
    assert epochs.check_epoch(stores) is None
    assert events.list_events_since(stores, "aws", seen, 10) == []
    epochs.force_new_epoch(stores)
    with pytest.raises(SequenceReset):
        events.list_events_since(stores, "aws", seen, 10)
