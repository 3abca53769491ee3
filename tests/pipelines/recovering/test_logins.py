"""Logins of a catalog that comes back are over: what was taken from somebody since is there again."""

import json

from pipelines.recovering import epochs, logins
from storage import keys
from storage.catalog import Catalog, accounts, audit, device_codes, grants, memberships
from storage.catalog import epochs as epoch_rows
from storage.catalog import logins as rows
from storage.catalog.accounts import Name
from storage.catalog.audit import OPERATOR, Filter, Recorded
from storage.catalog.device_codes import APPROVED, DeviceRow
from storage.catalog.grants import GrantRow
from storage.catalog.logins import SessionRow
from storage.catalog.memberships import Membership
from storage.stores import Stores
from tests.builders import new_uuid

ADA, TEAM = Name("user", "ada@example.org"), Name("group", "team")
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
    device = DeviceRow(
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
        rows.add_session(tx, session)
        grants.add(tx, grant)
        device_codes.add(tx, device, 0)


def holds(catalog: Catalog, name: str) -> bool:
    """Whether that login is good; all of it or none."""
    with catalog.write() as tx:
        found = {
            rows.session(tx, name) is not None,
            grants.stands(tx, name, 2),
            device_codes.hold(tx, name) is not None,
        }
    (whether,) = found
    return whether


def version(catalog: Catalog) -> int:
    with catalog.read() as tx:
        return accounts.version(tx)


def last(catalog: Catalog) -> Recorded:
    with catalog.read() as tx:
        return audit.listing(tx, Filter(), before_id=None, limit=1)[0]


def joined(catalog: Catalog) -> None:
    with catalog.write() as tx:
        accounts.hold(tx)
        for name in (ADA, TEAM):
            accounts.add(tx, name, None)
        memberships.join(tx, [Membership(ADA, TEAM)])
        accounts.changed(tx)


def test_every_login_and_every_decision_ends(stores: Stores) -> None:
    joined(stores.catalog)
    log_in(stores.catalog, "a")
    before = version(stores.catalog)
    logins.end(stores, "restore", backup="of a night")
    assert not holds(stores.catalog, "a")
    assert version(stores.catalog) > before
    told = last(stores.catalog)
    assert (told.who, told.what, told.target) == (OPERATOR, "restore", "catalog")
    assert json.loads(told.after or "") == {"backup": "of a night", "sessions": 1, "grants": 1}
    log_in(stores.catalog, "b")
    assert holds(stores.catalog, "b")


def test_a_catalog_of_another_time_is_reconciled_without_its_logins(stores: Stores) -> None:
    epochs.begin(stores)
    log_in(stores.catalog, "a")
    with stores.catalog.write() as tx:
        epoch_rows.begin_alone(tx, f"{1:020d}-{new_uuid()}")
    assert epochs.is_of_another_time(stores)
    before = version(stores.catalog)
    epochs.overrule(stores)
    assert not holds(stores.catalog, "a")
    assert version(stores.catalog) > before
    assert last(stores.catalog).what == "reconcile"
    log_in(stores.catalog, "b")
    epochs.overrule(stores)
    assert holds(stores.catalog, "b")


def test_a_bucket_that_was_replaced_ends_no_login(stores: Stores) -> None:
    epochs.begin(stores)
    log_in(stores.catalog, "a")
    for name in epochs.marks(stores, "gcp"):
        stores.replicas["gcp"].delete(keys.epoch(name))
    assert epochs.judge(stores) is not None
    epochs.overrule(stores)
    assert holds(stores.catalog, "a")
