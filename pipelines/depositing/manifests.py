"""Bundles: write a manifest (reserve, put, publish), read it back by page, list what is visible."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from pipelines import flow
from pipelines.depositing import names, purging
from pipelines.keeping import integrity, records
from pipelines.limits import PENDING_RETRY_S, SEGMENT_ENTRIES
from storage import keys
from storage.catalog import (
    Tx,
    bundles,
    events,
    files,
    heads,
    purges,
    segments,
    todo,
    tombstones,
    visibility,
)
from storage.errors import Conflict, Invalid, NotFound, Unavailable
from storage.model import FQID, BundleVersion, Entry, Replica, Todo
from storage.stores import Stores

KIND: keys.Kind = "bundle"
ATTEMPTS = 3
"""How often a reservation is made that a file escaped which came just then."""
_NAMED = 20
"""How many missing files an error names."""


class NewEntry(NamedTuple):
    """One line of a manifest to be written."""

    name: str
    file: FQID
    indexed: bool


EntryRow = tuple[str, tuple[str, str], bool]
"""(name, (uuid, version), indexed): a `NewEntry`, or a plain tuple where there are thousands."""


@dataclass(frozen=True, slots=True)
class NewBundle:
    """A bundle as its depositor describes it."""

    fqid: FQID
    replica: Replica
    creator_uid: int
    entries: Sequence[EntryRow]
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A bundle that is visible now; `manifest` is JSON."""

    fqid: FQID
    manifest: bytes
    created: bool
    todo: tuple[Todo, ...]


class FilesPending(Conflict):
    """Files that are still being verified, or are whole in another replica only."""

    code = "file_pending"

    def __init__(self, missing: Sequence[FQID]) -> None:
        shown = ", ".join(str(fqid) for fqid in missing[:_NAMED])
        super().__init__(
            f"{len(missing)} files are not here yet: {shown}", retry_after_s=PENDING_RETRY_S
        )
        self.missing = missing


def write(stores: Stores, new: NewBundle, author: str, *, request_id: str = "") -> Written:
    """Make a bundle version visible, once; the same content again is success.

    Conflict (other content, or under a tombstone), Invalid (`file_missing`), FilesPending.
    """
    if not new.entries:
        raise Invalid("A bundle has at least one file.", errors={"/files": ["Must not be empty."]})
    names.check_names([name for name, _, _ in new.entries])
    digest = records.bundle_digest(new.creator_uid, new.entries)
    row, facts = _reserve(stores, new, digest, author)
    if facts is None:
        # Who reserved it gave the entries their order; another's record would not be the same.
        manifest = manifest_of(stores, row.bundle)
    else:
        manifest = records.manifest(new.creator_uid, records.entries_json(new.entries, facts))
    if row.published:
        return Written(new.fqid, manifest, created=False, todo=())
    follow = complete(stores, row, manifest, request_id=request_id)
    # Of equal writers that race, the one that published it made it.
    return Written(new.fqid, manifest, created=bool(follow), todo=follow)


class _FilesCame(Exception):
    """A file that readers did not see is there now."""


def _reserve(
    stores: Stores, new: NewBundle, digest: str, author: str
) -> tuple[bundles.Reserved, bundles.Facts | None]:
    """The version's row, and what its files know unless it is an equal writer's; Conflict when it
    is taken or buried, Invalid (`file_missing`), FilesPending."""
    fresh = bundles.NewBundle(
        fqid=new.fqid,
        digest=digest,
        origin=new.replica,
        creator_uid=new.creator_uid,
        author=author,
        parent=new.parent,
        event_id=events.event_id("CREATE", new.replica, new.fqid),
        runs=segments.cut(new.entries, SEGMENT_ENTRIES),
    )
    for _ in range(ATTEMPTS):
        with suppress(_FilesCame), stores.catalog.write() as tx:
            found = bundles.reserve(tx, fresh)
            if found.lacks_files:
                check_files(tx, new.replica, [file for _, file, _ in new.entries])
                raise _FilesCame
            break
    else:
        raise Unavailable("Files come and go.", retry_after_s=PENDING_RETRY_S)
    if found.row is None or found.is_buried:
        raise _buried(new.fqid)
    if found.row.digest != digest:
        raise Conflict(
            f"Bundle {new.fqid} exists with other content.", code="bundle_already_exists"
        )
    return found.row, found.facts


def look_up(
    stores: Stores, replica: Replica, new: Sequence[EntryRow], *, pointer: str = "/files/{}"
) -> tuple[bytes, list[segments.Row]]:
    """Every entry with its file's facts, by one query: as JSON of the manifest, and as a segment
    keeps it. Invalid (`file_missing`), FilesPending."""
    with stores.catalog.read() as tx:
        found = check_files(tx, replica, [file for _, file, _ in new], pointer=pointer)
    rows = [(known[1], name, indexed) for known, (name, _, indexed) in zip(found, new, strict=True)]
    _, _, *facts = zip(*found, strict=True) if found else [()] * 8
    return records.entries_json(new, facts), rows


def require_files(stores: Stores, replica: Replica, wanted: Sequence[files.Key]) -> None:
    """FilesPending while readers of the replica do not see all of these."""
    with stores.catalog.read() as tx:
        check_files(tx, replica, wanted)


def still_there(
    tx: Tx, replica: Replica, new: Sequence[EntryRow], *, pointer: str = "/files/{}"
) -> None:
    """Called once a reservation names these files, which holds them: Invalid (`file_missing`) when
    one was purged since it was looked up."""
    if purges.lately(tx):
        check_files(tx, replica, [file for _, file, _ in new], pointer=pointer)


def check_files(
    tx: Tx, replica: Replica, wanted: Sequence[files.Key], *, pointer: str = "/files/{}"
) -> list[files.Found]:
    """The files of these keys in their order; Invalid (`file_missing`) with those that there are
    not, FilesPending."""
    found = files.lookup(tx, replica, wanted)
    if len(found) == len(wanted):
        return found
    seen = {row[0] for row in found}
    missing = {at: FQID(*key) for at, key in enumerate(wanted) if at not in seen}
    known = files.whereabouts(tx, [*missing.values()])
    absent = {at: fqid for at, fqid in missing.items() if fqid not in known}
    if not absent:
        raise FilesPending([*missing.values()])
    shown = [*islice(absent.items(), _NAMED)]
    raise Invalid(
        f"{len(absent)} files do not exist: " + ", ".join(str(fqid) for _, fqid in shown),
        code="file_missing",
        errors={pointer.format(at): ["This file does not exist."] for at, _ in shown},
    )


def _buried(fqid: FQID) -> Conflict:
    """What to answer a writer of a version that may no longer be seen."""
    return Conflict(f"Bundle {fqid} is under a tombstone.", code="bundle_tombstone_already_exists")


def taken(tx: Tx, fqid: FQID) -> bool:
    """Whether a version exists, or may not any more."""
    row, is_buried = bundles.existing(tx, fqid)
    return row is not None or is_buried


def complete(
    stores: Stores, row: bundles.Reserved, manifest: bytes, *, request_id: str = ""
) -> tuple[Todo, ...]:
    """Put the record of a reserved bundle into its origin's bucket and publish it."""
    bundle = row.bundle
    key = keys.record(KIND, bundle.fqid)
    data = records.of_bundle(row, manifest)
    if not integrity.place_record(stores, bundle.origin, key, data):
        with stores.catalog.write() as tx:
            visibility.record_seen(tx, KIND, bundle.id, bundle.origin, diverged=True)
        raise Conflict(
            f"{key} holds other content than was reserved.", code="bundle_already_exists"
        )
    with stores.catalog.write() as tx:
        published = bundles.publish(tx, row)
        follow = _follow(row, bundle.origin, published, done="publish") if published else ()
        todo.add(tx, follow, request_id=request_id)
        is_buried = published.is_buried if published else bundles.existing(tx, bundle.fqid)[1]
        purged = purges.among(tx, KIND, [bundle.fqid]) if is_buried else {}
    if is_buried:
        purging.withdraw(stores, bundle.origin, KIND, purged)
        raise _buried(bundle.fqid)
    return follow


def reveal(tx: Tx, row: bundles.Reserved, replica: Replica, *, done: str) -> tuple[Todo, ...]:
    """A bundle is whole in a replica: readers see it there and its event is recorded, unless it
    was buried meanwhile. The caller holds its head. Returns what follows; MATCH goes by event."""
    fqid = row.bundle.fqid
    is_buried = tombstones.over(tx, KIND, *fqid) is not None
    change = 0 if is_buried else heads.change(tx, KIND, fqid.uuid)
    shown = bundles.show(tx, row, replica, change=change, is_buried=is_buried)
    return _follow(row, replica, shown, done=done)


def _follow(
    row: bundles.Reserved, replica: Replica, shown: bundles.Publication, *, done: str
) -> tuple[Todo, ...]:
    """The jobs that follow: subscribers hear of new events only, and of nothing that is buried; its
    record is to be in every bucket, as its tombstone's is."""
    fqid = row.bundle.fqid
    return tuple(
        flow.addressed(job, bundle=fqid, event=shown.event or "")
        for job in flow.follows(done, KIND, replica, str(fqid))
        if job.step == flow.Step.SYNC
        or (not shown.is_buried and (shown.event or job.step != flow.Step.MATCH))
    )


def manifest_of(stores: Stores, bundle: BundleVersion) -> bytes:
    """The manifest as JSON again, from the catalog."""
    found = entries(stores, bundle, 0, bundle.file_count)
    return records.manifest(bundle.creator_uid, records.stored_json(found))


def find(stores: Stores, replica: Replica, uuid: str, version: str | None) -> BundleVersion:
    """A visible version, the latest when none is named; NotFound else."""
    with stores.catalog.read() as tx:
        return _found(tx, replica, uuid, version)


def read_page(
    stores: Stores, replica: Replica, uuid: str, version: str | None, *, start: int, limit: int
) -> tuple[BundleVersion, list[Entry]]:
    """The same, with some of its entries."""
    with stores.catalog.read() as tx:
        bundle = _found(tx, replica, uuid, version)
        found = bundles.page(tx, bundle.id, start=start, limit=limit, span=SEGMENT_ENTRIES)
        return bundle, found


def _found(tx: Tx, replica: Replica, uuid: str, version: str | None) -> BundleVersion:
    ident = visibility.chosen(tx, KIND, replica, uuid, version)
    if ident is None:
        named = uuid if version is None else f"{uuid}.{version}"
        raise NotFound(f"There is no bundle {named} in replica {replica}.")
    return bundles.by_id(tx, ident).bundle


def entries(stores: Stores, bundle: BundleVersion, start: int, limit: int) -> list[Entry]:
    """Some entries, in manifest order."""
    return stores.catalog.ask(
        lambda tx: bundles.page(tx, bundle.id, start=start, limit=limit, span=SEGMENT_ENTRIES)
    )


def listing(
    stores: Stores, replica: Replica, prefix: str, after: FQID | None, limit: int
) -> list[FQID]:
    """Visible versions by uuid, then version, after a given one."""
    with stores.catalog.read() as tx:
        return visibility.listing(tx, KIND, replica, prefix=prefix, after=after, limit=limit)
