"""The first login creates a user record; disabled users cannot log in."""

import pytest

from auth import accounts
from auth.accounts import admit_at_login, is_user_enabled
from storage.catalog import Catalog, audit
from storage.catalog import accounts as catalog_accounts
from storage.catalog.accounts import AccountKey, read_change_count
from storage.catalog.audit import AuditFilter
from storage.errors import Forbidden
from tests.auth.accounts.builders import BY, People

pytestmark = pytest.mark.spec("ACC-12")

ADA = "ada@example.org"


def test_first_login_creates_record_once(catalog: Catalog) -> None:
    counted: list[int] = []
    for _ in range(2):
        with catalog.write() as tx:
            admit_at_login(tx, ADA, "request-9")
            counted.append(read_change_count(tx))
    with catalog.read() as tx:
        assert catalog_accounts.list_memberships(
            tx, AccountKey("user", ADA), "group", after="", limit=9
        ) == ["user_default"]
        (logged,) = audit.list_records(tx, AuditFilter(), before_id=None, limit=9)
    assert (min(counted) > 0, len(set(counted))) == (True, 1)
    assert (logged.who, logged.what, logged.target) == (ADA, "first_login", f"user/{ADA}")
    assert logged.request_id == "request-9"


def test_disabled_user_cannot_log_in(catalog: Catalog, people: People) -> None:
    people.user(ADA)
    accounts.set_account_status(catalog, ADA, "disabled", BY)
    with catalog.write() as tx:
        with pytest.raises(Forbidden):
            admit_at_login(tx, ADA)
        assert not is_user_enabled(tx, ADA)
        assert is_user_enabled(tx, "nobody@example.org")


@pytest.mark.parametrize("identity", ["ada", "ada+home@example.org", "a b@example.org", "é@x.org"])
def test_user_id_that_cannot_be_disabled_cannot_log_in(catalog: Catalog, identity: str) -> None:
    with catalog.write() as tx, pytest.raises(Forbidden):
        admit_at_login(tx, identity)
    with catalog.read() as tx:
        assert catalog_accounts.list_ids(tx, "user", after="", limit=9) == []
