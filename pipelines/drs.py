"""GA4GH DRS objects: file versions are blobs, bundle versions are bundles of them."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import orjson

from pipelines import bundles, files
from pipelines.formats import parse_uuid, parse_version
from pipelines.limits import DRS_CONTENTS_MAX, PENDING_RETRY_S, SEGMENT_ENTRIES
from storage.catalog import Tx, versions
from storage.catalog import bundles as catalog_bundles
from storage.errors import Invalid, NotFoundError, NotReady, Unprocessable
from storage.model import FQID, BundleVersion, Checksums, FileVersion, Replica
from storage.stores import Stores

BuildUri = Callable[[str], str]
"""Returns the `drs://` URI of an id."""


class ObjectPending(NotReady):
    """A file is still being verified; the same request succeeds later."""


@dataclass(frozen=True, slots=True)
class DrsFile:
    """A file version, and the replicas that have it."""

    version: FileVersion
    replicas: Sequence[Replica]


@dataclass(frozen=True, slots=True)
class DrsBundle:
    """A bundle version with what DRS computes from its files; each of `contents` is JSON."""

    version: BundleVersion
    size: int
    sha256: str
    contents: Sequence[orjson.Fragment]


def parse_object_id(text: str) -> FQID:
    """Return the version that an id names; NotFoundError if it has another form."""
    uuid, _, version = text.partition(".")
    try:
        return FQID(parse_uuid(uuid), parse_version(version))
    except Invalid:
        raise NotFoundError(f"There is no object {text[:100]}; ids are <uuid>.<version>.") from None


def find_file(stores: Stores, replicas: Sequence[Replica], fqid: FQID) -> DrsFile | None:
    """Return a file version that is in one of the replicas; ObjectPending until it is."""
    is_pending, file, present = False, None, []
    for replica in replicas:
        try:
            location = files.locate(stores, replica, *fqid)
        except (NotFoundError, Unprocessable):
            # No version, or one that failed its verification.
            return None
        is_pending = is_pending or location.state == "pending"
        if location.state == "here":
            file = location.file
            present.append(replica)
    if file is None:
        if is_pending:
            raise ObjectPending(
                f"The object {fqid} is still being verified.", retry_after_s=PENDING_RETRY_S
            )
        return None
    return DrsFile(file, present)


def find_bundle(
    stores: Stores,
    replicas: Sequence[Replica],
    fqid: FQID,
    build_uri: BuildUri,
    *,
    most: int = DRS_CONTENTS_MAX,
) -> DrsBundle | None:
    """Return a bundle version that is visible in one of the replicas, with its contents."""
    with stores.catalog.read() as tx:
        row = _find_visible(tx, replicas, fqid)
    if row is None:
        return None
    if row.file_count > most:
        raise Unprocessable(
            f"The bundle has {row.file_count} files, and a DRS object lists at most"
            f" {most}; read it with get_bundle.",
            code="contents_too_large",
        )
    size, sums, contents = 0, list[str](), list[orjson.Fragment]()
    # Each page becomes bytes at once: 100,000 entries would take 200 MB.
    for start in range(0, row.file_count, SEGMENT_ENTRIES):
        for entry in bundles.read_entries(stores, row, start, SEGMENT_ENTRIES):
            size += entry.size
            sums.append(entry.checksums.sha256)
            file_id = str(entry.file)
            item = {"name": entry.name, "id": file_id, "drs_uri": [build_uri(file_id)]}
            contents.append(orjson.Fragment(orjson.dumps(item)))
    if len(contents) != row.file_count:
        return None  # It was purged meanwhile.
    digest = hashlib.sha256("".join(sorted(sums)).encode()).hexdigest()
    return DrsBundle(row, size, digest, contents)


def _find_visible(tx: Tx, replicas: Sequence[Replica], fqid: FQID) -> BundleVersion | None:
    for replica in replicas:
        ident = versions.find_published(tx, bundles.KIND, replica, fqid)
        if ident is not None:
            return catalog_bundles.get(tx, ident)
    return None


def list_checksums(sums: Checksums) -> list[dict[str, str]]:
    """Return the checksums of a blob; an S3 ETag of one part is its MD5."""
    etag_type = "etag" if "-" in sums.s3_etag else "md5"
    named = {
        "sha-256": sums.sha256,
        "sha1": sums.sha1,
        "crc32c": sums.crc32c,
        etag_type: sums.s3_etag,
    }
    return [{"type": kind, "checksum": value} for kind, value in named.items()]
