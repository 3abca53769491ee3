"""Builders with defaults, so that tests state only what matters."""

import hashlib
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from pipelines import checksums, files, records
from pipelines.queries.bounded_jmespath import MAX_STEPS
from storage import keys
from storage.blobs.folder import FolderBlobs
from storage.blobs.plain_folder import PlainFolder
from storage.blobs.signed_urls import UrlSigner
from storage.blobs.sources import SourceSettings, UrlSources
from storage.cache import ByteCache
from storage.catalog import Catalog
from storage.catalog import files as file_rows
from storage.errors import AlreadyExists
from storage.model import FQID, REPLICAS, Replica
from storage.pubsub import MemoryPubSub
from storage.stores import Stores

SECRET = "a secret of tests, long enough"


def new_uuid() -> str:
    return str(uuid4())


def version(number: int = 0) -> str:
    return f"2026-01-01T000000.{number:06d}Z"


def local(root: Path, name: str) -> FolderBlobs:
    return FolderBlobs(root / name, UrlSigner(SECRET.encode(), name))


def build_stores(root: Path, catalog: Catalog) -> Stores:
    """Real folders and a given catalog; no process but this one."""
    areas = local(root, "areas")
    replicas = {replica: local(root, replica) for replica in REPLICAS}
    return Stores(
        replicas=replicas,
        areas=areas,
        checkouts={replica: PlainFolder(root / "checkouts" / replica) for replica in REPLICAS},
        catalog=catalog,
        search={},
        pubsub=MemoryPubSub(),
        sources=UrlSources(SourceSettings(areas=areas, own_buckets=tuple(replicas.values()))),
        open_destination=lambda _replica, name: PlainFolder(root / "destinations" / name),
        documents=ByteCache(1 << 20),
        base_url="",
        max_query_steps=MAX_STEPS,
        search_fields=10_000,
        copy_parallel=2,
    )


def make_file(
    stores: Stores,
    content: bytes,
    *,
    fqid: FQID | None = None,
    content_type: str = "text/plain",
    origin: Replica = "aws",
    everywhere: bool = False,
) -> FQID:
    """A file that was verified and published, without the workers."""
    fqid = fqid or FQID(new_uuid(), version())
    hashed = checksums.compute_checksums([content], len(content))
    sums = hashed.checksums
    new = file_rows.NewFileVersion(
        fqid=fqid,
        digest=records.file_digest(1, content_type, len(content), sums),
        origin=origin,
        creator_uid=1,
        author="depositor@example.org",
        content_type=content_type,
        size=len(content),
        checksums=sums,
        blob_etag=sums.s3_etag,
        event_id=hashlib.sha1(str(fqid).encode()).hexdigest(),
    )
    with stores.catalog.write() as tx:
        row = file_rows.reserve(tx, new)
    for replica in REPLICAS if everywhere else (origin,):
        with suppress(AlreadyExists):
            stores.replicas[replica].put(keys.blob_key(sums.sha256), content)
        assert files.put_record(stores, row, replica)
    with stores.catalog.write() as tx:
        files.publish(tx, row)
        for replica in REPLICAS if everywhere else ():
            file_rows.publish(tx, [row], replica)
    return fqid
