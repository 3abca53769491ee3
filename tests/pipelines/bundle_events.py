"""Bundles with a history of events, and readers of journals."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

import orjson

from pipelines import bundles, events, journal_copies, journals, records
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.events import EventWindow
from pipelines.flow import Step
from pipelines.journals import GATHER
from storage import keys
from storage.catalog import bundles as catalog_bundles
from storage.catalog import events as catalog_events
from storage.catalog import jobs
from storage.model import FQID, REPLICAS, BundleEvent, EventType, Job, Replica
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from workers.claims import WorkerContext, run_job

ALWAYS = EventWindow(None, None)


def make_bundle(stores: Stores, number: int = 0) -> FQID:
    """A bundle of one metadata file, with its CREATE event in aws, and nothing done of the rest."""
    content = orjson.dumps({"number": number, "text": "x" * (number % 7)})
    file = make_file(stores, content, content_type="application/json", everywhere=True)
    fqid = FQID(new_uuid(), version(number))
    bundles.put(stores, BundleDraft(fqid, "aws", 1, [NewEntry("a.json", file, True)]), "me@x")
    return fqid


def happen(stores: Stores, kind: EventType, fqid: FQID, replica: Replica = "aws") -> str:
    """One more event of a bundle."""
    with stores.catalog.write() as tx:
        row = catalog_bundles.find(tx, fqid)
        assert row is not None
        return catalog_events.append(tx, kind, replica, fqid, row.id)


def number(stores: Stores) -> None:
    """What the clock does."""
    with stores.catalog.write() as tx:
        catalog_events.assign_sequence(tx)


JOURNAL_STEPS = {
    Step.JOURNAL: journals.write_journal,
    Step.JOURNAL_COPY: journal_copies.copy_journal,
    Step.JOURNAL_DROP: journal_copies.drop_journal,
}


class Silent:
    """The clock sends what is due."""

    def send(self, rows: Any, request_id: str = "") -> None:
        """Nothing."""


def working(stores: Stores) -> WorkerContext:
    job_queue: Any = Silent()
    return WorkerContext(stores, job_queue, JOURNAL_STEPS, 5, Random(0))


def tend(stores: Stores, *, age_s: float = 3600) -> None:
    """Number, and do all that journals want done."""
    number(stores)
    journals.enqueue_journal_jobs(stores, age_s=age_s)
    drain(stores)


def drain(stores: Stores) -> None:
    """Do the rows of journals that are due."""
    while rows := _due(stores):
        done = [run_job(working(stores), row) for row in rows]
        assert any(done)


def _due(stores: Stores) -> list[Job]:
    with stores.catalog.write() as tx:
        return [
            row
            for step in JOURNAL_STEPS
            for row, *_ in jobs.take_due(tx, step, limit=100, resend=True)
        ]


def gathering() -> Job:
    return Job(Step.JOURNAL, "aws", GATHER)


@dataclass(frozen=True)
class Seen:
    """An event as a reader of a window finds it, with the document behind the stream's URL."""

    event_id: str
    event_type: str
    fqid: FQID
    document: dict[str, Any]


def walk(
    stores: Stores, replica: Replica = "aws", window: EventWindow = ALWAYS, *, per_page: int = 1
) -> list[Seen]:
    """All that a walk of pages of this size sees."""
    seen: list[Seen] = []
    place = None
    while True:
        found, place = events.list_journal_excerpts(stores, replica, window, place, per_page)
        for stream in found:
            data = records.read_object(
                stores.replicas[replica], keys.journal_key(stream.journal.key)
            )
            assert len(data) == stream.journal.size
            assert stream.events
            seen += [_seen(data, each) for each in stream.events]
        if place is None:
            return seen


def _seen(data: bytes, each: catalog_events.SequencedEvent) -> Seen:
    assert each.offset is not None
    assert each.size is not None
    cut = data[each.offset : each.offset + each.size]
    assert b"\n" not in cut
    assert data[each.offset + each.size :][:1] == b"\n"
    document = orjson.loads(cut)
    assert document["event_type"] == each.event.type
    assert document["bundle_info"] == each.event.fqid._asdict()
    return Seen(each.event.id, each.event.type, each.event.fqid, document)


def all_events(stores: Stores) -> list[BundleEvent]:
    """In the order of their numbers."""
    with stores.catalog.read() as tx:
        return [each.event for each in catalog_events.list_range(tx, "aws", 1, limit=100_000)]


def ids(found: Sequence[Seen] | Sequence[BundleEvent]) -> list[str]:
    return [one.id if isinstance(one, BundleEvent) else one.event_id for one in found]


def held(stores: Stores, bucket: Replica) -> list[str]:
    """Keys of journals in a bucket."""
    return [info.key for info in stores.replicas[bucket].list(keys.JOURNALS)]


def check_buckets(stores: Stores) -> None:
    """Every current journal lies in both buckets with a manifest that tells the truth; nothing
    lies there without a row."""
    with stores.catalog.read() as tx:
        rows = tx.exec_driver_sql("SELECT * FROM journals ORDER BY replica, first_seq").all()
    named = {}
    for row in rows:
        key = keys.JournalKey(row.replica, row.first_seq, row.last_seq, row.generation)
        named[str(key)] = named[keys.journal_manifest_key(key)] = row.state
        for bucket in REPLICAS if row.state == "current" else ():
            blobs = stores.replicas[bucket]
            found = journals.parse_manifest(
                records.read_object(blobs, keys.journal_manifest_key(key))
            )
            data = records.read_object(blobs, keys.journal_key(key))
            assert [each.seq for each in found] == list(range(row.first_seq, row.last_seq + 1))
            for each in found:
                _seen(data, each)
    for bucket in REPLICAS:
        assert set(held(stores, bucket)) <= named.keys()
    for replica in REPLICAS:
        current = [r for r in rows if r.replica == replica and r.state == "current"]
        for one, following in pairwise(current):
            assert one.last_seq + 1 == following.first_seq
