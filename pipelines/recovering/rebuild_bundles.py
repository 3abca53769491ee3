"""Filling a catalog from a bucket: bundles and collections, which name what came before them.

Records come by uuid, then version, so that a version finds its parent and shares its segments.
"""

from collections.abc import Sequence

from pipelines.collecting import collections
from pipelines.depositing import manifests
from pipelines.flow import Step
from pipelines.keeping import readback
from pipelines.keeping.readback import BundleRecord, CollectionRecord
from pipelines.limits import SEGMENT_ENTRIES
from pipelines.recovering import collection_reconciling
from pipelines.recovering.rebuild_files import versions
from pipelines.recovering.rebuild_reading import Run, Tally
from storage.catalog import (
    Tx,
    alike,
    bundles,
    heads,
    purges,
    refilling,
    restoring,
    segments,
    todo,
)
from storage.catalog import files as file_rows
from storage.catalog import versions as version_rows
from storage.errors import Damaged
from storage.model import FQID, Todo


def bundle_records(run: Run) -> Tally:
    """Bundles; those of which a file is not here are brought from the other bucket."""
    return versions(run, manifests.KIND, readback.bundle, _keep_bundles)


def _keep_bundles(run: Run, tx: Tx, batch: Sequence[BundleRecord]) -> None:
    kind = manifests.KIND
    heads.lock(tx, kind, [one.fqid.uuid for one in batch])
    refilling.lift(tx, kind, [one.fqid.uuid for one in batch], run.floor)
    fqids = [one.fqid for one in batch]
    buried, purged = refilling.buried(tx, kind, fqids), set(purges.among(tx, kind, fqids))
    files = restoring.file_ids(tx, {file for one in batch for _, file, _ in one.entries})
    whole = []
    for one in batch:
        ident = _bundle_row(tx, one, files, purged=one.fqid in purged)
        if _all_here(run, tx, one, files):
            whole.append((ident, one.fqid))
        elif one.fqid not in purged:
            todo.add_new(tx, [Todo(Step.SYNC, run.replica, f"{kind}:{one.fqid}")])
    refilling.seen(tx, kind, run.replica, [ident for ident, _ in whole])
    shown = [(ident, fqid) for ident, fqid in whole if fqid not in buried | purged]
    refilling.show(tx, kind, run.replica, shown)


def _all_here(run: Run, tx: Tx, one: BundleRecord, files: dict[FQID, int]) -> bool:
    """Whether all that it names is whole in this bucket, or is gone for good with it."""
    named = {files[file] for _, file, _ in one.entries if file in files}
    return len(file_rows.seen_by_id(tx, run.replica, sorted(named))) == len(named)


def _bundle_row(tx: Tx, one: BundleRecord, files: dict[FQID, int], *, purged: bool) -> int:
    before = bundles.by_fqid(tx, one.fqid)
    if before is not None and before.digest != one.digest:
        raise Damaged(f"The catalog knows bundle {one.fqid} with other content.")
    row = before or bundles.reserve(tx, _new_bundle(tx, one, files, purged=purged))
    if before is None:
        restoring.dated(tx, "bundle", row.bundle.id, one.created_us)
    version_rows.publish(tx, manifests.KIND, row.bundle.fqid)
    return row.bundle.id


def _new_bundle(
    tx: Tx, one: BundleRecord, files: dict[FQID, int], *, purged: bool
) -> bundles.NewBundle:
    """Of what is being purged some files may be gone before it; of nothing else."""
    lacking = {file for _, file, _ in one.entries if file not in files}
    if lacking and not purged:
        raise Damaged(f"{len(lacking)} files that it names have no record here.")
    rows = [(files[file], name, flag) for name, file, flag in one.entries if file not in lacking]
    return bundles.NewBundle(
        fqid=one.fqid,
        digest=one.digest,
        origin=one.origin,
        creator_uid=one.creator_uid,
        author=one.author,
        parent=one.parent,
        event_id=one.event_id,
        runs=alike.shared(rows, _before(tx, one), SEGMENT_ENTRIES),
    )


def _before(tx: Tx, one: BundleRecord) -> list[tuple[segments.Kept, Sequence[segments.Row]]]:
    """The segments of the version that it was made from, with their entries."""
    parent = bundles.by_fqid(tx, FQID(one.fqid.uuid, one.parent)) if one.parent else None
    if parent is None:
        return []
    runs = segments.of_bundle(tx, parent.bundle.id)
    found = segments.rows(tx, [run.segment_id for run in runs])
    return [(run, found[run.segment_id]) for run in runs]


def collection_records(run: Run) -> Tally:
    """Collections, each seen by its owner, wherever its links lead by now."""
    return versions(run, collections.KIND, readback.collection, _keep_collections)


def _keep_collections(run: Run, tx: Tx, batch: Sequence[CollectionRecord]) -> None:
    heads.lock(tx, collections.KIND, [one.fqid.uuid for one in batch])
    purged = purges.among(tx, collections.KIND, [one.fqid for one in batch])
    # What is being purged is erased from the buckets by its own steps, and wants no row.
    for one in (one for one in batch if one.fqid not in purged):
        collections.reveal(tx, collection_reconciling.row(tx, one), run.replica)
