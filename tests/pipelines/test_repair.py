"""Each kind of damage in folder buckets is detected and repaired."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import orjson
import pytest

from pipelines import areas, bundles, checkouts, checksums, ingest, integrity, records, sweeps
from pipelines import scrub as pipelines_scrub
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.flow import Step
from storage import keys
from storage.catalog import Catalog, files, jobs, versions
from storage.errors import CatalogDamagedError
from storage.model import CHECKSUM_NAMES, FQID, REPLICAS, Checksums, Job, Replica
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.catalogs import ENGINES, Spares
from tests.damage import KINDS, damage, flip, path_of
from tests.scrubs import age, run

pytestmark = pytest.mark.spec("OPS-14")

CONTENT = b"content, as it was deposited"
AUTHOR = "depositor@example.org"


@pytest.fixture
def catalog_url(tmp_path: Path, spares: Spares) -> Iterator[str]:
    """What is damaged lies in buckets: one engine of the catalog is enough."""
    with spares.lend(ENGINES[0], tmp_path) as url:
        yield url


def blob_key(stores: Stores, fqid: FQID) -> str:
    with stores.catalog.read() as tx:
        row = files.find(tx, fqid)
    assert row is not None
    return keys.blob_key(row.checksums.sha256)


def content(stores: Stores, replica: Replica, key: str) -> bytes:
    return b"".join(stores.replicas[replica].read(key))


def verify(stores: Stores, replica: Replica = "aws", *, repair: bool) -> list[tuple[str, bool]]:
    found = pipelines_scrub.verify_replica(stores, replica, rng=Random(0), repair=repair)
    return [(one.key, one.repaired) for one in found.damaged]


def scrub(stores: Stores) -> None:
    age(stores, 16)
    run(stores)


Drain = Callable[[], int]


def age_for_sweeps(stores: Stores) -> None:
    """Let everything be old enough for a sweep."""
    with stores.catalog.write() as tx:
        for table in ("files", "bundles"):
            tx.exec_driver_sql(f"UPDATE {table} SET published_us = published_us - 1000000000")
        for table in ("blob_replicas", "presence"):
            tx.exec_driver_sql(
                f"UPDATE {table} SET at_us = at_us - 1000000000,"
                " verified_us = verified_us - 1000000000"
            )


def sweep(stores: Stores, drain: Drain) -> None:
    age_for_sweeps(stores)
    sweeps.sweep_replicas(stores)
    drain()


def sync(stores: Stores, drain: Drain) -> None:
    with stores.catalog.read() as tx:
        (fqid,) = versions.list_published(tx, "file", "aws", prefix="", after=None, limit=9)
    with stores.catalog.write() as tx:
        jobs.insert(tx, [Job(Step.SYNC, "aws", f"file:{fqid}")])
    drain()


def deposit(stores: Stores, drain: Drain, replica: Replica = "aws") -> None:
    """Deposit the same bytes as another file."""
    sums = checksums.compute_checksums([CONTENT]).checksums
    told = {f"store-{name}": getattr(sums, name) for name in CHECKSUM_NAMES}
    area = new_uuid()
    areas.create(stores, area, AUTHOR)
    staged = keys.area_file_key(area, "a.txt")
    stores.areas.put(staged, CONTENT, metadata=told)
    new = ingest.IngestRequest(
        FQID(new_uuid(), version()), replica, stores.areas.direct_url(staged), 1
    )
    accepted = ingest.start_task(stores, new, AUTHOR)
    drain()
    assert accepted.task_id is not None
    assert ingest.get_task(stores, accepted.task_id).state == "SUCCEEDED"


HEALING: dict[str, Callable[[Stores, Drain], object]] = {
    "verify": lambda stores, _drain: verify(stores, repair=True),
    "scrub": lambda stores, _drain: scrub(stores),
    "sweep": sweep,
    "sync": sync,
    "deposit": deposit,
}


@pytest.fixture
def objects(stores: Stores) -> dict[str, str]:
    """Keys of a blob and of records that both replicas hold."""
    file = make_file(stores, CONTENT, everywhere=True)
    return {"blob": blob_key(stores, file), "record": keys.record_key("file", file)}


@pytest.mark.parametrize("which", ["blob", "record"])
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_listed_found_and_named(
    stores: Stores, objects: dict[str, str], kind: str, which: str
) -> None:
    key = objects[which]
    damage(stores, "aws", key, kind)
    listed = [info.key for info in stores.replicas["aws"].list("")]
    assert (key in listed) is (kind != "removed")
    assert verify(stores, repair=False) == [(key, False)]
    assert verify(stores, "gcp", repair=False) == []


WAYS = [(way, which) for way in HEALING for which in ("blob", "record")]
WAYS.remove(("deposit", "record"))


@pytest.mark.parametrize(("healing", "which"), WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_healed(
    stores: Stores, drain: Drain, objects: dict[str, str], kind: str, which: str, healing: str
) -> None:
    key = objects[which]
    right = content(stores, "aws", key)
    damage(stores, "aws", key, kind)
    HEALING[healing](stores, drain)
    assert content(stores, "aws", key) == right
    assert verify(stores, repair=False) == []


@pytest.mark.parametrize("which", ["blob", "record"])
@pytest.mark.parametrize("kind", KINDS)
def test_object_damaged_everywhere_is_left(
    stores: Stores, objects: dict[str, str], kind: str, which: str
) -> None:
    key = objects[which]
    for replica in REPLICAS:
        damage(stores, replica, key, kind)
    before = [bytes_on_disk(stores, replica, key) for replica in REPLICAS]
    assert verify(stores, repair=True) == [(key, False)]
    scrub(stores)
    assert [bytes_on_disk(stores, replica, key) for replica in REPLICAS] == before
    assert integrity.repair_object(stores, "aws", key) == "lost"


def bytes_on_disk(stores: Stores, replica: Replica, key: str) -> bytes | None:
    with suppress(FileNotFoundError):
        return path_of(stores.replicas[replica], key).read_bytes()
    return None


def test_damaged_catalog_is_no_damaged_object(
    stores: Stores, objects: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "no catalog"
    file.write_bytes(b"no database at all" * 100)

    def renew_claim(_moved: int) -> None:
        with Catalog(f"sqlite:///{file}").write():
            pass

    with pytest.raises(CatalogDamagedError):
        integrity.find_damage(stores, "aws", objects["blob"], renew_claim)


def test_each_byte_of_a_record_counts(stores: Stores, objects: dict[str, str]) -> None:
    bucket, key = stores.replicas["aws"], objects["record"]
    path, right = path_of(bucket, key), content(stores, "aws", key)
    data = path.read_bytes()
    start = len(data) - len(right)
    for place in (start, *range(start + 1, len(data), 11)):
        path.write_bytes(flip(data, place))
        assert integrity.find_damage(stores, "aws", key) is not None, place - start


def test_a_whole_bundle_with_its_tombstone_is_verified_and_healed(
    stores: Stores, drain: Callable[[], int]
) -> None:
    file = make_file(stores, CONTENT, everywhere=True)
    fqid = FQID(new_uuid(), version())
    bundles.put(stores, BundleDraft(fqid, "aws", 1, [NewEntry("a", file, False)]), AUTHOR)
    bundles.delete(stores, "aws", fqid.uuid, fqid.version, reason="withdrawn", author=AUTHOR)
    drain()
    for key in (keys.record_key("bundle", fqid), keys.tombstone_key("bundle", *fqid)):
        for kind in ("last byte", "removed"):
            damage(stores, "gcp", key, kind)
            assert verify(stores, "gcp", repair=True) == [(key, True)]
            assert content(stores, "gcp", key) == content(stores, "aws", key)


def test_valid_record_of_other_content_is_no_damage(
    stores: Stores, objects: dict[str, str]
) -> None:
    """It has diverged, which is alarmed and never overwritten."""
    key = objects["record"]
    row = orjson.loads(content(stores, "aws", key))
    digest = records.file_digest(
        2, row["content_type"], row["size"], Checksums(*(row[name] for name in CHECKSUM_NAMES))
    )
    stores.replicas["aws"].put(
        key, orjson.dumps({**row, "creator_uid": 2, "digest": digest}), replace=True
    )
    before = content(stores, "aws", key)
    assert integrity.repair_object(stores, "aws", key) == "intact"
    assert content(stores, "aws", key) == before


@pytest.mark.parametrize("source", ["intact", "last byte"])
def test_repairs_large_objects_in_parts(stores: Stores, source: str) -> None:
    file = make_file(stores, bytes(9 * 1024 * 1024), everywhere=True)
    key = blob_key(stores, file)
    damage(stores, "aws", key, "last byte")
    if source != "intact":
        damage(stores, "gcp", key, source)
    before = bytes_on_disk(stores, "aws", key)
    outcome = integrity.repair_object(stores, "aws", key)
    assert outcome == ("repaired" if source == "intact" else "lost")
    assert (bytes_on_disk(stores, "aws", key) == before) is (outcome == "lost")
    assert integrity.find_damage(stores, "gcp", key) == (
        None if source == "intact" else integrity.CHANGED
    )


def test_purged_object_is_not_missing(stores: Stores, objects: dict[str, str]) -> None:
    assert not integrity.is_expected(
        stores, "aws", keys.record_key("file", FQID(new_uuid(), version()))
    )
    assert integrity.find_damage(stores, "aws", keys.blob_key("0" * 64)) is None
    assert integrity.repair_object(stores, "aws", keys.blob_key("0" * 64)) == "intact"


@pytest.mark.parametrize("replica", REPLICAS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_deposit_heals_what_is_damaged_everywhere(
    stores: Stores, drain: Drain, objects: dict[str, str], kind: str, replica: Replica
) -> None:
    for name in REPLICAS:
        damage(stores, name, objects["blob"], kind)
    deposit(stores, drain, replica)
    assert content(stores, replica, objects["blob"]) == CONTENT
    for name in REPLICAS:
        verify(stores, name, repair=True)
        assert content(stores, name, objects["blob"]) == CONTENT


@pytest.mark.spec("FIL-39")
@pytest.mark.parametrize("kind", ["header byte", "last byte", "removed"])
def test_checkouts_and_metadata_are_read_around_damage_and_order_a_repair(
    stores: Stores, drain: Drain, kind: str
) -> None:
    file = make_file(stores, b'{"a": 1}', content_type="application/json", everywhere=True)
    fqid = FQID(new_uuid(), version())
    bundles.put(stores, BundleDraft(fqid, "aws", 1, [NewEntry("a", file, True)]), AUTHOR)
    key = blob_key(stores, file)
    damage(stores, "aws", key, kind)
    drain()
    assert stores.search["aws"].get(*fqid) is not None
    assert content(stores, "aws", key) == b'{"a": 1}'
    damage(stores, "aws", key, kind)
    wanted = checkouts.CheckoutRequest("aws", *fqid)
    job = checkouts.create(stores, wanted, None)
    drain()
    assert checkouts.get_status(stores, "aws", job.job_id).state == "SUCCEEDED"
    assert content(stores, "aws", key) == b'{"a": 1}'
    assert verify(stores, repair=False) == []
