"""Upload areas: whose they are and whether they take files.

Whoever changes what an area holds takes its row for the time of the transaction, by `held`;
whoever changes its state takes it alone, by `locked`. So nothing comes into one that is deleted.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, select, text, update

from storage.catalog.engine import Tx, now_us
from storage.catalog.schema import areas


@dataclass(frozen=True, slots=True)
class Area:
    """`state` is UNLOCKED, LOCKED, DELETING or DELETED; until `granted_us` somebody may hold
    credentials to write into it past the store."""

    uuid: str
    owner: str
    state: str
    granted_us: int | None = None
    deleted_us: int | None = None


def add(tx: Tx, area: Area) -> bool:
    """Record a new area; False when the uuid is taken."""
    made = tx.execute(
        text(
            "INSERT INTO areas (uuid, owner, state, created_us)"
            " VALUES (:uuid, :owner, :state, :now) ON CONFLICT (uuid) DO NOTHING"
        ),
        {"uuid": area.uuid, "owner": area.owner, "state": area.state, "now": now_us(tx)},
    )
    return bool(made.rowcount)


def _named(uuid: str) -> Select[Any]:
    columns = (areas.c.uuid, areas.c.owner, areas.c.state, areas.c.granted_us, areas.c.deleted_us)
    return select(*columns).where(areas.c.uuid == uuid)


def get(tx: Tx, uuid: str) -> Area | None:
    """The area of that uuid."""
    row = tx.execute(_named(uuid)).first()
    return None if row is None else Area(*row)


def held(tx: Tx, uuid: str) -> Area | None:
    """The same, which stays in its state until the transaction ends; others may hold it, too."""
    row = tx.execute(_named(uuid).with_for_update(read=True)).first()
    return None if row is None else Area(*row)


def locked(tx: Tx, uuid: str) -> Area | None:
    """The same, which nobody else holds until the transaction ends."""
    row = tx.execute(_named(uuid).with_for_update()).first()
    return None if row is None else Area(*row)


def change(tx: Tx, uuid: str, state: str) -> None:
    """Give a locked area another state."""
    gone = {"deleted_us": now_us(tx)} if state == "DELETED" else {}
    tx.execute(update(areas).where(areas.c.uuid == uuid).values(state=state, **gone))


def granted(tx: Tx, uuid: str, seconds: float) -> None:
    """Note, of an area that is locked, that credentials are given out which live so long."""
    until = now_us(tx) + int(seconds * 1e6)
    later = areas.c.granted_us.is_(None) | (areas.c.granted_us < until)
    tx.execute(update(areas).where(areas.c.uuid == uuid, later).values(granted_us=until))
