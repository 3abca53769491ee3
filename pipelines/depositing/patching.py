"""Patching: a new version of a bundle that differs from an earlier one by a few entries.

The new version shares every segment that the patch does not touch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipelines.depositing import manifests, names
from pipelines.depositing.manifests import KIND, NewEntry, Written
from pipelines.formats import later_versions
from pipelines.keeping import records
from pipelines.limits import SEGMENT_ENTRIES
from pipelines.repeating import Repeatable, answered, remember
from storage.catalog import Tx, bundles, events, heads, now_us, segments, visibility
from storage.catalog.segments import Kept, Row, Run
from storage.errors import Conflict, Invalid, NotFound
from storage.model import FQID, Entry, Replica
from storage.stores import Stores


class Removal(NamedTuple):
    """An entry to be left out, if the bundle has it just so; `indexed` None: either."""

    name: str
    file: FQID
    indexed: bool | None


@dataclass(frozen=True, slots=True)
class Patch:
    """What is to change of which version."""

    patched: FQID
    replica: Replica
    add: Sequence[NewEntry]
    remove: Sequence[Removal]


@dataclass(frozen=True, slots=True)
class _Parent:
    """The version that is patched, as it was read."""

    row: bundles.Reserved
    entries: Sequence[Entry]
    runs: Sequence[Kept]


def digest(patch: Patch) -> str:
    """What two patches must share to be the same request."""
    return records.request_digest(
        [
            "patch_bundle",
            str(patch.patched),
            patch.replica,
            *(
                [[one.name, *one.file, one.indexed] for one in some]
                for some in (patch.add, patch.remove)
            ),
        ]
    )


def patch(
    stores: Stores,
    patch: Patch,
    author: str,
    *,
    repeatable: Repeatable | None = None,
    request_id: str = "",
) -> Written:
    """Write the version after the patched one; an asking that was answered is answered again.

    NotFound when the version is not visible in the replica, Invalid (`duplicate_filename`,
    `file_missing`, nothing left), FilesPending.
    """
    with stores.catalog.read() as tx:
        before = answered(tx, repeatable)
        parent = None if before else _read(tx, patch)
        touched = {} if parent is None else segments.rows(tx, _touched(parent, patch))
    if parent is None:
        return _again(stores, FQID.parse(before or ""), request_id)
    lines, rows = manifests.look_up(stores, patch.replica, patch.add, pointer="/add_files/{}")
    runs, kept = _patched(parent, patch, touched, rows)
    _check_names(kept, patch)
    row, fresh = _reserve(stores, patch, parent, runs, kept, author, repeatable)
    if not fresh:
        return _again(stores, row.bundle.fqid, request_id)
    manifest = records.manifest(row.bundle.creator_uid, records.stored_json(kept), lines)
    follow = manifests.complete(stores, row, manifest, request_id=request_id)
    return Written(row.bundle.fqid, manifest, created=True, todo=follow)


def _read(tx: Tx, patch: Patch) -> _Parent:
    ident = visibility.find(tx, KIND, patch.replica, patch.patched)
    if ident is None:
        raise NotFound(f"There is no bundle {patch.patched} in replica {patch.replica}.")
    row = bundles.by_id(tx, ident)
    whole = bundles.page(tx, ident, start=0, limit=row.bundle.file_count, span=SEGMENT_ENTRIES)
    return _Parent(row, whole, segments.of_bundle(tx, ident))


def _gone(parent: _Parent, patch: Patch) -> set[int]:
    """Ordinals of the entries that are left out."""
    exact = {(one.name, one.file, one.indexed) for one in patch.remove}
    return {
        place
        for place, entry in enumerate(parent.entries)
        if (entry.name, entry.file, entry.indexed) in exact
        or (entry.name, entry.file, None) in exact
    }


def _touched(parent: _Parent, patch: Patch) -> list[int]:
    """The segments that are written anew: those that lose entries, and the last when it has room
    for what is added."""
    gone, start, found = _gone(parent, patch), 0, []
    for run in parent.runs:
        last = run is parent.runs[-1] and patch.add and run.count < SEGMENT_ENTRIES
        if last or not gone.isdisjoint(range(start, start + run.count)):
            found.append(run.segment_id)
        start += run.count
    return found


def _patched(
    parent: _Parent, patch: Patch, touched: Mapping[int, Sequence[Row]], added: Sequence[Row]
) -> tuple[list[Run], list[Entry]]:
    """The new manifest in segments, and the entries that it keeps."""
    gone, start = _gone(parent, patch), 0
    runs: list[Run] = []
    for run in parent.runs:
        rows = touched.get(run.segment_id)
        left = (
            run
            if rows is None
            else [row for place, row in enumerate(rows, start) if place not in gone]
        )
        runs += [left] if segments.length(left) else []
        start += run.count
    last = runs[-1] if runs else ()
    tail = list(added)
    if not isinstance(last, Kept):
        tail = [*last, *added]
        runs = runs[:-1]
    kept = [entry for place, entry in enumerate(parent.entries) if place not in gone]
    return [*runs, *segments.cut(tail, SEGMENT_ENTRIES)], kept


def _check_names(kept: Sequence[Entry], patch: Patch) -> None:
    """What is added must have a good name of its own."""

    def pointer(place: int) -> str:
        return f"/add_files/{place - len(kept)}/name" if place >= len(kept) else "/add_files"

    if not kept and not patch.add:
        said = "The patch would leave no file."
        raise Invalid(said, errors={"/remove_files": [said]})
    if patch.add:
        whole = [*(entry.name for entry in kept), *(entry.name for entry in patch.add)]
        names.check_names(whole, pointer=pointer)


def _reserve(
    stores: Stores,
    patch: Patch,
    parent: _Parent,
    runs: Sequence[Run],
    kept: Sequence[Entry],
    author: str,
    repeatable: Repeatable | None,
) -> tuple[bundles.Reserved, bool]:
    """The new version's row; or that of the same request's, which ran beside this one."""
    lines = [*((entry.name, entry.file, entry.indexed) for entry in kept), *patch.add]
    creator_uid = parent.row.bundle.creator_uid
    content = records.bundle_digest(creator_uid, lines)
    with stores.catalog.write() as tx:
        heads.lock(tx, KIND, [patch.patched.uuid])
        before = answered(tx, repeatable)
        if before is not None:
            return _known(tx, FQID.parse(before)), False
        if visibility.find(tx, KIND, patch.replica, patch.patched) is None:
            raise NotFound(f"There is no bundle {patch.patched} in replica {patch.replica}.")
        fqid = _free(tx, patch.patched)
        remember(tx, repeatable, str(fqid))
        fresh = bundles.NewBundle(
            fqid=fqid,
            digest=content,
            origin=patch.replica,
            creator_uid=creator_uid,
            author=author,
            parent=patch.patched.version,
            event_id=events.event_id("CREATE", patch.replica, fqid),
            runs=runs,
        )
        reserved = bundles.insert(tx, fresh)
        manifests.still_there(tx, patch.replica, patch.add, pointer="/add_files/{}")
        return reserved, True


def _free(tx: Tx, patched: FQID) -> FQID:
    """A version from now on, and after the patched one, that nobody has or may not have."""
    for version in later_versions(patched.version, now_us=now_us(tx)):
        fqid = FQID(patched.uuid, version)
        if not manifests.taken(tx, fqid):
            return fqid
    raise Conflict(f"There is no later version than {patched}.", code="bundle_already_exists")


def _known(tx: Tx, fqid: FQID) -> bundles.Reserved:
    row = bundles.by_fqid(tx, fqid)
    if row is None:
        raise NotFound(f"There is no bundle {fqid} any more.")
    return row


def _again(stores: Stores, fqid: FQID, request_id: str) -> Written:
    """What was answered before, finished if whoever wrote it has died since."""
    with stores.catalog.read() as tx:
        row = bundles.by_fqid(tx, fqid)
    follow: Any = ()
    if row is not None and not row.published:
        manifest = manifests.manifest_of(stores, row.bundle)
        follow = manifests.complete(stores, row, manifest, request_id=request_id)
    return Written(fqid, b"", created=False, todo=follow)
