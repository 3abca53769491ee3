"""Journals hold every event once, in order, in both buckets."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines import events, fixity, journal_copies, journals, records, scrub, sweeps
from pipelines.events import EventWindow
from pipelines.flow import Step
from pipelines.formats import version_from_us, version_to_us
from storage import keys
from storage.catalog import Tx, integrity, jobs, store_state
from storage.catalog import events as catalog_events
from storage.catalog import journals as rows
from storage.errors import ClaimLost, NotFoundError, Unavailable
from storage.model import FQID, REPLICAS, Job, JobClaim
from storage.protocols import BlobInfo
from storage.stores import Stores
from tests.pipelines.bundle_events import (
    all_events,
    check_buckets,
    drain,
    gathering,
    happen,
    held,
    ids,
    make_bundle,
    number,
    tend,
    walk,
    working,
)
from tests.pipelines.interleavings import play
from tests.property_depth import examples
from tests.scrubs import run
from workers.claims import run_job


@pytest.mark.spec("EVT-05", "EVT-07")
def test_events_are_journalled_in_both_buckets_with_their_documents(stores: Stores) -> None:
    first, second = make_bundle(stores, 1), make_bundle(stores, 2)
    happen(stores, "TOMBSTONE", first)
    tend(stores)
    seen = walk(stores)
    assert [(one.event_type, one.fqid) for one in seen] == [
        ("CREATE", first),
        ("CREATE", second),
        ("TOMBSTONE", first),
    ]
    assert seen[0].document["files"] == {"a_json": [{"number": 1, "text": "x"}]}
    assert seen[2].document["files"] == seen[0].document["files"]
    assert held(stores, "aws") == held(stores, "gcp") != []
    check_buckets(stores)


def test_unnumbered_events_are_in_no_journal(stores: Stores) -> None:
    make_bundle(stores)
    journals.enqueue_journal_jobs(stores, age_s=3600)
    assert not run_job(working(stores), gathering())
    assert walk(stores) == []


def test_writes_nothing_without_new_events(stores: Stores) -> None:
    make_bundle(stores)
    tend(stores)
    before = held(stores, "aws")
    tend(stores)
    assert held(stores, "aws") == before


@pytest.mark.spec("EVT-07")
def test_a_manifest_is_enough_to_have_the_feed_back(stores: Stores) -> None:
    fqid = make_bundle(stores)
    happen(stores, "TOMBSTONE", fqid)
    tend(stores)
    (one,) = [key for key in held(stores, "gcp") if keys.parse_journal_manifest(key)]
    found = journals.parse_manifest(records.read_object(stores.replicas["gcp"], one))
    with stores.catalog.read() as tx:
        known = catalog_events.list_range(tx, "aws", 1, limit=10)
    assert found == [replace(each, event=replace(each.event, bundle_id=0)) for each in known]


def test_small_journals_become_one_and_walks_and_urls_do_not_notice(stores: Stores) -> None:
    _few(stores, journals.MERGE_COUNT - 1)
    found, place = events.list_journal_excerpts(stores, "aws", EventWindow(None, None), None, 3)
    old = found[0].journal
    data = records.read_object(stores.replicas["aws"], keys.journal_key(old.key))
    assert place is not None
    assert place.first == 4
    before = all_events(stores)
    make_bundle(stores, journals.MERGE_COUNT)
    tend(stores)
    with stores.catalog.read() as tx:
        assert len(rows.list_range(tx, "aws", 1, catalog_events.MAX_SEQUENCE, limit=100)) == 1
    # What was handed out is still there, and the walk goes on behind what it has seen.
    assert records.read_object(stores.replicas["aws"], keys.journal_key(old.key)) == data
    rest, end = events.list_journal_excerpts(stores, "aws", EventWindow(None, None), place, 3)
    assert [each.event for one in rest for each in one.events] == before[3:]
    assert end is None
    assert ids(walk(stores)) == ids(all_events(stores))
    check_buckets(stores)
    tend(stores, age_s=-1)
    assert len(held(stores, "aws")) == len(held(stores, "gcp")) == 2
    check_buckets(stores)


def _few(stores: Stores, count: int) -> None:
    """So many journals of one event each."""
    for place in range(count):
        make_bundle(stores, place)
        tend(stores)


def test_the_number_of_journals_stays_small(stores: Stores, monkeypatch: Any) -> None:
    monkeypatch.setattr(journals, "MERGE_COUNT", 3)
    _few(stores, 40)
    with stores.catalog.read() as tx:
        assert len(rows.list_range(tx, "aws", 1, catalog_events.MAX_SEQUENCE, limit=100)) <= 8
    assert ids(walk(stores, per_page=2)) == ids(all_events(stores))
    check_buckets(stores)


class Died(BaseException):
    """The process ends here."""


class Mortal:
    """Dies at the n-th move: before it, or once it was made."""

    def __init__(self, moves: int, *, after: bool) -> None:
        self.left, self.after = moves, after

    @contextmanager
    def move(self) -> Iterator[None]:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Died
        yield
        if self.left == 0 and self.after:
            raise Died


class MortalCatalog:
    """A catalog whose writing units of work are moves."""

    def __init__(self, inner: Any, mortal: Mortal) -> None:
        self._inner, self._mortal = inner, mortal

    def read(self) -> Any:
        return self._inner.read()

    def run_query(self, question: Callable[[Tx], Any]) -> Any:
        return self._inner.run_query(question)

    @contextmanager
    def write(self, **more: Any) -> Iterator[Tx]:
        with self._mortal.move(), self._inner.write(**more) as tx:
            yield tx


class MortalBlobs:
    """A bucket in which putting and deleting are moves."""

    def __init__(self, inner: Any, mortal: Mortal) -> None:
        self._inner, self._mortal = inner, mortal

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)

    def put(self, key: str, data: bytes, **more: Any) -> BlobInfo:
        with self._mortal.move():
            return self._inner.put(key, data, **more)

    def delete(self, key: str, **more: Any) -> None:
        with self._mortal.move():
            self._inner.delete(key, **more)


def mortal(stores: Stores, moves: int, *, after: bool) -> Stores:
    life = Mortal(moves, after=after)
    catalog: Any = MortalCatalog(stores.catalog, life)
    blobs: Any = {name: MortalBlobs(stores.replicas[name], life) for name in REPLICAS}
    return replace(stores, catalog=catalog, replicas=blobs)


def _let_claims_go(stores: Stores) -> None:
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE todo SET token = NULL, due_us = 0, sent_us = NULL")


@pytest.mark.spec("EVT-07")
@pytest.mark.parametrize("after", [False, True])
def test_crash_at_any_point_is_completed_by_next_worker(
    stores: Stores, monkeypatch: Any, after: bool
) -> None:
    monkeypatch.setattr(journals, "MERGE_COUNT", 3)
    for moves in range(1, 60):
        fqid = make_bundle(stores, moves)
        number(stores)
        try:
            tend(mortal(stores, moves, after=after), age_s=-1)
            survived = True
        except Died:
            survived = False
        _let_claims_go(stores)
        if moves % 3 == 0:
            # More came meanwhile: what was begun is ended as it was begun.
            happen(stores, "TOMBSTONE", fqid)
        tend(stores)
        assert ids(walk(stores, per_page=3)) == ids(all_events(stores))
        check_buckets(stores)
        if survived and moves > 20:
            break
    else:
        raise AssertionError("nobody survived")
    tend(stores, age_s=-1)
    with stores.catalog.read() as tx:
        assert rows.list_aged(tx, "aws", -1_000_000, limit=9) == []
    check_buckets(stores)
    assert held(stores, "aws") == held(stores, "gcp")


def _purge(stores: Stores, fqid: Any) -> None:
    happen(stores, "DELETE", fqid)


def documents_in(stores: Stores, fqid: Any) -> list[str]:
    """Keys of journals in either bucket with the metadata of a bundle."""
    spelled = f'"uuid":"{fqid.uuid}"'.encode()
    found = []
    for bucket in REPLICAS:
        for key in held(stores, bucket):
            data = records.read_object(stores.replicas[bucket], key)
            if any(spelled in line and b'"manifest"' in line for line in data.split(b"\n")):
                found.append(key)
    return found


@pytest.mark.spec("EVT-05", "EVT-08")
def test_a_purge_leaves_the_events_and_no_document(stores: Stores) -> None:
    kept, gone = make_bundle(stores, 1), make_bundle(stores, 2)
    tend(stores)
    make_bundle(stores, 3)
    happen(stores, "TOMBSTONE", gone)
    tend(stores)
    before = {one.event_id: one for one in walk(stores)}
    _purge(stores, gone)
    journals.redact_version(stores, gone, lambda _moved: None)
    tend(stores)
    after = walk(stores)
    assert ids(after) == ids(all_events(stores))
    for one in after:
        if one.fqid == gone:
            assert set(one.document) == {"event_type", "bundle_info", "uuid"}
        else:
            assert one == before[one.event_id]
    assert documents_in(stores, gone) == []
    assert documents_in(stores, kept) != []
    check_buckets(stores)
    assert journals.redact_version(stores, gone, lambda _moved: None) == ()


@pytest.mark.spec("EVT-08")
def test_a_purge_reaches_what_was_merged_and_is_not_dropped_yet(
    stores: Stores, monkeypatch: Any
) -> None:
    monkeypatch.setattr(journals, "MERGE_COUNT", 2)
    gone = make_bundle(stores, 1)
    tend(stores)
    make_bundle(stores, 2)
    tend(stores)
    assert len(documents_in(stores, gone)) > 2
    _purge(stores, gone)
    journals.redact_version(stores, gone, lambda _moved: None)
    assert documents_in(stores, gone) == []
    tend(stores)
    check_buckets(stores)


@pytest.mark.spec("EVT-08")
def test_discards_journal_begun_before_purge(stores: Stores) -> None:
    gone = make_bundle(stores, 1)
    number(stores)
    journals.enqueue_journal_jobs(stores, age_s=3600)
    # Claim and begin; dies before it records what it put.
    with pytest.raises(Died):
        run_job(working(mortal(stores, 5, after=False)), gathering())
    assert documents_in(stores, gone) != []
    _purge(stores, gone)
    journals.redact_version(stores, gone, lambda _moved: None)
    assert documents_in(stores, gone) == []
    _let_claims_go(stores)
    tend(stores)
    assert documents_in(stores, gone) == []
    assert ids(walk(stores)) == ids(all_events(stores))
    check_buckets(stores)


class Interrupting(MortalBlobs):
    """Has something happen just after the first object was put."""

    def __init__(self, inner: Any, act: Any) -> None:
        self._inner, self._act = inner, act

    def put(self, key: str, data: bytes, **more: Any) -> BlobInfo:
        info = self._inner.put(key, data, **more)
        act, self._act = self._act, lambda: None
        act()
        return info


@pytest.mark.spec("EVT-08")
def test_a_purge_in_the_middle_of_a_compaction_wins(stores: Stores) -> None:
    gone = make_bundle(stores, 1)
    number(stores)
    journals.enqueue_journal_jobs(stores, age_s=3600)

    def purge() -> None:
        _purge(stores, gone)
        journals.redact_version(stores, gone, lambda _moved: None)

    blobs: Any = {**stores.replicas, "aws": Interrupting(stores.replicas["aws"], purge)}
    assert not run_job(working(replace(stores, replicas=blobs)), gathering())
    assert documents_in(stores, gone) == []
    _let_claims_go(stores)
    tend(stores)
    assert documents_in(stores, gone) == []
    assert ids(walk(stores)) == ids(all_events(stores))
    check_buckets(stores)


def test_a_lost_file_does_not_end_the_feed(stores: Stores) -> None:
    fqid = make_bundle(stores, 1)
    for replica in REPLICAS:
        for info in list(stores.replicas[replica].list(keys.BLOBS)):
            stores.replicas[replica].delete(info.key)
    tend(stores)
    assert [one.fqid for one in walk(stores)] == [fqid]


@pytest.mark.spec("EVT-10")
def test_a_document_is_read_of_a_tombstoned_bundle_and_not_of_a_purged_one(stores: Stores) -> None:
    fqid = make_bundle(stores, 1)
    happen(stores, "TOMBSTONE", fqid)
    assert json.loads(events.load_event_document(stores, "aws", fqid))["uuid"] == fqid.uuid
    with pytest.raises(NotFoundError):
        events.load_event_document(stores, "gcp", fqid)
    _purge(stores, fqid)
    with pytest.raises(NotFoundError):
        events.load_event_document(stores, "aws", fqid)


@pytest.mark.spec("EVT-05")
def test_times_of_a_feed_never_go_back(stores: Stores) -> None:
    for place in range(3):
        make_bundle(stores, place)
        number(stores)
        with stores.catalog.write() as tx:
            tx.exec_driver_sql("UPDATE events SET seq_us = seq_us + 3600000000")
    with stores.catalog.read() as tx:
        times = [each.seq_us for each in catalog_events.list_range(tx, "aws", 1, limit=9)]
    assert times == sorted(times)


@pytest.mark.spec("EVT-01")
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_window_of_every_walk_is_that_of_a_plain_list(
    windowed: Stores, data: st.DataObject
) -> None:
    stores = windowed
    with stores.catalog.read() as tx:
        every = catalog_events.list_range(tx, "aws", 1, limit=1000)
    times = sorted({each.seq_us + shift for each in every for shift in (-1, 0, 1)})
    some = st.none() | st.sampled_from(times)
    start = data.draw(some)
    end = data.draw(some | st.just(start) | st.just(start and start + 1))
    wanted = [
        each.event.id
        for each in every
        if (start is None or each.seq_us >= start) and (end is None or each.seq_us < end)
    ]
    window = EventWindow(
        None if start is None else version_from_us(start),
        None if end is None else version_from_us(end),
    )
    per_page = data.draw(st.integers(1, 10))
    assert ids(walk(stores, "aws", window, per_page=per_page)) == wanted
    assert start is None or version_to_us(version_from_us(start)) == start


@pytest.fixture
def windowed(stores: Stores) -> Stores:
    """Journals of one to four events each, some with the same time."""
    for place in range(14):
        fqids = [make_bundle(stores, 10 * place + more) for more in range(1 + place % 3)]
        if place % 2:
            happen(stores, "TOMBSTONE", fqids[0])
        tend(stores)
    return stores


def _claim(stores: Stores, ref: str) -> JobClaim:
    """Our hold on a row that is born for it."""
    row = Job(Step.JOURNAL, "aws", ref)
    with stores.catalog.write() as tx:
        jobs.insert(tx, [row])
        held = jobs.claim(tx, row, token=ref, lease_s=60, max_claims=5)
    assert held is not None
    return held


def _still(_moved: int) -> None:
    """Nobody waits for it."""


def _orders(count: int, *, seed: int) -> list[list[str]]:
    """Some of the ways in which moves of the three may follow each other."""
    dice, orders = Random(seed), []
    for _ in range(count):
        order = ["gather"] * 12 + ["merge"] * 12 + ["purge"] * 24
        dice.shuffle(order)
        orders.append(order)
    return orders


@pytest.mark.spec("EVT-07")
def test_gathering_merging_and_purging_may_mix_in_any_order(
    race_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "MERGE_COUNT", 2)
    stores = race_stores
    for seed, order in enumerate(_orders(40, seed=7)):
        kept = make_bundle(stores, seed)
        tend(stores)
        gone = make_bundle(stores, seed)
        number(stores)
        gather, merge = _claim(stores, journals.GATHER), _claim(stores, journals.MERGE)

        def purge(seen: Stores, gone: FQID = gone) -> None:
            happen(seen, "DELETE", gone)
            journals.redact_version(seen, gone, _still)

        ends = play(
            stores,
            order,
            {
                "gather": lambda seen, claim=gather: journals.write_journal(seen, claim, _still),
                "merge": lambda seen, claim=merge: journals.write_journal(seen, claim, _still),
                "purge": purge,
            },
        )
        for end in ends.values():
            assert end is None or isinstance(end, tuple | Unavailable), end
        _let_claims_go(stores)
        if isinstance(ends["purge"], Unavailable):
            journals.redact_version(stores, gone, _still)
        assert documents_in(stores, gone) == []
        tend(stores)
        assert documents_in(stores, gone) == []
        assert documents_in(stores, kept) != []
        assert ids(walk(stores, per_page=10)) == ids(all_events(stores))
        check_buckets(stores)


def test_worker_with_lost_claim_records_nothing(
    stores: Stores,
) -> None:
    make_bundle(stores, 1)
    number(stores)
    lost = _claim(stores, journals.GATHER)
    _let_claims_go(stores)
    tend(stores)
    before = held(stores, "aws")
    with pytest.raises(ClaimLost):
        journals.write_journal(stores, lost, _still)
    make_bundle(stores, 2)
    number(stores)
    with pytest.raises(ClaimLost):
        journals.write_journal(stores, lost, _still)
    tend(stores)
    assert set(before) < set(held(stores, "aws"))
    assert ids(walk(stores)) == ids(all_events(stores))
    check_buckets(stores)


def test_a_copy_on_its_way_while_a_bundle_is_purged_does_not_stay(
    race_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "MERGE_COUNT", 2)
    stores = race_stores
    dice = Random(11)
    for seed in range(25):
        gone = make_bundle(stores, seed)
        number(stores)
        copies = journals.write_journal(stores, _claim(stores, journals.GATHER), _still)
        (row,) = (one for one in copies if one.step == Step.JOURNAL_COPY)
        with stores.catalog.write() as tx:
            copy = jobs.claim(tx, row, token="c", lease_s=60, max_claims=5)
        merge = _claim(stores, journals.MERGE)

        def purge(seen: Stores, gone: FQID = gone) -> None:
            happen(seen, "DELETE", gone)
            journals.redact_version(seen, gone, _still)

        order = ["copy"] * 8 + ["merge"] * 10 + ["purge"] * 24
        dice.shuffle(order)
        ends = play(
            stores,
            order,
            {
                "copy": lambda seen, claim=copy: journal_copies.copy_journal(seen, claim, _still),
                "merge": lambda seen, claim=merge: journals.write_journal(seen, claim, _still),
                "purge": purge,
            },
        )
        for end in ends.values():
            assert end is None or isinstance(end, tuple | Unavailable | NotFoundError), end
        _let_claims_go(stores)
        if isinstance(ends["purge"], Exception):
            journals.redact_version(stores, gone, _still)
        if not isinstance(ends["copy"], Exception):
            assert documents_in(stores, gone) == []
        tend(stores)
        assert documents_in(stores, gone) == []
        check_buckets(stores)


def _lose(stores: Stores, bucket: Any, *, manifests: bool = False) -> None:
    """Remove every journal's lines, or manifest, from a bucket."""
    for key in held(stores, bucket):
        if (keys.parse_journal_manifest(key) is not None) == manifests:
            stores.replicas[bucket].delete(key)


def _replace(stores: Stores, bucket: Any, key: str, data: bytes) -> None:
    stores.replicas[bucket].delete(key)
    stores.replicas[bucket].put(key, data, content_type="application/x-ndjson")


def _settled(stores: Stores) -> None:
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE journals SET at_us = at_us - 600000000")


def _swept(stores: Stores) -> dict[Any, int]:
    """What a sweep misses in each bucket; the workers then do what it asks for."""
    found = {
        one.replica: one.missing for one in sweeps.sweep_replicas(stores) if one.kind == "journal"
    }
    drain(stores)
    return found


@pytest.mark.spec("EVT-20")
@pytest.mark.parametrize("bucket", REPLICAS)
@pytest.mark.parametrize("manifests", [False, True])
def test_restores_lost_journal_from_other_bucket(
    stores: Stores, bucket: Any, manifests: bool
) -> None:
    _few(stores, 3)
    before = {key: records.read_object(stores.replicas["aws"], key) for key in held(stores, "aws")}
    _lose(stores, bucket, manifests=manifests)
    assert _swept(stores) == {"aws": 0, "gcp": 0}, "what is young is left to its own rows"
    _settled(stores)
    assert _swept(stores) == {"aws": 0, "gcp": 0} | {bucket: 3}
    assert _swept(stores) == {"aws": 0, "gcp": 0}
    for name in REPLICAS:
        found = {key: records.read_object(stores.replicas[name], key) for key in held(stores, name)}
        assert found == before
    check_buckets(stores)


@pytest.mark.spec("EVT-20")
def test_dry_sweep_lists_missing_journals_only(stores: Stores) -> None:
    _few(stores, 2)
    _lose(stores, "aws")
    _settled(stores)
    (found,) = [
        one
        for one in sweeps.sweep_replicas(stores, repair=False)
        if (one.kind, one.replica) == ("journal", "aws")
    ]
    assert (found.missing, len(found.named)) == (2, 2)
    drain(stores)
    assert not [key for key in held(stores, "aws") if keys.parse_journal(key)]


@pytest.mark.spec("EVT-20")
def test_rebuilds_journal_lost_in_both_buckets(stores: Stores) -> None:
    gone = make_bundle(stores, 1)
    _few(stores, 2)
    _purge(stores, gone)
    journals.redact_version(stores, gone, _still)
    tend(stores)
    before = walk(stores)
    for bucket in REPLICAS:
        for key in held(stores, bucket):
            stores.replicas[bucket].delete(key)
    _settled(stores)
    assert min(_swept(stores).values()) > 0
    assert walk(stores) == before
    assert documents_in(stores, gone) == []
    check_buckets(stores)
    _settled(stores)
    assert _swept(stores) == {"aws": 0, "gcp": 0}


@pytest.mark.spec("EVT-20")
def test_a_purge_meets_a_journal_that_both_buckets_lost(stores: Stores) -> None:
    gone = make_bundle(stores, 1)
    make_bundle(stores, 2)
    tend(stores)
    for bucket in REPLICAS:
        _lose(stores, bucket)
    _purge(stores, gone)
    journals.redact_version(stores, gone, _still)
    tend(stores)
    assert ids(walk(stores)) == ids(all_events(stores))
    assert documents_in(stores, gone) == []
    check_buckets(stores)


@pytest.mark.spec("EVT-20")
@pytest.mark.parametrize("bucket", REPLICAS)
@pytest.mark.parametrize("longer", [False, True])
def test_a_damaged_journal_is_found_and_replaced(stores: Stores, bucket: Any, longer: bool) -> None:
    _few(stores, 2)
    key = next(key for key in held(stores, bucket) if keys.parse_journal(key))
    right = records.read_object(stores.replicas[bucket], key)
    _replace(stores, bucket, key, right[:-1] + (b"xx" if longer else b"x"))
    _settled(stores)
    if longer:
        # Its size tells already.
        assert _swept(stores) == {"aws": 0, "gcp": 0} | {bucket: 1}
    else:
        found = scrub.verify_replica(stores, bucket, rng=Random(0), repair=True)
        assert [(one.key, one.repaired) for one in found.damaged] == [(key, True)]
    assert records.read_object(stores.replicas[bucket], key) == right
    assert scrub.verify_replica(stores, bucket, rng=Random(0)).damaged == ()
    check_buckets(stores)


@pytest.mark.spec("INT-04")
def test_the_scrub_repairs_a_damaged_journal_once_per_half_period(stores: Stores) -> None:
    _few(stores, 2)
    key = next(key for key in held(stores, "gcp") if keys.parse_journal(key))
    right = records.read_object(stores.replicas["gcp"], key)
    run(stores)
    _replace(stores, "gcp", key, right[:-1] + b"x")
    assert run(stores).damaged == []
    with stores.catalog.write() as tx:
        store_state.write_value(tx, scrub.CURSOR_KEY, "0")
    assert [(one.key, one.repaired) for one in run(stores).damaged] == [(key, True)]
    assert records.read_object(stores.replicas["gcp"], key) == right


@pytest.mark.spec("OPS-27")
def test_the_fixity_report_lists_journals_with_sha256_and_time_of_verification(
    stores: Stores,
) -> None:
    _few(stores, 2)
    _settled(stores)
    assert {found.stored.verified_us for found in _listed_journals(stores)} == {0}
    run(stores)
    listed = _listed_journals(stores)
    for bucket in REPLICAS:
        assert {found.stored.key for found in listed if found.stored.replica == bucket} == {
            key for key in held(stores, bucket) if key.startswith(keys.JOURNALS)
        }
    for found in listed:
        data = records.read_object(stores.replicas[found.stored.replica], found.stored.key)
        assert found.sha256 == hashlib.sha256(data).hexdigest()
        assert found.stored.verified_us > 0
    key = next(found.stored.key for found in listed if keys.parse_journal(found.stored.key))
    _replace(stores, "gcp", key, b"damaged")
    scrub.verify_replica(stores, "gcp", rng=Random(0))
    marked = [found for found in _listed_journals(stores) if found.damage]
    assert [(found.stored.replica, found.stored.key) for found in marked] == [("gcp", key)]


def _listed_journals(stores: Stores) -> list[fixity.ObjectFixity]:
    listed = fixity.list_object_fixity(stores)
    return [found for found in listed if found.stored.key.startswith(keys.JOURNALS)]


def test_a_dropped_journal_leaves_no_time_of_verification(stores: Stores) -> None:
    _few(stores, 2)
    _settled(stores)
    run(stores)
    with stores.catalog.read() as tx:
        gone = rows.list_range(tx, "aws", 1, catalog_events.MAX_SEQUENCE, limit=1)[0]
    with stores.catalog.write() as tx:
        rows.mark_past(tx, [gone])
        jobs.insert(tx, [Job(Step.JOURNAL_DROP, "aws", gone.key.name)])
    drain(stores)
    names = [keys.journal_key(gone.key), keys.journal_manifest_key(gone.key)]
    with stores.catalog.read() as tx:
        assert [integrity.find_verified_times(tx, bucket, names) for bucket in REPLICAS] == [{}, {}]


@pytest.mark.spec("EVT-20")
def test_merges_damaged_journal_from_other_bucket(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "MERGE_COUNT", 3)
    _few(stores, 2)
    key = next(key for key in held(stores, "aws") if keys.parse_journal(key))
    _replace(stores, "aws", key, b"{}\n" + records.read_object(stores.replicas["aws"], key)[3:])
    make_bundle(stores, 3)
    tend(stores)
    with stores.catalog.read() as tx:
        assert len(rows.list_range(tx, "aws", 1, catalog_events.MAX_SEQUENCE, limit=9)) == 1
    assert ids(walk(stores)) == ids(all_events(stores))
    check_buckets(stores)
