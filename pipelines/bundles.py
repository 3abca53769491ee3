"""Bundles: put, patch and read manifests, and delete versions with tombstones."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from pipelines import flow, formats, manifests, metadata_validation, records
from pipelines.idempotency import IdempotentRequest
from pipelines.limits import PENDING_RETRY_S, SEGMENT_ENTRIES
from pipelines.manifests import ManifestKind, PatchedVersion, Publication, WriteResult
from pipelines.metadata_validation import FileToValidate
from storage import keys
from storage.catalog import Tx, bundles, events, files, jobs, versions
from storage.catalog import purges as catalog_purges
from storage.errors import ConflictError, Invalid, NotFoundError, Unavailable
from storage.model import FQID, BundleVersion, Job, ManifestEntry, Replica
from storage.stores import Stores

KIND: keys.Kind = "bundle"
RESERVE_ATTEMPTS = 3
"""Attempts to reserve a version while its files are being published or purged."""
ADD_POINTER = "/add_files/{}"
_MAX_REPORTED = 20
"""Missing files that an error names."""


class NewEntry(NamedTuple):
    """One entry of a manifest to be written."""

    name: str
    file: FQID
    indexed: bool


EntryRow = tuple[str, tuple[str, str], bool]
"""(name, (uuid, version), indexed): a `NewEntry`, or a plain tuple where there are thousands."""


@dataclass(frozen=True, slots=True)
class BundleDraft:
    """A bundle version to be written."""

    fqid: FQID
    replica: Replica
    creator_uid: int
    entries: Sequence[EntryRow]
    parent: str | None = None


class EntryRemoval(NamedTuple):
    """An entry to remove if all of it matches; `indexed` None matches both values."""

    name: str
    file: FQID
    indexed: bool | None


@dataclass(frozen=True, slots=True)
class BundlePatch:
    """Entries to add to a version and to remove from it."""

    base: FQID
    replica: Replica
    add: Sequence[NewEntry]
    remove: Sequence[EntryRemoval]


class FilesPending(ConflictError):
    """Files are still being verified, or are complete in another replica only."""

    code = "file_pending"

    def __init__(self, missing: Sequence[FQID]) -> None:
        names = ", ".join(str(fqid) for fqid in missing[:_MAX_REPORTED])
        super().__init__(
            f"{len(missing)} files are not here yet: {names}", retry_after_s=PENDING_RETRY_S
        )
        self.missing = missing


# Writing -----------------------------------------------------------------------------------


def put(stores: Stores, new: BundleDraft, author: str, *, request_id: str = "") -> WriteResult:
    """Write and publish a bundle version; the same content again succeeds.

    Raise ConflictError (other content, or under a tombstone), Invalid (`file_missing`),
    FilesPending, MetadataInvalid.
    """
    if not new.entries:
        raise Invalid("A bundle has at least one file.", errors={"/files": ["Must not be empty."]})
    formats.check_file_names([name for name, _, _ in new.entries])
    if stores.metadata_schemas:
        _validate_metadata(stores, new)
    row, facts = _reserve(stores, new, author)
    if facts is None:
        # The first writer of these entries chose their order, which the record keeps.
        manifest = build_manifest(stores, row)
    else:
        manifest = records.encode_manifest(
            new.creator_uid, records.encode_entries(new.entries, facts)
        )
    follow: tuple[Job, ...] = ()
    if not row.published:
        record = records.encode_bundle_record(row, manifest)
        follow = manifests.complete_reservation(stores, BUNDLE, row, record, request_id=request_id)
    # Of equal concurrent writers, the one that published the version created it.
    return WriteResult(new.fqid, created=bool(follow), jobs=follow, manifest=manifest)


def _validate_metadata(stores: Stores, new: BundleDraft) -> None:
    """Validate the metadata of a version, unless it exists: it was valid when it was written."""
    wanted = [
        (name, file, indexed)
        for name, file, indexed in new.entries
        if metadata_validation.find_schemas(stores, name, indexed=indexed)
    ]
    if not wanted:
        return
    with stores.catalog.read() as tx:
        row, is_buried = bundles.find_with_tombstone(tx, new.fqid)
        if row is not None or is_buried:
            return
        visible = files.look_up(tx, new.replica, [file for _, file, _ in wanted])
        if len(visible) < len(wanted):
            # Names all missing files; if they appeared meanwhile, the metadata did, too.
            check_files(tx, new.replica, [file for _, file, _ in new.entries])
            visible = check_files(tx, new.replica, [file for _, file, _ in wanted])
    chosen = metadata_validation.choose_metadata(stores, wanted, visible)
    metadata_validation.validate_metadata(stores, new.replica, chosen)


class _FilesAppeared(Exception):
    """A file that was not visible when the version was inserted is visible now."""


def _reserve(
    stores: Stores, new: BundleDraft, author: str
) -> tuple[BundleVersion, bundles.FileFacts | None]:
    """Return the version's row, and the facts of its files unless an equal version exists."""
    digest = records.bundle_digest(new.creator_uid, new.entries)
    version = bundles.NewBundleVersion(
        fqid=new.fqid,
        digest=digest,
        origin=new.replica,
        creator_uid=new.creator_uid,
        author=author,
        parent=new.parent,
        event_id=events.make_event_id("CREATE", new.replica, new.fqid),
        runs=versions.split_runs(new.entries, SEGMENT_ENTRIES),
    )
    for _ in range(RESERVE_ATTEMPTS):
        with suppress(_FilesAppeared), stores.catalog.write() as tx:
            reservation = bundles.reserve(tx, version)
            if reservation.lacks_files:
                check_files(tx, new.replica, [file for _, file, _ in new.entries])
                raise _FilesAppeared
            break
    else:
        raise Unavailable(
            "The bundle's files are being published or purged; try again.",
            retry_after_s=PENDING_RETRY_S,
        )
    if reservation.row is None or reservation.is_buried:
        raise manifests.tombstone_conflict(KIND, new.fqid)
    if reservation.row.digest != digest:
        raise manifests.content_conflict(KIND, new.fqid)
    return reservation.row, reservation.facts


def _publish(tx: Tx, row: BundleVersion) -> Publication:
    publication = bundles.publish(tx, row)
    if publication is None:
        return Publication((), bundles.find_with_tombstone(tx, row.fqid)[1])
    event, is_buried = publication.event or "", publication.is_buried
    follow = flow.following_jobs(
        "publish", KIND, row.origin, str(row.fqid), event=event, is_buried=is_buried
    )
    return Publication(follow, publication.is_buried)


def publish_in_replica(
    tx: Tx, row: BundleVersion, replica: Replica, *, step: str
) -> tuple[Job, ...]:
    """Publish a bundle in a replica that has all of it, and return the jobs that follow `step`.

    A tombstone keeps it hidden. The caller locks the head.
    """
    is_buried = versions.find_covering_tombstone(tx, KIND, *row.fqid) is not None
    change = 0 if is_buried else versions.count_change(tx, KIND, row.fqid.uuid)
    publication = bundles.publish_in_replica(tx, row, replica, change=change, is_buried=is_buried)
    event, is_buried = publication.event or "", publication.is_buried
    return flow.following_jobs(step, KIND, replica, str(row.fqid), event=event, is_buried=is_buried)


def build_manifest(stores: Stores, bundle: BundleVersion) -> bytes:
    """Return the manifest as JSON, from the catalog."""
    entries = read_entries(stores, bundle, 0, bundle.file_count)
    return records.encode_manifest(bundle.creator_uid, records.encode_stored_entries(entries))


BUNDLE = ManifestKind(name=KIND, find=bundles.find, publish=_publish)


# Files of a manifest -----------------------------------------------------------------------


def require_files(stores: Stores, replica: Replica, fqids: Sequence[files.FileKey]) -> None:
    """Raise FilesPending while one of these files is not visible in the replica."""
    with stores.catalog.read() as tx:
        check_files(tx, replica, fqids)


def recheck_files(
    tx: Tx, replica: Replica, new: Sequence[EntryRow], *, pointer: str = "/files/{}"
) -> None:
    """Raise Invalid (`file_missing`) if a file was purged before a reservation referred to it."""
    if catalog_purges.has_recent(tx):
        check_files(tx, replica, [file for _, file, _ in new], pointer=pointer)


def check_files(
    tx: Tx, replica: Replica, fqids: Sequence[files.FileKey], *, pointer: str = "/files/{}"
) -> list[files.FoundFile]:
    """Return the visible files of these names, in order.

    Raise Invalid (`file_missing`) if some do not exist, FilesPending if some are not visible yet.
    """
    rows = files.look_up(tx, replica, fqids)
    if len(rows) == len(fqids):
        return rows
    visible = {row[0] for row in rows}
    missing = {place: FQID(*key) for place, key in enumerate(fqids) if place not in visible}
    existing = files.locate(tx, [*missing.values()])
    absent = {place: fqid for place, fqid in missing.items() if fqid not in existing}
    if not absent:
        raise FilesPending([*missing.values()])
    reported = [*islice(absent.items(), _MAX_REPORTED)]
    raise Invalid(
        f"{len(absent)} files do not exist: " + ", ".join(str(fqid) for _, fqid in reported),
        code="file_missing",
        errors={pointer.format(place): ["This file does not exist."] for place, _ in reported},
    )


# Patching ----------------------------------------------------------------------------------


def patch_digest(patch: BundlePatch) -> str:
    """Return the digest that equal patch requests share."""
    changes = (
        [[entry.name, *entry.file, entry.indexed] for entry in entries]
        for entries in (patch.add, patch.remove)
    )
    return records.request_digest(["patch_bundle", str(patch.base), patch.replica, *changes])


def patch_bundle(
    stores: Stores,
    patch: BundlePatch,
    author: str,
    *,
    repeatable: IdempotentRequest | None = None,
    request_id: str = "",
) -> WriteResult:
    """Write the version after the patched one; a repeated idempotency key gets the same response.

    Raise NotFoundError if the version is not visible in the replica, Invalid (`duplicate_filename`,
    `file_missing`, no file left), FilesPending, MetadataInvalid.
    """
    return manifests.patch_version(
        stores,
        BUNDLE,
        patch.base,
        patch.replica,
        read=lambda tx, ident: _read_base(stores, tx, ident, patch),
        build=lambda base: _build_patched(stores, base, patch, author),
        repeatable=repeatable,
        request_id=request_id,
    )


@dataclass(frozen=True, slots=True)
class _PatchBase:
    """The patched version; `kept` entries remain, `added` are JSON, `runs` are the new manifest.

    `metadata` are the added files that have schemas.
    """

    row: BundleVersion
    kept: Sequence[ManifestEntry]
    added: bytes
    runs: Sequence[bundles.ManifestRun]
    metadata: Sequence[FileToValidate]


def _read_base(stores: Stores, tx: Tx, ident: int, patch: BundlePatch) -> _PatchBase:
    row = bundles.get(tx, ident)
    entries = bundles.list_entries(tx, ident, start=0, limit=row.file_count, span=SEGMENT_ENTRIES)
    removals = {(entry.name, entry.file, entry.indexed) for entry in patch.remove}
    removed = {
        place
        for place, entry in enumerate(entries)
        if (entry.name, entry.file, entry.indexed) in removals
        or (entry.name, entry.file, None) in removals
    }
    visible = check_files(
        tx, patch.replica, [entry.file for entry in patch.add], pointer=ADD_POINTER
    )
    rows = [
        (file[1], entry.name, entry.indexed) for file, entry in zip(visible, patch.add, strict=True)
    ]
    _, _, *facts = zip(*visible, strict=True) if visible else [()] * 8
    stored = bundles.list_segments(tx, ident)

    def read_rows(changed: Sequence[bundles.StoredSegment]) -> list[list[bundles.EntryRow]]:
        rows_by_segment = bundles.read_segment_rows(tx, [one.segment_id for one in changed])
        return [rows_by_segment[one.segment_id] for one in changed]

    runs = manifests.patch_segments(
        stored,
        [segment.count for segment in stored],
        removed,
        rows,
        read_rows,
    )
    kept = [entry for place, entry in enumerate(entries) if place not in removed]
    added = records.encode_entries(patch.add, facts)
    metadata = metadata_validation.choose_metadata(stores, patch.add, visible)
    return _PatchBase(row, kept, added, runs, metadata)


def _build_patched(
    stores: Stores, base: _PatchBase, patch: BundlePatch, author: str
) -> PatchedVersion[BundleVersion]:
    _check_names(base.kept, patch)
    metadata_validation.validate_metadata(stores, patch.replica, base.metadata)
    creator_uid = base.row.creator_uid
    entries = [*((entry.name, entry.file, entry.indexed) for entry in base.kept), *patch.add]
    digest = records.bundle_digest(creator_uid, entries)

    def insert(tx: Tx, fqid: FQID) -> BundleVersion:
        version = bundles.NewBundleVersion(
            fqid=fqid,
            digest=digest,
            origin=patch.replica,
            creator_uid=creator_uid,
            author=author,
            parent=patch.base.version,
            event_id=events.make_event_id("CREATE", patch.replica, fqid),
            runs=base.runs,
        )
        row = bundles.insert(tx, version)
        recheck_files(tx, patch.replica, patch.add, pointer=ADD_POINTER)
        return row

    def encode_record(row: BundleVersion) -> bytes:
        kept = records.encode_stored_entries(base.kept)
        manifest = records.encode_manifest(creator_uid, kept, base.added)
        return records.encode_bundle_record(row, manifest)

    return PatchedVersion(insert, encode_record)


def _check_names(kept: Sequence[ManifestEntry], patch: BundlePatch) -> None:
    """Raise Invalid if no entry is left, or if an added entry has an invalid or repeated name."""

    def pointer(place: int) -> str:
        return f"/add_files/{place - len(kept)}/name" if place >= len(kept) else "/add_files"

    if not kept and not patch.add:
        message = "The patch would leave no file."
        raise Invalid(message, errors={"/remove_files": [message]})
    if patch.add:
        names = [*(entry.name for entry in kept), *(entry.name for entry in patch.add)]
        formats.check_file_names(names, pointer=pointer)


# Reading -----------------------------------------------------------------------------------


def find(stores: Stores, replica: Replica, uuid: str, version: str | None) -> BundleVersion:
    """Return a visible version, by default the latest; raise NotFoundError."""
    with stores.catalog.read() as tx:
        return _find_published(tx, replica, uuid, version)


def read_page(
    stores: Stores, replica: Replica, uuid: str, version: str | None, *, start: int, limit: int
) -> tuple[BundleVersion, list[ManifestEntry]]:
    """Return a visible version, by default the latest, with some of its entries.

    Raise NotFoundError if there is none.
    """
    with stores.catalog.read() as tx:
        bundle = _find_published(tx, replica, uuid, version)
        page = bundles.list_entries(tx, bundle.id, start=start, limit=limit, span=SEGMENT_ENTRIES)
        return bundle, page


def _find_published(tx: Tx, replica: Replica, uuid: str, version: str | None) -> BundleVersion:
    ident = manifests.find_published_id(tx, KIND, replica, uuid, version)
    return bundles.get(tx, ident)


def read_entries(
    stores: Stores, bundle: BundleVersion, start: int, limit: int
) -> list[ManifestEntry]:
    """Return at most `limit` entries from the ordinal `start` on, in manifest order."""
    return stores.catalog.run_query(
        lambda tx: bundles.list_entries(
            tx, bundle.id, start=start, limit=limit, span=SEGMENT_ENTRIES
        )
    )


def list_versions(
    stores: Stores, replica: Replica, prefix: str, after: FQID | None, limit: int
) -> list[FQID]:
    """Return visible versions after `after`, ordered by uuid, then version."""
    with stores.catalog.read() as tx:
        return versions.list_published(tx, KIND, replica, prefix=prefix, after=after, limit=limit)


def list_containing(
    stores: Stores,
    replica: Replica,
    file_uuid: str,
    file_version: str | None,
    *,
    after: FQID | None,
    limit: int,
) -> list[FQID]:
    """Return visible versions that contain a file, ordered by uuid, then version.

    Raise NotFoundError if the file is not visible in the replica.
    """
    with stores.catalog.read() as tx:
        manifests.find_published_id(tx, "file", replica, file_uuid, file_version)
        return bundles.list_containing(
            tx, replica, file_uuid, file_version, after=after, limit=limit
        )


# Deleting ----------------------------------------------------------------------------------


def delete(
    stores: Stores,
    replica: Replica,
    uuid: str,
    version: str | None,
    *,
    reason: str,
    author: str,
    request_id: str = "",
) -> tuple[Job, ...]:
    """Hide one version, or all present and future versions of a uuid; repeating it succeeds.

    Raise NotFoundError if it never existed, ConflictError if its tombstone has another reason.
    """
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, KIND, [uuid])
        row = None if version is None else bundles.find(tx, FQID(uuid, version))
        has_existed = (
            versions.was_published(tx, KIND, uuid)
            if version is None
            else row is not None and row.published
        )
        if not has_existed:
            raise NotFoundError(f"There is no bundle {uuid}{'.' + version if version else ''}.")
        tombstone = versions.find_tombstone(tx, KIND, uuid, version or "")
        if tombstone is not None:
            if tombstone.reason == reason:
                return ()
            raise ConflictError(
                "A tombstone with another reason exists.", code=manifests.tombstone_code(KIND)
            )
        follow = manifests.insert_tombstone(
            tx, KIND, replica, uuid, version or "", reason=reason, author=author
        )
        follow = tuple(sorted({*follow, *_unpublish(tx, uuid, version)}))
        jobs.insert(tx, follow, request_id=request_id)
    return follow


def _unpublish(tx: Tx, uuid: str, version: str | None) -> set[Job]:
    """Hide versions; record a TOMBSTONE event and its jobs per version and replica."""
    follow: set[Job] = set()
    hidden = versions.unpublish(tx, KIND, uuid, version)
    if hidden:
        versions.count_change(tx, KIND, uuid)
    for replica, fqid, ident in hidden:
        event = events.append(tx, "TOMBSTONE", replica, fqid, ident)
        follow |= {*flow.following_jobs("tombstone", KIND, replica, str(fqid), event=event)}
    return follow
