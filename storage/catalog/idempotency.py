"""Stored responses for idempotency keys."""

from dataclasses import asdict, dataclass

from storage.catalog import sql
from storage.catalog.sql import Tx
from storage.catalog.tables.jobs import answers

EXPIRE_BATCH = 1_000
"""Most responses that one statement deletes."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """Digest of a request, and its response."""

    digest: str
    answer: str


def find(tx: Tx, owner: str, key: str) -> StoredResponse | None:
    """Return the stored response of an owner's key."""
    query = sql.parse("SELECT digest, answer FROM answers WHERE owner = :owner AND key = :key")
    return sql.find_row(tx, StoredResponse, query, {"owner": owner, "key": key})


def insert(tx: Tx, owner: str, key: str, response: StoredResponse) -> bool:
    """Store a response; False when the key has one already."""
    row = {"owner": owner, "key": key, **asdict(response), "created_us": sql.clock(tx)}
    return bool(sql.insert_missing(tx, answers, [row]))


def expire(tx: Tx, before_us: int) -> int:
    """Delete up to EXPIRE_BATCH old responses; return how many."""
    place = {"key": "owner, key", "time": "created_us"}
    return sql.delete_oldest(tx, "answers", before_us=before_us, limit=EXPIRE_BATCH, **place)
