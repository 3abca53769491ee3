"""Locking and deletion of upload areas."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipelines import area_files, area_uploads, areas
from pipelines.areas import IncomingFile
from pipelines.flow import Step
from storage import keys
from storage.catalog import Tx, jobs, now_us
from storage.catalog import areas as rows
from storage.catalog.areas import AreaUploadRow
from storage.errors import (
    ConflictError,
    DomainError,
    Forbidden,
    NotFoundError,
    NotReady,
    Unavailable,
)
from storage.model import REPLICAS, Job, JobClaim
from storage.stores import Stores
from tests.builders import new_uuid

ME, OTHER = "me@example.org", "other@example.org"
Drain = Callable[[], int]
DAY_US = 86_400_000_000


@pytest.fixture
def area(stores: Stores) -> str:
    uuid = new_uuid()
    areas.create(stores, uuid, ME)
    return uuid


def put(stores: Stores, area: str, name: str, data: bytes = b"x") -> None:
    areas.receive_file(
        stores, IncomingFile(area, name, "text/plain", iter([data]), len(data), 99), ME
    )


def held(stores: Stores, area: str) -> list[str]:
    return [info.key for info in stores.areas.list(keys.area_prefix(area))]


def state(stores: Stores, area: str) -> str:
    with stores.catalog.read() as tx:
        found = rows.find(tx, area)
    assert found is not None
    return found.state


def removal(area: str) -> Job:
    return Job(Step.AREA_REMOVE, REPLICAS[0], area)


def claimed(stores: Stores, area: str) -> JobClaim:
    with stores.catalog.write() as tx:
        claim = jobs.claim(tx, removal(area), token=new_uuid(), lease_s=60, max_claims=99)
    assert claim is not None
    return claim


def due(tx: Tx, area: str) -> int:
    row = tx.exec_driver_sql(f"SELECT due_us FROM todo WHERE ref = '{area}'").scalar_one_or_none()
    return 0 if row is None else int(row)


def later(stores: Stores, area: str) -> None:
    """As if its last look had come to be due."""
    with stores.catalog.write() as tx:
        tx.exec_driver_sql(f"UPDATE areas SET deleted_us = deleted_us - 2 * {DAY_US}")
        tx.exec_driver_sql(f"UPDATE todo SET due_us = 0 WHERE ref = '{area}'")


# Locking


@pytest.mark.spec("ARE-07")
def test_locked_area_refuses_files_until_unlocked(stores: Stores, area: str) -> None:
    put(stores, area, "a")
    areas.set_state(stores, area, "LOCKED", ME)
    areas.set_state(stores, area, "LOCKED", ME)
    with pytest.raises(ConflictError) as refused:
        put(stores, area, "b")
    assert refused.value.code == "area_locked"
    with pytest.raises(ConflictError):
        areas.find_writable(stores, area, ME)
    assert areas.find_owned(stores, area, ME).state == "LOCKED"
    areas.set_state(stores, area, "UNLOCKED", ME)
    put(stores, area, "b")


@pytest.mark.spec("ARE-07")
def test_keeps_uploads_in_progress_at_lock(stores: Stores, area: str) -> None:
    def locking() -> Iterator[bytes]:
        areas.set_state(stores, area, "LOCKED", ME)
        yield b"x"

    areas.receive_file(stores, IncomingFile(area, "a", "text/plain", locking(), 1, 99), ME)
    assert area_files.get_file(stores, area, "a").status == "CHECKSUMMED"


@pytest.mark.spec("ARE-04")
def test_only_owner_changes_area(stores: Stores, area: str) -> None:
    with pytest.raises(Forbidden):
        areas.set_state(stores, area, "LOCKED", OTHER)
    with pytest.raises(Forbidden):
        areas.delete(stores, area, OTHER)
    with pytest.raises(NotFoundError):
        areas.delete(stores, new_uuid(), ME)
    assert state(stores, area) == "UNLOCKED"


# Removing


@pytest.mark.spec("ARE-08")
@pytest.mark.parametrize("before", ["UNLOCKED", "LOCKED"])
def test_deletes_area_with_all_files(stores: Stores, area: str, drain: Drain, before: str) -> None:
    other = new_uuid()
    areas.create(stores, other, ME)
    put(stores, other, "stays")
    for name in ("a", "deep/er/b", "c.json"):
        put(stores, area, name, b"{}")
    areas.set_state(stores, area, before, ME)
    assert areas.delete(stores, area, ME) == (removal(area),)
    assert areas.find_owned(stores, area, ME).state == "DELETING"
    drain()
    assert (held(stores, area), state(stores, area)) == ([], "DELETED")
    assert len(held(stores, other)) == 1
    with stores.catalog.read() as tx:
        assert rows.count_files(tx, area, "status") == {}
        assert rows.count_files(tx, other, "status") == {"CHECKSUMMED": 1}


@pytest.mark.spec("ARE-08")
def test_deleted_area_is_gone_for_all_and_uuid_is_not_reused(
    stores: Stores, area: str, drain: Drain
) -> None:
    areas.delete(stores, area, ME)
    for caller in (ME, OTHER):
        with pytest.raises(ConflictError) as taken:
            areas.create(stores, area, caller)
        assert taken.value.code == "already_exists"
    with pytest.raises(ConflictError) as going:
        areas.set_state(stores, area, "UNLOCKED", ME)
    assert going.value.code == "area_locked"
    assert areas.delete(stores, area, ME) == ()
    drain()
    for gone in (areas.find_owned, areas.find_writable, areas.delete):
        with pytest.raises(NotFoundError):
            gone(stores, area, ME)
    with pytest.raises(NotFoundError):
        areas.set_state(stores, area, "UNLOCKED", ME)
    with pytest.raises(ConflictError):
        areas.create(stores, area, ME)


@pytest.mark.spec("ARE-08")
def test_aborts_multipart_uploads(stores: Stores, area: str, drain: Drain) -> None:
    upload = stores.areas.upload(keys.area_file_key(area, "a"), part_size=10, content_type="x/y")
    upload.part(1, [b"x" * 10])
    with stores.catalog.write() as tx:
        row = AreaUploadRow("u1", area, "a", upload.token, 20, "x/y", 10)
        rows.insert_upload(tx, row)
        rows.insert_upload(tx, AreaUploadRow("u2", area, "b", "gone", 20, "x/y", 10))
        rows.insert_upload(tx, AreaUploadRow("u3", new_uuid(), "b", "other", 20, "x/y", 10))
    areas.delete(stores, area, ME)
    drain()
    with pytest.raises(NotFoundError):
        upload.part(2, [b"x" * 10])
    with stores.catalog.read() as tx:
        assert rows.list_uploads(tx, area) == []
        assert rows.find_upload(tx, "u3") is not None
    assert state(stores, area) == "DELETED"


@pytest.mark.spec("ARE-09")
def test_last_check_removes_late_files(stores: Stores, area: str, drain: Drain) -> None:
    areas.delete(stores, area, ME)
    drain()
    with stores.catalog.read() as tx:
        assert due(tx, area) > now_us(tx) + DAY_US * 0.7
    # By somebody whose credentials are good for a while.
    stores.areas.put(keys.area_file_key(area, "late"), b"x")
    later(stores, area)
    drain()
    assert held(stores, area) == []
    with stores.catalog.read() as tx:
        assert due(tx, area) == 0


@pytest.mark.spec("ARE-09")
def test_last_check_waits_for_credentials_to_expire(stores: Stores, area: str) -> None:
    with stores.catalog.write() as tx:
        rows.find(tx, area, lock="exclusive")
        rows.record_credentials(tx, area, 3 * 86_400)
        rows.record_credentials(tx, area, 60)
    areas.delete(stores, area, ME)
    with pytest.raises(NotReady) as waits:
        area_uploads.remove_area(stores, claimed(stores, area), lambda _: None)
    assert waits.value.retry_after_s is not None
    assert waits.value.retry_after_s > 3 * 86_400
    assert state(stores, area) == "DELETED"


@pytest.mark.spec("ARE-10")
def test_next_worker_completes_removal(stores: Stores, area: str, drain: Drain) -> None:
    for number in range(5):
        put(stores, area, f"f{number}")
    areas.delete(stores, area, ME)
    beats = iter(range(3))

    def dying(_: int) -> None:
        if next(beats, None) is None:
            raise Unavailable("It died.")

    claim = claimed(stores, area)
    with pytest.raises(Unavailable):
        area_uploads.remove_area(stores, claim, dying)
    assert (len(held(stores, area)), state(stores, area)) == (2, "DELETING")
    with stores.catalog.write() as tx:
        jobs.postpone(tx, claim, delay_s=0, reason="Its lease ran out.")
    drain()
    assert (held(stores, area), state(stores, area)) == ([], "DELETED")


@pytest.mark.spec("ARE-10")
def test_repeated_delete_retries_dead_job(stores: Stores, area: str) -> None:
    areas.delete(stores, area, ME)
    claim = claimed(stores, area)
    with stores.catalog.write() as tx:
        jobs.mark_dead(tx, claim, reason="It died too often.")
    assert areas.delete(stores, area, ME) == (removal(area),)
    claimed(stores, area)


@pytest.mark.spec("ARE-10")
def test_removal_of_undeleted_area_does_nothing(stores: Stores, area: str) -> None:
    put(stores, area, "a")
    with stores.catalog.write() as tx:
        jobs.insert(tx, [removal(area)])
    area_uploads.remove_area(stores, claimed(stores, area), lambda _: None)
    assert (len(held(stores, area)), state(stores, area)) == (1, "UNLOCKED")
    with stores.catalog.read() as tx:
        assert due(tx, area) == 0


@pytest.mark.spec("ARE-09")
def test_checksum_job_ends_with_its_area(stores: Stores, area: str, drain: Drain) -> None:
    for name in ("a", "b.json"):
        stores.areas.put(keys.area_file_key(area, name), b"{}")
        area_files.register_upload(stores, area, name)
    areas.delete(stores, area, ME)
    drain()
    with stores.catalog.read() as tx:
        left = tx.exec_driver_sql("SELECT step FROM todo").scalars().all()
    assert left == ["area_remove"]
    assert held(stores, area) == []


@pytest.mark.spec("ARE-09")
def test_removes_file_reported_during_removal(stores: Stores, area: str, drain: Drain) -> None:
    areas.delete(stores, area, ME)
    stores.areas.put(keys.area_file_key(area, "a"), b"x")
    with pytest.raises(ConflictError):
        area_files.register_upload(stores, area, "a")
    assert held(stores, area) == []
    drain()
    stores.areas.put(keys.area_file_key(area, "a"), b"x")
    with pytest.raises(NotFoundError):
        area_files.register_upload(stores, area, "a")
    assert held(stores, area) == []


@pytest.mark.spec("ARE-09")
def test_concurrent_writers_and_removal_leave_nothing(stores: Stores, drain: Drain) -> None:
    for turn in range(6):
        uuid = new_uuid()
        areas.create(stores, uuid, ME)
        begun = threading.Barrier(5)

        def write(number: int, uuid: str = uuid, begun: threading.Barrier = begun) -> str:
            begun.wait()
            for one in range(8):
                try:
                    put(stores, uuid, f"{number}.{one}")
                except DomainError as error:
                    return error.code
            return ""

        with ThreadPoolExecutor(5) as pool:
            writers = [pool.submit(write, number) for number in range(4)]
            begun.wait()
            if turn % 2:
                while not held(stores, uuid):
                    pass
            areas.delete(stores, uuid, ME)
            drain()
            codes = {writer.result() for writer in writers}
        assert codes <= {"", "area_locked", "not_found"}
        assert state(stores, uuid) == "DELETED"
        assert held(stores, uuid) == []
        with stores.catalog.read() as tx:
            assert rows.count_files(tx, uuid, "status") == {}


@pytest.mark.spec("ARE-01")
def test_concurrent_opens_create_one_area(stores: Stores) -> None:
    def opening(who: str, uuid: str) -> bool | str:
        try:
            return areas.create(stores, uuid, who)
        except ConflictError as error:
            return error.code

    for _ in range(10):
        uuid = new_uuid()
        with ThreadPoolExecutor(4) as pool:
            ends = list(pool.map(opening, (ME, OTHER, ME, OTHER), [uuid] * 4))
        assert ends.count(True) == 1
        assert ends.count("already_exists") == 2
