"""All logins end when a catalog is restored."""

import json

import pytest

from pipelines.recovery import epochs
from storage import keys
from storage.catalog import Catalog, accounts, audit, login, oauth, recovery
from storage.catalog.accounts import AccountKey, Membership
from storage.catalog.audit import OPERATOR, AuditFilter, AuditRecord
from storage.catalog.login import SessionRow
from storage.catalog.oauth import APPROVED, DeviceCodeRow, GrantRow
from storage.stores import Stores
from tests.builders import new_uuid

pytestmark = pytest.mark.spec("OPS-26")

ADA, TEAM = AccountKey("user", "ada@example.org"), AccountKey("group", "team")
LATER_US = 2**60


def log_in(catalog: Catalog, name: str) -> None:
    """A session, a grant of an application, and a device that was let in."""
    session = SessionRow(name, ADA.id, "local", 1, 1, LATER_US, LATER_US)
    grant = GrantRow(
        id=name,
        client="store-cli",
        email=ADA.id,
        scope="openid",
        auth_us=1,
        code=None,
        code_ends_us=None,
        redirect_uri=None,
        challenge=None,
        nonce=None,
        created_us=1,
        redeemed_us=1,
        revoked_us=None,
        ends_us=LATER_US,
    )
    device = DeviceCodeRow(
        id=name,
        user_code=name,
        client="store-cli",
        scope="openid",
        state=APPROVED,
        email=ADA.id,
        auth_us=1,
        interval_s=5,
        polled_us=None,
        ends_us=LATER_US,
    )
    with catalog.write() as tx:
        login.insert_session(tx, session)
        oauth.insert_grant(tx, grant)
        oauth.insert_device_code(tx, device, 0)


def holds(catalog: Catalog, name: str) -> bool:
    """Whether that login is good; all of it or none."""
    with catalog.write() as tx:
        found = {
            login.find_session(tx, name) is not None,
            oauth.is_grant_valid(tx, name, 2),
            oauth.lock_device_code(tx, name) is not None,
        }
    (whether,) = found
    return whether


def version(catalog: Catalog) -> int:
    with catalog.read() as tx:
        return accounts.read_change_count(tx)


def last(catalog: Catalog) -> AuditRecord:
    with catalog.read() as tx:
        return audit.list_records(tx, AuditFilter(), before_id=None, limit=1)[0]


def joined(catalog: Catalog) -> None:
    with catalog.write() as tx:
        accounts.lock_all(tx)
        for name in (ADA, TEAM):
            accounts.insert(tx, name, None)
        accounts.insert_memberships(tx, [Membership(ADA, TEAM)])
        accounts.count_change(tx)


def test_ends_logins_and_cached_decisions(stores: Stores) -> None:
    joined(stores.catalog)
    log_in(stores.catalog, "a")
    before = version(stores.catalog)
    epochs.end_all_sessions(stores, "restore", backup="of a night")
    assert not holds(stores.catalog, "a")
    assert version(stores.catalog) > before
    told = last(stores.catalog)
    assert (told.who, told.what, told.target) == (OPERATOR, "restore", "catalog")
    assert json.loads(told.after or "") == {"backup": "of a night", "sessions": 1, "grants": 1}
    log_in(stores.catalog, "b")
    assert holds(stores.catalog, "b")


def test_a_catalog_of_another_time_is_reconciled_without_its_logins(stores: Stores) -> None:
    epochs.begin_epoch(stores)
    log_in(stores.catalog, "a")
    with stores.catalog.write() as tx:
        recovery.begin_unmarked_epoch(tx, f"{1:020d}-{new_uuid()}")
    assert epochs.is_catalog_restored(stores)
    before = version(stores.catalog)
    epochs.force_new_epoch(stores)
    assert not holds(stores.catalog, "a")
    assert version(stores.catalog) > before
    assert last(stores.catalog).what == "reconcile"
    log_in(stores.catalog, "b")
    epochs.force_new_epoch(stores)
    assert holds(stores.catalog, "b")


def test_replaced_bucket_ends_no_login(stores: Stores) -> None:
    epochs.begin_epoch(stores)
    log_in(stores.catalog, "a")
    for name in epochs.list_marks(stores, "gcp"):
        stores.replicas["gcp"].delete(keys.epoch_key(name))
    assert epochs.check_epoch(stores) is not None
    epochs.force_new_epoch(stores)
    assert holds(stores.catalog, "a")
