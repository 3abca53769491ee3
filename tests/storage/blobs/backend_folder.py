"""Folder buckets for the contract suite."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from storage.blobs.folder import FolderBlobs
from storage.blobs.signed_urls import UrlSigner
from storage.errors import Forbidden
from storage.protocols import BlobStore
from tests.storage.contracts.blob_store import Answer, Backend

SECRET = b"s" * 32


def open_local(root: Path) -> FolderBlobs:
    return FolderBlobs(root, UrlSigner(SECRET, "aws"))


def _run_local(root: Path, function: Callable[[BlobStore, int], str], number: int) -> str:
    return function(open_local(root), number)


@contextmanager
def local(tmp_path: Path) -> Iterator[Backend]:
    """Two fresh folders."""
    store = open_local(tmp_path / "one")

    def fetch(url: str) -> Answer:
        parts = urlsplit(url)
        key = unquote(parts.path.removeprefix("/v1/objects/aws/"))
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        try:
            grant = store.signer.verify(key, given)
        except Forbidden:
            return Answer(403, b"", None, None)
        file, size, info = store.open_payload(grant.key)
        with file:
            body = file.read(size)
        return Answer(200, body, grant.content_type or info.content_type, grant.disposition)

    def in_processes(function: Callable[[BlobStore, int], str], count: int) -> list[str]:
        with multiprocessing.get_context("spawn").Pool(count) as pool:
            work = [(tmp_path / "one", function, number) for number in range(count)]
            return pool.starmap(_run_local, work, chunksize=1)

    yield Backend(store, open_local(tmp_path / "two"), fetch, in_processes, min_part=1024)
