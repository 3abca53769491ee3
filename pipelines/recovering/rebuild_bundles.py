"""Filling a catalog from a bucket: bundles and collections, which name what came before them.

Records come by uuid, then version, so that a version finds its parent and shares its segments.
"""

from collections.abc import Sequence

from pipelines.collecting import collections
from pipelines.depositing import manifests
from pipelines.flow import Step
from pipelines.keeping import readback
from pipelines.keeping.readback import BundleRecord, CollectionRecord
from pipelines.recovering import bundle_reconciling, collection_reconciling
from pipelines.recovering.rebuild_files import versions
from pipelines.recovering.rebuild_reading import Run, Tally
from storage.catalog import (
    Tx,
    heads,
    purges,
    refilling,
    restoring,
    todo,
)
from storage.catalog import files as file_rows
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
        ident = bundle_reconciling.row(tx, one, files, purged=one.fqid in purged).bundle.id
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


def collection_records(run: Run) -> Tally:
    """Collections, each seen by its owner, wherever its links lead by now."""
    return versions(run, collections.KIND, readback.collection, _keep_collections)


def _keep_collections(run: Run, tx: Tx, batch: Sequence[CollectionRecord]) -> None:
    heads.lock(tx, collections.KIND, [one.fqid.uuid for one in batch])
    purged = purges.among(tx, collections.KIND, [one.fqid for one in batch])
    # What is being purged is erased from the buckets by its own steps, and wants no row.
    for one in (one for one in batch if one.fqid not in purged):
        collections.reveal(tx, collection_reconciling.row(tx, one), run.replica)
