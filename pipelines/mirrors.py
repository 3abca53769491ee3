"""Mirror another store: follow its event feed, and put its bundles and files here.

Files and bundles keep uuid, version and checksums. Every byte is verified when it is stored here.
What the other store answers is parsed before anything is written: it names keys of objects.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
from msgspec import Struct

from pipelines import bundles, checksums, formats
from pipelines.area_files import checksum_metadata
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.imports import deposit_file
from pipelines.ingest import IngestRequest
from pipelines.mirror_answers import BundleEntry, FeedPage, MirroredBundle, SourceEvent
from storage.catalog import bundles as bundle_rows
from storage.catalog import files as file_rows
from storage.catalog import store_state
from storage.catalog.sql import Tx, now_us
from storage.errors import (
    ConflictError,
    DomainError,
    Invalid,
    NotFoundError,
    NotReady,
    Unavailable,
    Unprocessable,
)
from storage.model import CHECKSUM_NAMES, FQID, Checksums, EventType, Replica
from storage.protocols import BlobInfo, Sources
from storage.stores import Stores

THREADS = 4
"""Files of a bundle that are read concurrently."""
ATTEMPTS = 3
"""Attempts to read a file whose bytes come with wrong checksums."""
MAX_FAILED = 1_000
"""Events that may wait to be tried again; with more the mirror stops."""
LEASE_S = 15.0
"""Lease of the process that applies events of a mirror."""
LEASE_WAIT_S = 2 * LEASE_S
"""How long another process waits for the lease: longer than that of a process that was killed."""
LEASE_POLL_S = 0.5
RECORD_S = 60.0
"""While a page is applied, the catalog learns so often that the mirror still works."""
MAX_REASON = 500
"""Longest reason of a failed event, in characters."""
DELETE_REASON = "It was deleted in the store that is mirrored."


class FailedEvent(Struct, frozen=True):
    """An event that could not be applied; the catalog keeps it to be tried again."""

    bundle: str
    event_type: EventType
    reason: str

    @property
    def fqid(self) -> FQID:
        """The bundle version."""
        return FQID.parse(self.bundle)


class MirrorState(Struct, frozen=True):
    """How far a mirror is, microseconds since 1970; the catalog keeps it."""

    success_us: int
    """When it last read or applied events."""
    complete_us: int | None = None
    """Until when it has applied the events of the mirrored store."""


@dataclass(frozen=True, slots=True)
class MirroredFile:
    """A file of the mirrored store; `info` declares its checksums as metadata."""

    info: BlobInfo
    creator_uid: int


class MirroredStore(Sources, Protocol):
    """The store that is mirrored; `open` reads a file by the URL that `file_url` returns."""

    def check(self) -> None:
        """Raise Unavailable unless the store answers."""

    def read_events(self, cursor: str) -> FeedPage:
        """Return the next events after a cursor, "" for the first."""

    def read_bundle(self, fqid: FQID) -> MirroredBundle:
        """Return a bundle with all its entries; NotFoundError if it is deleted."""

    def file_url(self, fqid: FQID) -> str:
        """Return the URL of a file version."""

    def read_file(self, fqid: FQID) -> MirroredFile:
        """Return the metadata of a file version."""


def normalize_store_url(url: str) -> str:
    """Return one spelling of a store's URL."""
    parts = urlsplit(url)
    host, default = parts.hostname or "", {"http": 80, "https": 443}.get(parts.scheme)
    name = f"[{host}]" if ":" in host else host
    port = f":{parts.port}" if parts.port and parts.port != default else ""
    return f"{parts.scheme}://{name}{port}{parts.path.rstrip('/')}"


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """What is mirrored: the URL of the store, a replica, bundles by prefix; and for whom."""

    url: str
    replica: Replica
    owner: str
    prefix: str = ""

    @property
    def key(self) -> str:
        """The name under which the catalog keeps the place in the feed."""
        return f"mirror:{self.replica}:{self.prefix}:{self.url}"

    @property
    def failed_key(self) -> str:
        """The name under which the catalog keeps the events that failed."""
        return f"mirror-failed:{self.replica}:{self.prefix}:{self.url}"


@dataclass(slots=True)
class MirrorProgress:
    """Bundle versions copied and deleted, and the events that failed."""

    bundles: int = 0
    deleted: int = 0
    failed: list[FailedEvent] = field(default_factory=list)
    recorded_at: float = field(default_factory=time.monotonic)
    """When the catalog last learned that the mirror works."""


@dataclass(frozen=True, slots=True)
class MirrorLease:
    """The lease of the process that applies the events of a mirror."""

    stores: Stores
    plan: MirrorPlan
    token: str

    def acquire(self) -> bool:
        """Acquire or extend the lease; False while another process holds it."""
        with self.stores.catalog.write(durable=False) as tx:
            return store_state.acquire_lease(tx, self.plan.key, token=self.token, lease_s=LEASE_S)

    def renew_until(self, ended: threading.Event) -> None:
        """Extend the lease until the work has ended; `save` notices if it was lost."""
        while not ended.wait(LEASE_S / 3):
            with suppress(Unavailable):
                self.acquire()

    def release(self) -> None:
        """Release the lease; it expires by itself if the catalog is away."""
        with suppress(Unavailable), self.stores.catalog.write(durable=False) as tx:
            store_state.release_lease(tx, self.plan.key, token=self.token)

    def save(
        self,
        outcomes: Mapping[FQID, FailedEvent | None],
        cursors: tuple[str | None, str] | None = None,
        complete_us: int | None = None,
    ) -> None:
        """Save what became of some events, and the cursor after them in place of the former one.

        Other events that failed stay as they are. `complete_us` is the time of the last event of a
        page. Unavailable if another process has the lease, or saved another cursor.
        """
        key, failed_key = self.plan.key, self.plan.failed_key
        with self.stores.catalog.write() as tx:
            # This also locks the failed events until the commit.
            if not store_state.acquire_lease(tx, key, token=self.token, lease_s=LEASE_S):
                raise _make_busy_error()
            if cursors:
                if not store_state.replace_value(tx, key, *cursors):
                    raise _make_busy_error()
                _record_success(tx, self.plan, complete_us)
            failed = {one.fqid: one for one in _read_failed(tx, failed_key)}
            for fqid, outcome in outcomes.items():
                failed.pop(fqid, None)
                if outcome is not None:
                    failed[fqid] = outcome
            text = msgspec.json.encode([*failed.values()]).decode() if failed else None
            store_state.write_value(tx, failed_key, text)

    def forget(self) -> None:
        """Delete all that the catalog keeps of the mirror; see `forget_mirror`."""
        key, failed_key, common_key = self.plan.key, self.plan.failed_key, state_key(self.plan.url)
        with self.stores.catalog.write() as tx:
            store_state.check_writable(tx)
            if not store_state.acquire_lease(tx, key, token=self.token, lease_s=LEASE_S):
                raise _make_busy_error()
            former = store_state.read_value(tx, common_key)
            states = _parse_states(former)
            if failed_key not in states and store_state.read_value(tx, key) is None:
                others = "; ".join(map(_format_options, states))
                raise NotFoundError(
                    f"No mirror of {self.plan.url} with {_format_options(failed_key)} has run here."
                    + (f" Others have: {others}." if others else "")
                )
            if former is not None:
                states.pop(failed_key, None)
                text = msgspec.json.encode(states).decode()
                if not store_state.replace_value(tx, common_key, former, text):
                    raise _make_busy_error()
            store_state.write_value(tx, key, None)
            store_state.write_value(tx, failed_key, None)


def _make_busy_error() -> Unavailable:
    return Unavailable("Another process applies events of this mirror: try again later.")


@contextmanager
def _hold_lease(stores: Stores, plan: MirrorPlan) -> Iterator[MirrorLease]:
    """Hold the lease while the block runs; Unavailable if another process keeps it for long."""
    lease = MirrorLease(stores, plan, uuid4().hex)
    deadline = time.monotonic() + LEASE_WAIT_S
    while not lease.acquire():
        if time.monotonic() >= deadline:
            raise _make_busy_error()
        time.sleep(LEASE_POLL_S)
    ended = threading.Event()
    renewing = threading.Thread(target=lease.renew_until, args=(ended,), name="mirror lease")
    renewing.start()
    try:
        yield lease
    finally:
        ended.set()
        renewing.join()
        lease.release()


def follow_page(stores: Stores, source: MirroredStore, plan: MirrorPlan) -> MirrorProgress | None:
    """Apply the next events, then save the place after them; None if there is none.

    An event that cannot be applied is saved to be tried again, and the next ones are applied.
    If the page is interrupted, the same events are applied again, which changes nothing.
    """
    cursor = _read_cursor(stores, plan)
    page = source.read_events(cursor or "")
    if not page.events:
        with stores.catalog.write(durable=False) as tx:
            _record_success(tx, plan, now_us(tx))
        return None
    if page.cursor == cursor:
        raise Unavailable(f"{plan.url} returns events, but no new cursor.")
    events = [(_parse_bundle_fqid(event), event.event_type) for event in page.events]
    last = page.events[-1].event_timestamp
    last_us = formats.version_to_us(formats.parse_version(last)) if last else None
    progress = MirrorProgress()
    with _hold_lease(stores, plan) as lease:
        if _read_cursor(stores, plan) != cursor:
            # Another process applied these events meanwhile.
            return progress
        outcomes = dict[FQID, FailedEvent | None]()
        failed = {one.fqid for one in list_failed(stores, plan)}
        for fqid, event_type in events:
            if not fqid.uuid.startswith(plan.prefix):
                continue
            # A deletion also ends the attempts to copy.
            failed.discard(fqid)
            outcome = _apply_event(stores, source, plan, (fqid, event_type), progress)
            outcomes[fqid] = outcome
            if outcome is not None:
                failed.add(fqid)
                if len(failed) > MAX_FAILED:
                    raise Unavailable(
                        f"More than {MAX_FAILED} events could not be applied. The last one:"
                        f" {event_type} {fqid}: {outcome.reason}"
                    )
        lease.save(outcomes, (cursor, page.cursor), last_us)
    return progress


def retry_failed(
    stores: Stores, source: MirroredStore, plan: MirrorPlan, limit: int = MAX_FAILED
) -> MirrorProgress:
    """Apply events again that failed: first those that were not tried for the longest time."""
    progress = MirrorProgress()
    if not list_failed(stores, plan):
        return progress
    with _hold_lease(stores, plan) as lease:
        for one in list_failed(stores, plan)[:limit]:
            event = (one.fqid, one.event_type)
            try:
                outcome = _apply_event(stores, source, plan, event, progress)
            except DomainError:
                # It may be the cause: the others come first next time.
                lease.save({one.fqid: one})
                raise
            lease.save({one.fqid: outcome})
    return progress


def forget_mirror(stores: Stores, plan: MirrorPlan) -> None:
    """Forget the place of a mirror in the feed, its events that failed, and how far it is.

    If it runs again, it applies all events from the first. NotFoundError if it never ran.
    """
    with _hold_lease(stores, plan) as lease:
        lease.forget()


def list_failed(stores: Stores, plan: MirrorPlan) -> list[FailedEvent]:
    """Return the events that failed and were not applied since."""
    with stores.catalog.read() as tx:
        return _read_failed(tx, plan.failed_key)


def _read_failed(tx: Tx, key: str) -> list[FailedEvent]:
    text = store_state.read_value(tx, key)
    return [] if text is None else msgspec.json.decode(text, type=list[FailedEvent])


def _record_success(tx: Tx, plan: MirrorPlan, complete_us: int | None = None) -> None:
    """Record that the mirror still works, and the time of the last event that it applied.

    If another mirror of the same store records at the same moment, the next success is recorded.
    """
    key, now = state_key(plan.url), now_us(tx)
    former = store_state.read_value(tx, key)
    states = _parse_states(former)
    if complete_us is not None:
        complete_us = min(complete_us, now)
    elif plan.failed_key in states:
        complete_us = states[plan.failed_key].complete_us
    states[plan.failed_key] = MirrorState(now, complete_us)
    store_state.replace_value(tx, key, former, msgspec.json.encode(states).decode())


def state_key(url: str) -> str:
    """Return the name under which the catalog keeps how far all mirrors of a store are."""
    return f"mirror-state:{url}"


def _parse_states(text: str | None) -> dict[str, MirrorState]:
    """Return the states of mirrors, each by the name of its failed events."""
    return {} if text is None else msgspec.json.decode(text, type=dict[str, MirrorState])


def _format_options(failed_key: str) -> str:
    """Return the options that choose a mirror, from the name of its failed events."""
    _, replica, prefix, _ = failed_key.split(":", 3)
    return f"--replica {replica}" + (f" --prefix {prefix}" if prefix else "")


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """How far a mirror is at `now_us`, None before its first success; see MirrorState.

    Of several for replicas or prefixes of the store, the times are the earliest. Each counts until
    it is forgotten: one that does not run any more misses events.
    """

    now_us: int
    success_us: int | None
    complete_us: int | None
    failed: Sequence[FailedEvent]
    options: str
    """The options of the mirror with the earliest success."""


def build_report(stores: Stores, url: str) -> MirrorReport:
    """Return how far the mirror of the store at this URL is."""
    with stores.catalog.read() as tx:
        states = _parse_states(store_state.read_value(tx, state_key(normalize_store_url(url))))
        complete = [one.complete_us for one in states.values() if one.complete_us is not None]
        earliest = min(states, key=lambda key: states[key].success_us, default=None)
        return MirrorReport(
            now_us=now_us(tx),
            success_us=None if earliest is None else states[earliest].success_us,
            complete_us=min(complete, default=None),
            failed=[event for key in states for event in _read_failed(tx, key)],
            options="" if earliest is None else _format_options(earliest),
        )


def _read_cursor(stores: Stores, plan: MirrorPlan) -> str | None:
    """Return the place in the feed, None at its begin; Unavailable while the store is read-only."""
    with stores.catalog.read() as tx:
        store_state.check_writable(tx)
        return store_state.read_value(tx, plan.key)


def _apply_event(
    stores: Stores,
    source: MirroredStore,
    plan: MirrorPlan,
    event: tuple[FQID, EventType],
    progress: MirrorProgress,
) -> FailedEvent | None:
    """Apply an event, or return it with the reason; Unavailable if the event is not the cause."""
    fqid, event_type = event
    with stores.catalog.read() as tx:
        store_state.check_writable(tx)
    failed: FailedEvent | None = None
    try:
        if event_type == "CREATE":
            progress.bundles += copy_bundle(stores, source, plan, fqid)
        else:
            progress.deleted += _delete_bundle(stores, plan, fqid)
    except NotReady:
        # Quotas are new, and usage is being counted: nothing can be deposited until then.
        raise
    except DomainError as error:
        stores.write_probes.check(stores.replicas[plan.replica])
        if isinstance(error, Unavailable):
            source.check()
        failed = FailedEvent(str(fqid), event_type, error.detail[:MAX_REASON])
        progress.failed.append(failed)
    if time.monotonic() - progress.recorded_at >= RECORD_S:
        with stores.catalog.write(durable=False) as tx:
            _record_success(tx, plan)
        progress.recorded_at = time.monotonic()
    return failed


def copy_bundle(stores: Stores, source: MirroredStore, plan: MirrorPlan, fqid: FQID) -> bool:
    """Copy a bundle version with the files that are not here; return whether it is new."""
    with stores.catalog.read() as tx:
        row, is_buried = bundle_rows.find_with_tombstone(tx, fqid)
    if is_buried or (row is not None and row.published):
        return False
    try:
        bundle = source.read_bundle(fqid)
    except NotFoundError:
        # Its deletion follows in the feed.
        return False
    entries, declared = _parse_entries(bundle.files)
    copying = replace(stores, sources=source)
    with ThreadPoolExecutor(THREADS) as pool:
        work = partial(_copy_file, copying, source, plan)
        list(pool.map(work, _find_missing(stores, declared)))
    draft = BundleDraft(fqid, plan.replica, bundle.creator_uid, entries)
    return bundles.put(stores, draft, plan.owner, request_id="mirror").created


def _parse_bundle_fqid(event: SourceEvent) -> FQID:
    return FQID(formats.parse_uuid(event.bundle_uuid), formats.parse_version(event.bundle_version))


def _parse_entries(
    files: Sequence[BundleEntry],
) -> tuple[list[NewEntry], dict[FQID, Checksums]]:
    """Return the entries of a bundle, and the checksums of its files; Invalid as in a deposit."""
    formats.check_file_names([one.name for one in files])
    entries, declared = list[NewEntry](), dict[FQID, Checksums]()
    for one in files:
        fqid = FQID(formats.parse_uuid(one.uuid), formats.parse_version(one.version))
        sums = Checksums(**{name: getattr(one, name) for name in CHECKSUM_NAMES})
        sums = checksums.parse_declared(checksum_metadata(sums))
        if declared.setdefault(fqid, sums) != sums:
            raise Invalid(f"File {fqid} has two contents in one bundle.")
        entries.append(NewEntry(one.name, fqid, one.indexed))
    return entries, declared


def _find_missing(
    stores: Stores, declared: Mapping[FQID, Checksums]
) -> Iterator[tuple[FQID, Checksums]]:
    """Yield the files that are not here; ConflictError for one that has other content here."""
    with stores.catalog.read() as tx:
        rows = {row.fqid: row for row in file_rows.find_all(tx, list(declared))}
    for fqid, sums in declared.items():
        row = rows.get(fqid)
        if row is None or not row.published:
            yield fqid, sums
        elif row.checksums != sums:
            raise ConflictError(f"File {fqid} exists with other content.")


def _copy_file(
    stores: Stores, source: MirroredStore, plan: MirrorPlan, wanted: tuple[FQID, Checksums]
) -> None:
    fqid, sums = wanted
    found = source.read_file(fqid)
    if found.info.metadata != checksum_metadata(sums):
        raise Unprocessable(f"File {fqid}: its headers contradict its bundle.")
    new = IngestRequest(fqid, plan.replica, source.file_url(fqid), found.creator_uid)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            deposit_file(stores, new, found.info, plan.owner)
            return
        except Unprocessable:
            if attempt == ATTEMPTS:
                raise


def _delete_bundle(stores: Stores, plan: MirrorPlan, fqid: FQID) -> bool:
    """Delete a version that this mirror brought; return whether it was here."""
    with stores.catalog.read() as tx:
        row, is_buried = bundle_rows.find_with_tombstone(tx, fqid)
    if is_buried:
        return False
    if row is not None and row.published and row.author != plan.owner:
        raise ConflictError(
            f"Bundle {fqid} is deleted in the other store, but {row.author} deposited it here, and"
            f" not {plan.owner}. Delete it yourself, or use `--owner {row.author}` if the mirror"
            " brought it."
        )
    try:
        jobs = bundles.delete(
            stores,
            plan.replica,
            fqid.uuid,
            fqid.version,
            reason=DELETE_REASON,
            author=plan.owner,
            request_id="mirror",
        )
    except NotFoundError:
        # It never came here.
        return False
    return bool(jobs)
