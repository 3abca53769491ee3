"""Which jobs follow each completed step, and the pubsub topics that wake waiting requests.

A job is recorded in the transaction of the step that it follows. `workers.messages` sends its
message; the scheduler sends messages for jobs that are due without one.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from storage.keys import KINDS, Kind
from storage.model import FQID, REPLICAS, Job, Replica


class Step(StrEnum):
    """One kind of work; the name of its actor."""

    VERIFY = "verify"  # ref: task id. Read and hash a source, store its bytes, publish the file.
    VERIFY_LARGE = "verify_large"  # The same for large files, which would delay the others.
    SYNC = "sync"  # ref: `<kind>:<fqid>`. Copy a version to this replica.
    SYNC_LARGE = "sync_large"  # The same for large files.
    INDEX = "index"  # ref: bundle fqid. Bring the search index in line with the catalog.
    MATCH = "match"  # ref: event id. Record the deliveries of jmespath subscriptions.
    PERCOLATE = "percolate"  # ref: event id. The same for elasticsearch ones, after indexing.
    # ref: `<uuid>[.<version>]` of a bundle, `collection:<uuid>`. Write a tombstone's record.
    BURY = "bury"
    MARK = "mark"  # ref: `<kind>:<uuid>[.<version>]`. Put a purge marker into this bucket.
    ERASE = "erase"  # ref: `<kind>:<fqid>`. Delete the record from this bucket.
    FORGET = "forget"  # ref: `<kind>:<fqid>`. Delete the rows from the catalog.
    CHECKOUT = "checkout"  # ref: checkout job id. Copy a bundle to its destination.
    MAIL = "mail"  # ref: checkout job id. Mail the result to the requester.
    JOURNAL = "journal"  # ref: `gather` or `merge`. Write events, or small journals, as one object.
    JOURNAL_COPY = "journal_copy"  # ref: `<replica>/<name>` of a journal. Copy it to this bucket.
    JOURNAL_DROP = "journal_drop"  # ref: name of a journal. Delete it from every bucket.
    REPLAY = "replay"  # ref: replay id. Deliver a window of events to one subscription again.
    AREA_CHECKSUM = "area_checksum"  # ref: `<area>/<name>`. Hash and validate an uploaded file.
    AREA_CHECKSUM_LARGE = "area_checksum_large"  # The same for large files.
    AREA_REMOVE = "area_remove"  # ref: area. Delete all files of an upload area.
    DEPOSIT = "deposit"  # ref: deposit id. Make a bundle of files of an upload area.
    REPAIR = "repair"  # ref: object key. Replace it if it is damaged.
    PUBLISH = "publish"  # ref: `<kind>:<fqid>`. Complete a reservation whose writer died.


Heartbeat = Callable[[int], None]
"""Called with the number of bytes moved; renews the claim, raises ClaimLost when it is lost."""


def ignore_progress(_moved: int) -> None:
    """Do nothing: the heartbeat of work without a claim."""


LARGE_BYTES = 64 * 1024 * 1024
"""Size from which a file is verified and synced on the queues for large files."""

DELIVER = "deliver"
"""The actor that sends deliveries to one endpoint; its reference is the endpoint's id."""

SAME_REPLICA, OTHER_REPLICAS = "here", "elsewhere"

FOLLOWING_STEPS: Mapping[tuple[str, str], tuple[tuple[Step, str], ...]] = {
    # (completed step, kind): (following step, in this replica or in every other one)
    ("publish", "file"): ((Step.SYNC, OTHER_REPLICAS),),
    ("publish", "bundle"): (
        (Step.INDEX, SAME_REPLICA),
        (Step.MATCH, SAME_REPLICA),
        (Step.SYNC, OTHER_REPLICAS),
    ),
    ("publish", "collection"): ((Step.SYNC, OTHER_REPLICAS),),
    ("sync", "file"): (),
    ("sync", "bundle"): ((Step.INDEX, SAME_REPLICA), (Step.MATCH, SAME_REPLICA)),
    ("index", "bundle"): ((Step.PERCOLATE, SAME_REPLICA),),
    # BURY, which writes the tombstone's record, goes to every replica in addition.
    ("tombstone", "bundle"): ((Step.INDEX, SAME_REPLICA), (Step.MATCH, SAME_REPLICA)),
    # MARK, the first step of the purge, goes to every replica in addition.
    ("purge", "bundle"): ((Step.INDEX, SAME_REPLICA), (Step.MATCH, SAME_REPLICA)),
    ("checkout", "job"): ((Step.MAIL, SAME_REPLICA),),
}


def following_jobs(
    completed: str, kind: str, replica: str, ref: str, *, event: str = "", is_buried: bool = False
) -> tuple[Job, ...]:
    """Return the jobs that follow a completed step on a `kind`; `ref` is the name of what it did.

    Matching refers to the event, and needs one; a version under a tombstone is only synced.
    """
    refs = {Step.MATCH: event, Step.PERCOLATE: event, Step.SYNC: f"{kind}:{ref}"}
    return tuple(
        Job(step, name, refs.get(step, ref))
        for step, where in FOLLOWING_STEPS[completed, kind]
        for name in REPLICAS
        if (name == replica) == (where == SAME_REPLICA)
        and (step == Step.SYNC or (not is_buried and (event or step != Step.MATCH)))
    )


def delivery_jobs(endpoint_ids: Iterable[int]) -> tuple[Job, ...]:
    """Return messages for endpoints that may have due deliveries; their rows decide."""
    return tuple(Job(DELIVER, "", str(ident)) for ident in sorted(set(endpoint_ids)))


def parse_version_ref(job: Job) -> tuple[Kind, FQID]:
    """Return the kind and version of a reference `[<kind>:]<uuid>[.<version>]`, by default bundle.

    Without a version the reference is to a uuid.
    """
    prefix, _, name = job.ref.rpartition(":")
    return next((kind for kind in KINDS if kind == prefix), "bundle"), FQID.parse(name)


def job_replica(row: Job) -> Replica:
    """Return the replica of a job."""
    return next(name for name in REPLICAS if name == row.replica)


DELIVERIES_TOPIC = "deliveries"
EVENTS_TOPIC = "events"
COMMITTED_TOPIC = "committed"
"""An event was committed and has no sequence number yet."""


def file_topic(replica: Replica, fqid: FQID) -> str:
    """Return the topic of a file that became visible in a replica, or failed."""
    return f"file:{replica}:{fqid}"


def task_topic(task_id: str) -> str:
    """Return the topic of a task that ended."""
    return f"task:{task_id}"


def deposit_topic(deposit_id: str) -> str:
    """Return the topic of a deposit whose state changed."""
    return f"deposit:{deposit_id}"


def area_topic(uuid: str) -> str:
    """Return the topic of an upload area in which a file was checked."""
    return f"area:{uuid}"


def checkout_topic(job_id: str) -> str:
    """Return the topic of a checkout that ended."""
    return f"checkout:{job_id}"
