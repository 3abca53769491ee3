"""Test vectors of the frozen record formats."""

import hashlib

import orjson
import pytest

from pipelines import records
from storage.catalog import events
from storage.catalog.collections import Collection
from storage.catalog.versions import Tombstone
from storage.errors import DamagedObjectError
from storage.keys import RecordKey
from storage.model import FQID, BundleVersion, Checksums, CollectionLink, FileVersion

pytestmark = pytest.mark.spec("FMT-07")

FILE = FQID("11111111-2222-4333-8444-555555555555", "2026-01-02T030405.000006Z")
BUNDLE = FQID("aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", "2026-01-02T030405.000007Z")
SUMS = Checksums("1" * 40, "2" * 64, "deadbeef", "3" * 32)
CREATED_US = 1_767_323_045_000_008


@pytest.mark.spec("FIL-05")
def test_digest_of_a_file() -> None:
    digest = records.file_digest(8, "text/plain", 3, SUMS)
    assert digest == "9a7af2abd6b2f8f245dc171368520892e63d6c2de96e4ed609b776ca1651f116"


def test_digest_of_a_bundle_in_any_order() -> None:
    rows = [("b.txt", FILE, False), ("a/é.json", FILE, True)]
    assert records.bundle_digest(8, rows) == records.bundle_digest(8, rows[::-1])
    assert (
        records.bundle_digest(8, rows)
        == "d0adadd8594183e23332eb085b9c7414e856ced6a7302e6530fe402cc57ec890"
    )


LINKS = [
    CollectionLink("bundle", BUNDLE),
    CollectionLink("file", FILE, "é"),
    CollectionLink("file", FILE),
    CollectionLink("x", FILE, ""),
]


@pytest.mark.spec("COL-08")
def test_digest_of_a_collection_in_any_order() -> None:
    digests = {
        records.collection_digest("a@b.c", "n", "d", details, links)
        for links in (LINKS, LINKS[::-1])
        for details in ({"b": 1, "a": [None]}, {"a": [None], "b": 1})
    }
    assert digests == {"72a9ad4f56e60cf890f7eb669a4e4390c417b3d12bc6d1eb0c8965ee07637838"}


def test_record_of_a_collection() -> None:
    row = Collection(
        id=1,
        fqid=BUNDLE,
        digest="d" * 64,
        origin="gcp",
        owner="a@b.c",
        parent=FILE.version,
        name="n",
        description="d",
        details='{"a":[null],"b":1}',
        event_id="event",
        created_us=CREATED_US,
        published=False,
    )
    fqid, file = (f'"uuid":"{one.uuid}","version":"{one.version}"' for one in (BUNDLE, FILE))
    assert records.encode_collection_record(row, LINKS[:2]).decode() == (
        '{"author":"a@b.c","contents":[{"type":"bundle",'
        + fqid
        + '},{"path":"é","type":"file",'
        + file
        + '}],"created":"2026-01-02T030405.000008Z","description":"d",'
        '"details":{"a":[null],"b":1},"digest":"' + "d" * 64 + '","event_id":"event",'
        '"format":"store-record/1","kind":"collection","name":"n","origin":"gcp",'
        '"owner":"a@b.c","parent":"2026-01-02T030405.000006Z",' + fqid + "}"
    )


def test_digest_of_a_tombstone() -> None:
    assert (
        records.tombstone_digest("bundle", BUNDLE.uuid, "", "wrong")
        == "8d5eeac2be14a0c1fb699a3b20b1f24da26fa44c51448c824eb76bba0115d3f2"
    )


def test_event_ids() -> None:
    assert events.make_event_id("CREATE", "aws", BUNDLE) == "a9c3ce9a-6b79-5048-b273-0b2391af3a60"
    assert (
        events.make_event_id("TOMBSTONE", "gcp", BUNDLE) == "05231e3b-529a-56bc-98f9-bd0006417c75"
    )


def test_record_of_a_file() -> None:
    about = (1, "d" * 64, "a@b.c", "event")
    row = FileVersion(1, FILE, 8, "text/plain", 3, SUMS, "aws", CREATED_US, *about, published=False)
    assert orjson.loads(records.encode_file_record(row)) == {
        "format": "store-record/1",
        "kind": "file",
        "uuid": FILE.uuid,
        "version": FILE.version,
        "digest": "d" * 64,
        "created": "2026-01-02T030405.000008Z",
        "event_id": "event",
        "origin": "aws",
        "author": "a@b.c",
        "creator_uid": 8,
        "content_type": "text/plain",
        "size": 3,
        "sha1": SUMS.sha1,
        "sha256": SUMS.sha256,
        "crc32c": SUMS.crc32c,
        "s3_etag": SUMS.s3_etag,
    }


def test_bundle_record_ends_with_manifest() -> None:
    about = ("d" * 64, "a@b.c", "event")
    row = BundleVersion(1, BUNDLE, 8, "gcp", 1, CREATED_US, None, *about, published=False)
    manifest = records.encode_manifest(8)
    record = records.encode_bundle_record(row, manifest)
    assert record.endswith(b',"manifest":{"creator_uid":8,"files":[]}}')
    assert orjson.loads(record)["parent"] is None


def test_record_of_a_tombstone() -> None:
    stone = Tombstone(
        1, "bundle", BUNDLE.uuid, "", "wrong", "d" * 64, "aws", "a@b.c", "event", CREATED_US
    )
    record = orjson.loads(records.encode_marker_record(stone))
    assert (record["kind"], record["of"], record["reason"]) == ("tombstone", "bundle", "wrong")
    assert record["version"] == ""


def test_the_digest_of_a_purge_marker() -> None:
    whole = ["purge", "bundle", "u", "v", "r"]
    told = hashlib.sha256(orjson.dumps(whole)).hexdigest()
    assert records.purge_digest("bundle", "u", "v", "r") == told


@pytest.mark.parametrize("member", ["details", "unknown"])
def test_a_deeply_nested_record_is_damaged(member: str) -> None:
    data = b'{"%b":%b' % (member.encode(), b"[" * 100_000)
    with pytest.raises(DamagedObjectError):
        records.parse_collection_record(RecordKey("collection", BUNDLE), data)
