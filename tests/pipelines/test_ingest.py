"""Ingest: from an upload area to a published file, or to nothing."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pipelines import areas, checksums, files, flow, ingest
from pipelines.ingest import AcceptedIngest, IngestRequest
from storage import keys
from storage.blobs.sources import SourceSettings, UrlSources
from storage.catalog import Catalog, Tx, jobs
from storage.errors import (
    ConflictError,
    DomainError,
    Forbidden,
    Invalid,
    NotFoundError,
    Unavailable,
    Unprocessable,
)
from storage.model import CHECKSUM_NAMES, FQID, REPLICAS, Job, JobClaim, Replica
from storage.stores import Stores
from tests.builders import build_stores, make_file, new_uuid, version
from tests.waiting import PATIENCE_S

OWNER = "depositor@example.org"
AREA = "11111111-2222-4333-8444-555555555555"
MB = 1024 * 1024


@pytest.fixture
def small_stores(tmp_path: Path, catalog: Catalog) -> Stores:
    stores = build_stores(tmp_path, catalog)
    areas.create(stores, AREA, OWNER)
    return stores


def stage(
    stores: Stores, content: bytes, *, name: str = "a.txt", lies: dict[str, str] | None = None
) -> str:
    """A staged object and its URL; `lies` replace what is declared of it."""
    hashed = checksums.compute_checksums([content], len(content)).checksums
    declared = {f"store-{field}": getattr(hashed, field) for field in CHECKSUM_NAMES}
    metadata = {key: value for key, value in {**declared, **(lies or {})}.items() if value}
    key = keys.area_file_key(AREA, name)
    stores.areas.put(key, content, content_type="text/plain; charset=utf-8", metadata=metadata)
    return stores.areas.direct_url(key)


def deposit(stores: Stores, url: str, fqid: FQID | None = None, **more: Any) -> AcceptedIngest:
    new = IngestRequest(fqid or FQID(new_uuid(), version()), "aws", url, more.pop("creator_uid", 8))
    return ingest.start_task(stores, new, more.pop("author", OWNER))


def claimed(stores: Stores, row: Job) -> JobClaim:
    with stores.catalog.write() as tx:
        claim = jobs.claim(tx, row, token="t", lease_s=60, max_claims=5)
    assert claim is not None
    return claim


def run(stores: Stores, accepted: AcceptedIngest) -> tuple[Job, ...]:
    return ingest.verify(stores, claimed(stores, accepted.jobs[0]), lambda _n: None)


def blobs_of(stores: Stores) -> list[str]:
    return [info.key for info in stores.replicas["aws"].list("")]


@pytest.mark.spec("FIL-15")
@pytest.mark.parametrize("size", [0, 1, 5 * MB, 9 * MB, 64 * MB, 64 * MB + 1])
def test_a_file_that_is_as_declared_becomes_visible(small_stores: Stores, size: int) -> None:
    content = Random(size).randbytes(size)
    accepted = deposit(small_stores, stage(small_stores, content))
    step = flow.Step.VERIFY_LARGE if size >= 64 * MB else flow.Step.VERIFY
    assert [row.step for row in accepted.jobs] == [step]
    follow = run(small_stores, accepted)
    located = files.locate(small_stores, "aws", accepted.fqid.uuid, None)
    assert located.state == "here"
    assert located.file is not None
    assert located.file.size == size
    assert located.file.content_type == "text/plain; charset=utf-8"
    kept = small_stores.replicas["aws"].read(keys.blob_key(located.file.checksums.sha256))
    assert b"".join(kept) == content
    assert [(row.replica, row.ref) for row in follow] == [("gcp", f"file:{accepted.fqid}")]
    assert accepted.task_id is not None
    done = ingest.get_task(small_stores, accepted.task_id)
    assert (done.state, done.bytes_done) == ("SUCCEEDED", size)


@pytest.mark.spec("FIL-12", "FIL-26", "FIL-32", "ERR-36")
@pytest.mark.parametrize("field", ["sha1", "sha256", "crc32c", "s3_etag"])
@pytest.mark.parametrize("size", [10, 9 * MB])
def test_false_declaration_fails_task_and_leaves_nothing(
    small_stores: Stores, field: str, size: int
) -> None:
    truth = checksums.compute_checksums([bytes(size)], size).checksums
    lie = "0" * len(getattr(truth, field))
    url = stage(small_stores, bytes(size), lies={f"store-{field}": lie})
    accepted = deposit(small_stores, url)
    assert run(small_stores, accepted) == ()
    assert accepted.task_id is not None
    task = ingest.get_task(small_stores, accepted.task_id)
    assert task.state == "FAILED"
    assert task.cause is not None
    assert task.cause["field"] == field
    assert task.cause["declared"] == lie
    assert task.cause["computed"] == getattr(truth, field)
    assert blobs_of(small_stores) == []
    with pytest.raises(Unprocessable) as named:
        files.locate(small_stores, "aws", accepted.fqid.uuid, accepted.fqid.version)
    assert named.value.code == "checksum_mismatch"
    with pytest.raises(NotFoundError):
        files.locate(small_stores, "aws", accepted.fqid.uuid, None)


def refused(stores: Stores, url: str, replica: Replica) -> str:
    """The code of the failure of a deposit that has to fail."""
    new = IngestRequest(FQID(new_uuid(), version()), replica, url, 8)
    accepted = ingest.start_task(stores, new, OWNER)
    assert run(stores, accepted) == ()
    assert accepted.task_id is not None
    task = ingest.get_task(stores, accepted.task_id)
    assert task.state == "FAILED"
    assert task.cause is not None
    return str(task.cause["code"])


def bucket_contents(stores: Stores) -> dict[tuple[Replica, str], tuple[str, bytes]]:
    """Pin and bytes of every object of both replicas."""
    return {
        (replica, info.key): (info.pin, b"".join(blobs.read(info.key)))
        for replica, blobs in stores.replicas.items()
        for info in blobs.list("")
    }


@pytest.mark.parametrize("replica", REPLICAS)
@pytest.mark.parametrize("size", [10, 9 * MB])
@pytest.mark.parametrize("field", ["sha1", "crc32c", "s3_etag"])
def test_refused_deposit_with_wrong_checksum_leaves_stored_blob(
    small_stores: Stores, field: str, size: int, replica: Replica
) -> None:
    make_file(small_stores, bytes(size), everywhere=True)
    before = bucket_contents(small_stores)
    lie = "0" * len(getattr(checksums.compute_checksums([bytes(size)], size).checksums, field))
    url = stage(small_stores, bytes(size), lies={f"store-{field}": lie})
    assert refused(small_stores, url, replica) == "checksum_mismatch"
    assert bucket_contents(small_stores) == before


@pytest.mark.parametrize("replica", REPLICAS)
@pytest.mark.parametrize("victim", [10, 9 * MB])
@pytest.mark.parametrize("size", [0, 10, 11, 9 * MB])
def test_refused_deposit_of_other_bytes_leaves_stored_blob(
    small_stores: Stores, victim: int, size: int, replica: Replica
) -> None:
    make_file(small_stores, bytes(victim), everywhere=True)
    before = bucket_contents(small_stores)
    sha256 = checksums.compute_checksums([bytes(victim)], victim).checksums.sha256
    url = stage(small_stores, b"x" * size, lies={"store-sha256": sha256})
    assert refused(small_stores, url, replica) == "checksum_mismatch"
    assert bucket_contents(small_stores) == before


@pytest.mark.parametrize("victim", [10, 9 * MB])
def test_refused_deposit_leaves_damaged_blob_as_it_is(small_stores: Stores, victim: int) -> None:
    sums = checksums.compute_checksums([bytes(victim)], victim).checksums
    small_stores.replicas["aws"].put(keys.blob_key(sums.sha256), b"damaged")
    before = bucket_contents(small_stores)
    url = stage(small_stores, b"other bytes", lies={"store-sha256": sums.sha256})
    assert refused(small_stores, url, "aws") == "checksum_mismatch"
    assert bucket_contents(small_stores) == before


@pytest.mark.parametrize("size", [10, 9 * MB])
@pytest.mark.parametrize("damage", [0, 5, 20])
def test_deposit_replaces_damaged_blob_by_verified_bytes(
    small_stores: Stores, size: int, damage: int
) -> None:
    sums = checksums.compute_checksums([bytes(size)], size).checksums
    small_stores.replicas["aws"].put(keys.blob_key(sums.sha256), b"x" * damage)
    run(small_stores, deposit(small_stores, stage(small_stores, bytes(size))))
    assert b"".join(small_stores.replicas["aws"].read(keys.blob_key(sums.sha256))) == bytes(size)


@pytest.mark.spec("FIL-32")
@pytest.mark.parametrize("replica", REPLICAS)
def test_failure_wakes_waiting_requests(small_stores: Stores, replica: Replica) -> None:
    accepted = deposit(small_stores, stage(small_stores, b"abc", lies={"store-sha1": "0" * 40}))
    with small_stores.pubsub.listen(flow.file_topic(replica, accepted.fqid)) as listening:
        run(small_stores, accepted)
        assert listening.wait(PATIENCE_S)


@pytest.mark.spec("FIL-22")
def test_a_failed_version_may_be_deposited_again(small_stores: Stores) -> None:
    bad = stage(small_stores, b"abc", name="bad", lies={"store-sha1": "0" * 40})
    first = deposit(small_stores, bad)
    run(small_stores, first)
    second = deposit(small_stores, stage(small_stores, b"abc", name="good"), first.fqid)
    run(small_stores, second)
    assert files.locate(small_stores, "aws", first.fqid.uuid, first.fqid.version).state == "here"


@pytest.mark.spec("FIL-03", "FIL-05")
def test_same_file_from_other_source_is_the_same(small_stores: Stores) -> None:
    first = deposit(small_stores, stage(small_stores, b"abc"))
    run(small_stores, first)
    again = deposit(small_stores, stage(small_stores, b"abc", name="other"), first.fqid)
    assert again.task_id is None
    assert again.jobs == ()


@pytest.mark.spec("FIL-04")
def test_other_content_is_a_conflict(small_stores: Stores) -> None:
    first = deposit(small_stores, stage(small_stores, b"abc"))
    other = stage(small_stores, b"xyz", name="other")
    with pytest.raises(ConflictError) as pending:
        deposit(small_stores, other, first.fqid)
    assert pending.value.code == "file_pending"
    run(small_stores, first)
    with pytest.raises(ConflictError) as stored:
        deposit(small_stores, other, first.fqid)
    assert stored.value.code == "file_already_exists"
    with pytest.raises(ConflictError):
        deposit(small_stores, stage(small_stores, b"abc", name="c"), first.fqid, creator_uid=9)


@pytest.mark.spec("FIL-03")
def test_an_open_task_is_joined(small_stores: Stores) -> None:
    url = stage(small_stores, b"abc")
    first = deposit(small_stores, url)
    second = deposit(small_stores, url, first.fqid)
    assert second.task_id == first.task_id


@pytest.mark.spec("FIL-13")
def test_a_source_that_changes_before_it_is_read_fails(small_stores: Stores) -> None:
    accepted = deposit(small_stores, stage(small_stores, b"abc"))
    small_stores.areas.delete(keys.area_file_key(AREA, "a.txt"))
    stage(small_stores, b"abc")
    run(small_stores, accepted)
    assert accepted.task_id is not None
    assert ingest.get_task(small_stores, accepted.task_id).state == "FAILED"
    assert blobs_of(small_stores) == []


@pytest.mark.spec("FIL-16")
def test_equal_bytes_are_stored_once(small_stores: Stores) -> None:
    for name in ("a", "b"):
        run(small_stores, deposit(small_stores, stage(small_stores, b"abc", name=name)))
    assert sum(key.startswith("blobs/") for key in blobs_of(small_stores)) == 1
    assert sum(key.startswith("files/") for key in blobs_of(small_stores)) == 2


def test_verification_is_idempotent(small_stores: Stores) -> None:
    accepted = deposit(small_stores, stage(small_stores, b"abc"))
    run(small_stores, accepted)
    with small_stores.catalog.write() as tx:
        jobs.insert(tx, accepted.jobs)
    assert run(small_stores, accepted) == ()
    assert files.locate(small_stores, "aws", accepted.fqid.uuid, None).state == "here"


@pytest.mark.spec("FIL-09")
@pytest.mark.parametrize(
    ("lies", "code"),
    [
        ({"store-sha1": ""}, "missing_checksum"),
        ({"store-crc32c": "xyz"}, "invalid_checksum"),
        ({"store-sha256": "ab"}, "invalid_checksum"),
    ],
)
def test_missing_and_malformed_checksums_are_refused(
    small_stores: Stores, lies: dict[str, str], code: str
) -> None:
    with pytest.raises(Unprocessable) as refused:
        deposit(small_stores, stage(small_stores, b"abc", lies=lies))
    assert refused.value.code == code


def _absent(stores: Stores) -> str:
    return stores.areas.direct_url(keys.area_file_key(AREA, "absent"))


def _no_area(stores: Stores) -> str:
    return stores.areas.direct_url(keys.area_file_key(new_uuid(), "absent"))


def _own(stores: Stores) -> str:
    return stores.replicas["aws"].direct_url(keys.blob_key("0" * 64))


@pytest.mark.spec("FIL-20")
@pytest.mark.parametrize(
    ("url", "error"),
    [(_absent, Unprocessable), (_no_area, Unprocessable), (_own, Forbidden)],
    ids=["absent", "no area", "own bucket"],
)
def test_sources_that_cannot_be(
    small_stores: Stores, url: Callable[[Stores], str], error: type[DomainError]
) -> None:
    with pytest.raises(error):
        deposit(small_stores, url(small_stores))


@pytest.mark.spec("FIL-20")
def test_rejects_other_owners_area_as_source(small_stores: Stores) -> None:
    url = stage(small_stores, b"abc")
    with pytest.raises(Forbidden):
        deposit(small_stores, url, author="thief@example.org")


@pytest.mark.spec("FIL-14")
@pytest.mark.parametrize("content_type", ["日本/x", "a/b\r\nX-Evil: 1", "\ud800", "\0", "x" * 2000])
def test_rejects_content_types_that_headers_cannot_carry(
    small_stores: Stores, tmp_path: Path, content_type: str
) -> None:
    declared = checksums.compute_checksums([b"abc"], 3).checksums
    described = {f"store-{field}": getattr(declared, field) for field in CHECKSUM_NAMES}
    root = tmp_path / "staging"
    root.mkdir()
    (root / "a").write_bytes(b"abc")
    sidecar = json.dumps({"content-type": content_type, **described})
    (root / "a.store.json").write_text(sidecar)
    sources = UrlSources(SourceSettings(areas=small_stores.areas, staging_roots=(str(root),)))
    with pytest.raises(Invalid):
        deposit(replace(small_stores, sources=sources), (root / "a").as_uri())


def test_repeated_deposit_retries_dead_job(
    small_stores: Stores,
) -> None:
    url, fqid = stage(small_stores, b"abc"), FQID(new_uuid(), version())
    first = deposit(small_stores, url, fqid)
    with small_stores.catalog.write() as tx:
        jobs.mark_dead(tx, todo_claim(tx, first.jobs[0]), reason="damaged")
    again = deposit(small_stores, url, fqid)
    assert (again.task_id, again.jobs) == (first.task_id, first.jobs)
    assert deposit(small_stores, url, fqid).jobs == (), "it is on its way"
    assert run(small_stores, again)


def todo_claim(tx: Tx, row: Job) -> JobClaim:
    held = jobs.claim(tx, row, token="t", lease_s=60, max_claims=5)
    assert held is not None
    return held


class AwaySources:
    """Sources whose objects are described, and then cannot be read."""

    def __init__(self, inner: Any, area: bool) -> None:
        self._inner, self._area = inner, area

    def open(self, url: str) -> Any:
        return self

    def head(self) -> Any:
        raise AssertionError("only read")

    def read(self, pin: str, start: int = 0, length: int | None = None) -> Any:
        raise Unavailable("the bucket does not answer")
        yield b""

    def resolve_area_key(self, url: str) -> str | None:
        return "areas/x" if self._area else None


@pytest.mark.spec("FIL-21")
@pytest.mark.parametrize("size", [3, 9 * MB])
def test_a_source_that_stays_away_fails_in_the_end(small_stores: Stores, size: int) -> None:
    accepted = deposit(small_stores, stage(small_stores, bytes(size)))
    away: Any = AwaySources(small_stores.sources, area=False)
    elsewhere = replace(small_stores, sources=away)
    for _ in range(ingest.MAX_SOURCE_ATTEMPTS - 1):
        claim = claimed(small_stores, accepted.jobs[0])
        with pytest.raises(ingest.SourceUnreachable):
            ingest.verify(elsewhere, claim, lambda _n: None)
        with small_stores.catalog.write() as tx:
            jobs.postpone(tx, claim, delay_s=0, reason="away")
    assert ingest.verify(elsewhere, claimed(small_stores, accepted.jobs[0]), lambda _n: None) == ()
    assert accepted.task_id is not None
    task = ingest.get_task(small_stores, accepted.task_id)
    assert (task.state, (task.cause or {})["code"]) == ("FAILED", "source_not_readable")
    assert blobs_of(small_stores) == []


@pytest.mark.spec("FIL-21")
def test_an_upload_area_that_is_away_is_waited_for(small_stores: Stores) -> None:
    accepted = deposit(small_stores, stage(small_stores, b"abc"))
    away: Any = AwaySources(small_stores.sources, area=True)
    claim = replace(claimed(small_stores, accepted.jobs[0]), attempts=99)
    with pytest.raises(Unavailable):
        ingest.verify(replace(small_stores, sources=away), claim, lambda _n: None)


@pytest.mark.spec("FIL-11")
def test_at_exactly_64_mb_the_declared_etag_is_shown(small_stores: Stores) -> None:
    content = bytes(64 * MB)
    hashed = checksums.compute_checksums([content], len(content))
    for number, etag in enumerate((hashed.checksums.s3_etag, hashed.alternate_etag or "")):
        url = stage(small_stores, content, name=f"{number}", lies={"store-s3_etag": etag})
        accepted = deposit(small_stores, url)
        run(small_stores, accepted)
        located = files.locate(small_stores, "aws", *accepted.fqid)
        assert located.file is not None
        assert located.file.checksums.s3_etag == etag
