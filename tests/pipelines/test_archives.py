"""Archives of bundles: formats, safe names, verified bytes, bounded memory."""

import hashlib
import io
import json
import random
import re
import tarfile
import unicodedata
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from urllib.parse import unquote

import bagit
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocrate.rocrate import ROCrate
from sqlalchemy import event

from pipelines import archives, bundles
from pipelines.archives import ARCHIVE_FORMATS, ArchiveFormat, Member
from pipelines.bundles import NewEntry
from pipelines.copies import INLINE_BYTES
from pipelines.linked_data import NO_LICENSE, Publisher
from storage import keys
from storage.catalog import jobs
from storage.errors import (
    DamagedObjectError,
    NotFoundError,
    SourceChanged,
    Unprocessable,
)
from storage.model import FQID
from storage.protocols import BLOCK, BlobStore
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.damage import damage
from tests.peak_memory import memory_below
from tests.pipelines.test_bundle_versions import put, put_entries

FORMATS = pytest.mark.parametrize("form", ARCHIVE_FORMATS)
PUBLISHER = Publisher(
    "Atlas", "https://store.example", "https://creativecommons.org/licenses/by/4.0/"
)
CONTENTS = {
    "a.json": b'{"a": 1}',
    "raw/ä.txt": b"",
    "raw/" + "n" * 150: b"x" * 1000,
    "con.txt": b"device",
}


def read(stores: Stores, fqid: FQID, form: ArchiveFormat = "zip") -> bytes:
    """Stream an archive, and check its announced size."""
    archive = archives.prepare_archive(stores, "aws", *fqid, form, PUBLISHER)
    data = b"".join(archives.stream_archive(stores, archive))
    assert len(data) == archive.measure()
    return data


def unpack(data: bytes, form: ArchiveFormat) -> dict[str, bytes]:
    """Read an archive with the standard library, which checks its checksums."""
    if form == "tar":
        with tarfile.open(fileobj=io.BytesIO(data)) as packed:
            files = {one.name: packed.extractfile(one) for one in packed.getmembers()}
            return {name: file.read() for name, file in files.items() if file}
    with zipfile.ZipFile(io.BytesIO(data)) as zipped:
        assert zipped.testzip() is None
        return {name: zipped.read(name) for name in zipped.namelist()}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def take(blocks: Iterator[bytes], got: bytearray) -> None:
    """Collect blocks, also those before an error."""
    for block in blocks:
        got += block


def random_file(stores: Stores, size: int, *, everywhere: bool = False) -> tuple[FQID, bytes]:
    data = random.Random(size).randbytes(size)
    return make_file(stores, data, everywhere=everywhere), data


@pytest.mark.parametrize("form", ["zip", "tar"])
def test_an_archive_has_all_files_below_one_folder(stores: Stores, form: ArchiveFormat) -> None:
    fqid = put(stores, new_uuid(), 0, CONTENTS)
    safe = {name.replace("con.", "_con."): data for name, data in CONTENTS.items()}
    assert unpack(read(stores, fqid, form), form) == {
        f"{fqid}/{name}": data for name, data in safe.items()
    }


@FORMATS
def test_an_archive_is_the_same_each_time(stores: Stores, form: ArchiveFormat) -> None:
    fqid = put(stores, new_uuid(), 0, CONTENTS)
    assert read(stores, fqid, form) == read(stores, fqid, form)


@pytest.mark.spec("BUN-75")
def test_a_bag_is_valid(stores: Stores, tmp_path: Path) -> None:
    fqid = put(stores, new_uuid(), 0, {**CONTENTS, "100%.txt": b"all"})
    with zipfile.ZipFile(io.BytesIO(read(stores, fqid, "bagit"))) as zipped:
        zipped.extractall(tmp_path)
    bag = bagit.Bag(str(tmp_path / str(fqid)))
    bag.validate()
    assert bag.info["External-Identifier"] == str(fqid)
    assert bag.info["Payload-Oxum"] == "1017.5"
    assert bag.entries["data/a.json"] == {"sha256": digest(CONTENTS["a.json"])}
    (tmp_path / str(fqid) / "data" / "a.json").write_bytes(b'{"a": 2}')
    with pytest.raises(bagit.BagValidationError):
        bag.validate()


def test_a_crate_describes_each_file(stores: Stores) -> None:
    contents = {**CONTENTS, "ro-crate-metadata.json": b"{}", "a b#.txt": b"1"}
    fqid = put(stores, new_uuid(), 0, contents)
    packed = unpack(read(stores, fqid, "ro-crate"), "ro-crate")
    crate = json.loads(packed.pop(f"{fqid}/ro-crate-metadata.json"))
    about, root, organization, license_, *files = crate["@graph"]
    assert crate["@context"][0] == "https://w3id.org/ro/crate/1.1/context"
    assert (about["@id"], about["about"]) == ("ro-crate-metadata.json", {"@id": "./"})
    assert about["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.1"}
    assert (root["@id"], root["@type"], root["identifier"]) == ("./", "Dataset", str(fqid))
    assert datetime.fromisoformat(root["datePublished"]) == datetime.fromisoformat(fqid.version)
    assert (root["publisher"], root["license"]) == (
        {"@id": "https://store.example"},
        {"@id": PUBLISHER.license},
    )
    assert (organization["@id"], organization["name"]) == ("https://store.example", "Atlas")
    assert (license_["@id"], license_["@type"]) == (PUBLISHER.license, "CreativeWork")
    assert root["hasPart"] == [{"@id": one["@id"]} for one in files]
    assert {f"{fqid}/{unquote(one['@id'])}": one["sha256"] for one in files} == {
        path: digest(data) for path, data in packed.items()
    }
    assert {one["name"]: int(one["contentSize"]) for one in files} == {
        name: len(data) for name, data in contents.items()
    }
    kinds = {one["name"]: one["encodingFormat"] for one in files}
    assert (kinds["a.json"], kinds["a b#.txt"]) == ("application/json", "text/plain")


@pytest.mark.spec("BUN-75")
@pytest.mark.parametrize("license_", ["", PUBLISHER.license, "Ask </script> us."])
def test_ro_crate_py_reads_a_crate(stores: Stores, tmp_path: Path, license_: str) -> None:
    fqid = put(stores, new_uuid(), 0, {**CONTENTS, "a b#.txt": b"1"})
    publisher = replace(PUBLISHER, license=license_)
    archive = archives.prepare_archive(stores, "aws", *fqid, "ro-crate", publisher)
    packed = tmp_path / "crate.zip"
    packed.write_bytes(b"".join(archives.stream_archive(stores, archive)))
    with zipfile.ZipFile(packed) as zipped:
        zipped.extractall(tmp_path)
    crate = ROCrate(tmp_path / str(fqid))
    assert crate.root_dataset["identifier"] == str(fqid)
    assert crate.root_dataset["publisher"]["name"] == "Atlas"
    assert crate.root_dataset["license"]["name"] == (license_ or NO_LICENSE)
    assert {file["name"]: file["sha256"] for file in crate.data_entities} == {
        **{name: digest(data) for name, data in CONTENTS.items()},
        "a b#.txt": digest(b"1"),
    }


def test_dates_are_the_versions_as_far_as_zip_has_them(stores: Stores) -> None:
    fqid = put(stores, new_uuid(), 0, {"a.txt": b"a"})
    moment = datetime.fromisoformat(fqid.version)
    with zipfile.ZipFile(io.BytesIO(read(stores, fqid))) as zipped:
        assert zipped.infolist()[0].date_time[:4] == moment.timetuple()[:4]
    with tarfile.open(fileobj=io.BytesIO(read(stores, fqid, "tar"))) as packed:
        assert packed.getmembers()[0].mtime == int(moment.timestamp())
    for year, shown in ((1904, 1980), (2108, 2107)):
        data = archives.encode_zip([Member("a", 1, [b"a"])], datetime(year, 2, 29, tzinfo=UTC))
        with zipfile.ZipFile(io.BytesIO(b"".join(data))) as zipped:
            assert zipped.infolist()[0].date_time[0] == shown


def test_large_zips_have_the_announced_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1000)
    for sizes in ([10, 400], [600, 10, 900, 10], [2000, 10], [10] * 30):
        members = [(f"ä{place}", size) for place, size in enumerate(sizes)]
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        full = [Member(path, size, [b"x" * size]) for path, size in members]
        data = b"".join(archives.encode_zip(full, moment))
        assert len(data) == archives.measure_zip(members)
        with zipfile.ZipFile(io.BytesIO(data)) as zipped:
            assert zipped.testzip() is None
            assert [one.file_size for one in zipped.infolist()] == sizes


def test_more_files_than_zip_once_had_have_the_announced_size() -> None:
    members = [(str(place), 0) for place in range(0x10001)]
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    data = b"".join(archives.encode_zip((Member(*one, []) for one in members), moment))
    assert len(data) == archives.measure_zip(members)
    assert len(zipfile.ZipFile(io.BytesIO(data)).infolist()) == len(members)


@pytest.mark.parametrize("year", [1904, 2026, 2300])
def test_tars_have_the_announced_size(year: int) -> None:
    moment = datetime(year, 1, 1, tzinfo=UTC)
    for path in ("a", "a" * 100, "a" * 101, f"{'b' * 90}/{'a' * 90}", "ä" * 30, "ä"):
        data = b"".join(archives.encode_tar([Member(path, 700, [bytes(700)])] * 40, moment))
        assert len(data) == archives.measure_tar([(path, 700)] * 40, moment)
        with tarfile.open(fileobj=io.BytesIO(data)) as packed:
            assert packed.getnames() == [path] * 40


def test_a_tar_of_many_gigabytes_is_measured() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    size = archives.measure_tar([("a", 9 * 1024**3)], moment)
    assert size == -(-(9 * 1024**3 + 512 + 512 + 512 + 1024) // 10240) * 10240


# Names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a b.txt", "a b.txt"),
        ("/etc/passwd", "_/etc/passwd"),
        ("../../x", "__/__/x"),
        ("a/./b", "a/_/b"),
        ("C:\\temp\\x", "C__temp_x"),
        ("x:stream", "x_stream"),
        ("nul\0l", "nul_l"),
        ("aux", "_aux"),
        ("COM1.tar.gz", "_COM1.tar.gz"),
        ("lpt¹", "_lpt¹"),
        ("console", "console"),
        ("end. ", "end__"),
        ("gpj.\u202eexe", "gpj._exe"),
        ("\ud800", "_"),
        ("x" * 300 + ".fastq.gz", "x" * 252 + ".gz"),
    ],
)
def test_makes_hostile_names_safe(name: str, path: str) -> None:
    assert archives.make_safe_paths([name]) == [path]


def test_names_that_a_file_system_takes_for_one_get_numbers() -> None:
    names = [
        "a.txt",
        "A.TXT",
        "a.txt~2",
        "\u00e9",
        "e\u0301",
        "b?",
        "b*",
        "b|",
        "x/y",
        "X",
        "x/y/z",
    ]
    assert archives.make_safe_paths(names) == [
        *("a.txt", "A~2.TXT", "a.txt~2", "\u00e9", "e\u0301~2", "b_", "b_~2", "b_~3"),
        *("x/y~2", "X~2", "x/y/z"),
    ]


SEGMENT = st.text(st.sampled_from('aA.. \\/:?\0é\u0301ſ"%\u202e'), max_size=6)


@given(st.lists(st.one_of(SEGMENT, st.text(max_size=8)), max_size=12))
def test_paths_of_any_names_are_safe_and_different(names: list[str]) -> None:
    paths = archives.make_safe_paths(names)
    assert len(paths) == len(names)
    folded = [
        unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
        for path in paths
    ]
    assert len(set(folded)) == len(names)
    for path, key in zip(paths, folded, strict=True):
        for segment in path.split("/"):
            assert segment
            assert not segment.endswith((".", " "))
            assert not re.search(r'[\x00-\x1f<>:"\\|?*%]', segment)
            assert len(segment.encode()) <= 255
        assert not any(other.startswith(f"{key}/") for other in folded)


def test_many_names_of_one_kind_take_no_long_time() -> None:
    names = [f"{'?' * (place % 7)}{'*' * (7 - place % 7)}" for place in range(5_000)]
    assert len(set(archives.make_safe_paths(names))) == len(names)


# Verified bytes ----------------------------------------------------------------------------


@FORMATS
def test_damaged_small_files_come_from_the_other_replica(
    stores: Stores, form: ArchiveFormat
) -> None:
    file, data = random_file(stores, 1000, everywhere=True)
    fqid = put_entries(stores, FQID(new_uuid(), version()), [NewEntry("a", file, False)])
    before = read(stores, fqid, form)
    damage(stores, "aws", keys.blob_key(digest(data)), "last byte")
    assert read(stores, fqid, form) == before
    with stores.catalog.read() as tx:
        assert [(job.step, job.replica) for job in jobs.list_open(tx)][-1] == ("repair", "aws")


@pytest.mark.parametrize("size", [1000, INLINE_BYTES + 3 * BLOCK])
@pytest.mark.parametrize("kind", ["emptied", "truncated", "last byte", "removed"])
@FORMATS
def test_a_file_without_an_intact_copy_breaks_the_stream(
    stores: Stores, form: ArchiveFormat, size: int, kind: str
) -> None:
    file, data = random_file(stores, size)
    fqid = put_entries(stores, FQID(new_uuid(), version()), [NewEntry("a", file, False)])
    whole = read(stores, fqid, form)
    damage(stores, "aws", keys.blob_key(digest(data)), kind)
    archive = archives.prepare_archive(stores, "aws", *fqid, form, PUBLISHER)
    got = bytearray()
    with pytest.raises((DamagedObjectError, NotFoundError, SourceChanged)):
        take(archives.stream_archive(stores, archive), got)
    assert len(got) < len(whole)
    assert whole.startswith(got)


class Swelling:
    """A bucket whose objects have more bytes than they had."""

    def __init__(self, more: int) -> None:
        self.more = more

    def read(self, _key: str) -> Iterator[bytes]:
        for _ in range(self.more):
            yield bytes(BLOCK)


def test_a_blob_that_grew_does_not_fill_up_the_announced_size(stores: Stores) -> None:
    bucket = cast(BlobStore, Swelling(20))
    grown = replace(stores, replicas={"aws": bucket, "gcp": bucket})
    got = bytearray()
    with pytest.raises(SourceChanged):
        take(archives.read_large_blob(grown, "aws", 9 * BLOCK, "0" * 64), got)
    assert len(got) <= 9 * BLOCK


# Limits ------------------------------------------------------------------------------------


def test_withdrawn_bundles_have_no_archive(stores: Stores) -> None:
    fqid = put(stores, new_uuid(), 0, CONTENTS)
    bundles.delete(stores, "aws", fqid.uuid, None, reason="wrong", author="a@example.org")
    with pytest.raises(NotFoundError):
        archives.prepare_archive(stores, "aws", fqid.uuid, None, "zip", PUBLISHER)


def test_bundles_of_too_many_files_are_refused(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    fqid = put(stores, new_uuid(), 0, CONTENTS)
    monkeypatch.setattr(archives, "ARCHIVE_FILES_MAX", 3)
    with pytest.raises(Unprocessable, match="store download") as refusal:
        archives.prepare_archive(stores, "aws", *fqid, "zip", PUBLISHER)
    assert refusal.value.code == "archive_too_large"


@pytest.fixture(scope="module")
def names_of_many() -> list[str]:
    return [f"lane{place % 8}/sample-{place:06}.fastq.gz" for place in range(5_000)]


@pytest.mark.spec("BUN-75")
@FORMATS
def test_memory_and_queries_do_not_grow_with_files(
    stores: Stores, names_of_many: list[str], form: ArchiveFormat
) -> None:
    shared, _ = random_file(stores, 20_000)
    entries = [NewEntry(name, shared, False) for name in names_of_many]
    fqid = put_entries(stores, FQID(new_uuid(), version()), entries)
    statements = 0

    def count(*_given: object) -> None:
        nonlocal statements
        statements += 1

    event.listen(stores.catalog.engine, "before_cursor_execute", count)
    try:
        with memory_below(40_000_000):
            archive = archives.prepare_archive(stores, "aws", *fqid, form, PUBLISHER)
            total = sum(map(len, archives.stream_archive(stores, archive)))
    finally:
        event.remove(stores.catalog.engine, "before_cursor_execute", count)
    assert total == archive.measure() > 100_000_000
    assert statements < 100
