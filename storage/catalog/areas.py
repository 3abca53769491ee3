"""Upload areas: whose they are and whether they take files."""

from dataclasses import dataclass

from sqlalchemy import select, text

from storage.catalog.engine import Tx, now_us
from storage.catalog.schema import areas


@dataclass(frozen=True, slots=True)
class Area:
    """`state` is UNLOCKED, LOCKED, DELETING or DELETED."""

    uuid: str
    owner: str
    state: str


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


def get(tx: Tx, uuid: str) -> Area | None:
    """The area of that uuid."""
    query = select(areas.c.uuid, areas.c.owner, areas.c.state).where(areas.c.uuid == uuid)
    row = tx.execute(query).first()
    return None if row is None else Area(*row)
