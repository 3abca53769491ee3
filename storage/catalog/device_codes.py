"""Devices that wait for somebody to enter their code. Codes are given as digests. Times are the
caller's, in microseconds.
"""

from dataclasses import dataclass

from storage.catalog.engine import Tx, sql

PENDING, APPROVED, DENIED = "pending", "approved", "denied"
FORGOTTEN = 200
KEPT_US = 600_000_000
"""How long a device whose code ended is told so, before it is told that there is none such."""


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device's code, the one that a person enters for it, and what that person decided."""

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


_COLUMNS = DeviceRow.__slots__
_LIST = ", ".join(_COLUMNS)
_ADD = sql(
    f"INSERT INTO device_codes ({_LIST}) VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"
    " ON CONFLICT (user_code) DO NOTHING"
)


def add(tx: Tx, row: DeviceRow, now_us: int) -> bool:
    """A new device; False when a person's code is taken. Old ones are forgotten, some at a time."""
    _forget(tx, now_us - KEPT_US)
    return bool(tx.execute(_ADD, {name: getattr(row, name) for name in _COLUMNS}).rowcount)


def hold(tx: Tx, device_code: str) -> DeviceRow | None:
    """The device of this code, held until the unit of work ends."""
    return _held(tx, "id", device_code)


def hold_by_user_code(tx: Tx, user_code: str) -> DeviceRow | None:
    """The device that a person's code is for, held until the unit of work ends."""
    return _held(tx, "user_code", user_code)


def _held(tx: Tx, column: str, value: str) -> DeviceRow | None:
    # On SQLite the unit of work holds the whole catalog.
    lock = "" if tx.dialect.name == "sqlite" else " FOR UPDATE"
    query = sql(f"SELECT {_LIST} FROM device_codes WHERE {column} = :value{lock}")
    row = tx.execute(query, {"value": value}).first()
    return None if row is None else DeviceRow(**row._mapping)


def poll(tx: Tx, device_code: str, now_us: int, *, interval_s: int) -> None:
    """It asked, and may ask again after the interval; the caller holds it."""
    query = "UPDATE device_codes SET polled_us = :now, interval_s = :interval WHERE id = :id"
    tx.execute(sql(query), {"id": device_code, "now": now_us, "interval": interval_s})


_DECIDE = sql(
    "UPDATE device_codes SET state = :state, email = :email, auth_us = :auth_us WHERE id = :id"
)


def decide(tx: Tx, device_code: str, state: str, *, email: str, auth_us: int) -> None:
    """Somebody decided; the caller holds it and saw that nobody had."""
    tx.execute(_DECIDE, {"id": device_code, "state": state, "email": email, "auth_us": auth_us})


def remove(tx: Tx, device_code: str) -> None:
    """It has what it waited for."""
    tx.execute(sql("DELETE FROM device_codes WHERE id = :id"), {"id": device_code})


def remove_of(tx: Tx, email: str) -> None:
    """Devices that this person decided about have nothing to wait for."""
    tx.execute(sql("DELETE FROM device_codes WHERE email = :email"), {"email": email})


def remove_all(tx: Tx) -> None:
    """No device has anything to wait for."""
    tx.execute(sql("DELETE FROM device_codes"))


def _forget(tx: Tx, before_us: int) -> None:
    # Two who forget at once would wait for each other.
    others = "" if tx.dialect.name == "sqlite" else " FOR UPDATE SKIP LOCKED"
    old = f"SELECT id FROM device_codes WHERE ends_us < :before ORDER BY ends_us LIMIT {FORGOTTEN}"
    tx.execute(sql(f"DELETE FROM device_codes WHERE id IN ({old}{others})"), {"before": before_us})
