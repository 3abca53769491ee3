"""Filling a catalog from a bucket: purge markers, tombstones, files and their bytes."""

from collections.abc import Callable, Iterator, Sequence

from pipelines.depositing import files
from pipelines.flow import Step
from pipelines.keeping import readback
from pipelines.keeping.readback import FileRecord
from pipelines.recovering.rebuild_reading import Found, Record, Run, Tally, listed, taken
from storage import keys
from storage.catalog import Tx, heads, purges, refilling, restoring, todo, visibility
from storage.catalog import tombstones as stones
from storage.catalog.purges import Purge
from storage.catalog.tombstones import Tombstone
from storage.errors import Damaged
from storage.keys import RecordKey
from storage.model import FQID, Todo

BLOBS = 1_000
"""Blobs, or rows, of one unit of work."""


def purge_markers(run: Run) -> Tally:
    """What is purged, or about to be."""
    tally = Tally("purged", run.replica)
    for batch in listed(run, keys.PURGED, keys.parse_purged, tally):
        taken(run, batch, readback.purge, _keep_purges, tally)
    return tally


def _keep_purges(run: Run, tx: Tx, batch: Sequence[Purge]) -> None:
    _lock(tx, batch)
    refilling.add_purges(tx, batch, run.replica)


def _lock(tx: Tx, batch: Sequence[Purge] | Sequence[Tombstone]) -> None:
    for kind in keys.KINDS:
        uuids = [one.uuid for one in batch if one.kind == kind]
        if uuids:
            heads.lock(tx, kind, uuids)


def tombstones(run: Run) -> Tally:
    """What readers no longer see."""
    tally = Tally("tombstones", run.replica)
    for batch in listed(run, keys.TOMBSTONES, keys.parse_tombstone, tally):
        taken(run, batch, readback.tombstone, _keep_tombstones, tally)
    return tally


def _keep_tombstones(run: Run, tx: Tx, batch: Sequence[Tombstone]) -> None:
    _lock(tx, batch)
    refilling.add_tombstones(tx, batch)
    found = [_row(tx, one) for one in batch]
    refilling.seen(tx, "tombstone", run.replica, [one.id for one in found])


def _row(tx: Tx, one: Tombstone) -> Tombstone:
    row = stones.find(tx, one.kind, one.uuid, one.version)
    if row is None or row.digest != one.digest:
        raise Damaged("The catalog knows a tombstone with another reason.")
    return row


def file_records(run: Run) -> Tally:
    """Files, with the bytes that they name: nobody sees them before `bytes_there`."""
    return versions(run, files.KIND, readback.file, _keep_files)


def versions(
    run: Run,
    kind: keys.Kind,
    parse: Callable[[RecordKey, bytes], Record],
    keep: Callable[[Run, Tx, Sequence[Record]], None],
) -> Tally:
    """The records of a kind that the catalog does not know in this bucket yet."""
    tally = Tally(kind, run.replica)
    for batch in listed(run, keys.records(kind), keys.parse_record, tally):
        taken(run, _fresh(run, kind, batch, tally), parse, keep, tally)
    return tally


def _fresh(
    run: Run, kind: keys.Kind, batch: Sequence[Found[RecordKey]], tally: Tally
) -> list[Found[RecordKey]]:
    with run.stores.catalog.read() as tx:
        held = restoring.held(tx, kind, run.replica, [one.key.fqid for one in batch])
    tally.known += len(held)
    return [one for one in batch if one.key.fqid not in held]


def _keep_files(run: Run, tx: Tx, batch: Sequence[FileRecord]) -> None:
    heads.lock(tx, files.KIND, [one.fqid.uuid for one in batch])
    refilling.add_files(tx, [(readback.file_row(one), one.created_us) for one in batch])
    known = refilling.digests(tx, files.KIND, [one.fqid for one in batch])
    for one in batch:
        if known.get(one.fqid, (0, ""))[1] != one.digest:
            raise Damaged(f"The catalog knows file {one.fqid} with other content.")
    refilling.seen(tx, files.KIND, run.replica, [known[one.fqid][0] for one in batch])


def bytes_there(run: Run) -> Tally:
    """Which bytes are in the bucket; files that are whole are seen from now on, others are brought
    from the other bucket."""
    tally = Tally("blob", run.replica)
    for batch in listed_blobs(run, tally):
        with run.unit() as tx:
            refilling.blobs_there(tx, run.replica, batch)
        tally.taken += len(batch)
    after = 0
    while page := _page(run, after):
        _reveal(run, page, tally)
        after = page[-1][0]
    return tally


def listed_blobs(run: Run, tally: Tally) -> Iterator[list[tuple[str, int]]]:
    """Checksums and sizes of what lies in the bucket, a batch at a time."""
    batch: list[tuple[str, int]] = []
    for info in run.bucket.list(keys.BLOBS):
        sha256 = keys.parse_blob(info.key)
        if sha256 is None:
            tally.refuse(info.key, "Its name is none that the store gives.")
            continue
        if info.damaged:
            tally.refuse(info.key, "It is damaged.")
            continue
        batch.append((sha256, info.size))
        if len(batch) == BLOBS:
            yield batch
            batch = []
    if batch:
        yield batch


def _page(run: Run, after: int) -> list[tuple[int, FQID, bool]]:
    with run.stores.catalog.read() as tx:
        return refilling.files_after(tx, run.replica, after, limit=BLOBS)


def _reveal(run: Run, page: Sequence[tuple[int, FQID, bool]], tally: Tally) -> None:
    with run.unit() as tx:
        heads.lock(tx, files.KIND, [fqid.uuid for _, fqid, _ in page])
        purged = purges.among(tx, files.KIND, [fqid for _, fqid, _ in page])
        refilling.show(
            tx,
            files.KIND,
            run.replica,
            [(ident, fqid) for ident, fqid, whole in page if whole and fqid not in purged],
        )
        lacking = [(ident, fqid) for ident, fqid, whole in page if not whole]
        for ident, _ in lacking:
            visibility.forget_record(tx, files.KIND, ident, run.replica)
        wanted = [fqid for _, fqid in lacking if fqid not in purged]
        rows = [Todo(Step.SYNC, run.replica, f"{files.KIND}:{fqid}") for fqid in wanted]
        todo.add_new(tx, rows)
    for fqid in wanted:
        tally.refuse(keys.record("file", fqid), "Its bytes are not in this bucket.")
