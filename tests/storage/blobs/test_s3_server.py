"""The blob contract on the real S3 server that STORE_TEST_S3 names.

There a key is a path: no object has the name of a folder, no name is longer than 255 bytes, none is
`.` or `..` or empty. The tests about any text at all are held on such keys instead.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.errors import DomainError, NotFoundError
from storage.protocols import BlobStore
from tests.storage.blobs.backend_s3 import SERVERS
from tests.storage.contracts.blob_store import META, TYPE, Backend, BlobStoreContract, content, keys

pytestmark = pytest.mark.real

UUID = "0a1b2c3d-0000-4000-8000-000000000000"


class TestServer(BlobStoreContract):
    __test__ = bool(SERVERS)

    @pytest.fixture(params=SERVERS)
    def backend(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
        with SERVERS[request.param](tmp_path) as backend:
            yield backend

    test_no_key_is_in_the_way_of_another = None  # type: ignore[assignment]
    test_the_longest_key_type_and_metadata_are_carried = None  # type: ignore[assignment]

    @pytest.mark.parametrize(
        "key",
        [
            f"blobs/ab/{'ab' * 32}",
            f"files/0a/{UUID}.2026-01-01T000000.000000Z",
            f"areas/{UUID}/sp ace",
            f"areas/{UUID}/q?u#e%ry&=+",
            f"areas/{UUID}/ünï/cödé",
            f"areas/{UUID}/%2e%2e",
            f"areas/{UUID}/~",
            f"areas/{UUID}/a+",
            f"areas/{UUID}/.hidden",
            f"areas/{UUID}/" + "n" * 255,
            "/".join("deep" for _ in range(150)),
        ],
    )
    def test_any_text_is_a_key_of_its_own(self, store: BlobStore, key: str) -> None:
        store.put(key, key.encode())
        assert content(store, key) == key.encode()
        assert keys(store) == [key]
        store.delete(key)
        assert keys(store) == []

    @pytest.mark.parametrize("key", ["../escape", "a/../../escape", "x" * 256])
    def test_refuses_keys_that_are_no_paths(self, store: BlobStore, key: str) -> None:
        with pytest.raises(DomainError):
            store.put(key, b"bytes")
        assert keys(store) == []

    def test_folder_is_never_an_object(self, store: BlobStore) -> None:
        store.put("a/b", b"kept")
        with pytest.raises(DomainError):
            store.put("a", b"bytes")
        with pytest.raises(NotFoundError):
            store.head("a")
        assert content(store, "a/b") == b"kept"

    def test_a_listing_is_in_byte_order_from_a_key_on(self, store: BlobStore) -> None:
        names = ["a-b", "a.b", "a/b", "a/c/d", "a0", "B", "b", "long" * 60, "z/é", "z/z", "é"]
        for name in reversed(names):
            store.put(name, b"")
        ordered = sorted(names, key=str.encode)
        assert keys(store) == ordered
        for after in [*ordered, "a/", "0", "zz", "~", "long" * 10, "long" * 61]:
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
        ],
    )
    def test_a_prefix_is_text_not_a_folder(
        self, store: BlobStore, prefix: str, expected: list[str]
    ) -> None:
        for name in ("a/b/c", "a/bc", "a/c", "ab", "b"):
            store.put(name, b"")
        assert keys(store, prefix) == expected
        if expected:
            assert keys(store, prefix, after=expected[0]) == expected[1:]

    def test_full_metadata_are_carried(self, store: BlobStore) -> None:
        upload = store.upload("k", part_size=10, content_type="x/" + "y" * 250)
        upload.part(1, [b"content"])
        upload.complete({"m": '"' * 2047})
        assert store.head("k").metadata["m"] == '"' * 2047
        store.put("l", b"", content_type=TYPE, metadata={**META, "m": "x" * 1900})
        assert store.head("l").metadata == {**META, "m": "x" * 1900}
