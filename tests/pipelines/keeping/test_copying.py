"""Copies between engines go through us: in bounded memory, taken up again, never wrong."""

import hashlib
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipelines.keeping import copying
from pipelines.keeping.checksums import compute
from storage.blobs.local import LocalBlobs
from storage.blobs.signing import UrlSigner
from storage.errors import Damaged, Lost, NotFound, SourceChanged
from storage.protocols import BlobStore

MB = 1024 * 1024


class Elsewhere:
    """A folder whose engine no other can copy from."""

    def __init__(self, inner: LocalBlobs) -> None:
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
    return Elsewhere(LocalBlobs(tmp_path / "source", UrlSigner(b"k" * 32, "source")))


@pytest.fixture
def target(tmp_path: Path) -> LocalBlobs:
    return LocalBlobs(tmp_path / "target", UrlSigner(b"k" * 32, "target"))


def copy(source: BlobStore, target: BlobStore, content: bytes, **more: Any) -> None:
    sums = compute([content], len(content)).checksums
    copying.copy(source, target, "k", "k", size=len(content), checksums=sums, **more)


def digest(store: BlobStore) -> str:
    hashed = hashlib.sha256()
    for block in store.read("k"):
        hashed.update(block)
    return hashed.hexdigest()


@pytest.mark.parametrize("size", [0, 10, 9 * MB, 150 * MB])
def test_whatever_its_size_it_arrives(source: Any, target: LocalBlobs, size: int) -> None:
    content = random.Random(size).randbytes(size)
    source.put("k", content)
    copy(source, target, content)
    copy(source, target, content)
    assert digest(target) == hashlib.sha256(content).hexdigest()


def dying_after(parts: int) -> copying.Beat:
    left = [parts]

    def beat(_moved: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise Lost("killed")

    return beat


def test_a_large_one_is_taken_up_where_a_worker_died(source: Any, target: LocalBlobs) -> None:
    content = random.Random(1).randbytes(150 * MB)
    source.put("k", content)
    ledger = Memory()
    with pytest.raises(Lost):
        copy(source, target, content, beat=dying_after(2), ledger=ledger)
    with pytest.raises(NotFound):
        target.head("k")
    copy(source, target, content, ledger=ledger)
    assert source.reads == [0, 128 * MB]
    assert len(ledger.noted) > 2, "it says that it goes on"
    assert ledger.closed
    assert digest(target) == hashlib.sha256(content).hexdigest()


def test_what_a_dead_worker_stored_wrong_is_found_out(source: Any, target: LocalBlobs) -> None:
    content = random.Random(2).randbytes(70 * MB)
    source.put("k", content)
    upload = target.upload("k", part_size=64 * MB, content_type="")
    upload.part(1, [bytes(64 * MB)])
    with pytest.raises(Damaged):
        copy(source, target, content, ledger=Memory([upload.token]))
    with pytest.raises(NotFound):
        target.head("k")


def test_an_upload_that_is_gone_starts_anew(source: Any, target: LocalBlobs) -> None:
    content = random.Random(3).randbytes(70 * MB)
    source.put("k", content)
    copy(source, target, content, ledger=Memory(["0" * 32]))
    assert digest(target) == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("size", [10, 9 * MB])
def test_other_bytes_are_refused_and_leave_nothing(
    source: Any, target: LocalBlobs, size: int
) -> None:
    source.put("k", b"x" * size)
    with pytest.raises(SourceChanged):
        copy(source, target, b"y" * size)
    with pytest.raises(NotFound):
        target.head("k")
    assert target.sweep_temporaries(0, now=2**40) == 0


@pytest.mark.parametrize("size", [10, 9 * MB])
@pytest.mark.parametrize("there", ["shorter", "same size"])
def test_damaged_target_is_replaced_by_verified_bytes(
    source: Any, target: LocalBlobs, size: int, there: str
) -> None:
    content = random.Random(size).randbytes(size)
    source.put("k", content)
    target.put("k", b"x" * (size if there == "same size" else size - 1))
    copy(source, target, content)
    assert digest(target) == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("size", [10, 9 * MB])
def test_damaged_target_stays_when_source_is_damaged_too(
    source: Any, target: LocalBlobs, size: int
) -> None:
    source.put("k", b"x" * size)
    target.put("k", b"z" * size)
    with pytest.raises(SourceChanged):
        copy(source, target, b"y" * size)
    assert digest(target) == hashlib.sha256(b"z" * size).hexdigest()
