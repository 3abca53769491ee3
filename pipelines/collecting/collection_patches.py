"""Patching a collection: a new version that differs from an earlier one in what is given.

The new version shares every segment of links that the patch does not touch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.collecting import collections, links
from pipelines.collecting.collections import KIND, Written
from pipelines.formats import later_versions
from pipelines.keeping import records
from pipelines.limits import SEGMENT_ENTRIES
from pipelines.repeating import Repeatable, answered, remember
from storage import json_codec
from storage.catalog import Tx, events, heads, link_segments, now_us, tombstones
from storage.catalog import collections as rows
from storage.catalog.collections import Collection
from storage.catalog.link_segments import Kept, Run
from storage.errors import Conflict
from storage.model import FQID, Link, Replica, Todo
from storage.stores import Stores

POINTER = "/add_contents/{}"


@dataclass(frozen=True, slots=True)
class Patch:
    """What is to change of which version; None leaves a member as it is."""

    patched: FQID
    replica: Replica
    add: Sequence[Link]
    remove: Sequence[Link]
    name: str | None
    description: str | None
    details: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class _Next:
    """What the version that follows will hold."""

    parent: Collection
    name: str
    description: str
    details: Mapping[str, Any]
    runs: Sequence[Run]

    @property
    def digest(self) -> str:
        """Of its content."""
        whole = [link for run in self.runs for link in link_segments.links_of(run)]
        return records.collection_digest(
            self.parent.owner, self.name, self.description, self.details, whole
        )


def digest(patch: Patch) -> str:
    """What two patches must share to be the same request."""
    changed = [[records.item(link) for link in some] for some in (patch.add, patch.remove)]
    told = [patch.name, patch.description, patch.details]
    return records.request_digest(
        ["patch_collection", str(patch.patched), patch.replica, *changed, *told]
    )


def patch(
    stores: Stores,
    patch: Patch,
    owner: str,
    *,
    repeatable: Repeatable | None = None,
    request_id: str = "",
) -> Written:
    """Write the version after the patched one; an asking that was answered is answered again.

    NotFound when the version is not visible in the replica, Forbidden (another's), Unprocessable
    (`invalid_link`).
    """
    with stores.catalog.read() as tx:
        before = answered(tx, repeatable)
        following = None if before else _following(tx, patch, owner)
    if following is None:
        return _again(stores, FQID.parse(before or ""), request_id)
    links.check(stores, patch.replica, owner, patch.add, pointer=POINTER)
    fqid, row = _reserve(stores, patch, following, repeatable)
    if row is None:
        return _again(stores, fqid, request_id)
    follow = collections.complete(stores, row, request_id=request_id)
    return Written(row.fqid, created=True, todo=follow)


def _following(tx: Tx, patch: Patch, owner: str) -> _Next:
    parent = collections.visible(tx, patch.replica, *patch.patched, owner)
    held = link_segments.of_collection(tx, parent.id)
    return _Next(
        parent=parent,
        name=parent.name if patch.name is None else patch.name,
        description=parent.description if patch.description is None else patch.description,
        details=json_codec.decode(parent.details.encode())
        if patch.details is None
        else patch.details,
        runs=_runs(held, patch),
    )


def _runs(held: Sequence[Kept], patch: Patch) -> list[Run]:
    """The links in segments: removals first, then what is added and not there yet."""
    gone = frozenset(patch.remove)
    runs: list[Run] = []
    for run in held:
        left = [link for link in run.links if link not in gone]
        if left:
            runs.append(run if len(left) == len(run.links) else left)
    there = {link for run in runs for link in link_segments.links_of(run)}
    tail = [link for link in links.once(patch.add) if link not in there]
    if tail and runs and len(link_segments.links_of(runs[-1])) < SEGMENT_ENTRIES:
        tail = [*link_segments.links_of(runs.pop()), *tail]
    return [*runs, *link_segments.cut(tail, SEGMENT_ENTRIES)]


def _reserve(
    stores: Stores, patch: Patch, following: _Next, repeatable: Repeatable | None
) -> tuple[FQID, Collection | None]:
    """The new version's name and row; without a row that of the same request's, which ran beside
    this one."""
    owner = following.parent.owner
    content = following.digest
    with stores.catalog.write() as tx:
        heads.lock(tx, KIND, [patch.patched.uuid])
        before = answered(tx, repeatable)
        if before is not None:
            return FQID.parse(before), None
        collections.visible(tx, patch.replica, *patch.patched, owner)
        links.still_there(tx, patch.replica, owner, patch.add, pointer=POINTER)
        fqid = _free(tx, patch.patched)
        remember(tx, repeatable, str(fqid))
        fresh = rows.NewCollection(
            fqid=fqid,
            digest=content,
            origin=patch.replica,
            owner=owner,
            parent=patch.patched.version,
            name=following.name,
            description=following.description,
            details=records.details(following.details),
            event_id=events.event_id("CREATE", patch.replica, fqid),
            runs=following.runs,
        )
        return fqid, rows.reserve(tx, fresh)


def _free(tx: Tx, patched: FQID) -> FQID:
    """A version from now on, and after the patched one, that nobody has or may not have."""
    for version in later_versions(patched.version, now_us=now_us(tx)):
        fqid = FQID(patched.uuid, version)
        if rows.by_fqid(tx, fqid) is None and not tombstones.over(tx, KIND, *fqid):
            return fqid
    raise Conflict(f"There is no later version than {patched}.", code="collection_already_exists")


def _again(stores: Stores, fqid: FQID, request_id: str) -> Written:
    """What was answered before, finished if whoever wrote it has died since."""
    with stores.catalog.read() as tx:
        row = rows.by_fqid(tx, fqid)
    follow: tuple[Todo, ...] = ()
    # It may be purged by now: it was written nevertheless.
    if row is not None and not row.published:
        follow = collections.complete(stores, row, request_id=request_id)
    return Written(fqid, created=False, todo=follow)
