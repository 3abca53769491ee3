"""Expiry of audit log entries."""

import pytest

from storage.catalog import Catalog, audit, now_us
from storage.catalog.audit import EXPIRE_BATCH, EXPIRING_ACTIONS, AuditChange, AuditFilter

pytestmark = pytest.mark.spec("LOG-10")

KEPT = ("put_v1_user", "first_login", "password_changed", "unlocked")


def add(catalog: Catalog, *whats: str) -> int:
    """The moment after them, as the catalog has it."""
    with catalog.write() as tx:
        for what in whats:
            audit.append(tx, AuditChange("who", what, "user/a@example.org", None, None, ""))
        return now_us(tx) + 1


def forget(catalog: Catalog, before_us: int) -> int:
    with catalog.write() as tx:
        return audit.expire(tx, before_us)


def left(catalog: Catalog) -> list[str]:
    with catalog.read() as tx:
        return [
            one.what for one in audit.list_records(tx, AuditFilter(), before_id=None, limit=5_000)
        ][::-1]


def test_login_entries_expire_and_changes_do_not(catalog: Catalog) -> None:
    first = add(catalog, *KEPT, *EXPIRING_ACTIONS, *KEPT)
    add(catalog, "login")
    assert forget(catalog, first) == 1
    assert left(catalog) == [*KEPT, *KEPT, "login"]
    assert forget(catalog, first) == 0


def test_expires_nothing_early(catalog: Catalog) -> None:
    now = add(catalog, *EXPIRING_ACTIONS)
    assert forget(catalog, now - 3_600_000_000) == 0
    assert left(catalog) == list(EXPIRING_ACTIONS)


@pytest.mark.parametrize("more", [0, 1])
def test_expires_in_batches(catalog: Catalog, more: int) -> None:
    after = add(catalog, *["login_failed"] * (EXPIRE_BATCH + more))
    assert forget(catalog, after) == EXPIRE_BATCH
    assert forget(catalog, after) == more
