"""Who logs in for the first time gets a record, and who is disabled does not log in."""

import pytest

from auth.accounts import records
from auth.accounts.admitting import first_login, is_enabled
from auth.accounts.effective import policy_version
from storage.catalog import Catalog, accounts, audit, memberships
from storage.catalog.accounts import Name
from storage.catalog.audit import Filter
from storage.errors import Forbidden
from tests.auth.accounts.builders import BY, People

ADA = "ada@example.org"


def test_the_first_login_makes_a_record_and_the_next_one_nothing(catalog: Catalog) -> None:
    counted: list[int] = []
    for _ in range(2):
        with catalog.write() as tx:
            first_login(tx, ADA, "request-9")
            counted.append(policy_version(tx))
    with catalog.read() as tx:
        assert memberships.held(tx, Name("user", ADA), "group", after="", limit=9) == [
            "user_default"
        ]
        (logged,) = audit.listing(tx, Filter(), before_id=None, limit=9)
    assert (min(counted) > 0, len(set(counted))) == (True, 1)
    assert (logged.who, logged.what, logged.target) == (ADA, "first_login", f"user/{ADA}")
    assert logged.request_id == "request-9"


def test_who_is_disabled_does_not_log_in(catalog: Catalog, people: People) -> None:
    people.user(ADA)
    records.set_status(catalog, ADA, "disabled", BY)
    with catalog.write() as tx:
        with pytest.raises(Forbidden):
            first_login(tx, ADA)
        assert not is_enabled(tx, ADA)
        assert is_enabled(tx, "nobody@example.org")


@pytest.mark.parametrize("identity", ["ada", "ada+home@example.org", "a b@example.org", "é@x.org"])
def test_who_could_not_be_disabled_does_not_log_in(catalog: Catalog, identity: str) -> None:
    with catalog.write() as tx, pytest.raises(Forbidden):
        first_login(tx, identity)
    with catalog.read() as tx:
        assert accounts.listing(tx, "user", after="", limit=9) == []
