"""Files uploaded directly to an area's bucket: checksums, checks and metadata."""

import hashlib
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from pipelines import area_files, areas, checksums, ingest
from pipelines.areas import IncomingFile
from pipelines.documents import MAX_FILE_BYTES
from pipelines.flow import LARGE_BYTES, Step
from pipelines.ingest import IngestRequest
from storage import keys
from storage.catalog import areas as rows
from storage.catalog import jobs
from storage.errors import (
    ConflictError,
    DamagedObjectError,
    NotFoundError,
    SourceChanged,
    Unavailable,
)
from storage.model import CHECKSUM_NAMES, FQID, Job, JobClaim
from storage.protocols import BlobInfo, BlobStore
from storage.stores import Stores
from tests.builders import new_uuid, version

ME = "me@example.org"
Drain = Callable[[], int]


@pytest.fixture
def area(stores: Stores) -> str:
    uuid = new_uuid()
    areas.create(stores, uuid, ME)
    return uuid


def incoming(area: str, name: str, data: bytes, kind: str = "text/plain") -> IncomingFile:
    return IncomingFile(area, name, kind, iter([data]), len(data), 2**30)


def put(stores: Stores, area: str, name: str, data: bytes, kind: str = "text/plain") -> Any:
    return areas.receive_file(stores, incoming(area, name, data, kind), ME)


def past_us(stores: Stores, area: str, name: str, data: bytes, **more: Any) -> BlobInfo:
    return stores.areas.put(keys.area_file_key(area, name), data, replace=True, **more)


def came(stores: Stores, area: str, name: str, data: bytes, **said: Any) -> area_files.AreaFileInfo:
    past_us(stores, area, name, data)
    area_files.register_upload(stores, area, name, said)
    return area_files.get_file(stores, area, name)


def claimed(stores: Stores, row: Job, *, most: int = 99) -> JobClaim:
    with stores.catalog.write() as tx:
        claim = jobs.claim(tx, row, token=new_uuid(), lease_s=60, max_claims=most)
    assert claim is not None
    return claim


def opened(stores: Stores) -> list[Job]:
    with stores.catalog.write() as tx:
        found = [jobs.take_due(tx, step, limit=9, resend=True) for step in Step]
    return [row for few in found for row, *_ in few]


def sums_of(data: bytes) -> dict[str, str]:
    hashed = checksums.compute_checksums([data], len(data)).checksums
    return {name: getattr(hashed, name) for name in CHECKSUM_NAMES}


class Acting:
    """A bucket in which something happens before a verb of it does its work."""

    def __init__(self, inner: BlobStore, verb: str, act: Callable[[], Any]) -> None:
        self._inner, self._verb, self._act = inner, verb, act

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._inner, name)
        if name != self._verb:
            return verb

        def acting(*given: Any, **more: Any) -> Any:
            self._act()
            return verb(*given, **more)

        return acting


def with_areas(stores: Stores, verb: str, act: Callable[[], Any]) -> Stores:
    bucket: Any = Acting(stores.areas, verb, act)
    return replace(stores, areas=bucket)


# What comes through us


@pytest.mark.spec("ARE-11")
def test_api_upload_is_checksummed_at_once(stores: Stores, area: str) -> None:
    received = put(stores, area, "a.txt", b"abc")
    found = area_files.get_file(stores, area, "a.txt")
    assert (found.status, found.validation, received.jobs) == ("CHECKSUMMED", "VALIDATED", ())
    assert found.checksums == received.checksums
    assert found.checksums.sha256 == hashlib.sha256(b"abc").hexdigest()
    assert opened(stores) == []


@pytest.mark.spec("ARE-11")
def test_api_upload_of_json_is_validated(stores: Stores, area: str, drain: Drain) -> None:
    kinds = (("a.json", "text/plain"), ("b", "Application/JSON; x=1"), ("C.JSON", "x/y"))
    for name, kind in kinds:
        put(stores, area, name, b'{"a": 1}', kind)
        put(stores, area, f"bad/{name}", b'{"a": ', kind)
        assert area_files.get_file(stores, area, name).validation == "VALIDATING"
    drain()
    for name in ("a.json", "b", "C.JSON"):
        assert area_files.get_file(stores, area, name).validation == "VALIDATED"
        bad = area_files.get_file(stores, area, f"bad/{name}")
        assert (bad.status, bad.validation) == ("CHECKSUMMED", "INVALID")
        assert "not JSON" in str(bad.cause)


@pytest.mark.spec("ARE-19")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"NaN", "NaN"),
        (b"[" * 200 + b"]" * 200, "deeper than 100"),
        (b'"\xff"', "not UTF-8"),
        (b"", "not JSON"),
    ],
)
def test_json_has_limits_of_documents(
    stores: Stores, area: str, drain: Drain, content: bytes, said: str
) -> None:
    came(stores, area, "a.json", content)
    drain()
    found = area_files.get_file(stores, area, "a.json")
    assert (found.status, found.validation) == ("CHECKSUMMED", "INVALID")
    assert said in str(found.cause)


@pytest.mark.spec("ARE-19")
def test_json_that_is_too_large_is_invalid_without_being_parsed(
    stores: Stores, area: str, drain: Drain
) -> None:
    came(stores, area, "a.json", b" " * (MAX_FILE_BYTES + 1))
    put(stores, area, "b.json", b" " * (MAX_FILE_BYTES + 1))
    drain()
    for name in ("a.json", "b.json"):
        found = area_files.get_file(stores, area, name)
        assert (found.status, found.validation) == ("CHECKSUMMED", "INVALID")
        assert "too large" in str(found.cause)


# What comes past us


@pytest.mark.spec("ARE-13")
def test_direct_upload_is_unscheduled_until_reported(
    stores: Stores, area: str, drain: Drain
) -> None:
    past_us(stores, area, "a.txt", b"abc", content_type="text/plain")
    found = area_files.get_file(stores, area, "a.txt")
    assert (found.status, found.validation, found.checksums) == ("UNSCHEDULED",) * 2 + (None,)
    arrived = area_files.register_upload(stores, area, "a.txt")
    assert arrived.status == "SCHEDULED"
    assert [row.step for row in arrived.jobs] == [Step.AREA_CHECKSUM]
    assert area_files.get_file(stores, area, "a.txt").status == "SCHEDULED"
    drain()
    found = area_files.get_file(stores, area, "a.txt")
    assert (found.status, found.validation) == ("CHECKSUMMED", "VALIDATED")
    assert sums_of(b"abc") == {name: getattr(found.checksums, name) for name in CHECKSUM_NAMES}


@pytest.mark.spec("ARE-13")
def test_checksummed_file_is_a_source(stores: Stores, area: str, drain: Drain) -> None:
    came(stores, area, "a.txt", b"abc")
    drain()
    url = stores.areas.direct_url(keys.area_file_key(area, "a.txt"))
    new = IngestRequest(FQID(new_uuid(), version()), "aws", url, 1)
    task = ingest.start_task(stores, new, ME).task_id
    drain()
    assert task is not None
    assert ingest.get_task(stores, task).state == "SUCCEEDED"


@pytest.mark.spec("ARU-47")
def test_keeps_metadata_of_objects(stores: Stores, area: str) -> None:
    came(stores, area, "a.txt", b"abc")
    with stores.catalog.write() as tx:
        row = rows.find_file(tx, area, "a.txt")
        assert row is not None
        rows.update_file(tx, replace(row, content_type="a\0b", cause="half \ud800 of a pair"))
        told = rows.find_file(tx, area, "a.txt")
    assert told is not None
    assert (told.content_type, told.cause) == ("a\ufffdb", "half ? of a pair")


@pytest.mark.spec("ARE-16")
def test_large_files_use_a_separate_queue(stores: Stores, area: str) -> None:
    file = rows.AreaFile(area, "a", "p", LARGE_BYTES, "x/y", "SCHEDULED", "VALIDATING")
    assert area_files.checksum_job(file).step == Step.AREA_CHECKSUM_LARGE
    assert area_files.checksum_job(replace(file, size=LARGE_BYTES - 1)).step == Step.AREA_CHECKSUM


@pytest.mark.spec("ARE-14")
def test_reporting_absent_file_is_not_found(stores: Stores, area: str) -> None:
    with pytest.raises(NotFoundError):
        area_files.register_upload(stores, area, "none")
    with pytest.raises(NotFoundError):
        area_files.get_file(stores, area, "none")
    assert area_files.count_files(stores, area, "status") == {}


@pytest.mark.spec("ARE-18")
@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ({"size": 4}, "has 3 bytes and not 4"),
        ({"content_type": "x/y"}, "is application/octet-stream and not x/y"),
        ({"checksums": {"crc32c": "00000000"}}, "crc32c was declared as 00000000 but is"),
        ({"checksums": {"s3_etag": "0" * 32 + "-1"}}, "s3_etag was declared"),
    ],
)
def test_mismatching_file_is_invalid_and_no_source(
    stores: Stores, area: str, drain: Drain, said: dict[str, Any], cause: str
) -> None:
    came(stores, area, "a.txt", b"abc", **said)
    drain()
    found = area_files.get_file(stores, area, "a.txt")
    assert (found.status, found.validation) == ("CHECKSUMMED", "INVALID")
    assert cause in str(found.cause)
    assert "store-sha256" not in stores.areas.head(keys.area_file_key(area, "a.txt")).metadata


@pytest.mark.spec("ARE-18")
def test_matching_file_is_valid(stores: Stores, area: str, drain: Drain) -> None:
    said = {"size": 3, "content_type": "application/octet-stream", "checksums": sums_of(b"abc")}
    came(stores, area, "a.txt", b"abc", **said)
    drain()
    assert area_files.get_file(stores, area, "a.txt").validation == "VALIDATED"


@pytest.mark.spec("ARE-18")
def test_compares_checksums_in_object_metadata(stores: Stores, area: str, drain: Drain) -> None:
    right, wrong = sums_of(b"abc")["sha1"].upper(), "0" * 40
    past_us(stores, area, "good", b"abc", metadata={"store-sha1": right, "own": "1"})
    past_us(stores, area, "bad", b"abc", metadata={"store-sha1": wrong})
    for name in ("good", "bad"):
        area_files.register_upload(stores, area, name)
    drain()
    assert area_files.get_file(stores, area, "good").validation == "VALIDATED"
    metadata = stores.areas.head(keys.area_file_key(area, "good")).metadata
    assert metadata["own"] == "1"
    assert metadata["store-sha1"] == right.lower()
    assert area_files.get_file(stores, area, "bad").validation == "INVALID"
    assert stores.areas.head(keys.area_file_key(area, "bad")).metadata == {"store-sha1": wrong}


@pytest.mark.spec("ARE-18")
def test_accepts_either_etag_at_64_mb(stores: Stores, area: str, drain: Drain) -> None:
    data = bytes(64 * 1024 * 1024)
    plain = hashlib.md5(data).hexdigest()
    past_us(stores, area, "a", data, metadata={"store-s3_etag": plain})
    area_files.register_upload(stores, area, "a", {"checksums": {"s3_etag": plain}})
    drain()
    found = area_files.get_file(stores, area, "a")
    assert (found.validation, found.checksums.s3_etag) == ("VALIDATED", plain)  # type: ignore[union-attr]


# Again, and at once


@pytest.mark.spec("ARE-15")
def test_repeated_report_changes_nothing_and_other_report_does(
    stores: Stores, area: str, drain: Drain
) -> None:
    came(stores, area, "a.txt", b"abc", size=3)
    assert area_files.register_upload(
        stores, area, "a.txt", {"size": 3}
    ) == area_files.RegisteredUpload("SCHEDULED")
    drain()
    again = area_files.register_upload(stores, area, "a.txt", {"size": 3})
    assert again == area_files.RegisteredUpload("CHECKSUMMED")
    assert area_files.register_upload(stores, area, "a.txt", {"size": 4}).status == "SCHEDULED"
    drain()
    assert area_files.get_file(stores, area, "a.txt").validation == "INVALID"


@pytest.mark.spec("ARE-15")
def test_repeated_report_retries_dead_job(stores: Stores, area: str) -> None:
    came(stores, area, "a.txt", b"abc")
    (row,) = opened(stores)
    with stores.catalog.write() as tx:
        jobs.mark_dead(tx, claimed_in(tx, row), reason="It died too often.")
    assert opened(stores) == []
    assert area_files.register_upload(stores, area, "a.txt").jobs == (row,)
    assert opened(stores) == [row]


def claimed_in(tx: Any, row: Job) -> JobClaim:
    claim = jobs.claim(tx, row, token="t", lease_s=60, max_claims=9)
    assert claim is not None
    return claim


@pytest.mark.spec("ARE-12")
def test_replaced_file_is_unscheduled_again(stores: Stores, area: str, drain: Drain) -> None:
    came(stores, area, "a.txt", b"abc")
    drain()
    past_us(stores, area, "a.txt", b"longer")
    assert area_files.get_file(stores, area, "a.txt").status == "UNSCHEDULED"
    (listed,) = area_files.list_files(stores, area, "", 9)
    assert (listed.status, listed.size, listed.checksums) == ("UNSCHEDULED", 6, None)
    assert area_files.register_upload(stores, area, "a.txt").status == "SCHEDULED"


@pytest.mark.spec("ARE-12")
def test_stale_worker_does_not_overwrite_newer_result(
    stores: Stores, area: str, drain: Drain
) -> None:
    came(stores, area, "a.txt", b"old")
    (row,) = opened(stores)
    claim = claimed(stores, row)
    replaced = with_areas(stores, "write_metadata", lambda: put(stores, area, "a.txt", b"newer"))
    with suppress(SourceChanged):
        area_files.check_file(replaced, claim, lambda _: None)
    drain()
    found = area_files.get_file(stores, area, "a.txt")
    assert (found.status, found.size) == ("CHECKSUMMED", 5)
    assert found.checksums.sha256 == hashlib.sha256(b"newer").hexdigest()  # type: ignore[union-attr]
    metadata = stores.areas.head(keys.area_file_key(area, "a.txt")).metadata
    assert metadata["store-sha256"] == hashlib.sha256(b"newer").hexdigest()


@pytest.mark.spec("ARE-12")
def test_late_completion_leaves_newer_file(stores: Stores, area: str) -> None:
    came(stores, area, "a.txt", b"old")
    (row,) = opened(stores)
    claim = claimed(stores, row)
    sent: list[int] = []

    def replacing(_: int) -> None:
        if not sent:
            sent.append(1)
            put(stores, area, "a.txt", b"newer")

    with suppress(SourceChanged):
        area_files.check_file(stores, claim, replacing)
    found = area_files.get_file(stores, area, "a.txt")
    assert (found.status, found.size) == ("CHECKSUMMED", 5)


@pytest.mark.spec("ARE-12")
def test_concurrent_uploads_of_one_name_validate_the_final_file(
    stores: Stores, area: str, drain: Drain
) -> None:
    # The second object is stored first, and the other is recorded last.
    def inside() -> Iterator[bytes]:
        yield b"first"
        put(stores, area, "a.txt", b"second")

    slow = replace(incoming(area, "a.txt", b"first"), blocks=inside())
    received = areas.receive_file(stores, slow, ME)
    assert [row.step for row in received.jobs] == [Step.AREA_CHECKSUM]
    drain()
    found = area_files.get_file(stores, area, "a.txt")
    lying = b"".join(stores.areas.read(keys.area_file_key(area, "a.txt")))
    assert found.checksums.sha256 == hashlib.sha256(lying).hexdigest()  # type: ignore[union-attr]
    assert found.status == "CHECKSUMMED"


@pytest.mark.spec("ARE-17")
def test_a_file_that_keeps_changing_is_failed_after_some_tries(stores: Stores, area: str) -> None:
    came(stores, area, "a.txt", b"0")
    (row,) = opened(stores)
    changing = with_areas(stores, "write_metadata", lambda: past_us(stores, area, "a.txt", b"1"))
    for attempt in range(1, area_files.MAX_CHANGED_ATTEMPTS + 1):
        claim = replace(claimed(stores, row), attempts=attempt)
        if attempt < area_files.MAX_CHANGED_ATTEMPTS:
            with pytest.raises(SourceChanged):
                area_files.check_file(changing, claim, lambda _: None)
            with stores.catalog.write() as tx:
                jobs.postpone(tx, claim, delay_s=0, reason="It changed.")
        else:
            area_files.check_file(changing, claim, lambda _: None)
    with stores.catalog.read() as tx:
        found = rows.find_file(tx, area, "a.txt")
    assert found is not None
    assert (found.status, found.validation) == ("FAILED", "INVALID")
    told = area_files.get_file(stores, area, "a.txt")
    assert (told.status, told.cause) == ("FAILED", found.cause), "whoever asks is told of it"


@pytest.mark.spec("ARE-15", "ARE-17")
def test_vanished_file_is_failed_and_may_return(stores: Stores, area: str, drain: Drain) -> None:
    came(stores, area, "a.txt", b"abc")
    stores.areas.delete(keys.area_file_key(area, "a.txt"))
    drain()
    with stores.catalog.read() as tx:
        found = rows.find_file(tx, area, "a.txt")
    assert found is not None
    assert (found.status, found.cause) == ("FAILED", "The file was deleted from the area.")
    assert came(stores, area, "a.txt", b"abc").status == "SCHEDULED"
    drain()
    assert area_files.get_file(stores, area, "a.txt").status == "CHECKSUMMED"


@pytest.mark.spec("ARE-16")
def test_a_bucket_that_is_away_is_waited_for(stores: Stores, area: str) -> None:
    came(stores, area, "a.txt", b"abc")
    (row,) = opened(stores)

    def away() -> None:
        raise Unavailable("The bucket is away.")

    with pytest.raises(Unavailable):
        area_files.check_file(
            with_areas(stores, "head", away), claimed(stores, row), lambda _: None
        )
    assert area_files.get_file(stores, area, "a.txt").status == "CHECKSUMMING"


@pytest.mark.spec("ARE-17")
def test_damaged_file_fails_without_endless_retries(stores: Stores, area: str) -> None:
    came(stores, area, "a.txt", b"abc")
    (row,) = opened(stores)

    def damaged() -> None:
        raise DamagedObjectError("An object's file is damaged.")

    area_files.check_file(with_areas(stores, "read", damaged), claimed(stores, row), lambda _: None)
    assert area_files.get_file(stores, area, "a.txt").status == "FAILED"
    assert opened(stores) == []


@pytest.mark.spec("ARE-16")
@pytest.mark.parametrize("verb", ["read", "write_metadata"])
def test_next_worker_completes_after_crash_anywhere(
    stores: Stores, area: str, drain: Drain, verb: str
) -> None:
    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    came(stores, area, "a.json", b"{}")
    (row,) = opened(stores)
    claim = claimed(stores, row)
    with pytest.raises(Killed):
        area_files.check_file(with_areas(stores, verb, die), claim, lambda _: None)
    with stores.catalog.write() as tx:
        jobs.postpone(tx, claim, delay_s=0, reason="Its lease ran out.")
    drain()
    found = area_files.get_file(stores, area, "a.json")
    assert (found.status, found.validation) == ("CHECKSUMMED", "VALIDATED")


@pytest.mark.spec("ARE-16")
def test_the_lease_is_renewed_as_the_bytes_move(stores: Stores, area: str) -> None:
    came(stores, area, "a.txt", b"x" * (3 * 1024 * 1024))
    (row,) = opened(stores)
    moved: list[int] = []
    area_files.check_file(stores, claimed(stores, row), moved.append)
    assert sum(moved) == 3 * 1024 * 1024


@pytest.mark.spec("ARU-44")
def test_parses_large_json_one_at_a_time_and_renews_leases(stores: Stores, area: str) -> None:
    put(stores, area, "a.json", b"[" + b" " * area_files.SERIAL_PARSE_BYTES + b"]")
    (row,) = opened(stores)
    waited: list[int] = []

    def beat(moved: int) -> None:
        if moved == 0 and not waited:
            waited.append(moved)
            area_files.PARSE_LOCK.release()

    area_files.PARSE_LOCK.acquire()
    area_files.check_file(stores, claimed(stores, row), beat)
    assert waited == [0]
    assert area_files.get_file(stores, area, "a.json").validation == "VALIDATED"
    assert not area_files.PARSE_LOCK.locked()


# Lists


def test_holds_one_copy_of_the_json_that_is_parsed(
    stores: Stores, area: str, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    parse = area_files.parse_metadata

    def measure(content: bytes) -> Any:
        held.append(tracemalloc.get_traced_memory()[0])
        return parse(content)

    monkeypatch.setattr(area_files, "parse_metadata", measure)
    size = 8 * 1024 * 1024
    past_us(stores, area, "a.json", b'"%b"' % (b"x" * (size - 2)))
    area_files.register_upload(stores, area, "a.json", {})
    tracemalloc.start()
    try:
        drain()
    finally:
        tracemalloc.stop()
    assert size <= held[0] < 1.5 * size


@pytest.mark.spec("ARU-43")
def test_listing_shows_no_status_of_replaced_bytes(stores: Stores, area: str) -> None:
    put(stores, area, "a.txt", b"abc")
    past_us(stores, area, "a.txt", b"xyz")
    (listed,) = area_files.list_files(stores, area, "", 9)
    assert (listed.status, listed.checksums) == ("UNSCHEDULED", None)


@pytest.mark.spec("ARE-06")
def test_files_are_listed_by_name_from_one_on(stores: Stores, area: str, drain: Drain) -> None:
    for name in ("b", "a/c", "é", "Z", "a-b", "a.json"):
        put(stores, area, name, b"{}")
    past_us(stores, area, "a", b"unsaid")
    drain()
    names = sorted(("b", "a/c", "é", "Z", "a-b", "a.json", "a"), key=str.encode)
    found = area_files.list_files(stores, area, "", 99)
    assert [file.name for file in found] == names
    assert {file.status for file in found if file.name != "a"} == {"CHECKSUMMED"}
    assert next(file.status for file in found if file.name == "a") == "UNSCHEDULED"
    for place, name in enumerate(names):
        later = area_files.list_files(stores, area, name, 2)
        assert [file.name for file in later] == names[place + 1 : place + 3]


@pytest.mark.spec("ARE-06")
def test_a_row_without_an_object_is_not_listed(stores: Stores, area: str) -> None:
    put(stores, area, "a", b"1")
    put(stores, area, "b", b"1")
    stores.areas.delete(keys.area_file_key(area, "a"))
    assert [file.name for file in area_files.list_files(stores, area, "", 9)] == ["b"]


@pytest.mark.spec("ARE-20")
def test_files_are_counted_by_their_states(stores: Stores, area: str, drain: Drain) -> None:
    put(stores, area, "a", b"1")
    came(stores, area, "b", b"1", size=9)
    assert area_files.count_files(stores, area, "status") == {"CHECKSUMMED": 1, "SCHEDULED": 1}
    drain()
    assert area_files.count_files(stores, area, "status") == {"CHECKSUMMED": 2}
    assert area_files.count_files(stores, area, "validation") == {"VALIDATED": 1, "INVALID": 1}


@pytest.mark.spec("ARE-09")
def test_removes_file_that_arrives_in_deleted_area(stores: Stores, area: str, drain: Drain) -> None:
    def deleting() -> Iterator[bytes]:
        yield b"late"
        areas.delete(stores, area, ME)

    slow = replace(incoming(area, "a.txt", b"late"), blocks=deleting())
    with pytest.raises(ConflictError) as refused:
        areas.receive_file(stores, slow, ME)
    assert refused.value.code == "area_locked"
    assert list(stores.areas.list(keys.area_prefix(area))) == []
