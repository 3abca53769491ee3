"""Source URLs: dispatch, staging folders, areas and the store's own buckets."""

import json
import os
from pathlib import Path

import pytest

from storage.blobs.folder import FolderBlobs
from storage.blobs.signed_urls import UrlSigner
from storage.blobs.sources import SourceSettings, UrlSources, is_in_bucket
from storage.errors import Forbidden, Invalid, RangeNotSatisfiable, SourceChanged, Unprocessable
from storage.keys import area_file_key, area_url
from storage.protocols import SourceObject

AREA = "0a1b2c3d-0000-4000-8000-00000000000f"
BASE = "http://127.0.0.1:8000"
CHECKSUMS = {"store-sha256": "ab" * 32, "content-type": "text/plain"}


def bucket(root: Path) -> FolderBlobs:
    return FolderBlobs(root, UrlSigner(b"s", "aws"))


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    folder = tmp_path / "staging"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def areas(tmp_path: Path) -> FolderBlobs:
    return bucket(tmp_path / "areas")


@pytest.fixture
def replica(tmp_path: Path) -> FolderBlobs:
    return bucket(tmp_path / "staging" / "replica")


@pytest.fixture
def sources(areas: FolderBlobs, replica: FolderBlobs, staging: Path) -> UrlSources:
    return UrlSources(
        SourceSettings(
            areas=areas,
            external_bases=(BASE,),
            staging_roots=(str(staging),),
            own_buckets=(replica,),
        )
    )


def content(source: SourceObject, **which: int) -> bytes:
    return b"".join(source.read(source.head().pin, **which))


# Schemes


@pytest.mark.spec("FIL-19")
@pytest.mark.parametrize(
    "url",
    [
        "http://x/y",
        "ftp://x/y",
        "/etc/passwd",
        "",
        "s3:/x/y",
        f"{BASE}/v1/area/{AREA}/x",
        "S33://b/k",
    ],
)
def test_rejects_other_schemes(sources: UrlSources, url: str) -> None:
    with pytest.raises(Invalid) as caught:
        sources.open(url)
    assert caught.value.code == "unknown_source_schema"


@pytest.mark.spec("FIL-17")
@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "s3:///key", "gs://b", "GS://b/"])
def test_a_cloud_url_names_an_object(sources: UrlSources, url: str) -> None:
    with pytest.raises(Invalid):
        sources.open(url)


# Staging folders


@pytest.mark.spec("FIL-18")
def test_a_staged_file_is_described_by_its_neighbour(sources: UrlSources, staging: Path) -> None:
    (staging / "a b").mkdir()
    path = staging / "a b" / "ü.txt"
    path.write_bytes(b"0123456789")
    path.with_name("ü.txt.store.json").write_text(json.dumps(CHECKSUMS))
    source = sources.open(path.as_uri())
    head = source.head()
    assert (head.size, head.content_type) == (10, "text/plain")
    assert head.metadata == {"store-sha256": "ab" * 32}
    assert content(source) == b"0123456789"
    assert content(source, start=3, length=4) == b"3456"
    with pytest.raises(RangeNotSatisfiable):
        content(source, start=10)


def test_a_file_without_a_neighbour_declares_nothing(sources: UrlSources, staging: Path) -> None:
    (staging / "plain").write_bytes(b"")
    head = sources.open((staging / "plain").as_uri()).head()
    assert (head.size, head.content_type, head.metadata) == (0, None, {})


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}', "x" * 70_000, '"text"'])
def test_reports_malformed_metadata_file(sources: UrlSources, staging: Path, text: str) -> None:
    (staging / "f").write_bytes(b"x")
    (staging / "f.store.json").write_text(text)
    with pytest.raises(Unprocessable) as caught:
        sources.open((staging / "f").as_uri()).head()
    assert caught.value.code == "invalid_checksum"


@pytest.mark.spec("FIL-13")
def test_a_file_that_changes_is_noticed(sources: UrlSources, staging: Path) -> None:
    path = staging / "f"
    path.write_bytes(b"x" * 3_000_000)
    source = sources.open(path.as_uri())
    pin = source.head().pin
    reading = source.read(pin)
    next(reading)
    with path.open("ab") as file:
        file.write(b"y")
    with pytest.raises(SourceChanged):
        list(reading)
    with pytest.raises(SourceChanged):
        list(source.read(pin))
    path.unlink()
    path.write_bytes(b"x" * 3_000_000)
    with pytest.raises(SourceChanged):
        list(source.read(pin))


@pytest.mark.spec("FIL-21")
def test_absent_and_special_files_are_not_found(sources: UrlSources, staging: Path) -> None:
    (staging / "folder").mkdir()
    os.mkfifo(staging / "pipe")
    (staging / "file").write_bytes(b"")
    for name in ("absent", "folder", "pipe", "file/below", "n" * 300):
        with pytest.raises(Unprocessable) as caught:
            sources.open((staging / name).as_uri()).head()
        assert caught.value.code == "source_not_found"


@pytest.mark.spec("FIL-18")
def test_no_symbolic_link_is_followed(sources: UrlSources, staging: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_bytes(b"secret")
    (staging / "link").symlink_to(tmp_path / "secret" / "file")
    (staging / "folder").symlink_to(tmp_path / "secret")
    (staging / "real").write_bytes(b"x")
    (staging / "real.store.json").symlink_to(tmp_path / "secret" / "file")
    for name in ("link", "folder/file", "real"):
        with pytest.raises(Unprocessable):
            sources.open((staging / name).as_uri()).head()


@pytest.mark.spec("FIL-18")
def test_a_root_may_itself_be_reached_by_a_link(areas: FolderBlobs, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "f").write_bytes(b"x")
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    for root, asked in (("alias", "alias"), ("alias", "real")):
        roots = (str(tmp_path / root),)
        sources = UrlSources(SourceSettings(areas=areas, staging_roots=roots))
        assert content(sources.open((tmp_path / asked / "f").as_uri())) == b"x"


@pytest.mark.spec("FIL-18")
@pytest.mark.parametrize(
    "path", ["/etc/passwd", "{staging}x/f", "{staging}", "{staging}/", "{staging}//f"]
)
def test_outside_of_the_staging_folders_nothing_is_read(
    sources: UrlSources, staging: Path, path: str
) -> None:
    with pytest.raises(Forbidden):
        sources.open("file://" + path.format(staging=staging))


@pytest.mark.spec("FIL-18")
@pytest.mark.parametrize(
    "rest",
    [
        "{staging}/../secret",
        "{staging}/%2e%2e/secret",
        "{staging}/./f",
        "otherhost{staging}/f",
        "{staging}/f?x",
        "{staging}/f#x",
        "{staging}/%00",
        "{staging}/%ff",
        "relative",
        "[broken",
    ],
)
def test_a_malformed_file_url_is_invalid(sources: UrlSources, staging: Path, rest: str) -> None:
    with pytest.raises(Invalid):
        sources.open("file://" + rest.format(staging=staging))


# Upload areas


@pytest.mark.spec("ARE-02")
def test_an_uploaded_file_is_a_source_by_the_url_it_was_put_to(
    sources: UrlSources, areas: FolderBlobs
) -> None:
    key = area_file_key(AREA, "a b/ü?.txt")
    areas.put(key, b"content", content_type="text/plain", metadata={"store-sha1": "x"})
    for url in (area_url(BASE, AREA, "a b/ü?.txt"), areas.direct_url(key)):
        assert sources.resolve_area_key(url) == key
        source = sources.open(url)
        assert source.head().metadata == {"store-sha1": "x"}
        assert source.head().content_type == "text/plain"
        assert content(source, start=3) == b"tent"


def test_reports_absent_and_changed_uploads(sources: UrlSources, areas: FolderBlobs) -> None:
    key = area_file_key(AREA, "f")
    source = sources.open(area_url(BASE, AREA, "f"))
    with pytest.raises(Unprocessable):
        source.head()
    pin = areas.put(key, b"one").pin
    areas.delete(key)
    with pytest.raises(Unprocessable):
        list(source.read(pin))
    areas.put(key, b"two")
    with pytest.raises(SourceChanged):
        list(source.read(pin))


@pytest.mark.spec("FIL-18")
def test_the_file_behind_an_uploaded_object_is_not_a_source(
    areas: FolderBlobs, tmp_path: Path
) -> None:
    areas.put(area_file_key(AREA, "Name"), b"content")
    sources = UrlSources(SourceSettings(areas=areas, staging_roots=(str(tmp_path),)))
    inside = [path for path in areas.root.rglob("*") if path.is_file()]
    assert inside
    for path in inside:
        with pytest.raises(Forbidden):
            sources.open(path.as_uri())


def test_other_urls_have_no_area_key(sources: UrlSources, areas: FolderBlobs) -> None:
    for url in ("s3://areas/x", areas.direct_url("areas"), areas.direct_url("epoch"), BASE, ""):
        assert sources.resolve_area_key(url) is None


# The store's own buckets


@pytest.mark.spec("FIL-20")
def test_the_stores_own_folder_is_recognised_however_it_is_spelled(
    sources: UrlSources, replica: FolderBlobs, tmp_path: Path
) -> None:
    (tmp_path / "alias").symlink_to(replica.root)
    for url in (
        replica.direct_url("blobs/ab/x"),
        replica.root.as_uri(),
        f"FILE://{replica.root}/x",
        f"file://localhost{replica.root}/x",
        f"file://{tmp_path}/areas/../staging/replica/x",
        f"file://{str(replica.root).replace('replica', '%72eplica')}/x",
        f"file://{tmp_path}/alias/x",
    ):
        assert sources.is_own_bucket(url)
        with pytest.raises((Forbidden, Invalid)):
            sources.open(url)
    for url in (f"{replica.root.as_uri()}x/k", "file:///", "s3://replica/k", "", "file://[x"):
        assert not sources.is_own_bucket(url)


class Bucket:
    """A store of which only the address is asked."""

    def __init__(self, base: str) -> None:
        self.base = base

    def direct_url(self, key: str) -> str:
        return self.base + key


@pytest.mark.spec("FIL-20")
def test_a_cloud_bucket_is_the_same_at_any_key() -> None:
    store = Bucket("s3://data/prefix/")
    assert is_in_bucket("s3://data/prefix/k", store)  # type: ignore[arg-type]
    assert is_in_bucket("S3://data/elsewhere", store)  # type: ignore[arg-type]
    assert not is_in_bucket("s3://data2/prefix/k", store)  # type: ignore[arg-type]
    assert not is_in_bucket("gs://data/prefix/k", store)  # type: ignore[arg-type]


@pytest.mark.spec("FIL-20")
def test_rejects_access_points(sources: UrlSources) -> None:
    with pytest.raises(Invalid):
        sources.open("s3://arn:aws:s3:us-east-1:123456789012:accesspoint:replica/k")


@pytest.mark.spec("FIL-20")
@pytest.mark.parametrize(
    "alias", ["mine-abc123-s3alias", "mine-abc123--ol-s3", "mfzwi23gnjvgw.mrap"]
)
def test_an_access_point_by_a_buckets_name_counts_as_the_stores_own(
    sources: UrlSources, alias: str
) -> None:
    with pytest.raises(Invalid):
        sources.open(f"s3://{alias}/k")
    assert sources.is_own_bucket(f"s3://{alias}/k")
    assert sources.is_own_bucket(f"S3://{alias}")
    assert not sources.is_own_bucket(f"gs://{alias}/k")
    assert not sources.is_own_bucket(f"s3://another/{alias}")


@pytest.mark.spec("FIL-20")
@pytest.mark.parametrize("scheme", ["s3", "gs"])
@pytest.mark.parametrize("bucket", [".", "..", "%2e%2e", "a..", "-", "a\\b", "a b"])
def test_rejects_names_leading_into_another_bucket(
    sources: UrlSources, scheme: str, bucket: str
) -> None:
    with pytest.raises(Invalid):
        sources.open(f"{scheme}://{bucket}/areas/of-another-owner/x")
