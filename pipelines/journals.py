"""Write, merge, redact and erase journals of events in the replica buckets.

JOURNAL gathers what is not journalled yet, or merges small journals into a larger one. Whoever
writes one begins a row, puts the objects under its name, and records them; whoever comes after a
death goes on with the row. Copies of journals are in `pipelines.journal_copies`.
"""

from collections.abc import Iterable

from pipelines import flow, journal_format, records
from pipelines.copies import Heartbeat
from pipelines.flow import Step
from pipelines.journal_drafts import (
    JournalDraft,
    draft_merge,
    draft_new_events,
    find_crowded_tier,
    redraft_without_purged,
)
from pipelines.journal_format import JournalText
from storage import keys
from storage.catalog import Tx, events, jobs, journals
from storage.catalog.journals import JournalObject
from storage.errors import Unavailable
from storage.model import FQID, REPLICAS, Job, JobClaim, Replica
from storage.protocols import BlobStore
from storage.stores import Stores

GATHER, MERGE = "gather", "merge"
"""References of the two kinds of JOURNAL."""
DROP_BATCH = 100
"""Journals that one look ends or drops."""
_MAX_ATTEMPTS = 3


def enqueue_journal_jobs(stores: Stores, *, age_s: float) -> None:
    """Record what is to be done: events to be journalled, and journals that were past for so long,
    longer than a URL of theirs lives."""
    for replica in REPLICAS:
        with stores.catalog.read() as tx:
            behind = events.find_latest_sequence(tx, replica) > journals.find_last_sequence(
                tx, replica
            )
            aged = journals.list_aged(tx, replica, int(age_s * 1e6), limit=DROP_BATCH)
        wanted = [Job(Step.JOURNAL, replica, GATHER)] if behind else []
        wanted += [Job(Step.JOURNAL_DROP, replica, one.key.name) for one in aged]
        if wanted:
            with stores.catalog.write() as tx:
                journals.lock(tx, replica)
                # Rows unrecorded for so long are abandoned.
                journals.mark_past(tx, (one for one in aged if one.state == "writing"))
                jobs.insert_new(tx, wanted)


def write_journal(stores: Stores, claim: JobClaim, beat: Heartbeat) -> tuple[Job, ...]:
    """Write one journal: of new events, or of several small journals."""
    drafted = draft_new_events if claim.job.ref == GATHER else draft_merge
    draft = drafted(stores, flow.job_replica(claim.job), beat)
    if draft is not None:
        return publish_draft(stores, draft, claim)
    with stores.catalog.write() as tx:
        jobs.finish(tx, claim)
    return ()


def publish_draft(stores: Stores, draft: JournalDraft, claim: JobClaim | None) -> tuple[Job, ...]:
    """Begin, put, record. Unavailable when others changed what this was made of: again, later."""
    first, last = draft.span
    text = journal_format.join_lines(
        keys.JournalKey(draft.replica, first, last), draft.events, draft.lines
    )
    begun = _put_objects(stores, draft, text)
    with stores.catalog.write() as tx:
        journals.lock(tx, draft.replica)
        done = not _is_outdated(tx, draft) and journals.record(
            tx, begun, text.places, size=len(text.data), instead=draft.replaced
        )
        follow = _list_follow_up_jobs(tx, begun) if done else ()
        if done:
            _finish_job(tx, claim, follow)
    if not done:
        _abandon_journal(stores, begun)
        raise Unavailable(f"The journal {begun.key} was overtaken.")
    return follow


def _is_outdated(tx: Tx, draft: JournalDraft) -> bool:
    """Whether a bundle was purged after its line was made: the purge did not see this journal."""
    if draft.purged is None:
        return False
    return not events.filter_purged(tx, {each.event.fqid for each in draft.events}) <= draft.purged


def _put_objects(stores: Stores, draft: JournalDraft, text: JournalText) -> JournalObject:
    """The objects under a name of their own. What a dead worker left under it has the same bytes,
    unless a bundle was purged meanwhile: then another name is taken."""
    first, last = draft.span
    for _ in range(_MAX_ATTEMPTS):
        with stores.catalog.write() as tx:
            journals.lock(tx, draft.replica)
            begun = journals.begin(tx, draft.replica, first, last, tier=draft.tier)
        if put_journal(stores.replicas[draft.replica], begun, text.data, text.manifest):
            return begun
        _abandon_journal(stores, begun)
    raise Unavailable(f"The journal {draft.replica}/{first}-{last} cannot be put.")


def put_journal(blobs: BlobStore, one: JournalObject, data: bytes, manifest: bytes) -> bool:
    """The manifest last: where it is, the journal is whole. False when other bytes lie there."""
    there = records.put_if_absent(
        blobs, keys.journal_key(one.key), data, content_type=journal_format.CONTENT_TYPE
    )
    return there and records.put_if_absent(
        blobs,
        keys.journal_manifest_key(one.key),
        manifest,
        content_type=journal_format.MANIFEST_TYPE,
    )


def _list_follow_up_jobs(tx: Tx, done: JournalObject) -> tuple[Job, ...]:
    """A copy for the other bucket, and whatever is to be journalled or merged next."""
    replica = done.replica
    ref = f"{replica}/{done.key.name}"
    rows = [Job(Step.JOURNAL_COPY, other, ref) for other in REPLICAS if other != replica]
    if events.find_latest_sequence(tx, replica) > journals.find_last_sequence(tx, replica):
        rows.append(Job(Step.JOURNAL, replica, GATHER))
    if find_crowded_tier(tx, replica):
        rows.append(Job(Step.JOURNAL, replica, MERGE))
    return tuple(rows)


def _finish_job(tx: Tx, claim: JobClaim | None, follow: Iterable[Job]) -> None:
    if claim is None:
        jobs.insert(tx, follow)
        return
    jobs.finish(tx, claim)
    jobs.insert(tx, follow, request_id=claim.request_id)


def _abandon_journal(stores: Stores, one: JournalObject) -> None:
    """It will never be current: what was put under its name goes now, and once more when the row
    does. Nothing happens to one that a twin recorded."""
    with stores.catalog.write() as tx:
        journals.lock(tx, one.replica)
        now = journals.find(tx, one.key)
        if now is not None and now.state == "current":
            return
        journals.mark_past(tx, [now] if now is not None and now.state == "writing" else [])
    erase_journal(stores, one.key)


def erase_journal(stores: Stores, key: keys.JournalKey) -> None:
    """Remove a journal from every bucket."""
    for replica in REPLICAS:
        erase_from_bucket(stores.replicas[replica], key)


def erase_from_bucket(blobs: BlobStore, key: keys.JournalKey) -> None:
    """Remove a journal from this bucket, the manifest first: what is left is no journal."""
    blobs.delete(keys.journal_manifest_key(key))
    blobs.delete(keys.journal_key(key))


def redact_version(stores: Stores, fqid: FQID, beat: Heartbeat) -> tuple[Job, ...]:
    """Leave nothing of a purged version in any journal but that it was there; again is the same.

    Its DELETE events were appended before: what is gathered from then on has no document of it.
    """
    follow: list[Job] = []
    for replica in REPLICAS:
        for one in _find_current_journals(stores, replica, fqid):
            draft = redraft_without_purged(stores, one, beat)
            follow += () if draft is None else publish_draft(stores, draft, None)
            beat(one.size)
        for one in _find_past_journals(stores, replica, fqid):
            erase_journal(stores, one.key)
            beat(0)
    return tuple(follow)


def _find_current_journals(stores: Stores, replica: Replica, fqid: FQID) -> list[JournalObject]:
    """The current journals with events of a version; what is being written is given up."""
    found: dict[int, JournalObject] = {}
    with stores.catalog.write() as tx:
        journals.lock(tx, replica)
        for seq in events.list_sequence_numbers(tx, replica, fqid):
            others = journals.list_not_current(tx, replica, seq)
            journals.mark_past(tx, (one for one in others if one.state == "writing"))
            found |= {one.id: one for one in journals.list_current(tx, replica, seq, seq)}
    return list(found.values())


def _find_past_journals(stores: Stores, replica: Replica, fqid: FQID) -> list[JournalObject]:
    with stores.catalog.read() as tx:
        found = {
            one.id: one
            for seq in events.list_sequence_numbers(tx, replica, fqid)
            for one in journals.list_not_current(tx, replica, seq)
            if one.state == "past"
        }
    return list(found.values())
