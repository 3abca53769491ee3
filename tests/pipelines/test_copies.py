"""Copies between engines and clouds: bounded memory, resumable, never wrong.

Between simulated clouds always; between real servers where STORE_TEST_S3 and STORE_TEST_GCS name
them.
"""

import hashlib
import random
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipelines import copies
from pipelines.checksums import compute_checksums
from storage.blobs.folder import FolderBlobs
from storage.blobs.signed_urls import UrlSigner
from storage.errors import ClaimLost, DamagedObjectError, NotFoundError, SourceChanged
from storage.model import Checksums
from storage.protocols import BlobStore
from tests.storage.blobs import backend_gcs, backend_s3

MB = 1024 * 1024


class Elsewhere:
    """A folder whose engine no other can copy from."""

    def __init__(self, inner: FolderBlobs) -> None:
        self.inner = inner
        self.reads: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def read(self, key: str, *, start: int = 0, **which: Any) -> Any:
        self.reads.append(start)
        return self.inner.read(key, start=start, **which)


@dataclass
class Memory:
    """A ledger that outlives the worker, but not the test."""

    noted: list[str] = field(default_factory=list)
    closed: bool = False

    def token(self) -> str | None:
        return self.noted[-1] if self.noted else None

    def note(self, token: str) -> None:
        self.noted.append(token)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def source(tmp_path: Path) -> Any:
    return Elsewhere(FolderBlobs(tmp_path / "source", UrlSigner(b"k" * 32, "source")))


@pytest.fixture
def target(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "target", UrlSigner(b"k" * 32, "target"))


def copy(source: BlobStore, target: BlobStore, content: bytes, **more: Any) -> None:
    sums = compute_checksums([content], len(content)).checksums
    copies.copy_object(source, target, "k", "k", size=len(content), checksums=sums, **more)


def digest(store: BlobStore) -> str:
    hashed = hashlib.sha256()
    for block in store.read("k"):
        hashed.update(block)
    return hashed.hexdigest()


@pytest.mark.parametrize("size", [0, 10, 9 * MB, 150 * MB])
def test_copies_any_size(source: Any, target: FolderBlobs, size: int) -> None:
    content = random.Random(size).randbytes(size)
    source.put("k", content)
    copy(source, target, content)
    copy(source, target, content)
    assert digest(target) == hashlib.sha256(content).hexdigest()


def dying_after(parts: int) -> copies.Heartbeat:
    left = [parts]

    def beat(_moved: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise ClaimLost("killed")

    return beat


def test_resumes_large_copy_after_crash(source: Any, target: FolderBlobs) -> None:
    content = random.Random(1).randbytes(150 * MB)
    source.put("k", content)
    ledger = Memory()
    with pytest.raises(ClaimLost):
        copy(source, target, content, heartbeat=dying_after(2), ledger=ledger)
    with pytest.raises(NotFoundError):
        target.head("k")
    copy(source, target, content, ledger=ledger)
    assert source.reads == [0, 128 * MB]
    assert len(ledger.noted) > 2, "it says that it goes on"
    assert ledger.closed
    assert digest(target) == hashlib.sha256(content).hexdigest()


def test_detects_wrong_parts_of_crashed_worker(source: Any, target: FolderBlobs) -> None:
    content = random.Random(2).randbytes(70 * MB)
    source.put("k", content)
    upload = target.upload("k", part_size=64 * MB, content_type="")
    upload.part(1, [bytes(64 * MB)])
    with pytest.raises(DamagedObjectError):
        copy(source, target, content, ledger=Memory([upload.token]))
    with pytest.raises(NotFoundError):
        target.head("k")


def test_restarts_lost_upload(source: Any, target: FolderBlobs) -> None:
    content = random.Random(3).randbytes(70 * MB)
    source.put("k", content)
    copy(source, target, content, ledger=Memory(["0" * 32]))
    assert digest(target) == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("size", [10, 9 * MB])
def test_refuses_other_bytes_and_leaves_nothing(
    source: Any, target: FolderBlobs, size: int
) -> None:
    source.put("k", b"x" * size)
    with pytest.raises(SourceChanged):
        copy(source, target, b"y" * size)
    with pytest.raises(NotFoundError):
        target.head("k")
    assert target.sweep_temporaries(0, now=2**40) == 0


@pytest.mark.parametrize("size", [10, 9 * MB])
@pytest.mark.parametrize("there", ["shorter", "same size"])
def test_damaged_target_is_replaced_by_verified_bytes(
    source: Any, target: FolderBlobs, size: int, there: str
) -> None:
    content = random.Random(size).randbytes(size)
    source.put("k", content)
    target.put("k", b"x" * (size if there == "same size" else size - 1))
    copy(source, target, content)
    assert digest(target) == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("size", [10, 9 * MB])
def test_damaged_target_stays_when_source_is_damaged_too(
    source: Any, target: FolderBlobs, size: int
) -> None:
    source.put("k", b"x" * size)
    target.put("k", b"z" * size)
    with pytest.raises(SourceChanged):
        copy(source, target, b"y" * size)
    assert digest(target) == hashlib.sha256(b"z" * size).hexdigest()


PAIRS = {
    "simulated": (backend_s3.simulated, backend_gcs.simulated),
    **(
        {"s3-server and gcs-server": (backend_s3.SERVERS["s3-server"], backend_gcs.named)}
        if backend_s3.SERVERS and "gcs-server" in backend_gcs.GCS
        else {}
    ),
}


@dataclass(frozen=True)
class Way:
    """From one cloud into the other, with an object that has two parts."""

    source: BlobStore
    target: BlobStore
    content: bytes
    sums: Checksums
    own_process: bool
    """Whether the servers' memory is ours."""

    def copy(self, ledger: Memory, beat: copies.Heartbeat = lambda _: None) -> None:
        copies.copy_object(
            self.source,
            self.target,
            "k",
            "k",
            size=len(self.content),
            checksums=self.sums,
            ledger=ledger,
            heartbeat=beat,
        )


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, list[BlobStore]]]:
    with ExitStack() as stack:
        backends = [stack.enter_context(each(tmp_path)) for each in PAIRS[request.param]]
        yield request.param, [backend.store for backend in backends]


@pytest.fixture(params=["s3 to gcs", "gcs to s3"])
def way(request: pytest.FixtureRequest, pair: tuple[str, list[BlobStore]]) -> Way:
    name, stores = pair
    source, target = stores if request.param == "s3 to gcs" else reversed(stores)
    content = random.Random(0).randbytes(66 * MB)
    source.put("k", content)
    sums = compute_checksums([content], len(content)).checksums
    return Way(source, target, content, sums, own_process=name == "simulated")


def test_resumes_copy_into_other_cloud(way: Way) -> None:
    ledger = Memory()
    with pytest.raises(ClaimLost):
        way.copy(ledger, dying_after(1))
    with pytest.raises(NotFoundError):
        way.target.head("k")
    kept = way.target.upload("k", part_size=64 * MB, content_type="", token=ledger.token())
    assert kept.parts() == {1: 64 * MB}
    tracemalloc.start()
    way.copy(ledger)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert way.own_process or most < 32 * MB
    assert ledger.closed
    assert len(set(ledger.noted)) == 1, "the same upload to the end"
    assert digest(way.target) == hashlib.sha256(way.content).hexdigest()
