"""The scrub verifies what is due within its budgets, and repairs damage."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import TextClause

from pipelines import areas, checksums, ingest, scrub
from pipelines.scrub import ScrubBudget
from storage import keys
from storage.catalog import files, integrity, now_us, store_state
from storage.catalog.integrity import DAY_US
from storage.catalog.sql import parse
from storage.model import FQID, REPLICAS, Replica
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.damage import damage
from tests.scrubs import Sleeper, age, pace, run

pytestmark = pytest.mark.spec("INT-04", "OPS-14")


def blob_of(stores: Stores, fqid: FQID) -> str:
    with stores.catalog.read() as tx:
        row = files.find(tx, fqid)
    assert row is not None
    return keys.blob_key(row.checksums.sha256)


def flip(stores: Stores, replica: Replica, key: str) -> None:
    """One bit of the last byte, as a disk would."""
    root = Path(stores.replicas[replica].direct_url("")[7:])
    path = next(root.rglob(key.rpartition("/")[2]))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def verify(stores: Stores, replica: Replica, *, repair: bool = False) -> list[tuple[str, bool]]:
    found = scrub.verify_replica(stores, replica, rng=Random(0), repair=repair)
    return [(one.key, one.repaired) for one in found.damaged]


def test_a_flipped_bit_is_found_and_replaced_by_the_other_replicas(stores: Stores) -> None:
    key = blob_of(stores, make_file(stores, b"content", everywhere=True))
    flip(stores, "aws", key)
    assert verify(stores, "aws") == [(key, False)]
    assert verify(stores, "gcp") == []
    assert verify(stores, "aws", repair=True) == [(key, True)]
    assert verify(stores, "aws") == []
    assert b"".join(stores.replicas["aws"].read(key)) == b"content"


def test_object_damaged_everywhere_needs_an_operator(stores: Stores) -> None:
    key = blob_of(stores, make_file(stores, b"content", everywhere=True))
    flip(stores, "aws", key)
    flip(stores, "gcp", key)
    assert verify(stores, "aws", repair=True) == [(key, False)]
    stores.replicas["aws"].head(key)


def test_replaces_record_with_wrong_digest(stores: Stores) -> None:
    fqid = make_file(stores, b"content", everywhere=True)
    key = keys.record_key("file", fqid)
    right = b"".join(stores.replicas["aws"].read(key))
    stores.replicas["aws"].delete(key)
    stores.replicas["aws"].put(key, right.replace(b'"size":7', b'"size":8'))
    assert verify(stores, "aws", repair=True) == [(key, True)]
    assert b"".join(stores.replicas["aws"].read(key)) == right


@pytest.mark.parametrize("size", [7, 9 * 1024 * 1024])
def test_flipped_bytes_are_not_trusted_when_they_are_deposited_again(
    stores: Stores, drain: Callable[[], int], size: int
) -> None:
    content = bytes(size)
    key = blob_of(stores, make_file(stores, content))
    flip(stores, "aws", key)
    sums = checksums.compute_checksums([content], size).checksums
    told = {
        "store-sha1": sums.sha1,
        "store-sha256": sums.sha256,
        "store-crc32c": sums.crc32c,
        "store-s3_etag": sums.s3_etag,
    }
    area = new_uuid()
    areas.create(stores, area, "depositor@example.org")
    staged = keys.area_file_key(area, "a.txt")
    stores.areas.put(staged, content, metadata=told)
    fqid = FQID(new_uuid(), version())
    deposit = ingest.IngestRequest(fqid, "aws", stores.areas.direct_url(staged), 1)
    accepted = ingest.start_task(stores, deposit, "depositor@example.org")
    drain()
    assert accepted.task_id is not None
    assert ingest.get_task(stores, accepted.task_id).state == "SUCCEEDED"
    assert b"".join(stores.replicas["aws"].read(key)) == content


def counts(stores: Stores, replica: Replica) -> integrity.IntegrityCounts:
    with stores.catalog.read() as tx:
        return integrity.count_objects(tx, replica, since_us=now_us(tx) - DAY_US)


def verified_at(stores: Stores, replica: Replica) -> dict[str, int]:
    pages = integrity.iterate_pages(stores.catalog, replica)
    return {one.key: one.verified_us for page in pages for one in page}


def test_ingest_and_sync_set_the_time_of_verification(stores: Stores) -> None:
    with stores.catalog.read() as tx:
        before = now_us(tx)
    fqid = make_file(stores, b"content", everywhere=True)
    for replica in REPLICAS:
        times = verified_at(stores, replica)
        assert times.keys() == {blob_of(stores, fqid), keys.record_key("file", fqid)}
        assert all(time >= before for time in times.values())
    assert run(stores).objects == 0


def test_reads_again_what_was_not_verified_for_half_a_period(stores: Stores) -> None:
    make_file(stores, b"content", everywhere=True)
    age(stores, 14.9)
    assert run(stores).objects == 0
    age(stores, 0.2)
    assert run(stores).objects == 4
    assert counts(stores, "aws").verified == 2
    assert run(stores).objects == 0


def test_repairs_damage_and_reports_what_it_cannot_repair(stores: Stores) -> None:
    healed, lost = (
        blob_of(stores, make_file(stores, text, everywhere=True)) for text in (b"1", b"2")
    )
    damage(stores, "gcp", healed, "last byte")
    for replica in REPLICAS:
        damage(stores, replica, lost, "truncated")
    age(stores, 16)
    found = {(one.replica, one.key): one.repaired for one in run(stores).damaged}
    assert found == {("gcp", healed): True, ("aws", lost): False, ("gcp", lost): False}
    here = counts(stores, "gcp")
    assert (here.objects, here.verified, here.damaged, here.repaired) == (4, 3, 1, 1)
    with stores.catalog.read() as tx:
        assert {one.key for one in integrity.list_damaged(tx, limit=9)} == {lost}


def test_tries_again_what_could_not_be_repaired(stores: Stores) -> None:
    key = blob_of(stores, make_file(stores, b"content", everywhere=True))
    for replica in REPLICAS:
        damage(stores, replica, key, "removed")
    age(stores, 16)
    assert len(run(stores).damaged) == 2
    assert run(stores).objects == 0
    stores.replicas["aws"].put(key, b"content")
    age(stores, 1)
    assert [one.repaired for one in run(stores).damaged] in ([True], [])
    age(stores, 1)
    run(stores)
    assert [counts(stores, replica).damaged for replica in REPLICAS] == [0, 0]
    assert b"".join(stores.replicas["gcp"].read(key)) == b"content"


def test_holds_to_the_bytes_per_second(stores: Stores) -> None:
    make_file(stores, bytes(3_000_000), everywhere=True)
    age(stores, 16)
    sleeper = Sleeper()
    turn = scrub.run_scrub(
        stores, ScrubBudget(1_000_000, 10**12, 30), pace(1_000_000, sleeper), turn_s=60
    )
    assert turn.bytes >= 6_000_000
    assert sleeper.now == pytest.approx(turn.bytes / 1_000_000)


def test_holds_to_the_bytes_per_day(stores: Stores) -> None:
    for number in range(10):
        make_file(stores, bytes([number]) * 100_000)
    age(stores, 16)
    budget = ScrubBudget(10**9, 300_000, 30)
    read = [run(stores, budget).bytes]
    read.append(run(stores, budget).bytes)
    assert 300_000 <= read[0] < 500_000
    assert read[1] == 0
    age(stores, 1)
    assert 0 < run(stores, budget).bytes < 400_000


def test_an_object_larger_than_the_budget_of_a_day_is_paid_for_later(stores: Stores) -> None:
    make_file(stores, bytes(1_000_000))
    age(stores, 16)
    budget = ScrubBudget(10**9, 300_000, 30)
    assert run(stores, budget).bytes >= 1_000_000
    make_file(stores, b"another")
    age(stores, 2)
    with stores.catalog.read() as tx:
        assert integrity.compute_allowance(tx, 300_000) < 0
    age(stores, 2)
    with stores.catalog.read() as tx:
        assert integrity.compute_allowance(tx, 300_000) > 0


def test_stops_on_request_and_keeps_progress(stores: Stores) -> None:
    for number in range(5):
        make_file(stores, b"%d" % number)
    age(stores, 16)
    sleeper = Sleeper()
    sleeper.stop_at = 3.5
    turn = scrub.run_scrub(
        stores,
        ScrubBudget(scrub.MIN_OBJECT_BYTES, 10**12, 30),
        pace(scrub.MIN_OBJECT_BYTES, sleeper),
        turn_s=60,
    )
    assert turn.objects == 3
    assert counts(stores, "aws").verified == 3


def test_small_objects_spend_the_budget_too(stores: Stores) -> None:
    for number in range(9):
        make_file(stores, b"%d" % number)
    age(stores, 16)
    assert run(stores, ScrubBudget(10**9, 3 * scrub.MIN_OBJECT_BYTES, 30)).objects == 3


def test_reads_journals_once_per_half_period(stores: Stores) -> None:
    with stores.catalog.write() as tx:
        store_state.write_value(tx, scrub.CURSOR_KEY, None)
    assert run(stores).objects == 0
    with stores.catalog.read() as tx:
        assert (store_state.read_value(tx, scrub.CURSOR_KEY) or "").isdecimal()


@pytest.mark.parametrize("budget", [ScrubBudget(0, 10**9, 30), ScrubBudget(10**9, 0, 30)])
def test_a_budget_of_nothing_reads_nothing(stores: Stores, budget: ScrubBudget) -> None:
    make_file(stores, b"content")
    age(stores, 16)
    assert scrub.run_scrub(stores, budget, pace(1), turn_s=60).objects == 0


def test_damage_that_was_removed_on_purpose_is_forgotten(stores: Stores) -> None:
    with stores.catalog.write() as tx:
        integrity.record_damage(tx, "aws", keys.blob_key("0" * 64), "it is missing")
    age(stores, 1)
    run(stores)
    assert (counts(stores, "aws").damaged, counts(stores, "aws").repaired) == (0, 0)


def test_verify_records_what_it_read(stores: Stores) -> None:
    key = blob_of(stores, make_file(stores, b"content", everywhere=True))
    age(stores, 400)
    damage(stores, "aws", key, "first byte")
    assert counts(stores, "aws").verified == 0
    scrub.verify_replica(stores, "aws", rng=Random(0))
    here = counts(stores, "aws")
    assert (here.objects, here.verified, here.damaged) == (2, 1, 1)
    assert (here.oldest_us or 0) > 399 * DAY_US


def test_a_period_of_nothing_does_not_spin(stores: Stores) -> None:
    budget = ScrubBudget(10**9, 10**12, 0)
    assert run(stores, budget).objects == 0


def test_damaged_bytes_count_against_the_budget(stores: Stores) -> None:
    key = blob_of(stores, make_file(stores, bytes(50_000), everywhere=True))
    damage(stores, "gcp", key, "last byte")
    age(stores, 16)
    run(stores)
    assert counts(stores, "gcp").verified_bytes > 50_000


@pytest.mark.parametrize(
    "statement",
    [
        integrity._DUE_BLOBS,
        integrity._DUE_RECORDS,
        integrity._COUNT_STORED,
        integrity._SELECT_OLDEST,
    ],
)
def test_no_query_reads_a_table(stores: Stores, statement: TextClause) -> None:
    if not stores.catalog.sqlite:
        pytest.skip("explains as SQLite does")
    asked = dict.fromkeys(statement.compile().params, 1)
    with stores.catalog.read() as tx:
        plan = [
            row.detail for row in tx.execute(parse(f"EXPLAIN QUERY PLAN {statement.text}"), asked)
        ]
    # What has one row is scanned; a table is not, whatever it goes by.
    assert not {"blob_replicas", "presence", "blobs", "r", "b", "p"} & {
        line.removeprefix("SCAN ").split()[0] for line in plan if line.startswith("SCAN ")
    }, plan
    assert any("verified" in line for line in plan), plan
