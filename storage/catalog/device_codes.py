"""Device codes of the OAuth device authorization grant."""

from dataclasses import asdict, dataclass

import sqlalchemy
from sqlalchemy import select, update

from storage.catalog import bulk
from storage.catalog.engine import Tx, find_row, make_mapper
from storage.catalog.tables.accounts import device_codes

PENDING, APPROVED, DENIED = "pending", "approved", "denied"
EXPIRED_CODE_GRACE_US = 600_000_000
"""How long an expired code answers `expired` before it is unknown."""


@dataclass(frozen=True, slots=True)
class DeviceCodeRow:
    """A device code with its user code, and the user's decision."""

    id: str
    user_code: str
    client: str
    scope: str
    state: str
    email: str | None
    auth_us: int | None
    interval_s: int
    polled_us: int | None
    ends_us: int


_code_from_row = make_mapper(DeviceCodeRow)


def insert(tx: Tx, row: DeviceCodeRow, now_us: int) -> bool:
    """Insert a device code, and delete some old ones; False when the user code is taken."""
    bulk.delete_oldest(tx, "device_codes", before_us=now_us - EXPIRED_CODE_GRACE_US)
    return bool(bulk.insert_missing(tx, device_codes, [asdict(row)]))


def lock(tx: Tx, device_code: str) -> DeviceCodeRow | None:
    """Return a device code and lock it until the transaction ends."""
    query = select(device_codes).where(device_codes.c.id == device_code)
    return find_row(tx, _code_from_row, query.with_for_update())


def lock_by_user_code(tx: Tx, user_code: str) -> DeviceCodeRow | None:
    """Return the device code of a user code and lock it until the transaction ends."""
    query = select(device_codes).where(device_codes.c.user_code == user_code)
    return find_row(tx, _code_from_row, query.with_for_update())


def record_poll(tx: Tx, device_code: str, now_us: int, *, interval_s: int) -> None:
    """Record a poll and the interval until the next; the caller holds the lock."""
    polled = update(device_codes).where(device_codes.c.id == device_code)
    tx.execute(polled.values(polled_us=now_us, interval_s=interval_s))


def decide(tx: Tx, device_code: str, state: str, *, email: str, auth_us: int) -> None:
    """Record the user's decision; the caller holds the lock and checked that it is pending."""
    decided = update(device_codes).where(device_codes.c.id == device_code)
    tx.execute(decided.values(state=state, email=email, auth_us=auth_us))


def delete(tx: Tx, device_code: str) -> None:
    """Delete a device code whose tokens were issued."""
    tx.execute(sqlalchemy.delete(device_codes).where(device_codes.c.id == device_code))


def delete_all_of(tx: Tx, email: str) -> None:
    """Delete the device codes that a user decided about."""
    tx.execute(sqlalchemy.delete(device_codes).where(device_codes.c.email == email))


def delete_all(tx: Tx) -> None:
    """Delete all device codes."""
    tx.execute(sqlalchemy.delete(device_codes))
