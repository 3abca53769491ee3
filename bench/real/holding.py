"""A bundle whose bytes are in a bucket, its rows in a catalog: what a replica holds, made fast."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from sqlalchemy import text

from bench.rows import version
from config import Settings
from pipelines import bundles, checksums, files, records
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.limits import ETAG_CHUNK, MB
from pipelines.manifests import WriteResult
from storage import keys
from storage.blobs.clients import CloudLimits
from storage.blobs.gcs import open_gcs_blobs
from storage.blobs.s3 import open_s3_blobs
from storage.catalog import Catalog
from storage.catalog import files as file_rows
from storage.connect import connect
from storage.model import FQID, REPLICAS
from storage.protocols import BlobStore
from storage.pubsub import MemoryPubSub
from storage.stores import Stores

A = TypeVar("A")
B = TypeVar("B")

AT_ONCE = 8
TYPE = "application/octet-stream"


@dataclass(frozen=True)
class Shape:
    """So many files of one size."""

    files: int
    size: int

    def __str__(self) -> str:
        size = f"{self.size // MB} MiB" if self.size >= MB else f"{self.size // 1024} KiB"
        return f"{self.files:,} × {size}"

    @property
    def megabytes(self) -> float:
        """Of all of them."""
        return self.files * self.size / MB

    def divided(self, by: int) -> "Shape":
        """Fewer and smaller files, at least two of a kilobyte."""
        return Shape(max(2, self.files // by), max(1024, self.size // by)) if by > 1 else self


def blobs(bucket_url: str) -> BlobStore:
    """A bucket as the store opens it."""
    opener = open_s3_blobs if bucket_url.startswith("s3:") else open_gcs_blobs
    return opener(bucket_url, CloudLimits())


@contextmanager
def stores(catalog: Catalog, source: BlobStore) -> Iterator[Stores]:
    """Stores of one worker process, `source` as replica aws; the other one is to be set."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        settings = Settings(home=Path(folder), secret_key="a secret for benches only")
        opened = connect(settings, notices=MemoryPubSub())
        opened.catalog.close()
        yield replace(opened, catalog=catalog, replicas={"aws": source, "gcp": source})


def bundle(stores: Stores, shape: Shape) -> FQID:
    """A bundle of files that differ, whole in replica aws, their records too."""
    made = files_of(stores, (os.urandom(shape.size) for _ in range(shape.files)))
    entries = [NewEntry(f"reads/{at}.bin", fqid, False) for at, fqid in enumerate(made)]
    return write(stores, entries).fqid


def write(stores: Stores, entries: Sequence[NewEntry]) -> WriteResult:
    """A bundle of replica aws."""
    fqid = FQID(str(uuid4()), version(0))
    return bundles.put(stores, BundleDraft(fqid, "aws", 1, entries), "bench@example.org")


def files_of(stores: Stores, contents: Iterable[bytes], content_type: str = TYPE) -> list[FQID]:
    """Published files, whole in replica aws: their bytes and their records."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        made = _mapped(pool, partial(_stored, stores.replicas["aws"], content_type), contents)
        with stores.catalog.write() as tx:
            rows = [file_rows.reserve(tx, new) for new in made]
        list(pool.map(partial(files.put_origin_record, stores), rows))
    with stores.catalog.write() as tx:
        for row in rows:
            files.publish(tx, row)
    return [new.fqid for new in made]


def _mapped(pool: ThreadPoolExecutor, work: Callable[[A], B], given: Iterable[A]) -> list[B]:
    """As `pool.map`, a few at a time: what is given may be large."""
    found: list[B] = []
    rest = iter(given)
    while batch := list(islice(rest, AT_ONCE)):
        found += pool.map(work, batch)
    return found


def _stored(blobs: BlobStore, content_type: str, data: bytes) -> file_rows.NewFileVersion:
    size = len(data)
    sums = checksums.compute_checksums([data], size).checksums
    key = keys.blob_key(sums.sha256)
    if size < ETAG_CHUNK:
        blobs.put(key, data)
    else:
        upload = blobs.upload(key, part_size=ETAG_CHUNK, content_type=TYPE)
        for number, start in enumerate(range(0, size, ETAG_CHUNK), start=1):
            upload.part(number, [data[start : start + ETAG_CHUNK]])
        upload.complete()
    fqid = FQID(str(uuid4()), version(0))
    return file_rows.NewFileVersion(
        fqid=fqid,
        digest=records.file_digest(1, content_type, size, sums),
        origin="aws",
        creator_uid=1,
        author="bench@example.org",
        content_type=content_type,
        size=size,
        checksums=sums,
        blob_etag=sums.s3_etag,
        event_id=hashlib.sha1(str(fqid).encode()).hexdigest(),
    )


def forget_copies(catalog: Catalog) -> None:
    """As if no other replica had ever held anything."""
    with catalog.write() as tx:
        for table in ("blob_replicas", "presence", "visible", "todo"):
            tx.execute(text(f"DELETE FROM {table} WHERE replica = '{REPLICAS[1]}'"))
