"""Indexing: make a replica's search say what the catalog says of one bundle.

A visible bundle has its document there, any other a stub, also one that no index is known to have:
whoever was overtaken or died may have written it. The head's change counter orders what is written,
so a late or doubled run never undoes a later one.
"""

from collections.abc import Sequence
from typing import Any

from pipelines import flow
from pipelines.finding import documents, loading, shapes
from pipelines.keeping.copying import Beat
from storage.catalog import bundles, events, heads, todo, visibility
from storage.catalog import documents as document_rows
from storage.model import FQID, Claim, Replica, Todo
from storage.protocols import IndexedDocument, Refusal
from storage.stores import Stores

KIND = "bundle"


def index(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Write a bundle's document, or its stub, and record that it can be found."""
    replica, fqid = flow.replica_of(claim.todo), FQID.parse(claim.todo.ref)
    with stores.catalog.read() as tx:
        row = bundles.by_fqid(tx, fqid)
        live = visibility.find(tx, KIND, replica, fqid) is not None
        change = heads.changes(tx, KIND, fqid.uuid)
        before = None if row is None else document_rows.state(tx, replica, row.bundle.id)
    if row is None:
        return _nothing(stores, claim)
    ident = row.bundle.id
    if live:
        with loading.document(stores, replica, ident, beat) as document:
            shape, refused = _write(stores, replica, fqid, change, document)
    else:
        shape = before.shape if before else ""
        stub = IndexedDocument(fqid.uuid, fqid.version, shape, change, None)
        refused = stores.search[replica].write([stub])
    state = "unindexed" if refused else "indexed" if live else "stub"
    told, known = before is not None and before.told, state == "indexed"
    with stores.catalog.write() as tx:
        document_rows.record(
            tx,
            replica,
            ident,
            state=state,
            shape=shape,
            change=change,
            reason=refused[0].reason if refused else None,
            told=told or known,
        )
        todo.finish(tx, claim)
        follow = _asking(replica, fqid) if known and not told else ()
        todo.add(tx, follow, request_id=claim.request_id)
    return follow


def _nothing(stores: Stores, claim: Claim) -> tuple[Todo, ...]:
    with stores.catalog.write() as tx:
        todo.finish(tx, claim)
    return ()


def _asking(replica: Replica, fqid: FQID) -> tuple[Todo, ...]:
    """Stored queries are asked when a bundle is first found, not when it is indexed again; of one
    that the engine refuses, when it takes it at last."""
    rows = flow.follows("index", KIND, replica, str(fqid))
    event = events.event_id("CREATE", replica, fqid)
    return tuple(flow.addressed(row, bundle=fqid, event=event) for row in rows)


def _write(
    stores: Stores, replica: Replica, fqid: FQID, change: int, document: dict[str, Any]
) -> tuple[str, Sequence[Refusal]]:
    """Write a document to the index: the name of its shape, and refusals."""
    shape, shaped = _shaped(stores, replica, document)
    fresh = IndexedDocument(fqid.uuid, fqid.version, shape, change, shaped)
    return shape, stores.search[replica].write([fresh])


def _shaped(
    stores: Stores, replica: Replica, document: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The name of the shape that a document goes to, and the document as it goes there."""
    descriptor = shapes.descriptor_of(document)
    with stores.catalog.read() as tx:
        known = document_rows.shapes_of(tx, replica, descriptor)
    choice = shapes.choose(descriptor, document, known)
    if choice.kinds != (known[choice.number] if choice.number < len(known) else None):
        with stores.catalog.write() as tx:
            # Two documents may widen one shape at once, and neither may forget the other's paths.
            heads.lock(tx, "shape", [f"{replica}/{descriptor}"])
            known = document_rows.shapes_of(tx, replica, descriptor)
            choice = shapes.choose(descriptor, document, known)
            document_rows.save_shape(tx, replica, descriptor, choice.number, choice.kinds)
    return choice.name, documents.withholding(document, choice.dropped)
