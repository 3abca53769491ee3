"""Tombstones: of one version, or of a whole uuid, which then hides later versions too."""

from dataclasses import dataclass

from sqlalchemy import bindparam, insert, or_, select

from storage.catalog.engine import Tx, now_us
from storage.catalog.schema import tombstones
from storage.model import Replica


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Why something may no longer be seen; `version` is empty for a whole uuid."""

    id: int
    kind: str
    uuid: str
    version: str
    reason: str
    digest: str
    origin: Replica
    author: str
    event_id: str
    created_us: int


def find(tx: Tx, kind: str, uuid: str, version: str) -> Tombstone | None:
    """Exactly this tombstone; an empty version asks for the whole uuid's."""
    query = select(tombstones).where(
        tombstones.c.kind == kind, tombstones.c.uuid == uuid, tombstones.c.version == version
    )
    row = tx.execute(query).mappings().first()
    return None if row is None else Tombstone(**row)


def over(tx: Tx, kind: str, uuid: str, version: str) -> Tombstone | None:
    """The tombstone that hides a version: its own or the whole uuid's."""
    row = tx.execute(_OVER, {"kind": kind, "uuid": uuid, "version": version}).mappings().first()
    return None if row is None else Tombstone(**row)


_OVER = (
    select(tombstones)
    .where(tombstones.c.kind == bindparam("kind"), tombstones.c.uuid == bindparam("uuid"))
    .where(or_(tombstones.c.version == "", tombstones.c.version == bindparam("version")))
    .order_by(tombstones.c.version)
    .limit(1)
)


def add(tx: Tx, new: Tombstone) -> Tombstone:
    """Insert it; its id and time are the catalog's. The caller holds the head."""
    row = tx.execute(
        insert(tombstones)
        .values(
            kind=new.kind,
            uuid=new.uuid,
            version=new.version,
            reason=new.reason,
            digest=new.digest,
            origin=new.origin,
            author=new.author,
            event_id=new.event_id,
            created_us=now_us(tx),
        )
        .returning(tombstones)
    )
    return Tombstone(**row.mappings().one())
