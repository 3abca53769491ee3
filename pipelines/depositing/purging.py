"""Purging: a bundle's version, and all that only it named, removed for good; an operator's command.
Collections are ordered to go in `collection_purging`.

Hidden at once and under a tombstone, so that nobody writes it again. Then step by step, each of
which may run twice, half, or beside its twin: MARK puts a marker into every bucket; once all have
it, and nobody needs the metadata document any more, ERASE removes the records; once none is left,
FORGET removes the catalog's rows, and condemns the bytes that nothing else refers to. Files that
only purged bundles named go the same way, each by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pipelines import flow
from pipelines.depositing import files
from pipelines.flow import Step
from pipelines.journalling import journals
from pipelines.keeping import integrity, records
from pipelines.keeping.copying import Beat
from storage import keys
from storage.catalog import (
    Tx,
    bundles,
    collections,
    condemned,
    events,
    heads,
    purges,
    todo,
    tombstones,
)
from storage.catalog import checkouts as jobs
from storage.catalog import files as file_rows
from storage.catalog.purges import Purge
from storage.errors import Conflict, NotFound, Unavailable
from storage.model import FQID, REPLICAS, Claim, EventType, Replica, Todo
from storage.stores import Stores

KIND: keys.Kind = "bundle"
BATCH = 256
"""Files that are doomed in one unit of work."""
TOLD: tuple[EventType, ...] = ("CREATE", "TOMBSTONE", "DELETE")


@dataclass(frozen=True, slots=True)
class Extent:
    """What a purge would take along; `kept` counts files that something else names."""

    versions: Sequence[FQID]
    files: int
    kept: int
    buried: bool


def extent(stores: Stores, uuid: str, version: str | None) -> Extent:
    """What would go, without doing anything; NotFound."""
    with stores.catalog.read() as tx:
        chosen = _chosen(tx, uuid, version)
        rows = [row for row in (bundles.by_fqid(tx, fqid) for fqid in chosen) if row is not None]
        named = {ident for row in rows for ident in bundles.file_ids(tx, row.bundle.id)}
        free = purges.named_only_by(tx, sorted(named), [row.bundle.id for row in rows])
        buried = all(_stone(tx, uuid, fqid.version if version else "") for fqid in chosen)
    return Extent(chosen, len(free), len(named) - len(free), buried)


def _chosen(tx: Tx, uuid: str, version: str | None) -> list[FQID]:
    found = purges.versions(tx, uuid)
    chosen = [fqid for fqid in found if version in (None, fqid.version)]
    named = uuid if version is None else f"{uuid}.{version}"
    if not chosen and purges.find(tx, KIND, uuid, version or "") is None:
        raise NotFound(f"There is no bundle {named}.")
    return chosen


def _stone(tx: Tx, uuid: str, version: str) -> bool:
    return tombstones.over(tx, KIND, uuid, version) is not None


def order(
    stores: Stores, uuid: str, version: str | None, *, reason: str, author: str
) -> tuple[Todo, ...]:
    """Have one version, or a uuid with all it ever held, removed for good; asked for again, what
    is unfinished is driven on.

    NotFound when it never existed, Conflict (`protected`) when it is not under a tombstone.
    """
    with stores.catalog.write() as tx:
        heads.lock(tx, KIND, [uuid])
        if not _stone(tx, uuid, version or ""):
            raise Conflict("Only what is under a tombstone is purged.", code="protected")
        follow: set[Todo] = set()
        for fqid in _chosen(tx, uuid, version):
            follow |= ordered(tx, KIND, fqid, reason=reason, author=author)
            follow |= _told(tx, fqid)
        if version is None:
            whole = FQID(uuid, "")
            follow |= ordered(tx, KIND, whole, reason=reason, author=author)
        todo.add(tx, follow)
    return tuple(sorted(follow))


def ordered(tx: Tx, kind: keys.Kind, fqid: FQID, *, reason: str, author: str) -> set[Todo]:
    """The purge's row, and one MARK a replica, unless it is finished; the caller holds the head."""
    fresh = Purge(
        id=0,
        kind=kind,
        uuid=fqid.uuid,
        version=fqid.version,
        reason=reason,
        author=author,
        origin=REPLICAS[0],
        digest=records.purge_digest(kind, fqid.uuid, fqid.version, reason),
        event_id=events.event_id("DELETE", REPLICAS[0], fqid),
        created_us=0,
        finished_us=None,
    )
    row = purges.add(tx, fresh)
    if row.finished_us is not None:
        return set()
    return {Todo(Step.MARK, replica, f"{kind}:{row.name}") for replica in REPLICAS}


def _told(tx: Tx, fqid: FQID) -> set[Todo]:
    """One DELETE event, and what follows from it, for each replica in which it was ever seen."""
    row = bundles.by_fqid(tx, fqid)
    follow: set[Todo] = set()
    for replica in REPLICAS:
        created = events.event_id("CREATE", replica, fqid)
        gone = events.event_id("DELETE", replica, fqid)
        if row is None or events.get(tx, created) is None or events.get(tx, gone) is not None:
            continue
        event = events.append(tx, "DELETE", replica, fqid, row.bundle.id)
        rows = flow.follows("purge", KIND, replica, "")
        follow |= {flow.addressed(each, bundle=fqid, event=event) for each in rows}
    return follow


def mark(stores: Stores, claim: Claim, _beat: Beat) -> tuple[Todo, ...]:
    """Put the marker into one bucket; the last one lets the records be erased."""
    purge, replica = _found(stores, claim), flow.replica_of(claim.todo)
    key = keys.purged(_kind(purge.kind), purge.uuid, purge.version or None)
    integrity.place_record(stores, replica, key, records.of_purge(purge))
    follow: list[Todo] = []
    with stores.catalog.write() as tx:
        heads.lock(tx, purge.kind, [purge.uuid])
        everywhere = purges.marked(tx, purge, replica)
        if everywhere and purge.version:
            follow = [Todo(Step.ERASE, name, claim.todo.ref) for name in REPLICAS]
        elif everywhere:
            purges.finish(tx, purge)
        todo.finish(tx, claim)
        todo.add(tx, follow, request_id=claim.request_id)
    return tuple(follow)


def _found(stores: Stores, claim: Claim) -> Purge:
    kind, _, name = claim.todo.ref.partition(":")
    uuid, _, version = name.partition(".")
    with stores.catalog.read() as tx:
        purge = purges.find(tx, kind, uuid, version)
    if purge is None:
        raise NotFound(f"{claim.todo.ref} is not to be purged.")
    return purge


def _kind(name: str) -> keys.Kind:
    return next(kind for kind in keys.KINDS if kind == name)


def erase(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Remove the record from one bucket, and a bundle's copies from the checkout area; the last
    replica lets the catalog forget it. Unavailable while the document is still to be read."""
    purge, replica = _found(stores, claim), flow.replica_of(claim.todo)
    fqid = FQID(purge.uuid, purge.version)
    if purge.kind == KIND:
        _wait_for_readers(stores, fqid)
        _end_checkouts(stores, fqid, replica, beat)
    stores.replicas[replica].delete(keys.record(_kind(purge.kind), fqid))
    follow: list[Todo] = []
    with stores.catalog.write() as tx:
        heads.lock(tx, purge.kind, [purge.uuid])
        if purges.erased(tx, purge, replica):
            follow = [Todo(Step.FORGET, REPLICAS[0], claim.todo.ref)]
        todo.finish(tx, claim)
        todo.add(tx, follow, request_id=claim.request_id)
    return tuple(follow)


def readers(fqid: FQID) -> list[Todo]:
    """The rows whose work may still want the document of a bundle."""
    told = [
        Todo(step, replica, events.event_id(kind, replica, fqid))
        for step in (Step.MATCH, Step.PERCOLATE)
        for replica in REPLICAS
        for kind in TOLD
    ]
    return told + [Todo(Step.INDEX, replica, str(fqid)) for replica in REPLICAS]


def _wait_for_readers(stores: Stores, fqid: FQID) -> None:
    """On DELETE stored queries and attachments see the CREATE document: it goes after them."""
    with stores.catalog.read() as tx:
        waiting = next((row for row in readers(fqid) if todo.exists(tx, row)), None)
    if waiting is not None:
        raise Unavailable(f"The purge of {fqid} waits for {waiting.step} in {waiting.replica}.")


def _end_checkouts(stores: Stores, fqid: FQID, replica: Replica, beat: Beat) -> None:
    """Copies in the store's own checkout area go too; jobs that run are ended, and once more is
    looked after them when their workers noticed."""
    with stores.catalog.write() as tx:
        row = bundles.by_fqid(tx, fqid)
        found = [] if row is None else purges.jobs_of(tx, row.bundle.id, replica)
        for job_id, state in found:
            if state == "RUNNING":
                jobs.finish(tx, job_id, state="FAILED", cause="The bundle was purged.")
                todo.remove(tx, Todo(Step.CHECKOUT, replica, job_id))
    area = stores.checkouts[replica]
    for job_id, _ in found:
        for info in area.list(keys.checkout(job_id)):
            area.delete(info.key)
            beat(0)
    if any(state == "RUNNING" for _, state in found):
        raise Unavailable(f"The purge of {fqid} waits for the end of a checkout.")
    with stores.catalog.write() as tx:
        for job_id, _ in found:
            jobs.expire(tx, job_id)


def forget(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Remove the rows of what no bucket has a record of."""
    purge = _found(stores, claim)
    return _FORGET[_kind(purge.kind)](stores, purge, claim, beat)


def _forget_bundle(stores: Stores, purge: Purge, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    fqid = FQID(purge.uuid, purge.version)
    with stores.catalog.read() as tx:
        row = bundles.by_fqid(tx, fqid)
        idents = [] if row is None else sorted(bundles.file_ids(tx, row.bundle.id))
    for start in range(0, len(idents), BATCH):
        _doom(stores, purge, idents[start : start + BATCH])
        beat(0)
    follow = journals.rewrite(stores, fqid, beat)
    told = [events.event_id(kind, replica, fqid) for kind in TOLD for replica in REPLICAS]
    with stores.catalog.write() as tx:
        heads.lock(tx, KIND, [purge.uuid])
        if row is not None:
            purges.remove_bundle(tx, row.bundle.id, told)
        purges.finish(tx, purge)
        todo.finish(tx, claim)
    return follow


def _doom(stores: Stores, purge: Purge, idents: Sequence[int]) -> None:
    """Of these files, hide and order to be purged those that only purged bundles name."""
    with stores.catalog.write() as tx:
        rows = file_rows.by_ids(tx, idents)
        heads.lock(tx, files.KIND, [row.file.fqid.uuid for row in rows])
        free = set(purges.unreferenced(tx, idents))
        follow: set[Todo] = set()
        for row in rows:
            if row.file.id in free:
                fqid = row.file.fqid
                purges.hide_file(tx, fqid)
                follow |= ordered(tx, files.KIND, fqid, reason=purge.reason, author=purge.author)
        todo.add_new(tx, follow)


def _forget_file(stores: Stores, purge: Purge, claim: Claim, _beat: Beat) -> tuple[Todo, ...]:
    fqid = FQID(purge.uuid, purge.version)
    with stores.catalog.write() as tx:
        heads.lock(tx, files.KIND, [purge.uuid])
        row = file_rows.by_fqid(tx, fqid)
        if row is not None and purges.named(tx, row.file.id):
            raise Unavailable(f"The purge of {fqid} waits for that of a bundle.")
        if row is not None:
            purges.remove_file(tx, row.file.id, fqid)
            for replica in REPLICAS:
                condemned.condemn(tx, replica, [row.file.checksums.sha256])
        purges.finish(tx, purge)
        todo.finish(tx, claim)
    return ()


def _forget_collection(stores: Stores, purge: Purge, claim: Claim, _beat: Beat) -> tuple[Todo, ...]:
    with stores.catalog.write() as tx:
        heads.lock(tx, purge.kind, [purge.uuid])
        collections.remove(tx, FQID(purge.uuid, purge.version))
        purges.finish(tx, purge)
        todo.finish(tx, claim)
    return ()


_FORGET: Mapping[keys.Kind, Callable[[Stores, Purge, Claim, Beat], tuple[Todo, ...]]] = {
    files.KIND: _forget_file,
    KIND: _forget_bundle,
    "collection": _forget_collection,
}


def withdraw(stores: Stores, replica: Replica, kind: str, purged: Mapping[FQID, bool]) -> None:
    """Remove records that came to a bucket after its marker; before that, ERASE will."""
    for fqid, marked in purged.items():
        if marked:
            stores.replicas[replica].delete(keys.record(_kind(kind), fqid))


def taken_back(stores: Stores, claim: Claim, purged: Mapping[FQID, bool]) -> tuple[Todo, ...]:
    """End a sync of what is purged: no record may stay that came after the marker."""
    kind = claim.todo.ref.partition(":")[0]
    withdraw(stores, flow.replica_of(claim.todo), kind, purged)
    with stores.catalog.write() as tx:
        todo.finish(tx, claim)
    return ()
