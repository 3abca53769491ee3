"""The table of contents of a bundle's life: which to-do rows follow which completion.

A row is written in the transaction of the completion that it follows; `workers.chains` sends the
messages for what a completion recorded, the clock whatever is due and has no message.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from storage.model import FQID, REPLICAS, Replica, Todo


class Step(StrEnum):
    """One kind of work; the name of its actor."""

    VERIFY = "verify"  # ref: task id. Read a source once, keep what was hashed, publish the file.
    VERIFY_LARGE = "verify_large"  # The same, for what would hold the others up.
    SYNC = "sync"  # ref: `<kind>:<fqid>`. Make this replica hold it too.
    SYNC_LARGE = "sync_large"  # The same, for what would hold the others up.
    INDEX = "index"  # ref: bundle fqid. Make search say what the catalog says.
    MATCH = "match"  # ref: event id. Record the deliveries of jmespath subscriptions.
    PERCOLATE = "percolate"  # ref: event id. The same for elasticsearch ones, once searchable.
    # ref: `<uuid>[.<version>]` of a bundle, `collection:<uuid>`. Write a tombstone's record here.
    BURY = "bury"
    MARK = "mark"  # ref: `<kind>:<uuid>[.<version>]`. Say in this bucket that it is purged.
    ERASE = "erase"  # ref: `<kind>:<fqid>`. Every bucket says so: remove its record from this one.
    FORGET = "forget"  # ref: `<kind>:<fqid>`. No bucket has it: remove it from the catalog.
    CHECKOUT = "checkout"  # ref: checkout job id. Copy a bundle to where people compute.
    MAIL = "mail"  # ref: checkout job id. Tell its requester how it ended.
    JOURNAL = "journal"  # ref: `gather` or `merge`. Write events, or small journals, as one object.
    JOURNAL_COPY = "journal_copy"  # ref: `<replica>/<name>` of a journal. Have it in this bucket.
    JOURNAL_DROP = "journal_drop"  # ref: name of a journal. Remove it from every bucket.
    REPLAY = "replay"  # ref: replay id. Tell one subscription of a window of events once more.
    AREA_CHECKSUM = "area_checksum"  # ref: `<area>/<name>`. Read an uploaded file, say what it is.
    AREA_CHECKSUM_LARGE = "area_checksum_large"  # The same, for what would hold the others up.
    AREA_REMOVE = "area_remove"  # ref: area. Remove all that an upload area holds.
    REPAIR = "repair"  # ref: object key. Read it again, replace it if it is damaged.
    PUBLISH = "publish"  # ref: `<kind>:<fqid>`. Complete a reservation whose writer died.


LARGE = 64 * 1024 * 1024
"""Bytes from which a file is verified and synced on the queues of the large ones."""

DELIVER = "deliver"
"""The actor that sends deliveries to one endpoint; its reference is the endpoint's id."""

HERE, ELSEWHERE = "here", "elsewhere"

FOLLOWS: Mapping[tuple[str, str], tuple[tuple[Step, str], ...]] = {
    # (what completed, of which kind): (what follows, in this replica or in every other one)
    ("publish", "file"): ((Step.SYNC, ELSEWHERE),),
    ("publish", "bundle"): ((Step.INDEX, HERE), (Step.MATCH, HERE), (Step.SYNC, ELSEWHERE)),
    ("publish", "collection"): ((Step.SYNC, ELSEWHERE),),
    ("sync", "file"): (),
    ("sync", "bundle"): ((Step.INDEX, HERE), (Step.MATCH, HERE)),
    ("index", "bundle"): ((Step.PERCOLATE, HERE),),
    # BURY, which writes the tombstone's own record, goes to every replica beside these.
    ("tombstone", "bundle"): ((Step.INDEX, HERE), (Step.MATCH, HERE)),
    # MARK goes to every replica beside these, and begins what ends with FORGET.
    ("purge", "bundle"): ((Step.INDEX, HERE), (Step.MATCH, HERE)),
    ("checkout", "job"): ((Step.MAIL, HERE),),
}


def follows(done: str, kind: str, replica: str, ref: str) -> tuple[Todo, ...]:
    """The rows that the completion of `done` on a `kind` asks for; `ref` is that of all of them."""
    rows = []
    for step, where in FOLLOWS[done, kind]:
        places = (replica,) if where == HERE else tuple(r for r in REPLICAS if r != replica)
        rows += [Todo(step, place, ref) for place in places]
    return tuple(rows)


def addressed(row: Todo, *, bundle: FQID, event: str) -> Todo:
    """The row with the reference that its step wants: matching goes by event, sync by kind."""
    if row.step in (Step.MATCH, Step.PERCOLATE):
        return row._replace(ref=event)
    if row.step in (Step.SYNC, Step.SYNC_LARGE):
        return row._replace(ref=f"bundle:{bundle}")
    return row._replace(ref=str(bundle))


def deliver_to(endpoint_ids: Iterable[int]) -> tuple[Todo, ...]:
    """Messages that something may be due for these endpoints: their own rows decide, not jobs."""
    return tuple(Todo(DELIVER, "", str(ident)) for ident in sorted(set(endpoint_ids)))


def replica_of(row: Todo) -> Replica:
    """The row's replica as our word for it."""
    return next(name for name in REPLICAS if name == row.replica)
