"""Checkout jobs and how far they are."""

from dataclasses import dataclass, fields

from sqlalchemy import insert, select, update

from storage.catalog.engine import Tx, now_us
from storage.catalog.schema import checkouts
from storage.model import Replica


@dataclass(frozen=True, slots=True)
class Job:
    """One checkout; `state` is RUNNING, SUCCEEDED, FAILED or, when its copies are gone, EXPIRED."""

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


_COLUMNS = [checkouts.c[field.name] for field in fields(Job)]


def add(tx: Tx, job: Job) -> None:
    """Record a new job; its time is the catalog's."""
    values = {field.name: getattr(job, field.name) for field in fields(Job)}
    tx.execute(insert(checkouts).values(**{**values, "created_us": now_us(tx)}))


def get(tx: Tx, ident: str) -> Job | None:
    """The job of that id."""
    row = tx.execute(select(*_COLUMNS).where(checkouts.c.id == ident)).mappings().first()
    return None if row is None else Job(**row)


def progress(tx: Tx, ident: str, *, files: int, size: int) -> None:
    """Say how much was copied."""
    tx.execute(update(checkouts).where(checkouts.c.id == ident).values(files=files, bytes=size))


def finish(
    tx: Tx, ident: str, *, state: str, location: str | None = None, cause: str | None = None
) -> None:
    """Close a job."""
    values = {"state": state, "location": location, "cause": cause, "finished_us": now_us(tx)}
    tx.execute(update(checkouts).where(checkouts.c.id == ident).values(**values))


def kept_before(tx: Tx, us: int, *, limit: int = 20) -> list[Job]:
    """Jobs into the store's own checkout area that finished before a moment."""
    query = select(*_COLUMNS).where(
        checkouts.c.finished_us < us,
        checkouts.c.destination.is_(None),
        checkouts.c.state.in_(("SUCCEEDED", "FAILED")),
    )
    return [Job(**row) for row in tx.execute(query.limit(limit)).mappings()]


def expire(tx: Tx, ident: str) -> None:
    """The copies of a job are gone."""
    tx.execute(
        update(checkouts).where(checkouts.c.id == ident).values(state="EXPIRED", location=None)
    )
