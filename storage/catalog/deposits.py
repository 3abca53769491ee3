"""Deposits: bundles that are made of the files of an upload area."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
from sqlalchemy import Row, select, tuple_, update

from storage.catalog import sql
from storage.catalog.sql import Tx
from storage.catalog.tables.jobs import deposits
from storage.model import FQID, Replica

DepositEntry = tuple[str, str, str, bool]
"""(name in the bundle, name in the area, file uuid, indexed); the version is the bundle's."""


@dataclass(frozen=True, slots=True)
class Deposit:
    """A bundle that is being made of an area's files.

    `state` is STARTING, VERIFYING, DONE or FAILED; `faults` has messages by names in the bundle,
    and the bundle's own below the empty name.
    """

    id: str
    owner: str
    area: str
    replica: Replica
    uuid: str
    version: str
    creator_uid: int
    entries: Sequence[DepositEntry]
    state: str = "STARTING"
    faults: Mapping[str, str] = field(default_factory=dict)
    created_us: int = 0
    finished_us: int | None = None

    @property
    def fqid(self) -> FQID:
        """The bundle's version."""
        return FQID(self.uuid, self.version)


@dataclass(frozen=True, slots=True)
class DepositSummary:
    """A deposit in its owner's list."""

    id: str
    area: str
    uuid: str
    version: str
    state: str
    file_count: int
    created_us: int

    @property
    def fqid(self) -> FQID:
        """The bundle's version."""
        return FQID(self.uuid, self.version)


def insert_deposit(tx: Tx, new: Deposit) -> bool:
    """Insert a new deposit; False when the id exists."""
    values = asdict(new) | {
        "entries": orjson.dumps(new.entries).decode(),
        "file_count": len(new.entries),
        "faults": "{}",
        "created_us": sql.clock(tx),
    }
    return bool(sql.insert_missing(tx, deposits, [values]))


def find(tx: Tx, ident: str, *, locked: bool = False) -> Deposit | None:
    """Return a deposit by its id, with a lock of its row if `locked`."""
    query = select(deposits).filter_by(id=ident)
    return sql.find_row(tx, _from_row, query.with_for_update() if locked else query)


def _from_row(row: Row[Any]) -> Deposit:
    entries = [tuple(entry) for entry in orjson.loads(row.entries)]
    return sql.map_row(Deposit, row, entries=entries, faults=orjson.loads(row.faults))


def list_by_owner(
    tx: Tx, owner: str, *, before: tuple[int, str] | None = None, limit: int
) -> list[DepositSummary]:
    """List a user's deposits, latest first, before (created_us, id)."""
    c = deposits.c
    query = select(c.id, c.area, c.uuid, c.version, c.state, c.file_count, c.created_us).where(
        c.owner == owner
    )
    if before is not None:
        query = query.where(tuple_(c.created_us, c.id) < tuple_(*before))
    rows = tx.execute(query.order_by(c.created_us.desc(), c.id.desc()).limit(limit))
    return [DepositSummary(*row) for row in rows]


_COUNT_FILES = """
    SELECT state, count(*) FROM (
        SELECT CASE
            WHEN EXISTS (
                SELECT 1 FROM visible AS v WHERE v.kind = 'file' AND v.replica = :replica
                AND v.uuid = wanted.uuid AND v.version = :version
            ) THEN 'verified'
            ELSE coalesce((
                SELECT CASE WHEN t.state = 'FAILED' THEN 'failed'
                    WHEN t.bytes_done > 0 THEN 'verifying' ELSE 'waiting' END
                FROM tasks AS t WHERE t.uuid = wanted.uuid AND t.version = :version
                ORDER BY t.created_us DESC, t.id LIMIT 1
            ), 'waiting') END AS state
        FROM {source}
    ) AS states GROUP BY state
"""


def count_files(tx: Tx, deposit: Deposit) -> dict[str, int]:
    """Count a deposit's files by state: verified, verifying, waiting or failed."""
    uuids = [uuid for _, _, uuid, _ in deposit.entries]
    rows = sql.execute_with(
        tx,
        _COUNT_FILES,
        "wanted",
        {"uuid": ("text", uuids)},
        replica=deposit.replica,
        version=deposit.version,
    )
    return {row[0]: row[1] for row in rows}


def set_state(tx: Tx, ident: str, state: str, faults: Mapping[str, str] | None = None) -> None:
    """Set the state of a deposit, and what is wrong with it."""
    is_over = state in ("DONE", "FAILED")
    values = {
        "state": state,
        "faults": orjson.dumps(faults or {}).decode(),
        "finished_us": sql.clock(tx) if is_over else None,
    }
    tx.execute(update(deposits).filter_by(id=ident).values(**values))
