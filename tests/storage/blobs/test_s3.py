"""Specifics of the S3 engine: call counts, versions, multipart copies, URLs."""

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from config import SettingsError
from storage.blobs.clients import CloudLimits
from storage.blobs.s3 import S3Blobs, open_s3_blobs
from storage.blobs.s3_upload import S3Upload
from storage.errors import AlreadyExists, DomainError, Invalid, NotFoundError, SourceChanged
from storage.protocols import BlobInfo
from tests.storage.blobs.backend_s3 import (
    MIN_PART,
    SIMULATED,
    admin,
    fetch,
    new_bucket,
    opened,
    remove_bucket,
)
from tests.storage.blobs.s3_server import ASKED, lasting_s3, s3_server

TYPE = "text/plain"


@pytest.fixture(autouse=True)
def _ambient() -> Iterator[None]:
    with patch.dict(os.environ, SIMULATED):
        yield


@pytest.fixture
def blobs() -> Iterator[S3Blobs]:
    yield from fresh(lasting_s3(), versioned=False)


@pytest.fixture
def versioned() -> Iterator[S3Blobs]:
    yield from fresh(lasting_s3(), versioned=True)


def fresh(endpoint: str, *, versioned: bool) -> Iterator[S3Blobs]:
    name = new_bucket(admin(endpoint), versioned=versioned)
    yield opened(endpoint, name)
    remove_bucket(admin(endpoint), name)


@contextmanager
def asked() -> Iterator[list[str]]:
    """What the server is asked while the block lasts, told when it ends."""
    before, made = len(ASKED), list[str]()
    yield made
    made += ASKED[before:]


def content(store: S3Blobs, key: str) -> bytes:
    return b"".join(store.read(key))


def versions(store: S3Blobs) -> list[Any]:
    page = admin(lasting_s3()).list_object_versions(Bucket=store.name)
    return [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]


# Calls


@pytest.mark.parametrize("kind", ["blobs", "versioned"])
def test_hot_paths_are_a_call_or_two_each(kind: str, request: pytest.FixtureRequest) -> None:
    store: S3Blobs = request.getfixturevalue(kind)
    store.put("first", b"abc")

    def copy(key: str, target: str, pin: str | None = None) -> BlobInfo:
        copied = store.copy(store, key, target, pin=pin, part_size=MIN_PART, size=3)
        assert copied is not None
        return copied

    copy("first", "learnt")
    with asked() as made:
        put = store.put("blobs/k", b"abc", metadata={"a": "b"})
        small = store.put("k", b"abc", metadata={"a": "b"})
        head = store.head("blobs/k")
        pinned = copy("blobs/k", "pinned", put.pin)
        content(store, "k")
        store.sign("k", expires_s=5)
    assert made == ["PUT", "PUT", "HEAD", "PUT copy", "GET"]
    assert put.crc32c == head.crc32c == pinned.crc32c == "364b3fb7"
    assert put.etag == small.etag == head.etag == pinned.etag == "900150983cd24fb0d6963f7d28e17f72"
    assert small.pin == store.head("k").pin
    with asked() as made:
        copied = copy("k", "copy")
    assert made == ["PUT copy", "HEAD"]
    assert copied.etag == put.etag
    assert copied.pin == store.head("copy").pin


def test_an_etag_is_compared_in_one_call(blobs: S3Blobs) -> None:
    info = blobs.put("blobs/k", b"abc")
    assert info.etag is not None
    with asked() as made:
        assert blobs.matches("blobs/k", size=3, etag=info.etag)
    assert made == ["HEAD"]
    assert not blobs.matches("blobs/k", size=4, etag=info.etag)
    assert not blobs.matches("blobs/k", size=3, etag="0" * 32)
    assert not blobs.matches("blobs/absent", size=3, etag=info.etag)


def test_an_uploads_checksum_is_that_of_all_bytes(blobs: S3Blobs) -> None:
    upload = blobs.upload("k", part_size=MIN_PART, content_type=TYPE)
    upload.part(1, [b"a" * MIN_PART])
    upload.part(2, [b"b"])
    info = upload.complete()
    assert info.crc32c == blobs.head("k").crc32c is not None
    assert info.etag is not None
    assert info.etag.endswith("-2")


def test_reads_tags_only_where_needed(blobs: S3Blobs) -> None:
    upload = blobs.upload("k", part_size=MIN_PART, content_type=TYPE)
    upload.complete({"store-sha1": "a" * 40})
    with asked() as made:
        assert blobs.head("k").metadata == {"store-sha1": "a" * 40}
    assert made == ["HEAD", "GET tagging"]


def test_crash_before_tags_leaves_no_old_metadata(
    blobs: S3Blobs,
) -> None:
    def begun(content: bytes) -> S3Upload:
        upload = blobs.upload("k", part_size=MIN_PART, content_type=TYPE)
        upload.part(1, [content])
        return upload

    begun(b"old").complete({"store-sha1": "a" * 40})
    dying, server = begun(b"new"), admin(lasting_s3())
    named = {"Bucket": blobs.name, "Key": "k", "UploadId": dying.token}
    spoken = [
        {name: part[name] for name in ("PartNumber", "ETag", "ChecksumCRC32C") if name in part}
        for part in server.list_parts(**named)["Parts"]
    ]
    server.complete_multipart_upload(**named, MultipartUpload={"Parts": spoken})
    assert (blobs.head("k").size, blobs.head("k").metadata) == (3, {})
    begun(b"newer").complete({"store-sha1": "b" * 40}, replace=True)
    assert blobs.head("k").metadata == {"store-sha1": "b" * 40}


# Versions


def test_delete_removes_all_versions(versioned: S3Blobs) -> None:
    for text in (b"one", b"two", b"three"):
        versioned.put("k", text, replace=True)
    versioned.put("k/below", b"kept")
    versioned.delete("k")
    assert [entry["Key"] for entry in versions(versioned)] == ["k/below"]


def test_pinned_delete_reveals_no_older_version(versioned: S3Blobs) -> None:
    old = versioned.put("k", b"old").pin
    new = versioned.put("k", b"new", replace=True).pin
    with pytest.raises(SourceChanged):
        versioned.delete("k", pin=old)
    versioned.delete("k", pin=new)
    with pytest.raises(NotFoundError):
        versioned.head("k")
    assert versions(versioned) == []


def test_accepts_listed_pin_in_versioned_bucket(versioned: S3Blobs) -> None:
    versioned.put("k", b"bytes")
    (info,) = versioned.list("")
    versioned.copy(versioned, "k", "copy", pin=info.pin, part_size=MIN_PART)
    versioned.delete("k", pin=info.pin)
    assert [entry["Key"] for entry in versions(versioned)] == ["copy"]


# Copies


DATA = b"".join(bytes([n]) * MIN_PART for n in range(3)) + b"tail"


def test_multipart_copy_has_etag_of_its_parts(blobs: S3Blobs) -> None:
    pin = blobs.put("from", DATA, content_type=TYPE, metadata={"a": "b"}).pin
    seen: list[tuple[str, int]] = []
    info = blobs.copy(
        blobs, "from", "to", pin=pin, part_size=MIN_PART, progress=lambda *at: seen.append(at)
    )
    assert info is not None
    assert info.etag is not None
    assert info.etag.endswith("-4")
    assert content(blobs, "to") == DATA
    head = blobs.head("to")
    assert (head.content_type, head.metadata, head.pin) == (TYPE, {"a": "b"}, info.pin)
    assert seen[0][1] == 0
    assert seen[-1][1] == len(DATA)
    assert all(token for token, _ in seen)


def test_resumes_killed_copy(blobs: S3Blobs) -> None:
    pin = blobs.put("from", DATA).pin
    tokens: list[str] = []

    def dying(token: str, done: int) -> None:
        tokens.append(token)
        if done >= MIN_PART:
            raise DomainError("killed")

    copy = functools.partial(blobs.copy, blobs, "from", "to", pin=pin, part_size=MIN_PART)
    with pytest.raises(DomainError, match="killed"):
        copy(progress=dying)
    with pytest.raises(NotFoundError):
        blobs.head("to")
    (kept,) = admin(lasting_s3()).list_multipart_uploads(Bucket=blobs.name)["Uploads"]
    there = blobs.upload("to", part_size=MIN_PART, content_type=TYPE, token=tokens[-1]).parts()
    with asked() as made:
        copy(resume=tokens[-1])
    assert kept["UploadId"] == tokens[-1]
    assert 1 <= len(there) <= 4
    assert made.count("PUT copy partNumber uploadId") == 4 - len(there)
    assert "POST uploads" not in made
    assert content(blobs, "to") == DATA


def test_lost_token_restarts_copy(blobs: S3Blobs) -> None:
    blobs.put("from", DATA)
    blobs.copy(blobs, "from", "to", pin=None, part_size=MIN_PART, resume="gone")
    assert content(blobs, "to") == DATA


def test_a_large_copy_never_replaces_and_leaves_no_parts(blobs: S3Blobs) -> None:
    blobs.put("from", DATA)
    blobs.put("to", b"kept")
    with pytest.raises(AlreadyExists):
        blobs.copy(blobs, "from", "to", pin=None, part_size=MIN_PART)
    assert content(blobs, "to") == b"kept"
    assert "Uploads" not in admin(lasting_s3()).list_multipart_uploads(Bucket=blobs.name)


def test_copy_ignores_bytes_written_meanwhile(blobs: S3Blobs) -> None:
    blobs.put("from", DATA)

    def change(_token: str, done: int) -> None:
        if not done:
            blobs.put("from", DATA + b"other", replace=True)

    with pytest.raises(SourceChanged):
        blobs.copy(blobs, "from", "to", pin=None, part_size=MIN_PART, progress=change)
    with pytest.raises(NotFoundError):
        blobs.head("to")
    assert "Uploads" not in admin(lasting_s3()).list_multipart_uploads(Bucket=blobs.name)


def test_tags_are_copied_too(blobs: S3Blobs) -> None:
    for key, size in (("small", 3), ("large", MIN_PART)):
        upload = blobs.upload(key, part_size=MIN_PART, content_type=TYPE)
        upload.part(1, [b"x" * size])
        if size == MIN_PART:
            upload.part(2, [b"y"])
        upload.complete({"store-sha1": "a"})
        blobs.copy(blobs, key, f"{key}-copy", pin=None, part_size=MIN_PART)
        assert blobs.head(f"{key}-copy").metadata == {"store-sha1": "a"}


def test_probes_server_that_ignores_copy_conditions() -> None:
    with s3_server(careless=True) as endpoint:
        for store in fresh(endpoint, versioned=False):
            store.put("from", b"new")
            store.put("to", b"kept")
            copy = functools.partial(store.copy, store, "from", pin=None, part_size=9, size=3)
            for turn in range(2):
                with pytest.raises(AlreadyExists):
                    copy("to")
                copy(f"free {turn}")
            assert content(store, "to") == b"kept"
            with asked() as made:
                copy("another")
            assert made == ["HEAD", "PUT copy", "HEAD"]
        admin(endpoint).close()


def test_copies_nothing_between_servers_or_credentials(blobs: S3Blobs) -> None:
    for url in ("s3://b?endpoint=http://127.0.0.1:9", f"s3://b?endpoint={lasting_s3()}&profile=p"):
        other = open_s3_blobs(url, CloudLimits())
        assert blobs.copy(other, "k", "k", pin=None, part_size=MIN_PART) is None


# Buckets and URLs


def test_a_sibling_is_another_bucket_by_the_same_client(blobs: S3Blobs) -> None:
    client = admin(lasting_s3())
    name = new_bucket(client, versioned=False)
    sibling = blobs.open_sibling(name)
    sibling.put("k", b"bytes")
    assert content(sibling, "k") == b"bytes"
    assert sibling._connected() is blobs._connected()
    assert "Uploads" not in client.list_multipart_uploads(Bucket=name)
    remove_bucket(client, name)
    with pytest.raises(NotFoundError):
        blobs.open_sibling("there-is-no-such-bucket")


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("s3://bucket?endpiont=http://x", "endpiont"),
        ("s3://bucket?endpoint=x", "endpoint"),
        ("s3://bucket/prefix", "s3://<bucket>"),
        ("s3://", "s3://<bucket>"),
        ("gs://bucket", "s3://<bucket>"),
    ],
)
def test_a_url_that_cannot_be_used_is_named(url: str, named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        open_s3_blobs(url, CloudLimits())


def test_signed_urls_use_public_name(blobs: S3Blobs) -> None:
    blobs.put("a/b c", b"bytes")
    port = lasting_s3().rpartition(":")[2]
    public = open_s3_blobs(
        f"s3://{blobs.name}?endpoint={lasting_s3()}&public=http://localhost:{port}/", CloudLimits()
    )
    url = public.sign("a/b c", expires_s=60)
    assert url.startswith(f"http://localhost:{port}/{blobs.name}/a/b%20c?")
    assert fetch(url).body == b"bytes"


def test_amazons_urls_name_the_bucket_and_the_region() -> None:
    url = open_s3_blobs("s3://bucket?region=eu-central-1", CloudLimits()).sign("k", expires_s=10**9)
    assert url.startswith("https://bucket.s3.eu-central-1.amazonaws.com/k?")
    assert "%2Feu-central-1%2Fs3%2Faws4_request" in url
    assert "X-Amz-Expires=604800" in url


def test_a_header_of_two_lines_is_never_signed(blobs: S3Blobs) -> None:
    with pytest.raises(Invalid):
        blobs.sign("k", expires_s=60, disposition="attachment\r\nx: y")


@pytest.mark.spec("BUN-16")
def test_a_direct_url_names_the_bucket_and_the_key(blobs: S3Blobs) -> None:
    assert blobs.direct_url("blobs/ab/cd") == f"s3://{blobs.name}/blobs/ab/cd"


def test_rejects_put_of_existing_blob(blobs: S3Blobs) -> None:
    blobs.put("blobs/k", b"abc")

    with pytest.raises(AlreadyExists):
        blobs.put("blobs/k", b"def")

    assert content(blobs, "blobs/k") == b"abc"
