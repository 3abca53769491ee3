"""Specifics of the GCS engine."""

import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import google_crc32c
import pytest

from config import SettingsError
from storage import errors
from storage.blobs.clients import CloudLimits
from storage.blobs.gcs import GcsBlobs, open_gcs_blobs
from storage.protocols import BLOCK, DEFAULT_CONTENT_TYPE
from tests.storage.blobs.backend_gcs import fetch, new_bucket, opened, running
from tests.storage.blobs.gcs_server import Gcs, Trouble

PART = 64 * 1024**2


@pytest.fixture
def gcs(tmp_path: Path) -> Iterator[Gcs]:
    with running(tmp_path) as gcs:
        yield gcs


@pytest.fixture
def store(gcs: Gcs) -> GcsBlobs:
    store = new_bucket(gcs)
    store.put("warm", b"")
    gcs.asked.clear()
    return store


def crc32c(data: bytes) -> str:
    return f"{google_crc32c.value(data):08x}"


# Calls


def test_small_objects_cost_one_call_with_checksum(gcs: Gcs, store: GcsBlobs) -> None:
    put = store.put("k", b"bytes", content_type="x/y", metadata={"a": "b"})
    head = store.head("k")
    copied = store.copy(store, "k", "copy", pin=None, part_size=PART, size=5)
    assert b"".join(store.read("k", pin=put.pin)) == b"bytes"
    store.delete("copy", pin=copied.pin if copied else None)
    assert len(gcs.asked) == 5
    assert {info.crc32c for info in (put, head, copied) if info} == {crc32c(b"bytes")}


def test_a_thousand_and_one_names_are_two_calls(gcs: Gcs, store: GcsBlobs) -> None:
    for number in range(1001):
        gcs.objects.put(store.name, {"name": f"n/{number:04}"}, b"", {})
    assert len(list(store.list("n/"))) == 1001
    assert len(gcs.asked) == 2
    assert all("fields=items%28name%2Csize%2Cgeneration%2Cupdated%29" in line for line in gcs.asked)


def test_an_upload_of_one_part_costs_few_calls(gcs: Gcs, store: GcsBlobs) -> None:
    upload = store.upload("k", part_size=PART, content_type=DEFAULT_CONTENT_TYPE)
    upload.part(1, [b"content"])
    info = upload.complete()
    assert info.crc32c == crc32c(b"content")
    assert gcs.asked[4].partition("?")[0].endswith("/o/k/compose")
    assert len(gcs.asked) == 5 + 3, "cleared away: its words, a listing, its component"


# Content types and metadata


def test_no_object_has_a_content_type_of_googles(gcs: Gcs, store: GcsBlobs) -> None:
    store.put("plain", b"")
    store.put("typed", b"", content_type="text/plain")
    upload = store.upload("uploaded", part_size=PART, content_type="text/plain")
    upload.part(1, [b"x"])
    upload.complete({"late": "1"})
    for key in ("plain", "typed", "uploaded"):
        assert "contentType" not in gcs.objects.get(store.name, key, {}).resource()
    assert gcs.objects.get(store.name, "plain", {}).metadata == {}
    assert store.head("plain").content_type == DEFAULT_CONTENT_TYPE
    assert store.head("typed").metadata == {}
    assert (store.head("uploaded").content_type, store.head("uploaded").metadata) == (
        "text/plain",
        {"late": "1"},
    )


def test_foreign_objects_keep_their_type(gcs: Gcs, store: GcsBlobs) -> None:
    gcs.objects.put(store.name, {"name": "k", "contentType": "image/png"}, b"", {})
    assert store.head("k").content_type == "image/png"


# Keys and listings


@pytest.mark.parametrize("key", [".", "..", ".uploads/", ".uploads/x"])
def test_rejects_reserved_keys(store: GcsBlobs, key: str) -> None:
    for verb in (store.head, store.delete, lambda key: store.put(key, b"")):
        with pytest.raises(errors.Invalid):
            verb(key)


def test_a_listing_jumps_over_unfinished_uploads(gcs: Gcs, store: GcsBlobs) -> None:
    for key in (".a", ".z", "b"):
        store.put(key, b"")
    upload = store.upload("k", part_size=1, content_type=DEFAULT_CONTENT_TYPE)
    for number in range(1, 2500):
        name = f".uploads/{upload.token}/{number:05}"
        gcs.objects.put(store.name, {"name": name}, b"x", {})
    gcs.asked.clear()
    assert [info.key for info in store.list("")] == [".a", ".z", "b", "warm"]
    assert len(gcs.asked) == 2
    assert [info.key for info in store.list("", after=".uploads/0")] == [".z", "b", "warm"]
    assert list(store.list(".uploads/")) == []


# Uploads


def test_joins_more_parts_than_one_compose_takes(gcs: Gcs, store: GcsBlobs) -> None:
    upload = store.upload("k", part_size=2, content_type=DEFAULT_CONTENT_TYPE, metadata={"a": "b"})
    expected = b""
    for number in range(1, 1100):
        data = b"%02d" % (number % 100) if number < 1099 else b"!"
        gcs.objects.put(store.name, {"name": f".uploads/{upload.token}/{number:05}"}, data, {})
        expected += data
    info = upload.complete()
    assert b"".join(store.read("k")) == expected
    assert (info.size, info.crc32c, info.metadata) == (len(expected), crc32c(expected), {"a": "b"})
    composes = [line for line in gcs.asked if "/compose?" in line]
    assert len(composes) == 35 + 2 + 1
    assert [line for line in composes if "ifGenerationMatch=0" in line] == composes[-1:]
    with gcs.objects.bucket(store.name) as objects:
        assert set(objects) == {"k", "warm"}


def test_sweep_removes_what_cleanup_could_not(gcs: Gcs, store: GcsBlobs) -> None:
    upload = store.upload("k", part_size=2, content_type=DEFAULT_CONTENT_TYPE)
    upload.part(1, [b"x"])
    gcs.trouble.append(Trouble("DELETE", times=99, status=503))
    assert upload.complete().size == 1
    gcs.trouble.clear()
    assert store.sweep_temporaries(-60, now=0) == 0
    assert store.sweep_temporaries(-60, now=9e9) == 1
    with gcs.objects.bucket(store.name) as objects:
        assert set(objects) == {"k", "warm"}


def test_keeps_upload_with_recent_part(gcs: Gcs, store: GcsBlobs) -> None:
    old, going = (
        store.upload("k", part_size=2, content_type=DEFAULT_CONTENT_TYPE) for _ in range(2)
    )
    long_ago = gcs.objects.get(store.name, "warm", {}).updated.replace(year=2020)
    for upload in (old, going):
        gcs.objects.age(store.name, f".uploads/{upload.token}/", long_ago)
    going.part(1, [b"x"])
    assert store.sweep_temporaries(3600, now=long_ago.timestamp() + 7200) == 1
    assert going.parts() == {1: 1}
    with pytest.raises(errors.NotFoundError):
        old.parts()


def test_start_object_is_a_frozen_format(gcs: Gcs, store: GcsBlobs) -> None:
    token = "0123456789abcdef" * 2
    words = {"key": "k", "part_size": 2, "content_type": "x/y", "metadata": {"a": "b"}}
    name = f".uploads/{token}/words"
    gcs.objects.put(store.name, {"name": name}, json.dumps(words).encode(), {})
    gcs.objects.put(store.name, {"name": f".uploads/{token}/00001"}, b"x", {})
    upload = store.upload("k", part_size=9, content_type="", token=token)
    assert upload.parts() == {1: 1}
    assert upload.complete().metadata == {"a": "b"}
    begun = store.upload("k", part_size=2, content_type="x/y", metadata={"a": "b"})
    stored = gcs.objects.get(store.name, f".uploads/{begun.token}/words", {})
    assert json.loads(stored.data) == words


def test_replaced_part_is_not_mixed_in(gcs: Gcs, store: GcsBlobs) -> None:
    upload = store.upload("k", part_size=2, content_type=DEFAULT_CONTENT_TYPE)
    upload.part(1, [b"ab"])
    gcs.trouble.append(Trouble("/compose", wait_s=0.3))
    with ThreadPoolExecutor(1) as pool:
        completed = pool.submit(upload.complete)
        while not any("/compose" in line for line in gcs.asked):
            time.sleep(0.01)
        upload.part(1, [b"cd"])
        with pytest.raises(errors.Unavailable, match="again"):
            completed.result()
    assert upload.complete().crc32c == crc32c(b"cd")


# Streams into place


def stream_of(data: bytes, ends: str = "") -> Iterator[bytes]:
    yield from (data[at : at + BLOCK] for at in range(0, len(data), BLOCK))
    if ends:
        raise errors.SourceChanged(ends)


@pytest.mark.parametrize("size", [0, 1, 8 * BLOCK, 8 * BLOCK + 1, 65 * BLOCK, 66 * BLOCK])
def test_an_object_of_any_size_is_streamed_into_place(store: GcsBlobs, size: int) -> None:
    data = bytes(size)
    info = store.put_stream("k", stream_of(data), size=size, crc32c=crc32c(data))
    assert (info.size, info.crc32c, info.content_type) == (size, crc32c(data), DEFAULT_CONTENT_TYPE)
    assert store.head("k") == info
    with pytest.raises(errors.AlreadyExists):
        store.put_stream("k", stream_of(data), size=size, crc32c=crc32c(data))


@pytest.mark.parametrize("size", [1, 9 * BLOCK, 65 * BLOCK])
def test_a_stream_that_fails_at_its_very_end_leaves_nothing(store: GcsBlobs, size: int) -> None:
    data = bytes(size)
    with pytest.raises(errors.SourceChanged, match="damaged"):
        store.put_stream("k", stream_of(data, "damaged"), size=size, crc32c=crc32c(data))
    with pytest.raises(errors.NotFoundError):
        store.head("k")


@pytest.mark.parametrize("size", [1, 9 * BLOCK])
def test_a_stream_of_other_bytes_or_of_another_size_leaves_nothing(
    store: GcsBlobs, size: int
) -> None:
    wanted = crc32c(bytes(size))
    for data in (b"x" * size, bytes(size - 1), bytes(size + 1)):
        with pytest.raises((errors.Unavailable, errors.Invalid)):
            store.put_stream("k", stream_of(data), size=size, crc32c=wanted)
        with pytest.raises(errors.NotFoundError):
            store.head("k")


def test_stream_takes_two_requests(gcs: Gcs, store: GcsBlobs) -> None:
    data = bytes(64 * BLOCK)
    store.put_stream("k", stream_of(data), size=len(data), crc32c=crc32c(data))
    assert len(gcs.asked) == 2


def test_a_pin_of_another_engine_names_nothing(store: GcsBlobs) -> None:
    store.put("k", b"x")
    store.delete("k", pin='e:"0"')
    assert store.head("k").size == 1
    with pytest.raises(errors.SourceChanged):
        store.write_metadata("k", {"a": "1"}, pin='e:"0"')


# Where and who


def test_a_bucket_that_is_not_there_is_a_fault_of_the_installation(gcs: Gcs) -> None:
    there, absent = new_bucket(gcs), opened(gcs.endpoint, "absent")
    pin = there.put("k", b"x").pin
    for attempt in (
        lambda: absent.head("k"),
        lambda: absent.put("k", b""),
        lambda: absent.delete("k"),
        lambda: list(absent.read("k")),
        lambda: list(absent.list("")),
        lambda: absent.upload("k", part_size=1, content_type=DEFAULT_CONTENT_TYPE),
        lambda: absent.copy(there, "k", "k", pin=None, part_size=PART),
        lambda: absent.copy(there, "k", "k", pin=pin, part_size=PART),
        lambda: there.copy(absent, "k", "l", pin=None, part_size=PART),
    ):
        with pytest.raises(errors.Unavailable, match="absent"):
            attempt()


def test_a_sibling_is_a_bucket_that_is_there_and_ours_to_write(gcs: Gcs, store: GcsBlobs) -> None:
    gcs.objects.make_bucket("beside")
    sibling = store.open_sibling("beside")
    sibling.put("k", b"x")
    assert [info.key for info in sibling.list("")] == ["k"]
    with pytest.raises(errors.NotFoundError):
        store.open_sibling("nowhere")
    gcs.trouble.append(Trouble("/beside/", status=403))
    with pytest.raises(errors.Forbidden):
        store.open_sibling("beside")


def test_replaces_withdrawn_token(gcs: Gcs, store: GcsBlobs) -> None:
    gcs.tokens.withdraw()
    assert store.put("k", b"x").size == 1


def test_custom_server_may_be_anonymous_but_signs_nothing(
    gcs: Gcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    store = opened(gcs.endpoint, "b", CloudLimits(attempts=1))
    with pytest.raises(errors.Unavailable, match="credentials"):
        store.head("k")
    with pytest.raises(errors.Unavailable, match="sign"):
        store.sign("k", expires_s=60)


def test_the_ambient_emulator_is_found(gcs: Gcs, monkeypatch: pytest.MonkeyPatch) -> None:
    gcs.objects.make_bucket("b")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.endpoint)
    store = open_gcs_blobs("gs://b", CloudLimits(read_s=7))
    store.put("k", b"x")
    assert [info.key for info in store.list("")] == ["k"]


@pytest.mark.parametrize(
    "url",
    [
        "gs://",
        "gs://b/k",
        "s3://b",
        "gs://b?region=x",
        "gs://b?endpoint=ftp://x",
        "gs://b?public=x",
    ],
)
def test_a_url_that_cannot_be_used_stops_the_start(url: str) -> None:
    with pytest.raises(SettingsError, match="bucket URL"):
        open_gcs_blobs(url, CloudLimits())


# Signed URLs


def test_a_signed_url_names_the_public_endpoint(gcs: Gcs, store: GcsBlobs) -> None:
    public = gcs.endpoint.replace("127.0.0.1", "localhost")
    store.put("a b/ü", b"content", content_type="text/plain")
    named = open_gcs_blobs(
        f"gs://{store.name}?endpoint={gcs.endpoint}&public={public}/", CloudLimits()
    )
    url = named.sign("a b/ü", expires_s=60, content_type="text/html; charset=utf-8")
    assert url.startswith(f"{public}/{store.name}/a%20b/%C3%BC?")
    assert fetch(url).content_type == "text/html; charset=utf-8"


def test_a_signed_url_is_refused_once_it_has_expired(gcs: Gcs, store: GcsBlobs) -> None:
    url = store.sign("warm", expires_s=60)
    assert fetch(url).status == 200
    assert fetch(store.sign("warm", expires_s=10**9)).status == 200, "as long as GCS allows"
    gcs.ahead = timedelta(seconds=61)
    assert fetch(url).status == 403


def test_headers_that_break_lines_are_not_signed(store: GcsBlobs) -> None:
    with pytest.raises(errors.Invalid):
        store.sign("k", expires_s=60, disposition="attachment\r\nSet-Cookie: a=b")


# Copies


@pytest.fixture
def slow_copies(gcs: Gcs, store: GcsBlobs) -> GcsBlobs:
    gcs.objects.rewritten_per_call = 10
    store.put("from", b"0123456789" * 4 + b"end")
    gcs.asked.clear()
    return store


def test_copy_continues_until_done(gcs: Gcs, slow_copies: GcsBlobs) -> None:
    told: list[tuple[bool, int]] = []
    info = slow_copies.copy(
        slow_copies,
        "from",
        "to",
        pin=None,
        part_size=PART,
        progress=lambda token, done: told.append((bool(token), done)),
    )
    assert info is not None
    assert info.crc32c == crc32c(b"0123456789" * 4 + b"end")
    assert told == [(False, 0), (True, 10), (True, 20), (True, 30), (True, 40), (False, 43)]
    assert len(gcs.asked) == 6, "the source's description, and five calls"


@pytest.mark.parametrize("pinned", [True, False])
def test_resumes_killed_copy(gcs: Gcs, slow_copies: GcsBlobs, pinned: bool) -> None:
    tokens: list[str] = []

    def die(token: str, done: int) -> None:
        tokens.append(token)
        if done == 30:
            raise errors.DomainError("killed")

    pin = slow_copies.head("from").pin if pinned else None
    copy = slow_copies.copy
    with pytest.raises(errors.DomainError, match="killed"):
        copy(slow_copies, "from", "to", pin=pin, part_size=PART, progress=die)
    gcs.asked.clear()
    again = copy(slow_copies, "from", "to", pin=pin, part_size=PART, resume=tokens[-1])
    assert again is not None
    assert again.size == 43
    assert len([line for line in gcs.asked if "rewriteTo" in line]) == 2


@pytest.mark.parametrize("token", ["unknown", "of other bytes"])
def test_refused_token_restarts_copy(gcs: Gcs, slow_copies: GcsBlobs, token: str) -> None:
    if token == "of other bytes":
        tokens: list[str] = []

        def die(token: str, done: int) -> None:
            tokens.append(token)
            if done:
                raise errors.DomainError("killed")

        with pytest.raises(errors.DomainError, match="killed"):
            slow_copies.copy(slow_copies, "from", "to", pin=None, part_size=PART, progress=die)
        token = tokens[-1]
        slow_copies.put("from", b"other bytes, more than ten", replace=True)
    info = slow_copies.copy(slow_copies, "from", "to", pin=None, part_size=PART, resume=token)
    assert info is not None
    assert info.crc32c == slow_copies.head("from").crc32c


@pytest.mark.parametrize("pinned", [True, False])
def test_week_old_token_restarts_copy(gcs: Gcs, slow_copies: GcsBlobs, pinned: bool) -> None:
    pin = slow_copies.head("from").pin if pinned else None
    gcs.trouble.append(Trouble("rewriteToken=old", status=410))
    info = slow_copies.copy(slow_copies, "from", "to", pin=pin, part_size=PART, resume="old")
    assert info is not None
    assert info.size == 43


def test_refuses_copy_onto_existing_key(slow_copies: GcsBlobs) -> None:
    slow_copies.put("to", b"kept")
    with pytest.raises(errors.AlreadyExists):
        slow_copies.copy(slow_copies, "from", "to", pin=None, part_size=PART, resume="x")


def test_a_range_far_outside_of_an_empty_object_is_refused(store: GcsBlobs) -> None:
    with pytest.raises(errors.RangeNotSatisfiable):
        list(store.read("warm", start=1))


def test_logs_no_credentials(gcs: Gcs, store: GcsBlobs, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        store.put("k", b"x")
        store.sign("k", expires_s=60)
    assert "Bearer" not in caplog.text
    assert "Signature" not in caplog.text


@pytest.mark.spec("BUN-16")
def test_a_direct_url_names_the_bucket_and_the_key(store: GcsBlobs) -> None:
    assert store.direct_url("blobs/ab/cd") == f"gs://{store.name}/blobs/ab/cd"
