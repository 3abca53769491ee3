"""Checkouts and their progress."""

from dataclasses import asdict, dataclass

from sqlalchemy import insert, select, update

from storage.catalog import sql
from storage.catalog.sql import Tx, now_us
from storage.catalog.tables.jobs import checkouts
from storage.model import Replica


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout; `state` is RUNNING, SUCCEEDED, FAILED or, once its copies are gone, EXPIRED."""

    id: str
    replica: Replica
    uuid: str
    version: str
    bundle_id: int
    destination: str | None
    email: str | None
    requester: str | None
    state: str
    location: str | None
    cause: str | None
    files: int
    files_total: int
    bytes: int
    bytes_total: int
    created_us: int
    finished_us: int | None


def insert_checkout(tx: Tx, job: Checkout) -> None:
    """Insert a checkout; the catalog sets its time."""
    tx.execute(insert(checkouts), {**asdict(job), "created_us": now_us(tx)})


def find(tx: Tx, ident: str) -> Checkout | None:
    """Return a checkout by its id."""
    return sql.find_row(tx, Checkout, select(checkouts).filter_by(id=ident))


def record_progress(tx: Tx, ident: str, *, files: int, size: int) -> None:
    """Record how much was copied."""
    tx.execute(update(checkouts).filter_by(id=ident).values(files=files, bytes=size))


def finish(
    tx: Tx, ident: str, *, state: str, location: str | None = None, cause: str | None = None
) -> None:
    """Finish a checkout."""
    values = {"state": state, "location": location, "cause": cause, "finished_us": sql.clock(tx)}
    tx.execute(update(checkouts).filter_by(id=ident).values(**values))


def list_expirable(tx: Tx, us: int, *, limit: int = 20) -> list[Checkout]:
    """List checkouts in the store's own area that finished before a moment."""
    query = select(checkouts).where(
        checkouts.c.finished_us < us,
        checkouts.c.destination.is_(None),
        checkouts.c.state.in_(("SUCCEEDED", "FAILED")),
    )
    return sql.map_rows(Checkout, tx.execute(query.limit(limit)))


def mark_expired(tx: Tx, ident: str) -> None:
    """Mark a checkout whose copies were deleted."""
    expired = update(checkouts).filter_by(id=ident)
    tx.execute(expired.values(state="EXPIRED", location=None))
