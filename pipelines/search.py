"""Index bundles: choose document shapes, write documents, rebuild an index online.

A descriptor's documents share its first shape as long as they agree. One that contradicts goes to
the next; when there are no more, what contradicts is withheld. Pure: the catalog keeps the shapes.

A visible bundle has its document there, any other a stub, also one that no index is known to have:
whoever was overtaken or died may have written it. The head's change counter orders what is written,
so a late or doubled run never undoes a later one.

A rebuild only adds INDEX rows for all that readers see; that step writes to the generation that is
searched and to the one that is built, and the new one is searched when no row is left. How far it
is stands in the catalog: whoever begins it again goes on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson

from pipelines import bundles, documents, flow
from pipelines.copies import Heartbeat
from pipelines.flow import Step
from pipelines.job_batches import CompletedJobs, run_in_groups
from storage.catalog import Tx, events, heads, jobs, now_us, store_state, subscriptions, versions
from storage.catalog import bundles as catalog_bundles
from storage.catalog import documents as document_rows
from storage.catalog.documents import IndexRecord, IndexState
from storage.catalog.subscriptions import ELASTICSEARCH
from storage.errors import Conflict
from storage.model import FQID, BundleVersion, Job, JobClaim, Replica
from storage.protocols import IndexedDocument, IndexRefusal
from storage.search.documents import find_path_kinds, parent_paths
from storage.stores import Stores

MAX_SHAPES = 4
FIELDS_PER_SHAPE = 10_000

# Any document may come to report errors, also after its shape was chosen.
ERROR_KINDS = {
    "errors": "object",
    "errors.file": "string",
    "errors.path": "string",
    "errors.reason": "string",
}

FieldKinds = Mapping[str, str]
"""Dotted path → string, number, boolean or object."""


@dataclass(frozen=True, slots=True)
class ShapeChoice:
    """The shape of that number, which then has these kinds; `dropped` paths are to be withheld."""

    name: str
    number: int
    kinds: FieldKinds
    dropped: frozenset[str]


def get_shape_descriptor(document: Mapping[str, Any]) -> str:
    """The schema versions that a document is made of."""
    return str(document["shape_descriptor"])


def choose_shape(
    descriptor: str, document: Mapping[str, Any], known: Sequence[FieldKinds]
) -> ShapeChoice:
    """The first shape of a descriptor that the document fits, a new one, or that it fits best."""
    own = ERROR_KINDS | find_path_kinds(document)
    for number, shape in enumerate([*known, {}][:MAX_SHAPES]):
        merged = {**shape, **own}
        if not find_conflicts(own, shape) and (not shape or len(merged) <= FIELDS_PER_SHAPE):
            return ShapeChoice(_shape_name(descriptor, number), number, merged, frozenset())
    number = min(range(len(known)), key=lambda at: (len(find_conflicts(own, known[at])), at))
    return _force_shape(descriptor, own, known, number)


def find_conflicts(own: FieldKinds, shape: FieldKinds) -> frozenset[str]:
    """Paths that have another kind in the shape."""
    return frozenset(path for path, kind in own.items() if shape.get(path, kind) != kind)


def _force_shape(
    descriptor: str, own: FieldKinds, known: Sequence[FieldKinds], number: int
) -> ShapeChoice:
    """This shape after all, without what contradicts it and what lies below that."""
    dropped = find_conflicts(own, known[number])
    kept = {path: kind for path, kind in own.items() if not _is_dropped(path, dropped)}
    topmost = frozenset(path for path in dropped if not _has_dropped_parent(path, dropped))
    return ShapeChoice(_shape_name(descriptor, number), number, {**known[number], **kept}, topmost)


def _is_dropped(path: str, dropped: frozenset[str]) -> bool:
    return path in dropped or _has_dropped_parent(path, dropped)


def _has_dropped_parent(path: str, dropped: frozenset[str]) -> bool:
    return any(parent in dropped for parent in parent_paths(path))


def _shape_name(descriptor: str, number: int) -> str:
    return f"{descriptor}#{number + 1}"


KIND = "bundle"


@dataclass(frozen=True, slots=True)
class _BundleIndexState:
    """What the catalog says of a bundle and its document."""

    bundle: BundleVersion
    live: bool
    change: int
    previous: IndexState | None


def _read_states(tx: Tx, replica: Replica, fqids: Sequence[FQID]) -> dict[FQID, _BundleIndexState]:
    """The same of several bundles; nothing for one that there is not."""
    rows = {row.bundle.fqid: row.bundle for row in catalog_bundles.find_all(tx, fqids)}
    live = versions.filter_published(tx, KIND, replica, list(rows))
    changes = heads.read_all_changes(tx, KIND, [fqid.uuid for fqid in rows])
    before = document_rows.find_states(tx, replica, [bundle.id for bundle in rows.values()])
    return {
        fqid: _BundleIndexState(
            bundle, fqid in live, changes.get(fqid.uuid, 0), before.get(bundle.id)
        )
        for fqid, bundle in rows.items()
    }


def index_bundle(stores: Stores, claim: JobClaim, beat: Heartbeat) -> tuple[Job, ...]:
    """Write a bundle's document, or its stub, and record that it can be found."""
    replica, fqid = flow.job_replica(claim.job), FQID.parse(claim.job.ref)
    with stores.catalog.read() as tx:
        facts = _read_states(tx, replica, [fqid]).get(fqid)
    if facts is None:
        return _finish_job(stores, claim)
    if facts.live:
        with documents.open_document(stores, replica, facts.bundle.id, beat) as document:
            shape, shaped = _apply_shape(stores, replica, document)
            fresh = IndexedDocument(*fqid, shape, facts.change, shaped)
            refused = stores.search[replica].write([fresh])
    else:
        fresh = _build_stub(facts)
        refused = stores.search[replica].write([fresh])
    with stores.catalog.write() as tx:
        return _record_results(tx, replica, [(claim, facts, fresh)], refused)[claim.job]


def _build_stub(facts: _BundleIndexState) -> IndexedDocument:
    shape = facts.previous.shape if facts.previous else ""
    return IndexedDocument(*facts.bundle.fqid, shape, facts.change, None)


def index_bundles(stores: Stores, claims: Sequence[JobClaim], beat: Heartbeat) -> CompletedJobs:
    """Index several bundles of small metadata with one request, or transaction, of the engine."""
    replica = flow.job_replica(claims[0].job)
    claimed = {FQID.parse(claim.job.ref): claim for claim in claims}
    with stores.catalog.read() as tx:
        facts = _read_states(tx, replica, list(claimed))

    def prepare(fqid: FQID) -> IndexedDocument | None:
        if not facts[fqid].live:
            return _build_stub(facts[fqid])
        document = documents.load_small_document(stores, replica, facts[fqid].bundle, beat)
        if document is None:
            return None
        shape, shaped = _apply_shape(stores, replica, document)
        return IndexedDocument(*fqid, shape, facts[fqid].change, shaped)

    def write(prepared: dict[FQID, IndexedDocument | None]) -> CompletedJobs:
        fresh = [(fqid, document) for fqid, document in prepared.items() if document is not None]
        if not fresh:
            return {}
        refused = stores.search[replica].write([document for _, document in fresh])
        written = [(claimed[fqid], facts[fqid], document) for fqid, document in fresh]
        with stores.catalog.write() as tx:
            return _record_results(tx, replica, written, refused)

    return run_in_groups(
        prepare, facts, write, step=flow.Step.INDEX, replica=replica, parallel=stores.copy_parallel
    )


def _record_results(
    tx: Tx,
    replica: Replica,
    written: Sequence[tuple[JobClaim, _BundleIndexState, IndexedDocument]],
    refused: Sequence[IndexRefusal],
) -> CompletedJobs:
    """Record how the documents are indexed, and complete the jobs.

    Stored queries that are made from now on ask only about later bundles.
    """
    is_asked = subscriptions.has_live(tx, replica, ELASTICSEARCH)
    reasons = {FQID(one.uuid, one.version): one.reason for one in refused}
    records, follow = list[IndexRecord](), dict[Job, tuple[Job, ...]]()
    for claim, facts, document in written:
        fqid = facts.bundle.fqid
        state = "unindexed" if fqid in reasons else "indexed" if facts.live else "stub"
        told, known = facts.previous is not None and facts.previous.told, state == "indexed"
        records.append(
            IndexRecord(
                facts.bundle.id,
                state=state,
                shape=document.shape,
                change=document.change,
                reason=reasons.get(fqid),
                told=told or known,
            )
        )
        asking = is_asked and known and not told
        follow[claim.job] = _list_matching_jobs(replica, fqid) if asking else ()
    document_rows.record_states(tx, replica, records)
    jobs.finish_all(tx, [claim for claim, _, _ in written])
    jobs.insert_each(
        tx, [(job, claim.request_id) for claim, _, _ in written for job in follow[claim.job]]
    )
    return follow


def _finish_job(stores: Stores, claim: JobClaim) -> tuple[Job, ...]:
    with stores.catalog.write() as tx:
        jobs.finish(tx, claim)
    return ()


def _list_matching_jobs(replica: Replica, fqid: FQID) -> tuple[Job, ...]:
    """Stored queries are asked when a bundle is first found, not when it is indexed again; of one
    that the engine refuses, when it takes it at last."""
    event = events.make_event_id("CREATE", replica, fqid)
    return flow.bundle_jobs("index", replica, fqid, event=event)


def _apply_shape(
    stores: Stores, replica: Replica, document: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The name of the shape that a document goes to, and the document as it goes there."""
    descriptor = get_shape_descriptor(document)
    known = stores.catalog.run_query(lambda tx: document_rows.list_shapes(tx, replica, descriptor))
    choice = choose_shape(descriptor, document, known)
    if choice.kinds != (known[choice.number] if choice.number < len(known) else None):
        with stores.catalog.write() as tx:
            # Two documents may widen one shape at once, and neither may forget the other's paths.
            heads.lock(tx, "shape", [f"{replica}/{descriptor}"])
            known = document_rows.list_shapes(tx, replica, descriptor)
            choice = choose_shape(descriptor, document, known)
            document_rows.save_shape(tx, replica, descriptor, choice.number, choice.kinds)
    return choice.name, documents.withhold_paths(document, choice.dropped)


REINDEX_BATCH = 500
MAX_WAITING_JOBS = 2_000
"""Rows that wait at a time: what is deposited meanwhile does not queue behind all of them."""
STATE_KEY = "reindexing/"
"""Row of `meta`, by replica."""


@dataclass(frozen=True, slots=True)
class ReindexState:
    """The generation that is built; rows were added up to `after`, and for all at `asked_us`."""

    generation: str
    after: str = ""
    asked: int = 0
    asked_us: int | None = None


@dataclass(frozen=True, slots=True)
class ReindexProgress:
    """`asked` documents are to be written again (`all` of them when nothing is left to ask for),
    `waiting` of them still are, `parked` failed too often; `done` once the new generation is
    searched."""

    requested: int
    waiting: int
    dead: int
    all_requested: bool = False
    done: bool = False


def begin_reindex(stores: Stores, replica: Replica) -> str:
    """Open a generation, or go on with the one that is being built. Conflict while catalog and
    buckets disagree: no work is started then."""
    with stores.catalog.read() as tx:
        doubt = store_state.read_value(tx, store_state.EPOCH_IN_DOUBT_KEY)
    if doubt is not None:
        raise Conflict(doubt, code="read_only")
    generation = stores.search[replica].begin_rebuild()
    with stores.catalog.write() as tx:
        before = _read_reindex_state(tx, replica)
        if before is None or before.generation != generation:
            _save_reindex_state(tx, replica, ReindexState(generation))
    return generation


def advance_reindex(
    stores: Stores, replica: Replica, *, force: bool = False, batch: int = REINDEX_BATCH
) -> ReindexProgress:
    """Add rows while there is room; search the new generation once all are done, with `force`
    without those that are parked."""
    with stores.catalog.write() as tx:
        heads.lock(tx, "reindex", [replica])
        standing = _read_reindex_state(tx, replica)
        if standing is None:
            return ReindexProgress(0, 0, 0, all_requested=True, done=True)
        waiting, parked = jobs.count_open_until(
            tx, Step.INDEX, replica, now_us(tx) if standing.asked_us is None else standing.asked_us
        )
        if standing.asked_us is None and waiting < MAX_WAITING_JOBS:
            _save_reindex_state(tx, replica, _enqueue_page(tx, replica, standing, batch))
            return ReindexProgress(standing.asked, waiting, parked)
    if standing.asked_us is None or waiting or (parked and not force):
        return ReindexProgress(
            standing.asked, waiting, parked, all_requested=standing.asked_us is not None
        )
    stores.search[replica].finish_rebuild(standing.generation)
    with stores.catalog.write() as tx:
        _save_reindex_state(tx, replica, None)
    return ReindexProgress(standing.asked, 0, parked, all_requested=True, done=True)


def _enqueue_page(tx: Tx, replica: Replica, standing: ReindexState, batch: int) -> ReindexState:
    """A few more rows. Whoever works on one of them may have written to the old generation alone:
    the claim is void, and it is done once more."""
    after = FQID.parse(standing.after) if standing.after else None
    page = versions.list_published(tx, bundles.KIND, replica, prefix="", after=after, limit=batch)
    jobs.insert(tx, [Job(Step.INDEX, replica, str(fqid)) for fqid in page], sent=False)
    after_text = str(page[-1]) if page else standing.after
    asked_us = now_us(tx) if len(page) < batch else None
    asked = standing.asked + len(page)
    return replace(standing, after=after_text, asked=asked, asked_us=asked_us)


def _read_reindex_state(tx: Tx, replica: Replica) -> ReindexState | None:
    told = store_state.read_value(tx, STATE_KEY + replica)
    return None if told is None else ReindexState(**orjson.loads(told))


def _save_reindex_state(tx: Tx, replica: Replica, standing: ReindexState | None) -> None:
    text = None if standing is None else orjson.dumps(asdict(standing)).decode()
    store_state.write_value(tx, STATE_KEY + replica, text)
