"""Leases by name: what only one process at a time should do."""

from sqlalchemy import text

from storage.catalog.engine import Tx, now_us


def hold(tx: Tx, name: str, *, token: str, lease_s: float) -> bool:
    """Take the lease, or keep it; False while another token holds it."""
    now = now_us(tx)
    taken = tx.execute(
        text(
            "INSERT INTO leases (name, token, until_us) VALUES (:name, :token, :until)"
            " ON CONFLICT (name) DO UPDATE SET token = excluded.token, until_us = excluded.until_us"
            " WHERE leases.token = excluded.token OR leases.until_us < :now"
        ),
        {"name": name, "token": token, "until": now + int(lease_s * 1e6), "now": now},
    )
    return bool(taken.rowcount)


def held(tx: Tx, name: str) -> bool:
    """Whether anybody holds the lease."""
    query = text("SELECT 1 FROM leases WHERE name = :name AND until_us >= :now")
    return tx.execute(query, {"name": name, "now": now_us(tx)}).first() is not None


def release(tx: Tx, name: str, *, token: str) -> None:
    """Give the lease up, if it is ours."""
    tx.execute(
        text("DELETE FROM leases WHERE name = :name AND token = :token"),
        {"name": name, "token": token},
    )
