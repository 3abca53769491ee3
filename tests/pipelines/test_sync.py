"""Sync to another replica is atomic and idempotent."""

import hashlib
import random
from pathlib import Path

import pytest

from pipelines import bundles, files, flow, manifests, replication, sweeps
from pipelines.bundles import BundleDraft, FilesPending, NewEntry
from storage import keys
from storage.catalog import Catalog, events, ingest, jobs, versions
from storage.errors import ClaimLost, ConflictError, DamagedObjectError, Invalid, NotFoundError
from storage.model import FQID, Job, JobClaim, Replica
from storage.stores import Stores
from tests.builders import build_stores, make_file, new_uuid, version
from tests.damage import other_record

AUTHOR = "writer@example.org"
MB = 1024 * 1024


@pytest.fixture
def own(tmp_path: Path, catalog: Catalog) -> Stores:
    return build_stores(tmp_path, catalog)


def claim(stores: Stores, row: Job) -> JobClaim:
    with stores.catalog.write() as tx:
        jobs.insert(tx, [row])
        held = jobs.claim(tx, row, token="t", lease_s=60, max_claims=5)
    assert held is not None
    return held


def copy(stores: Stores, kind: str, fqid: FQID, to: Replica = "gcp") -> tuple[Job, ...]:
    row = Job(flow.Step.SYNC, to, f"{kind}:{fqid}")
    return replication.sync_version(stores, claim(stores, row), lambda _n: None)


def write(stores: Stores, *entries: FQID, replica: Replica = "aws") -> FQID:
    fqid = FQID(new_uuid(), version())
    named = [NewEntry(f"{place}.txt", file, False) for place, file in enumerate(entries)]
    bundles.put(stores, BundleDraft(fqid, replica, 1, named), AUTHOR)
    return fqid


def everything(stores: Stores, replica: Replica) -> dict[str, bytes]:
    bucket = stores.replicas[replica]
    return {info.key: b"".join(bucket.read(info.key)) for info in bucket.list("")}


@pytest.mark.spec("SVC-06", "BUN-22")
def test_bundle_and_files_are_equal_in_both_replicas(own: Stores) -> None:
    entries = [make_file(own, f"content {number}".encode()) for number in range(9)]
    fqid = write(own, *entries)
    with pytest.raises(NotFoundError):
        bundles.find(own, "gcp", fqid.uuid, None)
    follow = copy(own, "bundle", fqid)
    assert everything(own, "aws") == everything(own, "gcp")
    assert bundles.find(own, "gcp", fqid.uuid, None).fqid == fqid
    event = events.make_event_id("CREATE", "gcp", fqid)
    assert {(row.step, row.replica, row.ref) for row in follow} == {
        ("index", "gcp", str(fqid)),
        ("match", "gcp", event),
    }


@pytest.mark.parametrize("size", [0, 10, 9 * 1024 * 1024])
def test_a_file_is_the_same_everywhere(own: Stores, size: int) -> None:
    fqid = make_file(own, bytes(size))
    copy(own, "file", fqid)
    assert files.locate(own, "gcp", fqid.uuid, None).state == "here"
    assert everything(own, "aws") == everything(own, "gcp")


def test_resumes_large_copy_after_crash(own: Stores) -> None:
    content = random.Random(4).randbytes(150 * MB)
    fqid = make_file(own, content)
    row = Job(flow.Step.SYNC_LARGE, "gcp", f"file:{fqid}")
    moved: list[int] = []

    def dying(_moved: int) -> None:
        moved.append(1)
        if len(moved) == 3:
            raise ClaimLost("killed")

    with pytest.raises(ClaimLost):
        replication.sync_version(own, claim(own, row), dying)
    with own.catalog.read() as tx:
        token = ingest.find_latest_upload(
            tx, "gcp", keys.blob_key(hashlib.sha256(content).hexdigest())
        )
    assert token is not None
    left = own.replicas["gcp"].upload(
        keys.blob_key(hashlib.sha256(content).hexdigest()),
        part_size=64 * MB,
        content_type="",
        token=token,
    )
    assert dict(left.parts()) == {1: 64 * MB, 2: 64 * MB}
    replication.sync_version(own, claim(own, row), lambda _n: None)
    assert everything(own, "aws") == everything(own, "gcp")
    with own.catalog.read() as tx:
        assert ingest.list_stale_uploads(tx, 2**62) == []


def test_a_claim_is_renewed_while_one_large_file_of_a_bundle_is_copied(own: Stores) -> None:
    fqid = write(own, make_file(own, bytes(9 * MB)))
    row = Job(flow.Step.SYNC, "gcp", f"bundle:{fqid}")
    beats: list[int] = []
    replication.sync_version(own, claim(own, row), beats.append)
    assert sum(beats) >= 9 * MB


def test_copying_is_idempotent(own: Stores) -> None:
    fqid = write(own, make_file(own, b"abc"))
    copy(own, "bundle", fqid)
    before = everything(own, "gcp")
    copy(own, "bundle", fqid)
    assert everything(own, "gcp") == before


@pytest.mark.spec("SVC-06")
def test_sync_goes_both_ways(own: Stores) -> None:
    fqid = write(own, make_file(own, b"abc", origin="gcp"), replica="gcp")
    copy(own, "bundle", fqid, to="aws")
    assert bundles.find(own, "aws", fqid.uuid, None).fqid == fqid


def test_damaged_bytes_are_never_copied(own: Stores) -> None:
    fqid = make_file(own, b"as declared")
    located = files.locate(own, "aws", fqid.uuid, None)
    assert located.file is not None
    key = keys.blob_key(located.file.checksums.sha256)
    own.replicas["aws"].delete(key)
    own.replicas["aws"].put(key, b"As declared")
    with pytest.raises(DamagedObjectError):
        copy(own, "file", fqid)
    assert files.locate(own, "gcp", fqid.uuid, fqid.version).state == "elsewhere"
    with pytest.raises(NotFoundError):
        own.replicas["gcp"].head(key)


def test_a_damaged_object_is_a_failure_that_is_counted_not_an_engine_that_is_away(
    own: Stores,
) -> None:
    fqid = make_file(own, b"as declared")
    located = files.locate(own, "aws", fqid.uuid, None)
    assert located.file is not None
    blob = keys.blob_key(located.file.checksums.sha256)
    path = next(Path(own.replicas["aws"].direct_url("")[7:]).rglob(blob.rpartition("/")[2]))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedObjectError):
        copy(own, "file", fqid)


def test_a_damaged_record_in_the_target_is_repaired(own: Stores) -> None:
    fqid = write(own, make_file(own, b"abc"))
    key = keys.record_key("bundle", fqid)
    own.replicas["gcp"].put(key, b"something else")
    assert copy(own, "bundle", fqid) != ()
    assert list(own.replicas["gcp"].read(key)) == list(own.replicas["aws"].read(key))
    assert bundles.find(own, "gcp", fqid.uuid, None).fqid == fqid


@pytest.mark.spec("REP-05")
def test_differing_record_in_target_raises_alarm_and_stays(own: Stores) -> None:
    fqid = write(own, make_file(own, b"abc"))
    key = keys.record_key("bundle", fqid)
    other = other_record(b"".join(own.replicas["aws"].read(key)))
    own.replicas["gcp"].put(key, other)
    assert copy(own, "bundle", fqid) == ()
    assert b"".join(own.replicas["gcp"].read(key)) == other
    with own.catalog.read() as tx:
        assert versions.count_diverged(tx) == 1
    with pytest.raises(NotFoundError):
        bundles.find(own, "gcp", fqid.uuid, None)


@pytest.mark.spec("REP-05")
def test_sweep_notices_that_a_differing_record_was_replaced_by_the_right_one(own: Stores) -> None:
    fqid = write(own, make_file(own, b"abc"))
    key = keys.record_key("bundle", fqid)
    right = b"".join(own.replicas["aws"].read(key))
    own.replicas["gcp"].put(key, other_record(right))
    copy(own, "bundle", fqid)
    own.replicas["gcp"].delete(key)
    own.replicas["gcp"].put(key, right)
    sweeps.sweep_replicas(own, repair=False)
    job = Job(flow.Step.SYNC, "gcp", f"bundle:{fqid}")
    with own.catalog.read() as tx:
        assert not jobs.exists(tx, job)
    sweeps.sweep_replicas(own)
    with own.catalog.read() as tx:
        assert jobs.exists(tx, job)
    copy(own, "bundle", fqid)
    with own.catalog.read() as tx:
        assert versions.count_diverged(tx) == 0
    assert bundles.find(own, "gcp", fqid.uuid, None).fqid == fqid


@pytest.mark.spec("REP-05")
def test_sweep_compares_all_diverged_records_again(
    own: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = [write(own, make_file(own, content)) for content in (b"abc", b"def", b"ghi")]
    for fqid in written:
        key = keys.record_key("bundle", fqid)
        record = b"".join(own.replicas["aws"].read(key))
        own.replicas["gcp"].put(key, other_record(record))
        copy(own, "bundle", fqid)
    monkeypatch.setattr(sweeps, "SWEEP_BATCH", 1)
    sweeps.sweep_replicas(own)
    with own.catalog.read() as tx:
        for fqid in written:
            assert jobs.exists(tx, Job(flow.Step.SYNC, "gcp", f"bundle:{fqid}"))


@pytest.mark.spec("REP-05")
@pytest.mark.parametrize("whole", [True, False])
def test_sweep_notices_that_a_differing_tombstone_was_replaced(own: Stores, whole: bool) -> None:
    fqid = write(own, make_file(own, b"abc"))
    buried = None if whole else fqid.version
    bundles.delete(own, "aws", fqid.uuid, buried, reason="wrong", author=AUTHOR)
    key = keys.tombstone_key("bundle", fqid.uuid, buried)
    (job,) = [
        one
        for one in manifests.tombstone_jobs("bundle", fqid.uuid, buried or "")
        if one.replica == "gcp"
    ]
    manifests.write_tombstone(own, claim(own, job), lambda _: None)
    right = b"".join(own.replicas["gcp"].read(key))
    own.replicas["gcp"].delete(key)
    own.replicas["gcp"].put(key, right.replace(b"wrong", b"other"))
    manifests.write_tombstone(own, claim(own, job), lambda _: None)
    with own.catalog.read() as tx:
        assert versions.count_diverged(tx) == 1
    own.replicas["gcp"].delete(key)
    own.replicas["gcp"].put(key, right)
    sweeps.sweep_replicas(own)
    with own.catalog.read() as tx:
        assert jobs.exists(tx, job)
    manifests.write_tombstone(own, claim(own, job), lambda _: None)
    with own.catalog.read() as tx:
        assert versions.count_diverged(tx) == 0


@pytest.mark.spec("BUN-28")
def test_waits_for_files_of_other_replica_and_names_absent_ones(own: Stores) -> None:
    elsewhere = make_file(own, b"abc", origin="gcp")
    with pytest.raises(FilesPending) as pending:
        write(own, elsewhere)
    assert pending.value.missing == [elsewhere]
    absent = FQID(new_uuid(), version())
    with pytest.raises(Invalid) as missing:
        write(own, elsewhere, absent)
    assert missing.value.code == "file_missing"
    assert list(missing.value.errors) == ["/files/1"]


@pytest.mark.spec("BUN-25", "BUN-26")
def test_the_order_of_entries_does_not_matter(own: Stores) -> None:
    first, second = make_file(own, b"1"), make_file(own, b"2")
    fqid = FQID(new_uuid(), version())
    entries = [NewEntry("a", first, True), NewEntry("b", second, False)]
    assert bundles.put(own, BundleDraft(fqid, "aws", 1, entries), AUTHOR).created
    assert not bundles.put(own, BundleDraft(fqid, "aws", 1, entries[::-1]), AUTHOR).created
    other = [NewEntry("a", first, False), NewEntry("b", second, False)]
    with pytest.raises(ConflictError) as taken:
        bundles.put(own, BundleDraft(fqid, "aws", 1, other), AUTHOR)
    assert taken.value.code == "bundle_already_exists"


def bury(stores: Stores, uuid: str, version: str | None = None, reason: str = "r") -> set[str]:
    rows = bundles.delete(stores, "aws", uuid, version, reason=reason, author=AUTHOR)
    return {f"{row.step} {row.replica}" for row in rows}


@pytest.mark.spec("BUN-51", "BUN-55")
def test_a_tombstone_hides_in_every_replica_at_once(own: Stores) -> None:
    fqid = write(own, make_file(own, b"abc"))
    copy(own, "bundle", fqid)
    steps = {
        f"{step} {replica}" for step in ("bury", "index", "match") for replica in ("aws", "gcp")
    }
    assert bury(own, fqid.uuid) == steps
    for replica in ("aws", "gcp"):
        with pytest.raises(NotFoundError):
            bundles.find(own, replica, fqid.uuid, None)  # type: ignore[arg-type]
    assert bury(own, fqid.uuid) == set(), "the same again is success"
    with pytest.raises(ConflictError):
        bury(own, fqid.uuid, reason="another")
    with pytest.raises(NotFoundError):
        bury(own, new_uuid())


@pytest.mark.spec("BUN-50")
def test_the_tombstone_of_a_uuid_forbids_later_versions_that_of_a_version_does_not(
    own: Stores,
) -> None:
    file = make_file(own, b"abc")
    fqid = write(own, file)
    bury(own, fqid.uuid, fqid.version)
    later = FQID(fqid.uuid, version(7))
    entries = [NewEntry("a", file, False)]
    bundles.put(own, BundleDraft(later, "aws", 1, entries), AUTHOR)
    bury(own, fqid.uuid)
    with pytest.raises(ConflictError) as buried:
        bundles.put(own, BundleDraft(FQID(fqid.uuid, version(8)), "aws", 1, entries), AUTHOR)
    assert buried.value.code == "bundle_tombstone_already_exists"


@pytest.mark.spec("BUN-53")
def test_a_bundle_that_was_buried_before_its_copy_is_never_seen_there(own: Stores) -> None:
    fqid = write(own, make_file(own, b"abc"))
    bury(own, fqid.uuid)
    copy(own, "bundle", fqid)
    with pytest.raises(NotFoundError):
        bundles.find(own, "gcp", fqid.uuid, None)
    with own.catalog.read() as tx:
        assert events.find(tx, events.make_event_id("CREATE", "gcp", fqid)) is None


@pytest.mark.spec("BUN-52")
def test_tombstone_records_are_written(own: Stores) -> None:
    fqid = write(own, make_file(own, b"abc"))
    bury(own, fqid.uuid, fqid.version)
    for replica in ("aws", "gcp"):
        manifests.write_tombstone(own, claim(own, Job("bury", replica, str(fqid))), lambda _n: None)
    key = keys.tombstone_key("bundle", fqid.uuid, fqid.version)
    assert everything(own, "aws")[key] == everything(own, "gcp")[key]


def old(stores: Stores) -> None:
    """Let everything be older than a sweep looks at."""
    for name in ("files", "bundles"):
        with stores.catalog.write() as tx:
            tx.exec_driver_sql(f"UPDATE {name} SET published_us = published_us - 1000000000")
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE blob_replicas SET at_us = at_us - 1000000000")


@pytest.mark.spec("OPS-10")
def test_sweep_restores_lost_objects(own: Stores) -> None:
    fqid = write(own, make_file(own, b"abc"))
    copy(own, "bundle", fqid)
    whole = everything(own, "gcp")
    old(own)
    for key in whole:
        own.replicas["gcp"].delete(key)
    swept = {(s.kind, s.replica): s.missing for s in sweeps.sweep_replicas(own)}
    lost = {"file": 1, "bundle": 1, "blob": 1, "collection": 0, "journal": 0}
    assert swept == {
        (kind, replica): count if replica == "gcp" else 0
        for kind, count in lost.items()
        for replica in ("aws", "gcp")
    }
    copy(own, "bundle", fqid)
    for file in bundles.read_entries(own, bundles.find(own, "aws", fqid.uuid, None), 0, 9):
        copy(own, "file", file.file)
    assert everything(own, "gcp") == whole


@pytest.mark.spec("OPS-10")
def test_a_dry_run_names_what_is_missing_and_changes_nothing(own: Stores) -> None:
    fqid = write(own, make_file(own, b"abc"))
    copy(own, "bundle", fqid)
    old(own)
    for key in everything(own, "gcp"):
        own.replicas["gcp"].delete(key)
    with own.catalog.read() as tx:
        before = jobs.count_open(tx)
    swept = sweeps.sweep_replicas(own, repair=False)
    assert [s.named for s in swept if (s.kind, s.replica) == ("bundle", "gcp")] == [(str(fqid),)]
    assert {s.kind for s in swept if s.missing} == {"file", "bundle", "blob"}
    with own.catalog.read() as tx:
        assert jobs.count_open(tx) == before
        assert versions.find_published(tx, "bundle", "gcp", fqid) is not None


@pytest.mark.spec("OPS-10")
def test_sweep_of_complete_replicas_does_nothing(own: Stores) -> None:
    fqid = write(own, make_file(own, b"abc"))
    copy(own, "bundle", fqid)
    old(own)
    with own.catalog.read() as tx:
        before = jobs.count_open(tx)
    assert all(swept.missing == 0 and swept.unexpected == 0 for swept in sweeps.sweep_replicas(own))
    with own.catalog.read() as tx:
        assert jobs.count_open(tx) == before


def test_differences_merges_sorted_listings() -> None:
    assert list(sweeps.compare_sorted("abd", "bce")) == [
        ("a", -1),
        ("b", 0),
        ("c", 1),
        ("d", -1),
        ("e", 1),
    ]
