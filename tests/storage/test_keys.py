"""Object keys round-trip, and sort as what they name."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import keys
from storage.model import FQID, REPLICAS

pytestmark = pytest.mark.spec("FMT-07")

UUID = "0a1b2c3d-0000-4000-8000-00000000000f"
VERSION = "2024-01-31T235959.000001Z"
SHA = "ef" * 32

uuids = st.uuids().map(str)
versions = st.timedeltas(timedelta(0), timedelta(days=20_000)).map(
    lambda past: (datetime(2000, 1, 1, tzinfo=UTC) + past).strftime("%Y-%m-%dT%H%M%S.%fZ")
)
fqids = st.builds(FQID, uuids, versions)


def test_keys_are_spelled_as_frozen() -> None:
    fqid = FQID(UUID, VERSION)
    assert keys.blob_key(SHA) == f"blobs/ef/{SHA}"
    assert keys.record_key("file", fqid) == f"files/0a/{UUID}.{VERSION}"
    assert keys.record_key("bundle", fqid) == f"bundles/0a/{UUID}.{VERSION}"
    assert keys.record_key("collection", fqid) == f"collections/0a/{UUID}.{VERSION}"
    assert keys.tombstone_key("bundle", UUID) == f"tombstones/bundles/0a/{UUID}"
    assert keys.tombstone_key("bundle", UUID, VERSION) == f"tombstones/bundles/0a/{UUID}.{VERSION}"
    assert keys.purge_marker_key("file", UUID, VERSION) == f"purged/files/0a/{UUID}.{VERSION}"
    journal = keys.JournalKey("aws", 1, 1000)
    assert keys.journal_key(journal) == "journals/aws/00000000000000000001-00000000000000001000"
    again = keys.JournalKey("gcp", 7, 7, 12)
    assert keys.journal_key(again) == "journals/gcp/00000000000000000007-00000000000000000007.12"
    assert keys.journal_manifest_key(again) == f"{keys.journal_key(again)}.json"
    assert keys.area_file_key(UUID, "a/b.txt") == f"areas/{UUID}/a/b.txt"
    assert keys.checkout_file_key(UUID, "a/b.txt") == f"checkouts/{UUID}/a/b.txt"


@given(fqids)
def test_every_key_is_read_back(fqid: FQID) -> None:
    for kind in keys.KINDS:
        assert keys.parse_record(keys.record_key(kind, fqid)) == keys.RecordKey(kind, fqid)
        for version in (None, fqid.version):
            mark = keys.MarkerKey(kind, fqid.uuid, version)
            assert keys.parse_tombstone(keys.tombstone_key(kind, fqid.uuid, version)) == mark
            assert keys.parse_purge_marker(keys.purge_marker_key(kind, fqid.uuid, version)) == mark
    assert keys.parse_blob(keys.blob_key(SHA)) == SHA
    assert keys.parse_area_file(keys.area_file_key(fqid.uuid, "a/b")) == (fqid.uuid, "a/b")


spans = st.tuples(st.integers(1, 10**15), st.integers(0, 10**4), st.integers(0, 100))


@given(st.sampled_from(REPLICAS), spans)
def test_the_key_of_a_journal_is_read_back(replica: str, span: tuple[int, int, int]) -> None:
    first, more, generation = span
    journal = keys.JournalKey(replica, first, first + more, generation)
    spelled, manifest = keys.journal_key(journal), keys.journal_manifest_key(journal)
    assert keys.parse_journal(spelled) == keys.parse_journal_manifest(manifest) == journal
    assert keys.parse_journal(manifest) is keys.parse_journal_manifest(spelled) is None
    assert spelled.startswith(keys.journal_prefix(replica))


@given(st.lists(fqids, max_size=20))
def test_byte_order_of_keys_is_the_order_of_uuid_and_version(some: list[FQID]) -> None:
    spelled = sorted((keys.record_key("file", fqid) for fqid in some), key=str.encode)
    assert spelled == [keys.record_key("file", fqid) for fqid in sorted(some)]


@pytest.mark.parametrize(
    "key",
    [
        "",
        "epoch",
        f"files/ff/{UUID}.{VERSION}",
        f"files/0a/{UUID}",
        f"files/0a/{UUID}.{VERSION}x",
        f"files/0a/{UUID.upper()}.{VERSION}",
        f"file/0a/{UUID}.{VERSION}",
        f"others/0a/{UUID}.{VERSION}",
        f"blobs/ff/{SHA}",
        f"blobs/ef/{SHA[:-1]}",
        f"tombstones/bundles/ff/{UUID}",
        f"tombstone/bundles/0a/{UUID}",
        f"areas/{UUID}/",
        f"areas/x/{UUID}",
        f"checkouts/{UUID}",
        "journals/aws/1-2",
        f"files/0a/{UUID}.\u0662\u0660\u0662\u0666-01-31T235959.000001Z",
        f"purged/files/0a/{UUID}.{VERSION[:-2]}\u0661Z",
        f"journals/aws/{0:020}-{2:020}",
        f"journals/aws/{2:020}-{1:020}",
        f"journals/aws/{1:020}-{'9' * 20}",
        f"journals/aws/{1:020}-{2:020}.{'9' * 19}.json",
        f"journals/aws/{1:020}-{2:020}.0",
        f"journals/aws/{1:020}-{2:020}.01",
        f"journals/aws/{1:020}-{2:020}.json.json",
    ],
)
def test_rejects_foreign_keys(key: str) -> None:
    parsers = (
        keys.parse_blob,
        keys.parse_record,
        keys.parse_tombstone,
        keys.parse_purge_marker,
        keys.parse_area_file,
        keys.parse_journal,
        keys.parse_journal_manifest,
    )
    assert [parse(key) for parse in parsers] == [None] * len(parsers)


BASES = ("http://127.0.0.1:8000", "https://store.example/data/")


@given(uuids, st.text(st.characters(codec="utf-8"), min_size=1))
def test_reads_back_area_url_of_any_name(area: str, name: str) -> None:
    for base in BASES:
        url = keys.area_url(base, area, name)
        assert url.isascii()
        assert keys.parse_area_url(url, BASES) == keys.area_file_key(area, name)


@pytest.mark.parametrize(
    "url",
    [
        f"http://127.0.0.1:8001/v1/area/{UUID}/files/x",
        f"https://127.0.0.1:8000/v1/area/{UUID}/files/x",
        f"http://user@127.0.0.1:8000/v1/area/{UUID}/files/x",
        f"http://127.0.0.1:8000/v1/area/{UUID}/x",
        f"http://127.0.0.1:8000/v1/area/{UUID}/files/",
        f"http://127.0.0.1:8000/v1/area/{UUID}/files/x?y",
        f"http://127.0.0.1:8000/v1/area/{UUID}/files/x#y",
        "http://127.0.0.1:8000/v1/area/no-uuid/files/x",
        f"http://127.0.0.1:8000/v1/area/{UUID}/files/%ff",
        f"https://store.example/v1/area/{UUID}/files/x",
        f"https://store.example/database/v1/area/{UUID}/files/x",
        f"s3://areas/{UUID}/x",
        "http://[broken",
        "",
    ],
)
def test_rejects_other_urls(url: str) -> None:
    assert keys.parse_area_url(url, BASES) is None


def test_an_area_url_is_read_in_any_case_of_host_and_uuid() -> None:
    url = f"HTTPS://Store.Example/data/v1/area/{uuid.UUID(UUID)!s}".upper().replace(
        "/DATA/V1/AREA", "/data/v1/area"
    )
    assert keys.parse_area_url(f"{url}/files/X", BASES) == f"areas/{UUID}/X"


def test_the_mark_of_an_epoch() -> None:
    name = f"00000000000000000007-{UUID}"
    assert keys.epoch_key(name) == f"epochs/00000000000000000007-{UUID}"
    assert keys.parse_epoch(keys.epoch_key(name)) == name
    assert keys.parse_epoch(f"epochs/7-{UUID}") is None
