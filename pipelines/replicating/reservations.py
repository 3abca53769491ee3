"""Completing what a dead writer reserved: its row holds all that its record needs."""

from collections.abc import Callable, Mapping

from pipelines.collecting import collections
from pipelines.depositing import files, manifests
from pipelines.keeping.copying import Beat
from storage.catalog import bundles, todo
from storage.catalog import collections as collection_rows
from storage.catalog import files as file_rows
from storage.errors import Conflict
from storage.model import FQID, Claim, Todo
from storage.stores import Stores


def complete(stores: Stores, claim: Claim, _beat: Beat) -> tuple[Todo, ...]:
    """Put and publish one reservation, `<kind>:<fqid>`; nothing when it is published already."""
    kind, _, name = claim.todo.ref.partition(":")
    follow = _COMPLETE[kind](stores, FQID.parse(name), claim.request_id)
    with stores.catalog.write() as tx:
        todo.finish(tx, claim)
    return follow


def _complete_file(stores: Stores, fqid: FQID, request_id: str) -> tuple[Todo, ...]:
    with stores.catalog.read() as tx:
        row = file_rows.by_fqid(tx, fqid)
    if row is None or row.published:
        return ()
    files.complete(stores, row)
    with stores.catalog.write() as tx:
        follow = files.publish(tx, row)
        todo.add(tx, follow, request_id=request_id)
    return follow


def _complete_bundle(stores: Stores, fqid: FQID, request_id: str) -> tuple[Todo, ...]:
    with stores.catalog.read() as tx:
        row = bundles.by_fqid(tx, fqid)
    if row is None or row.published:
        return ()
    manifest = manifests.manifest_of(stores, row.bundle)
    try:
        return manifests.complete(stores, row, manifest, request_id=request_id)
    except Conflict as error:
        if error.code == "bundle_tombstone_already_exists":
            return ()  # Published under its tombstone: nobody will see it, nobody waits.
        raise


def _complete_collection(stores: Stores, fqid: FQID, request_id: str) -> tuple[Todo, ...]:
    with stores.catalog.read() as tx:
        row = collection_rows.by_fqid(tx, fqid)
    if row is None or row.published:
        return ()
    try:
        return collections.complete(stores, row, request_id=request_id)
    except Conflict as error:
        if error.code == "collection_tombstone_already_exists":
            return ()  # As with a bundle.
        raise


_COMPLETE: Mapping[str, Callable[[Stores, FQID, str], tuple[Todo, ...]]] = {
    files.KIND: _complete_file,
    manifests.KIND: _complete_bundle,
    collections.KIND: _complete_collection,
}
