"""Index bundles: choose document shapes, write documents, rebuild an index online.

Documents of one descriptor share its first shape as long as their fields have the same kinds. A
document with conflicting fields goes to the next shape; in the last one these fields are withheld.

A visible bundle has a document in the index, any other a stub, even if the index may never have
had it: an overtaken worker may have written one. Writes carry the head's change counter, so a late
or repeated run never undoes a later one.

A rebuild only adds INDEX jobs for all published bundles. INDEX writes to the generation that is
searched and to the one that is being built; the new one is searched when no job is left. The
progress is stored in the catalog, so an interrupted rebuild continues.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson

from pipelines import bundles, documents, flow
from pipelines.flow import Heartbeat, Step
from pipelines.job_batches import CompletedJobs, run_in_groups
from storage.catalog import Tx, events, jobs, now_us, store_state, subscriptions, versions
from storage.catalog import bundles as catalog_bundles
from storage.catalog import documents as document_rows
from storage.catalog.documents import IndexRecord, IndexState
from storage.catalog.subscriptions import ELASTICSEARCH
from storage.errors import ConflictError
from storage.model import FQID, BundleVersion, Job, JobClaim, Replica
from storage.protocols import IndexedDocument, IndexRefusal
from storage.search.documents import find_path_kinds, parent_paths
from storage.stores import Stores

MAX_SHAPES = 4
FIELDS_PER_SHAPE = 10_000

# Any document may get errors, also after its shape was chosen.
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
    """The chosen shape with its new kinds; `dropped` are the paths to withhold."""

    name: str
    number: int
    kinds: FieldKinds
    dropped: frozenset[str]


def choose_shape(
    descriptor: str, document: Mapping[str, Any], known: Sequence[FieldKinds]
) -> ShapeChoice:
    """Choose the first shape that the document fits, a new one, or the one with least conflicts."""
    own = ERROR_KINDS | find_path_kinds(document)
    for number, shape in enumerate([*known, {}][:MAX_SHAPES]):
        merged = {**shape, **own}
        if not find_conflicts(own, shape) and (not shape or len(merged) <= FIELDS_PER_SHAPE):
            return ShapeChoice(_shape_name(descriptor, number), number, merged, frozenset())
    number = min(range(len(known)), key=lambda at: (len(find_conflicts(own, known[at])), at))
    dropped = find_conflicts(own, known[number])
    below = {path for path in own if not dropped.isdisjoint(parent_paths(path))}
    kinds = {path: kind for path, kind in own.items() if path not in dropped | below}
    return ShapeChoice(
        _shape_name(descriptor, number), number, {**known[number], **kinds}, dropped - below
    )


def find_conflicts(own: FieldKinds, shape: FieldKinds) -> frozenset[str]:
    """Return the paths that have another kind in the shape."""
    return frozenset(path for path, kind in own.items() if shape.get(path, kind) != kind)


def _shape_name(descriptor: str, number: int) -> str:
    return f"{descriptor}#{number + 1}"


KIND = "bundle"


@dataclass(frozen=True, slots=True)
class _BundleIndexState:
    """A bundle in one replica, and how it was indexed before."""

    bundle: BundleVersion
    live: bool
    change: int
    previous: IndexState | None


def _read_states(tx: Tx, replica: Replica, fqids: Sequence[FQID]) -> dict[FQID, _BundleIndexState]:
    """Read the index states of those bundles that exist."""
    rows = {row.fqid: row for row in catalog_bundles.find_all(tx, fqids)}
    live = versions.filter_published(tx, KIND, replica, list(rows))
    changes = versions.read_all_changes(tx, KIND, [fqid.uuid for fqid in rows])
    before = document_rows.find_states(tx, replica, [bundle.id for bundle in rows.values()])
    return {
        fqid: _BundleIndexState(
            bundle, fqid in live, changes.get(fqid.uuid, 0), before.get(bundle.id)
        )
        for fqid, bundle in rows.items()
    }


def index_bundle(stores: Stores, claim: JobClaim, beat: Heartbeat) -> tuple[Job, ...]:
    """Write a bundle's document, or its stub, and record that search can find it."""
    replica, fqid = flow.job_replica(claim.job), FQID.parse(claim.job.ref)
    with stores.catalog.read() as tx:
        facts = _read_states(tx, replica, [fqid]).get(fqid)
    if facts is None:
        with stores.catalog.write() as tx:
            jobs.finish(tx, claim)
        return ()
    if facts.live:
        with documents.open_document(stores, replica, facts.bundle.id, beat) as document:
            fresh = _build_document(stores, replica, facts, document)
            refused = stores.search[replica].write([fresh])
    else:
        fresh = _build_stub(facts)
        refused = stores.search[replica].write([fresh])
    with stores.catalog.write() as tx:
        return _record_results(tx, replica, [(claim, facts, fresh)], refused)[claim.job]


def _build_document(
    stores: Stores, replica: Replica, facts: _BundleIndexState, document: dict[str, Any]
) -> IndexedDocument:
    choice = _save_shape(stores, replica, document)
    searchable = documents.withhold_paths(document, choice.dropped)
    return IndexedDocument(*facts.bundle.fqid, choice.name, facts.change, searchable)


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
        return _build_document(stores, replica, facts[fqid], document)

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

    Stored queries are evaluated when a bundle is first searchable, not when it is indexed again.
    """
    has_subscribers = subscriptions.has_live(tx, replica, ELASTICSEARCH)
    reasons = {FQID(refusal.uuid, refusal.version): refusal.reason for refusal in refused}
    records, follow = list[IndexRecord](), dict[Job, tuple[Job, ...]]()
    for claim, facts, document in written:
        fqid = facts.bundle.fqid
        state = "unindexed" if fqid in reasons else "indexed" if facts.live else "stub"
        was_found = facts.previous is not None and facts.previous.told
        is_first = state == "indexed" and not was_found
        records.append(
            IndexRecord(
                facts.bundle.id,
                state=state,
                shape=document.shape,
                change=document.change,
                reason=reasons.get(fqid),
                told=was_found or is_first,
            )
        )
        event = events.make_event_id("CREATE", replica, fqid)
        follow[claim.job] = (
            flow.following_jobs("index", "bundle", replica, str(fqid), event=event)
            if has_subscribers and is_first
            else ()
        )
    document_rows.record_states(tx, replica, records)
    jobs.finish_all(tx, [claim for claim, _, _ in written])
    jobs.insert_each(
        tx, [(job, claim.request_id) for claim, _, _ in written for job in follow[claim.job]]
    )
    return follow


def _save_shape(stores: Stores, replica: Replica, document: Mapping[str, Any]) -> ShapeChoice:
    """Choose the shape of a document, and record the kinds that it adds to the shape."""
    descriptor = str(document["shape_descriptor"])
    known = stores.catalog.run_query(lambda tx: document_rows.list_shapes(tx, replica, descriptor))
    choice = choose_shape(descriptor, document, known)
    if choice.kinds != (known[choice.number] if choice.number < len(known) else None):
        with stores.catalog.write() as tx:
            # Two documents may extend one shape at once; neither may lose the other's paths.
            versions.lock_heads(tx, "shape", [f"{replica}/{descriptor}"])
            known = document_rows.list_shapes(tx, replica, descriptor)
            choice = choose_shape(descriptor, document, known)
            document_rows.save_shape(tx, replica, descriptor, choice.number, choice.kinds)
    return choice


REINDEX_BATCH = 500
MAX_WAITING_JOBS = 2_000
"""Jobs of a rebuild that wait at a time, so that new bundles do not wait behind all of them."""
STATE_KEY = "reindexing/"
"""Key of `store_state`, completed by the replica."""


@dataclass(frozen=True, slots=True)
class ReindexState:
    """A rebuild in progress: jobs were added for bundles up to `after`, for all at `asked_us`."""

    generation: str
    after: str = ""
    asked: int = 0
    asked_us: int | None = None


@dataclass(frozen=True, slots=True)
class ReindexProgress:
    """Documents `requested` so far, of which `waiting` have an open job and `dead` a dead one."""

    requested: int
    waiting: int
    dead: int
    all_requested: bool = False
    done: bool = False


def begin_reindex(stores: Stores, replica: Replica) -> str:
    """Start a rebuild, or continue the one in progress.

    Raise ConflictError while the store is read-only.
    """
    with stores.catalog.read() as tx:
        doubt = store_state.read_value(tx, store_state.EPOCH_IN_DOUBT_KEY)
    if doubt is not None:
        raise ConflictError(doubt, code="read_only")
    generation = stores.search[replica].begin_rebuild()
    with stores.catalog.write() as tx:
        before = _read_reindex_state(tx, replica)
        if before is None or before.generation != generation:
            _save_reindex_state(tx, replica, ReindexState(generation))
    return generation


def advance_reindex(
    stores: Stores, replica: Replica, *, force: bool = False, batch: int = REINDEX_BATCH
) -> ReindexProgress:
    """Add jobs while few wait; search the new generation once all are done.

    With `force`, dead jobs do not prevent that.
    """
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, "reindex", [replica])
        state = _read_reindex_state(tx, replica)
        if state is None:
            return ReindexProgress(0, 0, 0, all_requested=True, done=True)
        all_requested = state.asked_us is not None
        waiting, dead = jobs.count_open_until(
            tx, Step.INDEX, replica, now_us(tx) if state.asked_us is None else state.asked_us
        )
        if not all_requested and waiting < MAX_WAITING_JOBS:
            _save_reindex_state(tx, replica, _enqueue_page(tx, replica, state, batch))
    done = all_requested and not waiting and (force or not dead)
    if done:
        stores.search[replica].finish_rebuild(state.generation)
        with stores.catalog.write() as tx:
            _save_reindex_state(tx, replica, None)
    return ReindexProgress(state.asked, waiting, dead, all_requested, done)


def _enqueue_page(tx: Tx, replica: Replica, state: ReindexState, batch: int) -> ReindexState:
    """Add jobs for the next page of bundles.

    A worker may have just indexed one of them in the old generation only: its claim becomes void,
    and the job runs again.
    """
    after = FQID.parse(state.after) if state.after else None
    page = versions.list_published(tx, bundles.KIND, replica, prefix="", after=after, limit=batch)
    jobs.insert(tx, [Job(Step.INDEX, replica, str(fqid)) for fqid in page], sent=False)
    return replace(
        state,
        after=str(page[-1]) if page else state.after,
        asked=state.asked + len(page),
        asked_us=now_us(tx) if len(page) < batch else None,
    )


def _read_reindex_state(tx: Tx, replica: Replica) -> ReindexState | None:
    text = store_state.read_value(tx, STATE_KEY + replica)
    return None if text is None else ReindexState(**orjson.loads(text))


def _save_reindex_state(tx: Tx, replica: Replica, state: ReindexState | None) -> None:
    text = None if state is None else orjson.dumps(asdict(state)).decode()
    store_state.write_value(tx, STATE_KEY + replica, text)
