"""Collections: put, patch, read, list and delete versioned sets of links.

What a collection links to stays when the collection goes, and so do links that lead to it. The type
of a link is a kind of the store (`file`, `bundle`, `collection`), or any other word for a fragment
of a file's JSON, whose path is a JSON Pointer.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pipelines import failover, flow, manifests, records
from pipelines.documents import (
    MAX_DOCUMENT_BYTES,
    MAX_FILE_BYTES,
    UnreadableMetadata,
    parse_metadata,
)
from pipelines.idempotency import IdempotentRequest
from pipelines.limits import SEGMENT_ENTRIES
from pipelines.manifests import ManifestKind, PatchedVersion, Publication, WriteResult
from storage import json_codec, keys
from storage.catalog import Tx, collections, events, files, jobs, versions
from storage.catalog.collections import Collection, LinkTarget, StoredLinkSegment
from storage.errors import (
    ConflictError,
    DamagedObjectError,
    Forbidden,
    NotFoundError,
    Unavailable,
    Unprocessable,
)
from storage.model import FQID, REPLICAS, CollectionLink, Job, Replica
from storage.stores import Stores

KIND: keys.Kind = "collection"
DELETION_REASON = "Deleted by its owner."
CONTENTS_POINTER = "/contents/{}"
ADD_POINTER = "/add_contents/{}"
MAX_REPORTED = 20
"""Broken links that an error names."""
MAX_FRAGMENT_BYTES = MAX_DOCUMENT_BYTES
"""Bytes of files that one request may read to check its fragments."""

_POINTER = re.compile(r"(?:/(?:[^/~]|~[01])*)*", re.DOTALL)
_ARRAY_INDEX = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)

LinkFaults = dict[int, str]
"""What is wrong with links, by their places."""


@dataclass(frozen=True, slots=True)
class CollectionDraft:
    """A collection version to be written."""

    fqid: FQID
    replica: Replica
    name: str
    description: str
    details: Mapping[str, Any]
    contents: Sequence[CollectionLink]


@dataclass(frozen=True, slots=True)
class CollectionPatch:
    """Changes of a version; None leaves a member as it is."""

    base: FQID
    replica: Replica
    add: Sequence[CollectionLink]
    remove: Sequence[CollectionLink]
    name: str | None
    description: str | None
    details: Mapping[str, Any] | None
    latest_only: bool = False
    """Whether to refuse a base that is not the latest version."""


# Writing -----------------------------------------------------------------------------------


def put(stores: Stores, new: CollectionDraft, owner: str, *, request_id: str = "") -> WriteResult:
    """Write and publish a version; the same content again succeeds, even if its targets are gone.

    Raise Forbidden (another owner's), ConflictError (other content, or under a tombstone),
    Unprocessable (`invalid_link`).
    """
    contents = list(dict.fromkeys(new.contents))
    digest = records.collection_digest(owner, new.name, new.description, new.details, contents)
    with stores.catalog.read() as tx:
        row = _find_equal_version(tx, new.fqid, owner, digest)
    if row is None:
        # With duplicates: errors point to places in the request.
        check_targets(stores, new.replica, owner, new.contents, pointer=CONTENTS_POINTER)
        row = _reserve(stores, new, contents, digest, owner)
    follow: tuple[Job, ...] = ()
    if not row.published:
        record = build_record(stores, row)
        follow = manifests.complete_reservation(
            stores, COLLECTION, row, record, request_id=request_id
        )
    return WriteResult(row.fqid, created=bool(follow), jobs=follow)


def _find_equal_version(tx: Tx, fqid: FQID, owner: str, digest: str) -> Collection | None:
    """Return the row of an equal version.

    Raise Forbidden or ConflictError if it cannot be written.
    """
    check_owner(collections.find_owner(tx, fqid.uuid), owner)
    if versions.find_covering_tombstone(tx, KIND, *fqid):
        raise manifests.tombstone_conflict(KIND, fqid)
    row = collections.find(tx, fqid)
    if row is not None and row.digest != digest:
        raise manifests.content_conflict(KIND, fqid)
    return row


def check_owner(owner: str | None, caller: str) -> None:
    """Raise Forbidden if a collection has an owner other than the caller."""
    if owner not in (None, caller):
        raise Forbidden("This collection belongs to another user.")


def _reserve(
    stores: Stores,
    new: CollectionDraft,
    contents: Sequence[CollectionLink],
    digest: str,
    owner: str,
) -> Collection:
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, KIND, [new.fqid.uuid])
        row = _find_equal_version(tx, new.fqid, owner, digest)
        if row is not None:
            return row
        recheck_targets(tx, new.replica, owner, new.contents, pointer=CONTENTS_POINTER)
        version = collections.NewCollectionVersion(
            fqid=new.fqid,
            digest=digest,
            origin=new.replica,
            owner=owner,
            parent=None,
            name=new.name,
            description=new.description,
            details=records.encode_details(new.details),
            event_id=events.make_event_id("CREATE", new.replica, new.fqid),
            runs=versions.split_runs(contents, SEGMENT_ENTRIES),
        )
        return collections.reserve(tx, version)


def build_record(stores: Stores, row: Collection) -> bytes:
    """Return the collection's record, from the catalog alone."""
    return records.encode_collection_record(row, read_links(stores, row))


def _publish(tx: Tx, row: Collection) -> Publication:
    versions.lock_heads(tx, KIND, [row.fqid.uuid])
    follow: tuple[Job, ...] = ()
    if versions.mark_published(tx, KIND, row.fqid):
        publish_in_replica(tx, row, row.origin)
        follow = flow.following_jobs("publish", KIND, row.origin, str(row.fqid))
    return Publication(follow, versions.find_covering_tombstone(tx, KIND, *row.fqid) is not None)


def publish_in_replica(tx: Tx, row: Collection, replica: Replica) -> None:
    """Publish a collection in a replica that has all of it, unless a tombstone hides it.

    The caller locks the head.
    """
    versions.record_stored(tx, KIND, row.id, replica)
    if versions.find_covering_tombstone(tx, KIND, *row.fqid):
        return
    versions.publish(tx, KIND, replica, row.fqid, row.id)
    collections.insert_owned(tx, row.owner, row.fqid)
    versions.count_change(tx, KIND, row.fqid.uuid)


COLLECTION = ManifestKind(name=KIND, find=collections.find, publish=_publish)


# Patching ----------------------------------------------------------------------------------


def patch_digest(patch: CollectionPatch) -> str:
    """Return the digest that equal patch requests share."""
    changes = [[records.format_link(link) for link in some] for some in (patch.add, patch.remove)]
    members = [patch.name, patch.description, patch.details]
    return records.request_digest(
        ["patch_collection", str(patch.base), patch.replica, *changes, *members]
    )


def patch_collection(
    stores: Stores,
    patch: CollectionPatch,
    owner: str,
    *,
    repeatable: IdempotentRequest | None = None,
    request_id: str = "",
) -> WriteResult:
    """Write the version after the patched one; a repeated idempotency key gets the same response.

    Raise NotFoundError if the version is not visible in the replica, Forbidden (another owner's),
    Unprocessable (`invalid_link`), ConflictError (`latest_only`).
    """

    def read(tx: Tx, ident: int) -> tuple[Collection, Sequence[StoredLinkSegment]]:
        base = collections.get(tx, ident)
        check_owner(base.owner, owner)
        return base, collections.list_link_segments(tx, ident)

    return manifests.patch_version(
        stores,
        COLLECTION,
        patch.base,
        patch.replica,
        read=read,
        build=lambda base: _build_patched(stores, *base, patch),
        repeatable=repeatable,
        request_id=request_id,
    )


def _build_patched(
    stores: Stores,
    base: Collection,
    segments: Sequence[StoredLinkSegment],
    patch: CollectionPatch,
) -> PatchedVersion[Collection]:
    check_targets(stores, patch.replica, base.owner, patch.add, pointer=ADD_POINTER)
    before = [link for segment in segments for link in segment.links]
    removals = frozenset(patch.remove)
    kept = [link for link in before if link not in removals]
    existing = frozenset(kept)
    added = [link for link in dict.fromkeys(patch.add) if link not in existing]
    runs = manifests.patch_segments(
        segments,
        [len(segment.links) for segment in segments],
        {place for place, link in enumerate(before) if link in removals},
        added,
        lambda changed: [segment.links for segment in changed],
    )
    name = base.name if patch.name is None else patch.name
    description = base.description if patch.description is None else patch.description
    details = patch.details
    if details is None:
        details = json_codec.decode(base.details.encode())
    digest = records.collection_digest(base.owner, name, description, details, [*kept, *added])

    def insert(tx: Tx, fqid: FQID) -> Collection:
        if patch.latest_only and collections.has_later_version(tx, patch.base):
            raise ConflictError("The collection was changed meanwhile.")
        recheck_targets(tx, patch.replica, base.owner, patch.add, pointer=ADD_POINTER)
        version = collections.NewCollectionVersion(
            fqid=fqid,
            digest=digest,
            origin=patch.replica,
            owner=base.owner,
            parent=patch.base.version,
            name=name,
            description=description,
            details=records.encode_details(details),
            event_id=events.make_event_id("CREATE", patch.replica, fqid),
            runs=runs,
        )
        return collections.reserve(tx, version)

    return PatchedVersion(insert, lambda row: build_record(stores, row))


# Reading -----------------------------------------------------------------------------------


def find(
    stores: Stores, replica: Replica, uuid: str, version: str | None, owner: str
) -> Collection:
    """Return a visible version, by default the latest; raise NotFoundError, Forbidden."""
    with stores.catalog.read() as tx:
        row = collections.get(tx, manifests.find_published_id(tx, KIND, replica, uuid, version))
    check_owner(row.owner, owner)
    return row


def read_links(stores: Stores, row: Collection) -> list[CollectionLink]:
    """Return all links in order."""
    with stores.catalog.read() as tx:
        segments = collections.list_link_segments(tx, row.id)
    return [link for segment in segments for link in segment.links]


def list_owned(stores: Stores, owner: str, after: FQID | None, limit: int) -> list[FQID]:
    """Return the owner's visible versions after `after`, ordered by uuid, then version."""
    with stores.catalog.read() as tx:
        return collections.list_owned(tx, owner, after=after, limit=limit)


# Deleting ----------------------------------------------------------------------------------


def delete(
    stores: Stores, replica: Replica, uuid: str, owner: str, *, request_id: str = ""
) -> tuple[Job, ...]:
    """Hide all present and future versions of a uuid in every replica.

    Raise Forbidden (another owner's), NotFoundError if it never existed or is deleted.
    """
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, KIND, [uuid])
        check_owner(collections.find_owner(tx, uuid), owner)
        is_deleted = versions.find_tombstone(tx, KIND, uuid, "") is not None
        if is_deleted or not versions.was_published(tx, KIND, uuid):
            raise _not_found(uuid)
        follow = manifests.insert_tombstone(
            tx, KIND, replica, uuid, "", reason=DELETION_REASON, author=owner
        )
        unpublish(tx, uuid)
        jobs.insert(tx, follow, request_id=request_id)
    return follow


def delete_as_owner(stores: Stores, uuid: str) -> tuple[Job, ...]:
    """Delete a collection on behalf of its owner; raise NotFoundError if it is purged."""
    with stores.catalog.read() as tx:
        owner = collections.find_owner(tx, uuid)
    if owner is None:
        raise _not_found(uuid)
    return delete(stores, REPLICAS[0], uuid, owner)


def _not_found(uuid: str) -> NotFoundError:
    return NotFoundError(f"There is no collection {uuid}.")


def unpublish(tx: Tx, uuid: str) -> None:
    """Hide all versions of a uuid from readers and from its owner's list; the caller locks."""
    collections.delete_owned(tx, uuid)
    if versions.unpublish(tx, KIND, uuid, None):
        versions.count_change(tx, KIND, uuid)


# Links -------------------------------------------------------------------------------------


def is_json_pointer(text: str) -> bool:
    """Return whether a text is a JSON Pointer; the empty one points to the whole value."""
    return _POINTER.fullmatch(text) is not None


def has_value_at(value: Any, pointer: str) -> bool:
    """Return whether a valid pointer points to something in a value."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and _ARRAY_INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return False
    return True


def is_fragment(link: CollectionLink) -> bool:
    """Return whether a link points into a file's JSON."""
    return link.type not in keys.KINDS


def link_target(link: CollectionLink) -> LinkTarget:
    """Return the kind and version that a link refers to."""
    return ("file" if is_fragment(link) else link.type, link.target)


def check_targets(
    stores: Stores, replica: Replica, owner: str, links: Sequence[CollectionLink], *, pointer: str
) -> None:
    """Raise Unprocessable (`invalid_link`) if a target is not in the replica, or a fragment absent.

    Costs two or three queries, and reads one object per file with fragments.
    """
    if not links:
        return
    fragments = {place: link for place, link in enumerate(links) if is_fragment(link)}
    fqids = sorted({link.target for link in fragments.values()})
    with stores.catalog.read() as tx:
        faults = _find_absent(tx, replica, owner, links) | {
            place: "path: must be a JSON Pointer into the file (empty, or beginning with '/')."
            for place, link in fragments.items()
            if link.path is None or not is_json_pointer(link.path)
        }
        rows = files.look_up(tx, replica, fqids) if fqids and not faults else []
    sizes = {fqids[row[0]]: row[3] for row in rows}
    checksums = {fqids[row[0]]: row[5] for row in rows}
    if rows:
        faults = _find_unresolved(stores, replica, fragments, sizes, checksums)
    _raise_faults(faults, links, pointer)


def recheck_targets(
    tx: Tx, replica: Replica, owner: str, links: Sequence[CollectionLink], *, pointer: str
) -> None:
    """Raise Unprocessable (`invalid_link`) if a target was deleted after it was checked."""
    if links:
        _raise_faults(_find_absent(tx, replica, owner, links), links, pointer)


def _find_absent(
    tx: Tx, replica: Replica, owner: str, links: Sequence[CollectionLink]
) -> LinkFaults:
    # The collection of another owner looks absent.
    visible = collections.filter_visible_targets(
        tx, [replica], owner, [link_target(link) for link in links]
    )
    return {
        place: f"There is no {kind} {fqid} in replica {replica}."
        for place, (kind, fqid) in enumerate(map(link_target, links))
        if (kind, fqid) not in visible
    }


def _find_unresolved(
    stores: Stores,
    replica: Replica,
    fragments: Mapping[int, CollectionLink],
    sizes: Mapping[FQID, int],
    checksums: Mapping[FQID, str],
) -> LinkFaults:
    """Read the files of fragments; return the faults of pointers that do not resolve."""
    pointers: dict[FQID, dict[int, str]] = defaultdict(dict)
    for place, link in fragments.items():
        pointers[link.target][place] = link.path or ""
    message = f"The file has more than {MAX_FILE_BYTES} bytes."
    small = [fqid for fqid, size in sizes.items() if size <= MAX_FILE_BYTES]
    if sum(sizes[fqid] for fqid in small) > MAX_FRAGMENT_BYTES:
        small = []
        message = (
            f"The files of these fragments have more than {MAX_FRAGMENT_BYTES} bytes together."
        )
    faults = {place: message for fqid in sizes.keys() - small for place in pointers[fqid]}

    def read(fqid: FQID) -> bytes:
        try:
            return failover.read_blob(stores, replica, checksums[fqid])
        except (DamagedObjectError, NotFoundError) as error:
            raise Unavailable(
                f"The bytes of {fqid} cannot be read in {replica}; try again."
            ) from error

    with ThreadPoolExecutor(stores.copy_parallel) as pool:
        for fqid, data in zip(small, pool.map(read, small), strict=True):
            faults |= _check_pointers(data, pointers[fqid])
    return faults


def _check_pointers(data: bytes, pointers: Mapping[int, str]) -> LinkFaults:
    """Return the faults of pointers into one file, by the places of their links."""
    try:
        value, _ = parse_metadata(data)
    except UnreadableMetadata as error:
        return dict.fromkeys(pointers, f"The file cannot be read: {error}.")
    return {
        place: "The file has nothing at this pointer."
        for place, pointer in pointers.items()
        if not has_value_at(value, pointer)
    }


def _raise_faults(faults: Mapping[int, str], links: Sequence[CollectionLink], pointer: str) -> None:
    if not faults:
        return
    places = sorted(faults)[:MAX_REPORTED]
    names = []
    for link in (links[place] for place in places):
        fragment = f" at '{link.path}'" if is_fragment(link) and link.path is not None else ""
        names.append(f"{link.type} {link.target}{fragment}")
    raise Unprocessable(
        f"{len(faults)} links are broken: {', '.join(names)}",
        code="invalid_link",
        errors={pointer.format(place): [faults[place]] for place in places},
    )
