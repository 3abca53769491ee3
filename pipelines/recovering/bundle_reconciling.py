"""Rows of bundles whose records a bucket has, for whoever fills a catalog or reconciles one."""

from collections.abc import Mapping, Sequence

from pipelines.depositing import manifests
from pipelines.keeping.readback import BundleRecord
from pipelines.limits import SEGMENT_ENTRIES
from storage.catalog import Tx, alike, bundles, restoring, segments, versions
from storage.errors import Damaged
from storage.model import FQID


def row(
    tx: Tx, one: BundleRecord, files: Mapping[FQID, int], *, purged: bool = False
) -> bundles.Reserved:
    """The row of a record, published; the caller holds its head, and knows the ids of the files.
    Damaged for other content than the catalog's, and where a file is not known."""
    before = bundles.by_fqid(tx, one.fqid)
    if before is not None and before.digest != one.digest:
        raise Damaged(f"The catalog knows bundle {one.fqid} with other content.")
    kept = before or bundles.insert(tx, _new(tx, one, files, purged=purged))
    if before is None:
        restoring.dated(tx, manifests.KIND, kept.bundle.id, one.created_us)
    versions.publish(tx, manifests.KIND, kept.bundle.fqid)
    return kept


def _new(
    tx: Tx, one: BundleRecord, files: Mapping[FQID, int], *, purged: bool
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
