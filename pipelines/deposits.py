"""Deposits: make a bundle of the files of an upload area.

A deposit and its job are recorded in one transaction. The job starts an ingest task for each file,
and writes the bundle when all of them are verified, so nothing depends on the depositor's browser.
Every step is idempotent: the job may stop anywhere and run again.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pipelines import areas, bundles, flow, formats, ingest
from pipelines.bundles import BundleDraft, FilesPending
from pipelines.flow import Heartbeat, Step
from pipelines.ingest import AcceptedIngest, IngestRequest
from pipelines.metadata_validation import MetadataInvalid
from storage import keys
from storage.catalog import deposits, files, jobs, now_us
from storage.catalog import ingest as tasks
from storage.catalog.deposits import Deposit, DepositEntry, DepositSummary
from storage.catalog.ingest import IngestTaskRow
from storage.errors import DomainError, Forbidden, Invalid, NotFoundError, NotReady, Unavailable
from storage.model import FQID, Job, JobClaim, Replica
from storage.stores import Stores

STARTING, VERIFYING, DONE, FAILED = "STARTING", "VERIFYING", "DONE", "FAILED"
BATCH = 200
"""Files whose tasks are started, or looked up, at once."""
POLL_S = 2
"""Pause between two looks at files that are being verified."""
MAX_FILES = 5_000
"""Maximum number of files of a deposit; the API takes larger bundles."""


@dataclass(frozen=True, slots=True)
class ChosenFile:
    """A file of an area that goes into a bundle, under a name there."""

    source: str
    name: str
    indexed: bool


@dataclass(frozen=True, slots=True)
class DepositRequest:
    """A bundle to be made of an area's files; a uuid that exists gets a new version."""

    area: str
    replica: Replica
    uuid: str
    creator_uid: int
    files: Sequence[ChosenFile]


@dataclass(frozen=True, slots=True)
class DepositedFile:
    """The state of a deposit's file: `waiting`, `verifying`, `verified` or `failed`."""

    name: str
    source: str
    fqid: FQID
    indexed: bool
    state: str
    bytes_done: int = 0
    size: int | None = None
    message: str = ""


def plan(stores: Stores, new: DepositRequest, owner: str) -> Deposit:
    """Return a deposit of now, with the versions of its files; `start` records it.

    Raise Invalid (names, number of files), NotFoundError, Forbidden (another user's area).
    """
    areas.find_owned(stores, new.area, owner)
    if not 0 < len(new.files) <= MAX_FILES:
        message = f"Choose between 1 and {MAX_FILES:,} files."
        raise Invalid(message, errors={"files": [message]})
    formats.check_file_names([one.name for one in new.files])
    known = _find_file_uuids(stores, new.replica, new.uuid)
    entries = [
        (one.name, one.source, known.get(one.name) or formats.new_uuid(), one.indexed)
        for one in new.files
    ]
    with stores.catalog.read() as tx:
        version = formats.version_from_us(now_us(tx))
    return Deposit(
        id=formats.new_uuid(),
        owner=owner,
        area=new.area,
        replica=new.replica,
        uuid=new.uuid,
        version=version,
        creator_uid=new.creator_uid,
        entries=entries,
    )


def start(stores: Stores, deposit: Deposit, *, request_id: str = "") -> tuple[Job, ...]:
    """Record a planned deposit and the job that carries it out, unless its id is known."""
    follow = (_job_of(deposit),)
    with stores.catalog.write() as tx:
        if not deposits.insert_deposit(tx, deposit):
            return ()
        jobs.insert(tx, follow, request_id=request_id)
    return follow


def _job_of(deposit: Deposit) -> Job:
    return Job(Step.DEPOSIT, deposit.replica, deposit.id)


def _find_file_uuids(stores: Stores, replica: Replica, uuid: str) -> Mapping[str, str]:
    """Return the files of a bundle's latest version by name: the same name is the same file."""
    try:
        bundle = bundles.find(stores, replica, uuid, None)
    except NotFoundError:
        return {}
    entries = bundles.read_entries(stores, bundle, 0, MAX_FILES)
    return {entry.name: entry.file.uuid for entry in entries}


def find_owned(stores: Stores, ident: str, caller: str) -> Deposit:
    """Return a deposit of the caller; raise NotFoundError, Forbidden."""
    deposit = stores.catalog.run_query(lambda tx: deposits.find(tx, ident))
    if deposit is None:
        raise NotFoundError(f"There is no deposit {ident}.")
    if deposit.owner != caller:
        raise Forbidden("This deposit belongs to another user.")
    return deposit


def list_owned(
    stores: Stores, owner: str, *, before: tuple[int, str] | None = None, limit: int
) -> list[DepositSummary]:
    """List a user's deposits, latest first, before (created_us, id)."""
    with stores.catalog.read() as tx:
        return deposits.list_by_owner(tx, owner, before=before, limit=limit)


def list_unfinished_tasks(stores: Stores, author: str, *, limit: int) -> list[IngestTaskRow]:
    """List the ingest tasks of an author that are open or failed, latest first."""
    with stores.catalog.read() as tx:
        return tasks.list_unfinished(tx, author, limit=limit)


def retry(stores: Stores, ident: str, caller: str, *, request_id: str = "") -> tuple[Job, ...]:
    """Carry out a failed deposit again; raise NotFoundError, Forbidden."""
    deposit = find_owned(stores, ident, caller)
    follow = (_job_of(deposit),)
    with stores.catalog.write() as tx:
        current = deposits.find(tx, ident, locked=True)
        if current is None or current.state != FAILED:
            return follow if jobs.revive(tx, follow[0]) else ()
        deposits.set_state(tx, ident, STARTING)
        jobs.insert(tx, follow, request_id=request_id)
    return follow


def _split(entries: Sequence[DepositEntry]) -> Iterator[Sequence[DepositEntry]]:
    """Yield runs of at most BATCH entries."""
    return (entries[start : start + BATCH] for start in range(0, len(entries), BATCH))


def count_files(stores: Stores, deposit: Deposit) -> dict[str, int]:
    """Count a deposit's files by state."""
    if not deposit.faults:
        return stores.catalog.run_query(lambda tx: deposits.count_files(tx, deposit))
    # Files that were refused at the start may have no task.
    described = (_describe_files(stores, deposit, some) for some in _split(deposit.entries))
    return Counter(file.state for files in described for file in files)


def list_topics(deposit: Deposit, start_at: int, limit: int) -> list[str]:
    """Return the pubsub topics of a deposit and of some of its files."""
    shown = deposit.entries[start_at : start_at + limit]
    fqids = (FQID(uuid, deposit.version) for _, _, uuid, _ in shown)
    files = (flow.file_topic(deposit.replica, fqid) for fqid in fqids)
    return [flow.deposit_topic(deposit.id), *files]


def list_file_states(
    stores: Stores, deposit: Deposit, start_at: int, limit: int
) -> list[DepositedFile]:
    """Return the states of some of a deposit's files, in the order of its entries."""
    return _describe_files(stores, deposit, deposit.entries[start_at : start_at + limit])


def _describe_files(
    stores: Stores, deposit: Deposit, entries: Sequence[DepositEntry]
) -> list[DepositedFile]:
    """Return the states of files, from two queries."""
    uuids = [uuid for _, _, uuid, _ in entries]
    with stores.catalog.read() as tx:
        current = tasks.list_current(tx, deposit.version, uuids)
        fqids = [FQID(uuid, deposit.version) for uuid in uuids]
        stored = {fqids[row[0]] for row in files.look_up(tx, deposit.replica, fqids)}
    return [_describe_file(deposit, entry, current.get(entry[2]), stored) for entry in entries]


def _describe_file(
    deposit: Deposit, entry: DepositEntry, task: IngestTaskRow | None, stored: set[FQID]
) -> DepositedFile:
    name, source, uuid, indexed = entry
    file = DepositedFile(name, source, FQID(uuid, deposit.version), indexed, "waiting")
    if task is not None:
        file = replace(file, size=task.size, bytes_done=task.bytes_done)
    if message := deposit.faults.get(name):
        return replace(file, state="failed", message=message)
    if file.fqid in stored:
        return replace(file, state="verified", bytes_done=file.size or 0)
    if task is None:
        return file
    if task.state == "FAILED":
        return replace(file, state="failed", message=_explain_failure(task))
    return replace(file, state="verifying" if task.bytes_done else "waiting")


def _explain_failure(task: IngestTaskRow) -> str:
    return str((task.cause or {}).get("detail", "The verification failed."))


# The job -----------------------------------------------------------------------------------


def run_deposit(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> tuple[Job, ...]:
    """Start the tasks of a deposit's files, or write its bundle; running it again is safe.

    Raise NotReady while files are being verified.
    """
    deposit = stores.catalog.run_query(lambda tx: deposits.find(tx, claim.job.ref))
    if deposit is None or deposit.state in (DONE, FAILED):
        with stores.catalog.write() as tx:
            jobs.finish(tx, claim)
        return ()
    if deposit.state == STARTING:
        return _start_files(stores, deposit, claim, heartbeat)
    return _write_bundle(stores, deposit, claim, heartbeat)


def _start_files(
    stores: Stores, deposit: Deposit, claim: JobClaim, heartbeat: Heartbeat
) -> tuple[Job, ...]:
    """Start the task of each file; the next job, which is this one again, waits for them."""
    faults: dict[str, str] = {}
    follow: list[Job] = []
    for entries in _split(deposit.entries):
        heartbeat(0)
        results = ingest.start_tasks(
            stores,
            [_make_request(stores, deposit, entry) for entry in entries],
            deposit.owner,
            request_id=claim.request_id,
        )
        for entry, result in zip(entries, results, strict=True):
            if isinstance(result, AcceptedIngest):
                follow += result.jobs
            elif isinstance(result, Unavailable):
                raise result
            else:
                faults[entry[0]] = result.detail
    with stores.catalog.write() as tx:
        deposits.set_state(tx, deposit.id, FAILED if faults else VERIFYING, faults)
        jobs.finish(tx, claim)
        if not faults:
            follow.append(claim.job)
            jobs.insert(tx, (claim.job,), request_id=claim.request_id)
    stores.pubsub.publish(flow.deposit_topic(deposit.id))
    return tuple(follow)


def _make_request(stores: Stores, deposit: Deposit, entry: DepositEntry) -> IngestRequest:
    _, source, uuid, _ = entry
    url = stores.areas.direct_url(keys.area_file_key(deposit.area, source))
    return IngestRequest(FQID(uuid, deposit.version), deposit.replica, url, deposit.creator_uid)


def _write_bundle(
    stores: Stores, deposit: Deposit, claim: JobClaim, heartbeat: Heartbeat
) -> tuple[Job, ...]:
    faults = _find_failures(stores, deposit, heartbeat)
    follow: tuple[Job, ...] = ()
    if not faults:
        entries = [
            (name, (uuid, deposit.version), indexed) for name, _, uuid, indexed in deposit.entries
        ]
        draft = BundleDraft(deposit.fqid, deposit.replica, deposit.creator_uid, entries)
        try:
            follow = bundles.put(stores, draft, deposit.owner, request_id=claim.request_id).jobs
        except FilesPending as error:
            raise NotReady(error.detail, retry_after_s=POLL_S) from error
        except Unavailable:
            raise
        except MetadataInvalid as error:
            faults = _describe_faults(error)
        except DomainError as error:
            faults = {"": error.detail}
    with stores.catalog.write() as tx:
        deposits.set_state(tx, deposit.id, FAILED if faults else DONE, faults)
        jobs.finish(tx, claim)
    stores.pubsub.publish(flow.deposit_topic(deposit.id))
    return follow


def _describe_faults(error: MetadataInvalid) -> dict[str, str]:
    """Return what is wrong with metadata files by name, and with all of them as ""."""
    faults = {"": error.detail}
    for fault in error.faults:
        said = f"{fault.pointer}: {fault.message}" if fault.pointer else fault.message
        faults[fault.name] = f"{faults[fault.name]}; {said}" if fault.name in faults else said
    return faults


def _find_failures(stores: Stores, deposit: Deposit, heartbeat: Heartbeat) -> dict[str, str]:
    """Return why files were refused, by name; raise NotReady while some are being verified."""
    faults: dict[str, str] = {}
    for entries in _split(deposit.entries):
        heartbeat(0)
        uuids = [uuid for _, _, uuid, _ in entries]
        with stores.catalog.read() as tx:
            current = tasks.list_current(tx, deposit.version, uuids)
        for name, _, uuid, _ in entries:
            task = current.get(uuid)
            if task is not None and task.state == "PENDING":
                raise NotReady("Its files are being verified.", retry_after_s=POLL_S)
            if task is not None and task.state == "FAILED":
                faults[name] = _explain_failure(task)
    return faults
