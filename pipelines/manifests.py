"""Versioned manifests: the steps of a write that bundles and collections share.

A write reserves a version in the catalog, puts its record into the bucket of its origin, and
publishes it. A patch writes the version after its base, which keeps the segments it does not
change. A tombstone hides a version, or a uuid with all of its versions.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, NamedTuple, Protocol, TypeVar

from pipelines import flow, integrity, records
from pipelines.flow import Heartbeat
from pipelines.formats import later_versions
from pipelines.idempotency import IdempotentRequest, find_stored_response, store_response
from pipelines.limits import SEGMENT_ENTRIES
from storage import keys
from storage.catalog import Tx, events, jobs, now_us, purges, versions
from storage.catalog.versions import Tombstone
from storage.errors import ConflictError, NotFoundError
from storage.model import FQID, REPLICAS, Job, JobClaim, Replica
from storage.stores import Stores


class VersionRow(Protocol):
    """The catalog's row of a bundle or a collection."""

    @property
    def id(self) -> int: ...
    @property
    def fqid(self) -> FQID: ...
    @property
    def origin(self) -> Replica: ...
    @property
    def published(self) -> bool: ...


Row = TypeVar("Row", bound=VersionRow)
Base = TypeVar("Base")
Segment = TypeVar("Segment")
Line = TypeVar("Line")
Key = TypeVar("Key", bound=Hashable)


class Publication(NamedTuple):
    """The jobs that follow a publication, and whether a tombstone hides the version."""

    jobs: tuple[Job, ...]
    is_buried: bool


@dataclass(frozen=True, slots=True)
class ManifestKind(Generic[Row]):
    """How to find and publish the versions of one kind.

    `publish` locks the head. It returns no jobs if the version was published before, or purged.
    """

    name: keys.Kind
    find: Callable[[Tx, FQID], Row | None]
    publish: Callable[[Tx, Row], Publication]


@dataclass(frozen=True, slots=True)
class WriteResult:
    """A published version; `manifest` is the JSON of a bundle that was put, else empty."""

    fqid: FQID
    created: bool
    jobs: tuple[Job, ...]
    manifest: bytes = b""


def content_conflict(kind: keys.Kind, fqid: FQID) -> ConflictError:
    """Return the error for a version that exists with other content."""
    return ConflictError(
        f"{kind.capitalize()} {fqid} exists with other content.", code=f"{kind}_already_exists"
    )


def tombstone_conflict(kind: keys.Kind, fqid: FQID) -> ConflictError:
    """Return the error for writing a version that a tombstone hides."""
    return ConflictError(
        f"{kind.capitalize()} {fqid} is under a tombstone.", code=tombstone_code(kind)
    )


def tombstone_code(kind: keys.Kind) -> str:
    """Return the error code of a conflict with a tombstone."""
    return f"{kind}_tombstone_already_exists"


def find_published_id(
    tx: Tx, kind: keys.Kind, replica: Replica, uuid: str, version: str | None
) -> int:
    """Return the id of a visible version, by default the latest; raise NotFoundError."""
    ident = versions.resolve_version(tx, kind, replica, uuid, version)
    if ident is None:
        name = uuid if version is None else f"{uuid}.{version}"
        raise NotFoundError(f"There is no {kind} {name} in replica {replica}.")
    return ident


# Writing -----------------------------------------------------------------------------------


def complete_reservation(
    stores: Stores, kind: ManifestKind[Row], row: Row, record: bytes, *, request_id: str = ""
) -> tuple[Job, ...]:
    """Put the record of a reserved version into its origin's bucket, then publish the version."""
    fqid, origin = row.fqid, row.origin
    key = keys.record_key(kind.name, fqid)
    if not integrity.put_or_repair_record(stores, origin, key, record):
        with stores.catalog.write() as tx:
            versions.record_stored(tx, kind.name, row.id, origin, diverged=True)
        raise ConflictError(
            f"{key} in {origin} has other content than this {kind.name}.",
            code=f"{kind.name}_already_exists",
        )
    with stores.catalog.write() as tx:
        follow, is_buried = kind.publish(tx, row)
        jobs.insert(tx, follow, request_id=request_id)
        purged = purges.filter_purged(tx, kind.name, [fqid]) if is_buried else {}
    if is_buried:
        integrity.delete_late_records(stores, origin, kind.name, purged)
        raise tombstone_conflict(kind.name, fqid)
    return follow


def resume_write(
    stores: Stores, kind: ManifestKind[Row], fqid: FQID, *, request_id: str
) -> tuple[Job, ...]:
    """Complete a reservation from the catalog alone, unless it is published or purged."""
    with stores.catalog.read() as tx:
        row = kind.find(tx, fqid)
    if row is None or row.published:
        return ()
    record = integrity.rebuild_record(stores, keys.record_key(kind.name, fqid))
    if record is None:
        return ()
    return complete_reservation(stores, kind, row, record, request_id=request_id)


# Patching ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PatchedVersion(Generic[Row]):
    """The version that a patch will write.

    `insert` runs while the head is locked. It inserts the version under the name it is passed and
    checks the references that the patch adds. `encode_record` returns the record of its row.
    """

    insert: Callable[[Tx, FQID], Row]
    encode_record: Callable[[Row], bytes]


def patch_version(
    stores: Stores,
    kind: ManifestKind[Row],
    base: FQID,
    replica: Replica,
    *,
    read: Callable[[Tx, int], Base],
    build: Callable[[Base], PatchedVersion[Row]],
    repeatable: IdempotentRequest | None,
    request_id: str,
) -> WriteResult:
    """Write the version after the base; replay the response to a repeated idempotency key.

    `read` gets the id of the base, `build` its result. Raise NotFoundError if the base is not
    visible in the replica.
    """
    with stores.catalog.read() as tx:
        response = find_stored_response(tx, repeatable)
        if response is None:
            content = read(tx, find_published_id(tx, kind.name, replica, *base))
    if response is None:
        patched = build(content)
        with stores.catalog.write() as tx:
            versions.lock_heads(tx, kind.name, [base.uuid])
            response = find_stored_response(tx, repeatable)
            if response is None:
                find_published_id(tx, kind.name, replica, *base)
                fqid = _choose_version(tx, kind, base)
                store_response(tx, repeatable, str(fqid))
                row = patched.insert(tx, fqid)
        if response is None:
            record = patched.encode_record(row)
            follow = complete_reservation(stores, kind, row, record, request_id=request_id)
            return WriteResult(fqid, created=True, jobs=follow)
    # The writer of the stored response may have died before it published the version.
    fqid = FQID.parse(response)
    follow = resume_write(stores, kind, fqid, request_id=request_id)
    return WriteResult(fqid, created=False, jobs=follow)


def _choose_version(tx: Tx, kind: ManifestKind[Row], base: FQID) -> FQID:
    """Return the first free version that is neither in the past nor before the base."""
    for version in later_versions(base.version, now_us=now_us(tx)):
        fqid = FQID(base.uuid, version)
        if kind.find(tx, fqid) is None and not versions.find_covering_tombstone(
            tx, kind.name, *fqid
        ):
            return fqid
    raise ConflictError(
        f"There is no later version than {base}.", code=f"{kind.name}_already_exists"
    )


def share_runs(
    rows: Sequence[Key],
    earlier: Sequence[tuple[Segment, Sequence[Key]]],
    size: int = SEGMENT_ENTRIES,
) -> list[Segment | Sequence[Key]]:
    """Split rows into segments, reusing each earlier one that occurs whole; new ones have `size`.

    As in a patch, the last earlier run is rewritten if it has room and rows follow it; otherwise
    runs of one row would accumulate.
    """
    last = list(earlier[-1][1]) if earlier else []
    starts = {run[0]: (run_before, list(run)) for run_before, run in earlier if run}
    runs: list[Segment | Sequence[Key]] = []
    start, at = 0, 0
    while at < len(rows):
        run_before, run = starts.get(rows[at], (None, []))
        ends = at + len(run)
        if (
            run_before is not None
            and list(rows[at:ends]) == run
            and (ends == len(rows) or len(run) >= size or run != last)
        ):
            runs += [*versions.split_runs(rows[start:at], size), run_before]
            start = at = ends
        else:
            at += 1
    return [*runs, *versions.split_runs(rows[start:at], size)]


def patch_segments(
    segments: Sequence[Segment],
    counts: Sequence[int],
    removed: Set[int],
    added: Sequence[Line],
    read_lines: Callable[[Sequence[Segment]], Iterable[Sequence[Line]]],
) -> list[Segment | Sequence[Line]]:
    """Return a patched manifest: unchanged segments as they are, the others as new lines.

    `counts` are the lines of each segment, `removed` the ordinals of lines to leave out. A segment
    changes if it loses lines, or if it is the last and has room for added ones.
    """
    starts = [*accumulate(counts, initial=0)]
    changed = [
        place
        for place, count in enumerate(counts)
        if not removed.isdisjoint(range(starts[place], starts[place] + count))
        or (added and place == len(counts) - 1 and count < SEGMENT_ENTRIES)
    ]
    lines = dict(zip(changed, read_lines([segments[place] for place in changed]), strict=True))
    runs: list[Segment | Sequence[Line]] = []
    tail: list[Line] = []
    for place, segment in enumerate(segments):
        if place not in lines:
            runs.append(segment)
            tail = []
            continue
        left = [line for at, line in enumerate(lines[place], starts[place]) if at not in removed]
        if left:
            runs.append(left)
            tail = left
    if tail:
        runs.pop()
    return [*runs, *versions.split_runs([*tail, *added], SEGMENT_ENTRIES)]


# Tombstones --------------------------------------------------------------------------------


def insert_tombstone(
    tx: Tx, kind: keys.Kind, replica: Replica, uuid: str, version: str, *, reason: str, author: str
) -> tuple[Job, ...]:
    """Insert a tombstone and return the jobs that write its record; the caller locks the head."""
    versions.insert_tombstone(
        tx,
        Tombstone(
            id=0,
            kind=kind,
            uuid=uuid,
            version=version,
            reason=reason,
            digest=records.tombstone_digest(kind, uuid, version, reason),
            origin=replica,
            author=author,
            event_id=events.make_event_id("TOMBSTONE", replica, FQID(uuid, version)),
            created_us=0,
        ),
    )
    return tombstone_jobs(kind, uuid, version)


def tombstone_jobs(kind: str, uuid: str, version: str = "") -> tuple[Job, ...]:
    """Return the jobs that write a tombstone's record into each bucket."""
    name = f"{uuid}.{version}" if version else uuid
    ref = name if kind == "bundle" else f"{kind}:{name}"
    return tuple(Job(flow.Step.BURY, replica, ref) for replica in REPLICAS)


def write_tombstone(stores: Stores, claim: JobClaim, _heartbeat: Heartbeat) -> tuple[Job, ...]:
    """Put a tombstone's record into one replica.

    The job's reference is `[<kind>:]<uuid>[.<version>]`; without a kind it is a bundle's.
    """
    kind, (uuid, version) = flow.parse_version_ref(claim.job)
    with stores.catalog.read() as tx:
        tombstone = versions.find_tombstone(tx, kind, uuid, version)
    if tombstone is None:
        raise NotFoundError(f"There is no tombstone {claim.job.ref}.")
    replica = flow.job_replica(claim.job)
    key = keys.tombstone_key(kind, uuid, version or None)
    record = records.encode_marker_record(tombstone)
    is_equal = integrity.put_or_repair_record(stores, replica, key, record)
    with stores.catalog.write() as tx:
        versions.record_stored(tx, "tombstone", tombstone.id, replica, diverged=not is_equal)
        jobs.finish(tx, claim)
    return ()
