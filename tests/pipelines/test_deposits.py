"""Bundles that are made of upload areas, by a job that may stop anywhere."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import uuid4

import pytest

from pipelines import areas, bundles, deposits, ingest
from pipelines import statistics as store_statistics
from pipelines.areas import IncomingFile
from pipelines.deposits import ChosenFile, DepositRequest
from storage.catalog import deposits as rows
from storage.catalog import ingest as tasks
from storage.catalog.deposits import Deposit
from storage.catalog.ingest import IngestTaskRow
from storage.errors import Forbidden, Invalid, Unavailable
from storage.model import FQID, Checksums
from storage.stores import Stores
from tests.api.builders import AREA, uuid_of

ME, OTHER = "me@example.org", "other@example.org"
BUNDLE = uuid_of(7)


def put(stores: Stores, name: str, data: bytes = b"content") -> None:
    areas.receive_file(stores, IncomingFile(AREA, name, "x/y", iter([data]), len(data), 2**20), ME)


@pytest.fixture
def area(stores: Stores, drain: Callable[[], int]) -> str:
    """An area with three files, checked."""
    areas.create(stores, AREA, ME)
    for name in ("a.json", "b/c.txt", "d.txt"):
        put(stores, name, b"{}" if name.endswith("json") else name.encode())
    drain()
    return AREA


def request_of(names: Sequence[str] = ("a.json", "b/c.txt"), uuid: str = BUNDLE) -> DepositRequest:
    chosen = [ChosenFile(name, name, name.endswith("json")) for name in names]
    return DepositRequest(AREA, "aws", uuid, 7, chosen)


def start(stores: Stores, new: DepositRequest, owner: str = ME) -> Deposit:
    deposit = deposits.plan(stores, new, owner)
    deposits.start(stores, deposit)
    return deposit


def read(stores: Stores, deposit: Deposit) -> Deposit:
    return deposits.find_owned(stores, deposit.id, ME)


def test_makes_bundle_of_chosen_files(stores: Stores, area: str, drain) -> None:
    deposit = start(stores, request_of())
    drain()
    assert read(stores, deposit).state == "DONE"
    bundle = bundles.find(stores, "aws", BUNDLE, deposit.version)
    entries = bundles.read_entries(stores, bundle, 0, 10)
    assert [(one.name, one.indexed) for one in entries] == [("a.json", True), ("b/c.txt", False)]
    assert (bundle.author, bundle.creator_uid) == (ME, 7)
    assert deposits.count_files(stores, deposit) == {"verified": 2}
    assert [one.fqid for one in store_statistics.list_bundles_of_author(stores, ME)] == [
        deposit.fqid
    ]


def test_counts_files_by_the_state_of_their_latest_task(stores: Stores, area: str) -> None:
    deposit = deposits.plan(stores, request_of(), ME)
    names = ("untouched", "waiting", "verifying", "failed", "verifying again")
    entries = [(name, name, uuid_of(place), False) for place, name in enumerate(names, 1)]
    deposit = replace(deposit, entries=entries)

    def begin(place: int, *, done: int = 0, failed: bool = False) -> None:
        fqid, ident = FQID(entries[place][2], deposit.version), str(uuid4())
        sums, source = Checksums("a", "b", "c", "d"), "file:///x"
        row = IngestTaskRow(
            ident, fqid, "aws", "PENDING", "x", source, "p", 9, "x/y", 7, ME, sums, 0, None, 0
        )
        with stores.catalog.write() as tx:
            tasks.insert_all(tx, [row])
            tasks.record_progress(tx, ident, done)
            if failed:
                tasks.finish(tx, ident, state="FAILED", cause={"detail": "no"})

    begin(1)
    begin(2, done=5)
    begin(3, done=5, failed=True)
    begin(4, failed=True)
    begin(4, done=3)
    counts = deposits.count_files(stores, deposit)
    assert counts == {"waiting": 2, "verifying": 2, "failed": 1}
    shown = deposits.list_file_states(stores, deposit, 0, 10)
    assert counts == Counter(one.state for one in shown)


def test_new_version_keeps_uuids_of_files(stores: Stores, area: str, drain) -> None:
    first = start(stores, request_of())
    drain()
    put(stores, "a.json", b'{"new": 1}')
    drain()
    second = start(stores, request_of(("a.json", "d.txt")))
    drain()
    assert read(stores, second).state == "DONE"
    assert second.version > first.version
    assert second.entries[0][2] == first.entries[0][2]


def test_repeated_job_changes_nothing(stores: Stores, area: str, drain) -> None:
    """As after a crash between the bundle and the deposit's state."""
    deposit = deposits.plan(stores, request_of(), ME)
    jobs = deposits.start(stores, deposit)
    drain()
    for state in ("STARTING", "VERIFYING"):
        with stores.catalog.write() as tx:
            rows.set_state(tx, deposit.id, state)
            deposits.jobs.insert(tx, jobs)
        drain()
        assert read(stores, deposit).state == "DONE"
        assert read(stores, deposit).faults == {}


def test_refused_file_fails_deposit_and_can_be_retried(stores: Stores, area: str, drain) -> None:
    deposit = start(stores, request_of(("a.json", "missing.txt")))
    drain()
    failed = read(stores, deposit)
    assert failed.state == "FAILED"
    assert list(failed.faults) == ["missing.txt"]
    shown = deposits.list_file_states(stores, failed, 0, 10)
    assert [one.state for one in shown] == ["verified", "failed"]
    assert shown[1].message == failed.faults["missing.txt"]
    put(stores, "missing.txt")
    drain()
    deposits.retry(stores, deposit.id, ME)
    drain()
    assert read(stores, deposit).state == "DONE"


def test_file_that_is_refused_by_verification_is_named(
    stores: Stores, area: str, drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    deposit = start(stores, request_of())

    def change(*given: object, **more: object) -> object:
        result = start_tasks(*given, **more)
        with stores.catalog.write() as tx:
            tx.exec_driver_sql("UPDATE tasks SET sha1 = 'f' || substr(sha1, 2)")
            tx.exec_driver_sql("UPDATE tasks SET sha1 = '0' || substr(sha1, 2) WHERE size = 2")
        return result

    start_tasks = ingest.start_tasks
    monkeypatch.setattr(ingest, "start_tasks", change)
    drain()
    failed = read(stores, deposit)
    assert failed.state == "FAILED"
    assert set(failed.faults) <= {"a.json", "b/c.txt"}
    assert failed.faults
    assert all("sha1" in message for message in failed.faults.values())
    listed = deposits.list_unfinished_tasks(stores, ME, limit=10)
    assert {one.state for one in listed} == {"FAILED"}


def test_outage_postpones_deposit(
    stores: Stores, area: str, drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    deposit = start(stores, request_of())
    with monkeypatch.context() as patch:
        patch.setattr(
            ingest, "start_tasks", lambda _s, new, *_a, **_k: [Unavailable("away")] * len(new)
        )
        drain()
    assert read(stores, deposit).state == "STARTING"
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE todo SET due_us = 0")
    drain()
    assert read(stores, deposit).state == "DONE"


def test_rejects_what_cannot_be_a_bundle(stores: Stores, area: str) -> None:
    with pytest.raises(Invalid):
        deposits.plan(stores, request_of(()), ME)
    with pytest.raises(Invalid):
        deposits.plan(stores, request_of(("../x",)), ME)
    with pytest.raises(Forbidden):
        deposits.plan(stores, request_of(), OTHER)
    assert deposits.list_owned(stores, ME, limit=10) == []


def test_deposits_belong_to_their_owner(stores: Stores, area: str) -> None:
    deposit = start(stores, request_of())
    for act in (deposits.find_owned, deposits.retry):
        with pytest.raises(Forbidden):
            act(stores, deposit.id, OTHER)
    assert deposits.list_owned(stores, OTHER, limit=10) == []


def test_lists_deposits_latest_first(stores: Stores, area: str) -> None:
    made = [start(stores, request_of(uuid=uuid_of(n))) for n in range(3)]
    first, second = deposits.list_owned(stores, ME, limit=2)
    assert [first.id, second.id] == [made[2].id, made[1].id]
    after = (second.created_us, second.id)
    (last,) = deposits.list_owned(stores, ME, before=after, limit=2)
    assert (last.id, last.file_count, last.state) == (made[0].id, 2, "STARTING")


def test_lists_areas_of_owner_with_their_sizes(stores: Stores, area: str) -> None:
    areas.create(stores, uuid_of(1), ME)
    areas.create(stores, uuid_of(2), OTHER)
    new, old = areas.list_owned(stores, ME, limit=10)
    assert (new.uuid, new.file_count, new.size) == (uuid_of(1), 0, 0)
    assert (old.uuid, old.file_count, old.size) == (area, 3, 14)
    assert areas.list_owned(stores, ME, before=(new.created_us, new.uuid), limit=10) == [old]
    with stores.catalog.write() as tx:
        tx.exec_driver_sql(f"UPDATE areas SET state = 'DELETED' WHERE uuid = '{area}'")
    assert areas.list_owned(stores, ME, limit=10) == [new]


def test_two_equal_names_are_refused(stores: Stores, area: str) -> None:
    new = request_of()
    twice = replace(new, files=[new.files[0], replace(new.files[1], name="a.json")])
    with pytest.raises(Invalid):
        deposits.plan(stores, twice, ME)
