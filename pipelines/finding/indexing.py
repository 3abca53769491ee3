"""Indexing: make a replica's search say what the catalog says of one bundle.

A visible bundle has its document there, any other a stub, also one that no index is known to have:
whoever was overtaken or died may have written it. The head's change counter orders what is written,
so a late or doubled run never undoes a later one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines import flow
from pipelines.batches import Completed, run_in_groups
from pipelines.finding import documents, loading, shapes
from pipelines.keeping.copying import Beat
from storage.catalog import Tx, bundles, events, heads, subscriptions, todo, visibility
from storage.catalog import documents as document_rows
from storage.catalog.documents import Indexed, Standing
from storage.catalog.subscriptions import ELASTICSEARCH
from storage.model import FQID, BundleVersion, Claim, Replica, Todo
from storage.protocols import IndexedDocument, Refusal
from storage.stores import Stores

KIND = "bundle"


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the catalog says of a bundle and its document."""

    bundle: BundleVersion
    live: bool
    change: int
    before: Standing | None


def _facts(tx: Tx, replica: Replica, fqids: Sequence[FQID]) -> dict[FQID, _Facts]:
    """The same of several bundles; nothing for one that there is not."""
    rows = {row.bundle.fqid: row.bundle for row in bundles.by_fqids(tx, fqids)}
    live = visibility.among(tx, KIND, replica, list(rows))
    changes = heads.changes_of(tx, KIND, [fqid.uuid for fqid in rows])
    before = document_rows.states(tx, replica, [bundle.id for bundle in rows.values()])
    return {
        fqid: _Facts(bundle, fqid in live, changes.get(fqid.uuid, 0), before.get(bundle.id))
        for fqid, bundle in rows.items()
    }


def index(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Write a bundle's document, or its stub, and record that it can be found."""
    replica, fqid = flow.replica_of(claim.todo), FQID.parse(claim.todo.ref)
    with stores.catalog.read() as tx:
        facts = _facts(tx, replica, [fqid]).get(fqid)
    if facts is None:
        return _nothing(stores, claim)
    if facts.live:
        with loading.document(stores, replica, facts.bundle.id, beat) as document:
            shape, shaped = _shaped(stores, replica, document)
            fresh = IndexedDocument(*fqid, shape, facts.change, shaped)
            refused = stores.search[replica].write([fresh])
    else:
        fresh = _stub(facts)
        refused = stores.search[replica].write([fresh])
    with stores.catalog.write() as tx:
        return _record_all(tx, replica, [(claim, facts, fresh)], refused)[claim.todo]


def _stub(facts: _Facts) -> IndexedDocument:
    shape = facts.before.shape if facts.before else ""
    return IndexedDocument(*facts.bundle.fqid, shape, facts.change, None)


def index_batch(stores: Stores, claims: Sequence[Claim], beat: Beat) -> Completed:
    """Index several bundles of small metadata with one request, or transaction, of the engine."""
    replica = flow.replica_of(claims[0].todo)
    claimed = {FQID.parse(claim.todo.ref): claim for claim in claims}
    with stores.catalog.read() as tx:
        facts = _facts(tx, replica, list(claimed))

    def prepare(fqid: FQID) -> IndexedDocument | None:
        if not facts[fqid].live:
            return _stub(facts[fqid])
        document = loading.small_document(stores, replica, facts[fqid].bundle, beat)
        if document is None:
            return None
        shape, shaped = _shaped(stores, replica, document)
        return IndexedDocument(*fqid, shape, facts[fqid].change, shaped)

    def write(prepared: dict[FQID, IndexedDocument | None]) -> Completed:
        fresh = [(fqid, document) for fqid, document in prepared.items() if document is not None]
        if not fresh:
            return {}
        refused = stores.search[replica].write([document for _, document in fresh])
        written = [(claimed[fqid], facts[fqid], document) for fqid, document in fresh]
        with stores.catalog.write() as tx:
            return _record_all(tx, replica, written, refused)

    return run_in_groups(
        prepare, facts, write, step=flow.Step.INDEX, replica=replica, parallel=stores.copy_parallel
    )


def _record_all(
    tx: Tx,
    replica: Replica,
    written: Sequence[tuple[Claim, _Facts, IndexedDocument]],
    refused: Sequence[Refusal],
) -> Completed:
    """Record how the documents are indexed, and complete the jobs.

    Stored queries that are made from now on ask only about later bundles.
    """
    is_asked = subscriptions.any_live(tx, replica, ELASTICSEARCH)
    reasons = {FQID(one.uuid, one.version): one.reason for one in refused}
    records, follow = list[Indexed](), dict[Todo, tuple[Todo, ...]]()
    for claim, facts, document in written:
        fqid = facts.bundle.fqid
        state = "unindexed" if fqid in reasons else "indexed" if facts.live else "stub"
        told, known = facts.before is not None and facts.before.told, state == "indexed"
        records.append(
            Indexed(
                facts.bundle.id,
                state=state,
                shape=document.shape,
                change=document.change,
                reason=reasons.get(fqid),
                told=told or known,
            )
        )
        asking = is_asked and known and not told
        follow[claim.todo] = _asking(replica, fqid) if asking else ()
    document_rows.record_all(tx, replica, records)
    todo.finish_all(tx, [claim for claim, _, _ in written])
    todo.add_each(
        tx, [(job, claim.request_id) for claim, _, _ in written for job in follow[claim.todo]]
    )
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


def _shaped(
    stores: Stores, replica: Replica, document: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The name of the shape that a document goes to, and the document as it goes there."""
    descriptor = shapes.descriptor_of(document)
    known = stores.catalog.ask(lambda tx: document_rows.shapes_of(tx, replica, descriptor))
    choice = shapes.choose(descriptor, document, known)
    if choice.kinds != (known[choice.number] if choice.number < len(known) else None):
        with stores.catalog.write() as tx:
            # Two documents may widen one shape at once, and neither may forget the other's paths.
            heads.lock(tx, "shape", [f"{replica}/{descriptor}"])
            known = document_rows.shapes_of(tx, replica, descriptor)
            choice = shapes.choose(descriptor, document, known)
            document_rows.save_shape(tx, replica, descriptor, choice.number, choice.kinds)
    return choice.name, documents.withholding(document, choice.dropped)
