"""Write, merge, redact and erase journals of events in the replica buckets.

JOURNAL writes the events that no journal has yet, or merges small journals into a larger one. A
writer first inserts the journal's row, then puts its objects, then records it as current. If it
dies, the next writer continues with the row. `pipelines.journal_copies` keeps the copies.

The manifest beside a journal lists its events and their positions in it; a catalog can be rebuilt
from manifests. The formats of lines and manifests are frozen.
"""

import hashlib
import logging
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import orjson

from pipelines import documents, failover, flow, records
from pipelines.documents import dump_document
from pipelines.flow import Heartbeat, Step
from pipelines.formats import version_from_us, version_to_us
from storage import keys
from storage.catalog import Tx, events, jobs, journals
from storage.catalog.events import SequencedEvent
from storage.catalog.journals import JournalObject, LinePosition
from storage.errors import DamagedObjectError, NotFoundError, Unavailable
from storage.keys import JournalKey
from storage.model import FQID, REPLICAS, BundleEvent, Job, JobClaim, Replica
from storage.protocols import BlobStore
from storage.stores import Stores

log = logging.getLogger(__name__)

FORMAT = "store-journal/1"
CONTENT_TYPE, MANIFEST_TYPE = "application/x-ndjson", "application/json"
GATHER, MERGE = "gather", "merge"
"""References of the two kinds of JOURNAL."""
MAX_JOURNAL_EVENTS = 1_000
"""Events of one journal: ten of them are the largest page."""
MAX_JOURNAL_BYTES = 64 * 1024 * 1024
"""Bytes from which nothing is added to a journal; its last document may reach beyond."""
MERGE_COUNT, MERGE_TIERS = 16, 3
"""Journals of one tier that are merged into one of the next, and the tiers that are merged."""
DROP_BATCH = 100
"""Aged journals that one sweep ends or drops."""
_MAX_ATTEMPTS = 3


# Format -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JournalText:
    """The bytes of a journal, the position of each event's line in them, and the manifest."""

    data: bytes
    places: tuple[LinePosition, ...]
    manifest: bytes


def format_event_line(event: BundleEvent, document: Mapping[str, Any]) -> bytes:
    """Return an event's line without its line feed: the document with the event's type."""
    return dump_document({**document, "event_type": event.type})


def format_purged_line(event: BundleEvent) -> bytes:
    """Return the line of an event whose bundle was purged."""
    return dump_document(purged_document(event))


def purged_document(event: BundleEvent) -> dict[str, Any]:
    """Return the document of an event whose bundle was purged: type and name only."""
    uuid, version = event.fqid
    bundle_info = {"uuid": uuid, "version": version}
    return {"event_type": event.type, "bundle_info": bundle_info, "uuid": uuid}


def join_lines(
    key: JournalKey, found: Sequence[SequencedEvent], lines: Sequence[bytes]
) -> JournalText:
    """Return a journal of these events and its manifest; `key` has only the range."""
    places: list[LinePosition] = []
    entries: list[dict[str, Any]] = []
    offset = 0
    for numbered, line in zip(found, lines, strict=True):
        event = numbered.event
        places.append(LinePosition(numbered.seq, offset, len(line)))
        entries.append(
            {
                "event_id": event.id,
                "event_type": event.type,
                "uuid": event.fqid.uuid,
                "version": event.fqid.version,
                "at": version_from_us(event.at_us),
                "seq": numbered.seq,
                "timestamp": version_from_us(numbered.seq_us),
                "offset": offset,
                "size": len(line),
            }
        )
        offset += len(line) + 1
    data = b"".join(line + b"\n" for line in lines)
    manifest = {
        "format": FORMAT,
        "replica": key.replica,
        "first": key.first,
        "last": key.last,
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "events": entries,
    }
    return JournalText(data, tuple(places), orjson.dumps(manifest, option=orjson.OPT_SORT_KEYS))


def matches_manifest(data: bytes, manifest: bytes) -> bool:
    """Return whether a manifest was written for these bytes."""
    try:
        value = orjson.loads(manifest)
        described = (value["format"], value["size"], value["sha256"])
    except (KeyError, TypeError, ValueError):
        return False
    return bool(described == (FORMAT, len(data), hashlib.sha256(data).hexdigest()))


def parse_manifest(data: bytes) -> list[SequencedEvent]:
    """Return the events that a manifest lists, without ids of bundles; raise DamagedObjectError."""
    value = orjson.loads(data)
    if value["format"] != FORMAT:
        raise DamagedObjectError(f"{value['format']} is not a known format of journals.")
    listed = []
    for one in value["events"]:
        fqid, at_us = FQID(one["uuid"], one["version"]), version_to_us(one["at"])
        event = BundleEvent(one["event_id"], value["replica"], one["event_type"], fqid, 0, at_us)
        seq_us = version_to_us(one["timestamp"])
        listed.append(SequencedEvent(event, one["seq"], seq_us, one["offset"], one["size"]))
    return listed


# Scheduling -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JournalDraft:
    """Events and lines of a new journal, and the journals that it replaces."""

    replica: Replica
    events: Sequence[SequencedEvent]
    lines: Sequence[bytes]
    tier: int = 0
    replaced: Sequence[JournalObject] = ()
    purged: Set[FQID] | None = None
    """Versions that were purged when the lines were made; None for lines of existing journals."""


def enqueue_journal_jobs(stores: Stores, *, age_s: float) -> None:
    """Enqueue writing where events are in no journal, and dropping of journals past for `age_s`.

    `age_s` is longer than a presigned URL of a journal is valid.
    """
    for replica in REPLICAS:
        with stores.catalog.read() as tx:
            wanted = [Job(Step.JOURNAL, replica, GATHER)] if _has_new_events(tx, replica) else []
            aged = journals.list_aged(tx, replica, int(age_s * 1e6), limit=DROP_BATCH)
        wanted += [Job(Step.JOURNAL_DROP, replica, one.key.name) for one in aged]
        if wanted:
            with stores.catalog.write() as tx:
                journals.lock(tx, replica)
                # Rows that are still being written at this age are abandoned.
                journals.mark_past(tx, (one for one in aged if one.state == "writing"))
                jobs.insert_new(tx, wanted)


def _has_new_events(tx: Tx, replica: Replica) -> bool:
    return events.find_latest_sequence(tx, replica) > journals.find_last_sequence(tx, replica)


# Drafting ---------------------------------------------------------------------------------------


def write_journal(stores: Stores, claim: JobClaim, beat: Heartbeat) -> tuple[Job, ...]:
    """Write one journal: of new events, or of several small journals."""
    replica = flow.job_replica(claim.job)
    draft = (
        _draft_new_events(stores, replica, beat)
        if claim.job.ref == GATHER
        else _draft_merge(stores, replica)
    )
    if draft is not None:
        return publish_draft(stores, draft, claim)
    with stores.catalog.write() as tx:
        jobs.finish(tx, claim)
    return ()


def _draft_new_events(stores: Stores, replica: Replica, beat: Heartbeat) -> JournalDraft | None:
    """Draft the events after the last journal: those of an interrupted writer, or all that fit."""
    with stores.catalog.read() as tx:
        first = journals.find_last_sequence(tx, replica) + 1
        begun = journals.find_begun(tx, replica, first)
        until = events.MAX_SEQUENCE if begun is None else begun.last + 1
        listed = events.list_range(tx, replica, first, until, limit=MAX_JOURNAL_EVENTS)
        purged = events.filter_purged(tx, {each.event.fqid for each in listed})
    if not listed:
        return None
    room = MAX_JOURNAL_BYTES if begun is None else math.inf
    lines, size = list[bytes](), 0
    for line in _format_lines(stores, listed, purged, beat):
        lines.append(line)
        size += len(line)
        if size >= room:
            break
    return JournalDraft(replica, listed[: len(lines)], lines, purged=purged)


def _format_lines(
    stores: Stores, listed: Sequence[SequencedEvent], purged: Set[FQID], beat: Heartbeat
) -> Iterator[bytes]:
    """Yield the line of each event."""
    for numbered in listed:
        line = _format_line(stores, numbered, purged, beat)
        yield line
        beat(len(line))


def _format_line(
    stores: Stores, numbered: SequencedEvent, purged: Set[FQID], beat: Heartbeat
) -> bytes:
    event = numbered.event
    sources = (event.replica, failover.other_replica(event.replica))
    for replica in () if event.fqid in purged else sources:
        try:
            with documents.open_document(stores, replica, event.bundle_id, beat) as document:
                return format_event_line(event, document)
        except NotFoundError as error:
            log.warning("journal of %s: %s", event.replica, error.detail)
    # One lost file must not stop the feed of a replica.
    return format_purged_line(event)


def _draft_merge(stores: Stores, replica: Replica) -> JournalDraft | None:
    """Merge the oldest small journals of a tier; no document is read."""
    with stores.catalog.write() as tx:
        journals.lock(tx, replica)
        merged = _select_mergeable(tx, replica)
    if not merged:
        return None
    with stores.catalog.read() as tx:
        listed = events.list_range(
            tx, replica, merged[0].first, merged[-1].last + 1, limit=MAX_JOURNAL_EVENTS
        )
    lines: list[bytes] = []
    for one in merged:
        data = _read_journal(stores, one)
        if data is None:
            raise Unavailable(f"No bucket has {one.key} as it was written.")
        own = (each for each in listed if one.first <= each.seq <= one.last)
        lines += [_cut_line(data, each) for each in own]
    return JournalDraft(replica, listed, lines, merged[0].tier + 1, merged)


def _select_mergeable(tx: Tx, replica: Replica) -> list[JournalObject]:
    """Choose the journals to merge; a journal that is large enough is promoted as it is."""
    while crowded := _find_crowded_tier(tx, replica):
        count, size = 0, 0
        merged: list[JournalObject] = []
        for one in crowded:
            count, size = count + one.count, size + one.size
            if count > MAX_JOURNAL_EVENTS or size > MAX_JOURNAL_BYTES:
                break
            merged.append(one)
        if len(merged) > 1:
            return merged
        journals.promote(tx, crowded[0], crowded[0].tier + 1)
    return []


def _find_crowded_tier(tx: Tx, replica: Replica) -> list[JournalObject]:
    """Return the oldest journals of the first tier that has too many."""
    for tier in range(MERGE_TIERS):
        oldest = journals.list_oldest(tx, replica, tier, limit=MERGE_COUNT)
        if len(oldest) == MERGE_COUNT:
            return oldest
    return []


def _cut_line(data: bytes, numbered: SequencedEvent) -> bytes:
    start = numbered.offset or 0
    return data[start : start + (numbered.size or 0)]


def _read_journal(stores: Stores, one: JournalObject) -> bytes | None:
    """Return a journal's bytes from a bucket that has it intact, or None if none has."""
    for replica in (one.replica, failover.other_replica(one.replica)):
        if objects := read_if_intact(stores.replicas[replica], one):
            return objects[0]
    return None


def read_if_intact(blobs: BlobStore, one: JournalObject) -> tuple[bytes, bytes] | None:
    """Return a journal's bytes and its manifest, or None unless a bucket has both intact."""
    try:
        manifest = records.read_object(blobs, keys.journal_manifest_key(one.key))
        data = records.read_object(blobs, keys.journal_key(one.key))
    except (DamagedObjectError, NotFoundError) as error:
        log.warning("%s: %s", one.key, error.detail)
        return None
    if len(data) != one.size or not matches_manifest(data, manifest):
        log.warning("%s is damaged in %s", one.key, blobs.direct_url(str(one.key)))
        return None
    return data, manifest


def redraft_journal(
    stores: Stores, one: JournalObject, data: bytes | None, beat: Heartbeat
) -> JournalDraft:
    """Draft a journal again without purged versions, from its bytes, or else from documents."""
    with stores.catalog.read() as tx:
        listed = events.list_range(tx, one.replica, one.first, one.last + 1, limit=one.count)
        purged = events.filter_purged(tx, {each.event.fqid for each in listed})
    if data is None:
        lines = list(_format_lines(stores, listed, purged, beat))
    else:
        lines = [
            format_purged_line(each.event) if each.event.fqid in purged else _cut_line(data, each)
            for each in listed
        ]
    return JournalDraft(one.replica, listed, lines, one.tier, [one], purged)


# Publishing -------------------------------------------------------------------------------------


def publish_draft(stores: Stores, draft: JournalDraft, claim: JobClaim | None) -> tuple[Job, ...]:
    """Begin, put and record a journal; Unavailable if the events or journals changed meanwhile."""
    first, last = draft.events[0].seq, draft.events[-1].seq
    text = join_lines(keys.JournalKey(draft.replica, first, last), draft.events, draft.lines)
    for _ in range(_MAX_ATTEMPTS):
        with stores.catalog.write() as tx:
            journals.lock(tx, draft.replica)
            begun = journals.begin(tx, draft.replica, first, last, tier=draft.tier)
        if put_journal(stores.replicas[draft.replica], begun, text.data, text.manifest):
            break
        # An interrupted writer left other bytes there, since a bundle was purged meanwhile.
        _abandon_journal(stores, begun)
    else:
        raise Unavailable(f"The journal {draft.replica}/{first}-{last} cannot be put.")
    with stores.catalog.write() as tx:
        journals.lock(tx, draft.replica)
        # Of a bundle that was purged after its line was made, the purge missed this journal.
        is_outdated = (
            draft.purged is not None
            and not events.filter_purged(tx, {each.event.fqid for each in draft.events})
            <= draft.purged
        )
        is_recorded = not is_outdated and journals.record(
            tx, begun, text.places, size=len(text.data), instead=draft.replaced
        )
        if is_recorded:
            follow = _list_follow_up_jobs(tx, begun)
            if claim is not None:
                jobs.finish(tx, claim)
            jobs.insert(tx, follow, request_id="" if claim is None else claim.request_id)
            return tuple(follow)
    _abandon_journal(stores, begun)
    raise Unavailable(f"The journal {begun.key} was overtaken.")


def put_journal(blobs: BlobStore, one: JournalObject, data: bytes, manifest: bytes) -> bool:
    """Put a journal, then its manifest, which makes it complete; False if other bytes exist."""
    return records.put_if_absent(
        blobs, keys.journal_key(one.key), data, content_type=CONTENT_TYPE
    ) and records.put_if_absent(
        blobs,
        keys.journal_manifest_key(one.key),
        manifest,
        content_type=MANIFEST_TYPE,
    )


def _list_follow_up_jobs(tx: Tx, written: JournalObject) -> list[Job]:
    """Return the copy to the other bucket, and the next journals to write or merge."""
    replica = written.replica
    ref = f"{replica}/{written.key.name}"
    follow = [Job(Step.JOURNAL_COPY, failover.other_replica(replica), ref)]
    if _has_new_events(tx, replica):
        follow.append(Job(Step.JOURNAL, replica, GATHER))
    if _find_crowded_tier(tx, replica):
        follow.append(Job(Step.JOURNAL, replica, MERGE))
    return follow


def _abandon_journal(stores: Stores, one: JournalObject) -> None:
    """Mark a journal past and erase its objects, unless another worker has recorded it."""
    with stores.catalog.write() as tx:
        journals.lock(tx, one.replica)
        now = journals.find(tx, one.key)
        if now is not None and now.state == "current":
            return
        journals.mark_past(tx, [now] if now is not None and now.state == "writing" else [])
    erase_journal(stores, one.key)


# Erasing ----------------------------------------------------------------------------------------


def erase_journal(stores: Stores, key: keys.JournalKey) -> None:
    """Remove a journal from every bucket."""
    for replica in REPLICAS:
        erase_from_bucket(stores.replicas[replica], key)


def erase_from_bucket(blobs: BlobStore, key: keys.JournalKey) -> None:
    """Remove a journal from a bucket, the manifest first: without it there is no journal."""
    blobs.delete(keys.journal_manifest_key(key))
    blobs.delete(keys.journal_key(key))


def redact_version(stores: Stores, fqid: FQID, beat: Heartbeat) -> tuple[Job, ...]:
    """Remove the documents of a purged version from all journals; idempotent.

    Its DELETE events exist already, so journals that are written from now on do not have them.
    """
    follow: list[Job] = []
    for replica in REPLICAS:
        for one in _find_current_journals(stores, replica, fqid):
            data = _read_journal(stores, one)
            draft = redraft_journal(stores, one, data, beat)
            if data is None or data != b"".join(line + b"\n" for line in draft.lines):
                follow += publish_draft(stores, draft, None)
            beat(one.size)
        with stores.catalog.read() as tx:
            past = {
                one.key
                for seq in events.list_sequence_numbers(tx, replica, fqid)
                for one in journals.list_not_current(tx, replica, seq)
                if one.state == "past"
            }
        for key in past:
            erase_journal(stores, key)
            beat(0)
    return tuple(follow)


def _find_current_journals(stores: Stores, replica: Replica, fqid: FQID) -> list[JournalObject]:
    """Return the current journals with events of a version; end those that are being written."""
    current: dict[int, JournalObject] = {}
    with stores.catalog.write() as tx:
        journals.lock(tx, replica)
        for seq in events.list_sequence_numbers(tx, replica, fqid):
            others = journals.list_not_current(tx, replica, seq)
            journals.mark_past(tx, (one for one in others if one.state == "writing"))
            current |= {one.id: one for one in journals.list_current(tx, replica, seq, seq)}
    return list(current.values())
