"""What every blob store must do, whatever engine is behind it.

A backend enrols by a `Backend` in the parameters of one fixture, `tests/storage/blobs/`.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import pytest

from storage.errors import (
    AlreadyExists,
    DomainError,
    Invalid,
    NotFoundError,
    RangeNotSatisfiable,
    SourceChanged,
)
from storage.protocols import BLOCK, BlobStore
from tests.waiting import until

pytestmark = pytest.mark.spec("ARE-21", "OPS-18")

TYPE = 'application/json; dcp-type="metadata/biomaterial"'
META = {"store-sha256": "ab" * 32, "store-s3_etag": "0" * 32 + "-2", "empty": ""}


@dataclass(frozen=True)
class Answer:
    """What a GET of a signed URL brought."""

    status: int
    body: bytes
    content_type: str | None
    disposition: str | None


@dataclass(frozen=True)
class Backend:
    """How to open two fresh buckets of one engine, and how anybody would GET a signed URL.

    `in_process(function, count)` runs `function(bucket one, n)` in that many processes at once.
    """

    store: BlobStore
    other: BlobStore
    fetch: Callable[[str], Answer]
    in_processes: Callable[[Callable[[BlobStore, int], str], int], list[str]]
    min_part: int
    """Smallest part that is not the last."""
    area: BlobStore | None = None
    """Bucket one as upload areas are opened, if that is another way."""


def content(store: BlobStore, key: str, **which: object) -> bytes:
    return b"".join(store.read(key, **which))  # type: ignore[arg-type]


def keys(store: BlobStore, prefix: str = "", after: str = "") -> list[str]:
    return [info.key for info in store.list(prefix, after=after)]


def put_own_number(store: BlobStore, number: int) -> str:
    """Race for one key from another process."""
    try:
        store.put("race/processes", b"%d" % number * 1000)
    except AlreadyExists:
        return "lost"
    return str(number)


class BlobStoreContract:
    """Subclassed where the fixture `backend` lives."""

    @pytest.fixture
    def store(self, backend: Backend) -> BlobStore:
        return backend.store

    # One object

    def test_put_is_read_back_with_type_and_metadata(self, store: BlobStore) -> None:
        put = store.put("files/ab/x.y", b"bytes", content_type=TYPE, metadata=META)
        head = store.head("files/ab/x.y")
        assert content(store, "files/ab/x.y") == b"bytes"
        assert (head.key, head.size, head.content_type) == ("files/ab/x.y", 5, TYPE)
        assert META.items() <= head.metadata.items()
        assert head.pin == put.pin

    def test_an_empty_object_is_an_object(self, store: BlobStore) -> None:
        store.put("empty", b"")
        assert store.head("empty").size == 0
        assert content(store, "empty") == b""
        assert content(store, "empty", start=0, length=10) == b""

    def test_an_absent_key_is_not_found(self, store: BlobStore) -> None:
        store.put("folder/file", b"x")
        for absent in ("nothing", "folder", "folder/", "folder/file/below"):
            with pytest.raises(NotFoundError):
                store.head(absent)
            with pytest.raises(NotFoundError):
                content(store, absent)

    def test_existing_key_keeps_first_bytes(self, store: BlobStore) -> None:
        store.put("k", b"first", metadata={"a": "1"})
        with pytest.raises(AlreadyExists):
            store.put("k", b"second")
        assert content(store, "k") == b"first"
        assert store.head("k").metadata["a"] == "1"

    def test_delete_forgives_absence_and_frees_the_key(self, store: BlobStore) -> None:
        store.delete("a/b/c")
        store.put("a/b/c", b"1")
        store.delete("a/b/c")
        with pytest.raises(NotFoundError):
            store.head("a/b/c")
        store.put("a/b/c", b"2")
        assert content(store, "a/b/c") == b"2"

    def test_a_pinned_delete_spares_a_newer_object(self, store: BlobStore) -> None:
        old = store.put("k", b"old").pin
        store.delete("k", pin=old)
        store.put("k", b"new")
        with pytest.raises(SourceChanged):
            store.delete("k", pin=old)
        assert content(store, "k") == b"new"

    @pytest.mark.parametrize("key", ["", "x" * 901, "é" * 451, "a\nb", "a\0b", "\ud800"])
    def test_a_key_that_cannot_be_is_invalid(self, store: BlobStore, key: str) -> None:
        with pytest.raises(Invalid):
            store.put(key, b"")
        with pytest.raises(Invalid):
            store.head(key)

    @pytest.mark.parametrize(
        "metadata", [{"Upper": "x"}, {"a": "é"}, {"a": "b\nc"}, {"a": "x" * 2048}, {"": "x"}]
    )
    def test_metadata_that_not_every_engine_carries_is_invalid(
        self, store: BlobStore, metadata: dict[str, str]
    ) -> None:
        with pytest.raises(Invalid):
            store.put("k", b"", metadata=metadata)
        with pytest.raises(NotFoundError):
            store.head("k")

    @pytest.mark.parametrize(
        "key",
        [
            "../escape",
            "a/../../escape",
            "./x",
            ".hidden",
            "/rooted",
            "a//b",
            "trailing/",
            "UPPER",
            "sp ace",
            "q?u#e%ry&=+",
            "ünï/cödé",
            "%2e%2e/x",
            "~",
            "a+/b",
            "long/" + "n" * 255,
            "long/" + "É" * 300,
            "/".join("deep" for _ in range(150)),
        ],
    )
    def test_any_text_is_a_key_of_its_own(self, store: BlobStore, key: str) -> None:
        store.put(key, key.encode())
        assert content(store, key) == key.encode()
        assert keys(store) == [key]
        store.delete(key)
        assert keys(store) == []

    def test_no_key_is_in_the_way_of_another(self, store: BlobStore) -> None:
        similar = [
            "a",
            "A",
            "a/b",
            "a/b/c",
            "a+",
            "a+/b",
            "%61",
            "a.",
            ".a",
            "é",
            "e\u0301",
            "Ǆ",
            "ǆ",
        ]
        for key in similar:
            store.put(key, key.encode())
        assert [content(store, key).decode() for key in similar] == similar
        assert sorted(keys(store)) == sorted(similar)

    # Ranges and pins

    @pytest.mark.parametrize(
        ("start", "length", "expected"),
        [
            (0, None, b"0123456789"),
            (0, 3, b"012"),
            (4, None, b"456789"),
            (4, 2, b"45"),
            (9, 1, b"9"),
            (8, 100, b"89"),
            (3, 0, b""),
        ],
    )
    def test_reads_requested_range(
        self, store: BlobStore, start: int, length: int | None, expected: bytes
    ) -> None:
        store.put("k", b"0123456789")
        assert content(store, "k", start=start, length=length) == expected

    @pytest.mark.parametrize("start", [10, 11])
    def test_a_range_outside_is_refused(self, store: BlobStore, start: int) -> None:
        store.put("k", b"0123456789")
        with pytest.raises(RangeNotSatisfiable):
            content(store, "k", start=start)

    def test_blocks_are_bounded(self, store: BlobStore) -> None:
        store.put("k", bytes(2 * BLOCK + 7))
        assert max(len(block) for block in store.read("k")) <= BLOCK
        assert len(content(store, "k", start=5)) == 2 * BLOCK + 2

    def test_a_pin_names_these_bytes_only(self, store: BlobStore) -> None:
        pin = store.put("k", b"one").pin
        assert content(store, "k", pin=pin) == b"one"
        store.delete("k")
        store.put("k", b"two")
        with pytest.raises(SourceChanged):
            content(store, "k", pin=pin)
        assert store.head("k").pin != pin

    # Listing

    def test_a_listing_is_in_byte_order_from_a_key_on(self, store: BlobStore) -> None:
        names = [
            "a",
            "a-b",
            "a.b",
            "a/b",
            "a/b/c",
            "a/c",
            "a0",
            "B",
            "b",
            "long" * 60,
            "z/é",
            "z/z",
            "é",
        ]
        for name in reversed(names):
            store.put(name, b"")
        ordered = sorted(names, key=str.encode)
        assert keys(store) == ordered
        for after in [*ordered, "a/", "a/b/", "0", "zz", "~", "long" * 10, "long" * 61]:
            later = [name for name in ordered if name.encode() > after.encode()]
            assert keys(store, after=after) == later

    @pytest.mark.parametrize(
        ("prefix", "expected"),
        [
            ("a/", ["a/b/c", "a/bc", "a/c"]),
            ("a/b", ["a/b/c", "a/bc"]),
            ("a/b/", ["a/b/c"]),
            ("a", ["a/b/c", "a/bc", "a/c", "ab"]),
            ("n", []),
            ("a/b/c/d", []),
            ("l" * 250, ["l" * 300 + "/x"]),
        ],
    )
    def test_a_prefix_is_text_not_a_folder(
        self, store: BlobStore, prefix: str, expected: list[str]
    ) -> None:
        for name in ("a/b/c", "a/bc", "a/c", "ab", "b", "l" * 300 + "/x"):
            store.put(name, b"")
        assert keys(store, prefix) == expected
        if expected:
            assert keys(store, prefix, after=expected[0]) == expected[1:]

    def test_listing_has_size_and_pin(self, store: BlobStore) -> None:
        store.put("k", b"12345")
        (info,) = store.list("")
        assert info.size == 5
        assert content(store, "k", pin=info.pin) == b"12345"

    # Uploads

    def test_parts_become_one_object(self, backend: Backend) -> None:
        store, size = backend.store, backend.min_part
        first, second = b"a" * size, b"b" * size
        upload = store.upload("k", part_size=size, content_type=TYPE, metadata=META)
        upload.part(1, [first])
        upload.part(2, [second[: size // 2], second[size // 2 :]])
        upload.part(3, [b"tail"])
        with pytest.raises(NotFoundError):
            store.head("k")
        assert keys(store) == []
        info = upload.complete()
        assert content(store, "k", pin=info.pin) == first + second + b"tail"
        assert store.head("k").content_type == TYPE
        assert META.items() <= store.head("k").metadata.items()

    def test_completion_may_set_metadata(self, store: BlobStore) -> None:
        early, late = {"early": "x" * 1000, "both": "1"}, {"late": "y" * 1000, "both": "2"}
        upload = store.upload("k", part_size=10, content_type=TYPE, metadata=early)
        upload.part(1, [b"content"])
        with pytest.raises(Invalid):
            upload.complete({"late": "y" * 2000})
        upload.complete(late)
        assert {**early, **late}.items() <= store.head("k").metadata.items()
        assert content(store, "k") == b"content"

    def test_the_longest_key_type_and_metadata_are_carried(self, store: BlobStore) -> None:
        key, metadata = "é" * 450, {"m": '"' * 2047}
        upload = store.upload(key, part_size=10, content_type="x/" + "y" * 250)
        upload.part(1, [b"content"])
        upload.complete(metadata)
        assert store.head(key).metadata["m"] == metadata["m"]
        assert content(store, key) == b"content"

    def test_accepts_parts_in_any_order_and_repeated(self, backend: Backend) -> None:
        store, size = backend.store, backend.min_part
        upload = store.upload("k", part_size=size, content_type=TYPE)
        upload.part(2, [b"a tail that was too long"])
        upload.part(1, [b"w" * size])
        upload.part(2, [b"tail"])
        upload.part(1, [b"r" * size])
        upload.complete()
        assert content(store, "k") == b"r" * size + b"tail"

    def test_an_upload_without_parts_is_an_empty_object(self, store: BlobStore) -> None:
        store.upload("k", part_size=5 * 1024**2, content_type=TYPE).complete()
        assert content(store, "k") == b""

    def test_resumes_upload_by_token(self, backend: Backend) -> None:
        store, size = backend.store, backend.min_part
        begun = store.upload("k", part_size=size, content_type=TYPE, metadata=META)
        begun.part(1, [b"x" * size])
        again = store.upload("k", part_size=size, content_type="other/type", token=begun.token)
        assert again.parts() == {1: size}
        again.part(2, [b"y"])
        again.complete()
        assert content(store, "k") == b"x" * size + b"y"
        assert store.head("k").content_type == TYPE

    def test_an_unknown_token_is_not_found(self, store: BlobStore) -> None:
        other = store.upload("other", part_size=1, content_type=TYPE)
        for token in ("0" * 32, "../../etc", "", other.token):
            with pytest.raises(NotFoundError):
                store.upload("k", part_size=1, content_type=TYPE, token=token).parts()

    def test_an_aborted_upload_leaves_nothing(self, store: BlobStore) -> None:
        upload = store.upload("k", part_size=1, content_type=TYPE)
        upload.part(1, [b"x"])
        upload.abort()
        upload.abort()
        with pytest.raises(NotFoundError):
            upload.part(2, [b"y"])
        with pytest.raises(NotFoundError):
            upload.complete()
        assert keys(store) == []

    def test_the_first_of_two_uploads_wins(self, store: BlobStore) -> None:
        uploads = [store.upload("k", part_size=10, content_type=TYPE) for _ in range(2)]
        for number, upload in enumerate(uploads):
            upload.part(1, [b"%d" % number])
        uploads[1].complete()
        with pytest.raises(AlreadyExists):
            uploads[0].complete()
        assert content(store, "k") == b"1"
        with pytest.raises(NotFoundError):
            store.upload("k", part_size=10, content_type=TYPE, token=uploads[0].token).parts()

    def test_an_upload_with_a_gap_or_a_short_part_stays_unfinished(self, backend: Backend) -> None:
        store, size = backend.store, backend.min_part + 1
        upload = store.upload("k", part_size=size, content_type=TYPE)
        upload.part(2, [b"tail"])
        with pytest.raises(Invalid):
            upload.complete()
        upload.part(1, [b"x" * (size - 1)])
        with pytest.raises(Invalid):
            upload.complete()
        upload.part(1, [b"x" * size])
        upload.complete()
        assert store.head("k").size == size + 4

    def test_a_part_that_breaks_off_is_not_stored(self, store: BlobStore) -> None:
        def breaking() -> Iterator[bytes]:
            yield b"x"
            raise SourceChanged("the source went away")

        upload = store.upload("k", part_size=10, content_type=TYPE)
        upload.part(1, [b"whole"])
        with pytest.raises(SourceChanged):
            upload.part(1, breaking())
        with pytest.raises(SourceChanged):
            upload.part(2, breaking())
        assert 2 not in upload.parts()

    def test_a_part_beyond_the_size_or_number_is_invalid(self, store: BlobStore) -> None:
        upload = store.upload("k", part_size=3, content_type=TYPE)
        for number, data in ((0, b"x"), (10_001, b"x"), (1, b"four")):
            with pytest.raises(Invalid):
                upload.part(number, [data])
        assert upload.parts() == {}

    def test_parts_may_be_stored_at_once(self, backend: Backend) -> None:
        size, store = backend.min_part, backend.store
        upload = store.upload("k", part_size=size, content_type=TYPE)
        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(upload.part, n + 1, [bytes([n]) * size]) for n in range(8)]:
                done.result()
        upload.complete()
        assert content(store, "k") == b"".join(bytes([n]) * size for n in range(8))

    def test_sweeps_old_unfinished_uploads(self, store: BlobStore) -> None:
        upload = store.upload("k", part_size=10, content_type=TYPE)
        upload.part(1, [b"x"])
        now = time.time()
        assert store.sweep_temporaries(3600, now=now) == 0
        assert upload.parts() == {1: 1}
        assert store.sweep_temporaries(3600, now=now + 7200) >= 1
        with pytest.raises(NotFoundError):
            upload.parts()
        with pytest.raises(NotFoundError):
            upload.part(2, [b"y"])
        assert keys(store) == []

    # Copies

    def test_copy_is_the_same_object(self, backend: Backend) -> None:
        data = hashlib.sha256(b"seed").digest() * 50_000
        pin = backend.other.put("from", data, content_type=TYPE, metadata=META).pin
        seen: list[int] = []
        info = backend.store.copy(
            backend.other,
            "from",
            "to",
            pin=pin,
            part_size=5 * 1024**2,
            progress=lambda _, n: seen.append(n),
        )
        assert info is not None
        assert content(backend.store, "to", pin=info.pin) == data
        assert backend.store.head("to").content_type == TYPE
        assert META.items() <= backend.store.head("to").metadata.items()
        assert seen[-1] == len(data)

    def test_an_empty_object_is_copied(self, backend: Backend) -> None:
        pin = backend.store.put("from", b"").pin
        backend.store.copy(backend.store, "from", "to", pin=pin, part_size=5 * 1024**2)
        assert backend.store.head("to").size == 0

    def test_copy_never_replaces_or_takes_other_bytes(self, backend: Backend) -> None:
        pin = backend.other.put("from", b"old").pin
        backend.store.put("taken", b"kept")
        copy = backend.store.copy
        with pytest.raises(AlreadyExists):
            copy(backend.other, "from", "taken", pin=pin, part_size=5 * 1024**2)
        backend.other.delete("from")
        with pytest.raises(NotFoundError):
            copy(backend.other, "from", "to", pin=pin, part_size=5 * 1024**2)
        backend.other.put("from", b"new")
        with pytest.raises(SourceChanged):
            copy(backend.other, "from", "to", pin=pin, part_size=5 * 1024**2)
        assert keys(backend.store) == ["taken"]

    def test_a_copy_that_is_stopped_leaves_nothing(self, backend: Backend) -> None:
        def stop(_: str, __: int) -> None:
            raise DomainError("the claim was lost")

        pin = backend.other.put("from", b"x" * 100).pin
        with pytest.raises(DomainError, match="claim"):
            backend.store.copy(
                backend.other, "from", "to", pin=pin, part_size=5 * 1024**2, progress=stop
            )
        backend.store.put("after", b"")
        assert "after" in keys(backend.store)

    def test_a_copy_from_another_engine_is_left_to_the_caller(self, backend: Backend) -> None:
        class Elsewhere:
            pass

        assert backend.store.copy(Elsewhere(), "k", "k", pin="p", part_size=1) is None  # type: ignore[arg-type]

    # Descriptions of what lies there already

    def test_an_object_is_described_after_it_was_stored(self, backend: Backend) -> None:
        store = backend.area or backend.store
        for data in (b"", b"bytes", b"x" * (1024 * 1024 + 7)):
            pin = store.put("areas/k", data, content_type=TYPE, metadata={"own": "1"}, replace=True)
            store.write_metadata("areas/k", META | {"late": "2"}, pin=pin.pin)
            found = store.head("areas/k")
            said = {name: value for name, value in META.items() if value}
            assert {**said, "own": "1", "late": "2"}.items() <= found.metadata.items()
            assert (found.size, found.content_type) == (len(data), TYPE)
            assert content(store, "areas/k", pin=found.pin) == data
            assert keys(store) == ["areas/k"]

    def test_writes_metadata_of_multipart_objects_repeatedly(self, backend: Backend) -> None:
        store, size = backend.area or backend.store, backend.min_part
        upload = store.upload("k", part_size=size, content_type=TYPE, metadata={"early": "1"})
        upload.part(1, [b"a" * size])
        upload.part(2, [b"b"])
        upload.complete({"late": "1", "both": "1"})
        for turn in ("2", "3"):
            info = store.write_metadata("k", {"both": turn, turn: turn}, pin=store.head("k").pin)
            assert info.pin == store.head("k").pin
        told = {"early": "1", "late": "1", "both": "3", "2": "2", "3": "3"}
        assert told.items() <= store.head("k").metadata.items()
        assert content(store, "k") == b"a" * size + b"b"

    def test_writes_metadata_of_pinned_bytes_only(self, backend: Backend) -> None:
        store = backend.area or backend.store
        with pytest.raises(NotFoundError):
            store.write_metadata("k", {"a": "1"}, pin="1")
        old = store.put("k", b"old").pin
        store.put("k", b"new", metadata={"a": "2"}, replace=True)
        with pytest.raises(SourceChanged):
            store.write_metadata("k", {"a": "1"}, pin=old)
        assert store.head("k").metadata["a"] == "2"
        store.delete("k")
        with pytest.raises(NotFoundError):
            store.write_metadata("k", {"a": "1"}, pin=old)
        assert keys(store) == []

    def test_replaced_bytes_have_no_old_metadata(self, backend: Backend) -> None:
        store = backend.area or backend.store
        store.write_metadata("k", {"store-sha1": "1"}, pin=store.put("k", b"old").pin)
        upload = store.upload("k", part_size=backend.min_part, content_type=TYPE)
        upload.part(1, [b"new"])
        upload.complete(replace=True)
        assert "store-sha1" not in store.head("k").metadata

    def test_a_description_that_is_too_long_is_invalid(self, backend: Backend) -> None:
        store = backend.area or backend.store
        pin = store.put("k", b"x", metadata={"a": "x" * 1000}).pin
        with pytest.raises(Invalid):
            store.write_metadata("k", {"b": "x" * 1100}, pin=pin)
        assert "b" not in store.head("k").metadata

    def test_describing_and_replacing_side_by_side_loses_no_bytes(self, backend: Backend) -> None:
        store = backend.area or backend.store
        store.put("areas/one", b"0")

        def describe(_: int) -> None:
            with suppress(SourceChanged):
                info = store.head("areas/one")
                store.write_metadata("areas/one", {"of": info.pin.strip('e:"')}, pin=info.pin)

        def overwrite(number: int) -> None:
            for turn in range(10):
                store.put(f"areas/{number}", b"%d" % turn, replace=True)
                with suppress(SourceChanged):
                    store.write_metadata(
                        f"areas/{number}", {"a": "1"}, pin=store.head("areas/one").pin
                    )
                assert content(store, f"areas/{number}") == b"%d" % turn

        with ThreadPoolExecutor(8) as pool:
            described = [pool.submit(describe, n) for n in range(40)]
            for number in range(40):
                store.put("areas/one", b"%d" % number, replace=True)
            for done in [*described, *(pool.submit(overwrite, n) for n in range(4))]:
                done.result()
        assert content(store, "areas/one") == b"39"

    # URLs

    @pytest.mark.spec("BUN-15")
    def test_signed_url_returns_requested_headers(self, backend: Backend) -> None:
        key = "checkouts/a b/ü+?#%.txt"
        backend.store.put(key, b"content", content_type="text/plain")
        for asked in ('attachment; filename="a b"', "inline"):
            url = backend.store.sign(key, expires_s=60, content_type="text/html", disposition=asked)
            answer = backend.fetch(url)
            assert (answer.status, answer.body) == (200, b"content")
            assert answer.content_type == "text/html"
            assert answer.disposition == asked

    def test_a_changed_or_expired_url_is_forbidden(self, backend: Backend) -> None:
        backend.store.put("k", b"content")
        backend.store.put("secret", b"secret")
        url = backend.store.sign("k", expires_s=60, content_type="text/plain")
        assert backend.fetch(url).status == 200
        assert backend.fetch(url.replace("/k?", "/secret?")).status == 403
        # S3 signs for a second at least.
        brief = backend.store.sign("k", expires_s=-1)
        until(lambda: backend.fetch(brief).status == 403)

    def test_direct_urls_distinguish_keys(self, store: BlobStore) -> None:
        assert store.direct_url("a/b").endswith("/a/b")
        assert store.direct_url("a b") != store.direct_url("a%20b")

    # Races

    def test_one_of_many_threads_creates(self, store: BlobStore) -> None:
        def attempt(number: int) -> str | None:
            try:
                store.put(f"race/{number // 8}", b"%d" % number * 1000)
            except AlreadyExists:
                return None
            return str(number)

        with ThreadPoolExecutor(8) as pool:
            won = [number for number in pool.map(attempt, range(160)) if number]
        assert len(won) == 20
        for number in won:
            assert content(store, f"race/{int(number) // 8}") == number.encode() * 1000

    def test_one_of_many_processes_creates(self, backend: Backend) -> None:
        outcomes = backend.in_processes(put_own_number, 4)
        (winner,) = [outcome for outcome in outcomes if outcome != "lost"]
        assert content(backend.store, "race/processes") == winner.encode() * 1000

    def test_replacing_is_atomic(self, store: BlobStore) -> None:
        sizes = [1, 70_000, 3]

        def overwrite(number: int) -> None:
            size = sizes[number % 3]
            store.put("areas/one", bytes([number]) * size, metadata={"n": "1"}, replace=True)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(overwrite, range(60)))
        left = content(store, "areas/one")
        assert left == bytes([left[0]]) * sizes[left[0] % 3]
        assert keys(store) == ["areas/one"]

    def test_an_upload_may_replace(self, store: BlobStore) -> None:
        store.put("areas/one", b"before")
        upload = store.upload("areas/one", part_size=5 * 1024**2, content_type="text/plain")
        upload.part(1, [b"after"])
        info = upload.complete(metadata={"store-sha1": "a"}, replace=True)
        assert content(store, "areas/one") == b"after"
        assert info.metadata == {"store-sha1": "a"}

    def test_creating_and_deleting_side_by_side_never_fails(self, store: BlobStore) -> None:
        def come_and_go(number: int) -> None:
            for turn in range(15):
                key = f"come/and/go/{number}.{turn}"
                store.put(key, b"x")
                store.delete(key)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(come_and_go, range(8)))
        assert keys(store) == []
