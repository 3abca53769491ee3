"""Concurrent changes of accounts are atomic and serializable."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import pytest

from auth import accounts
from auth.accounts import admit_at_login
from storage.catalog import Catalog, audit
from storage.catalog import accounts as catalog_accounts
from storage.catalog.accounts import AccountKey, read_change_count
from storage.catalog.audit import AuditFilter
from storage.errors import ConflictError, DomainError, NotAcceptable, NotFoundError
from tests.auth.accounts.builders import BY, People, a_policy

pytestmark = pytest.mark.spec("ACC-17")

ROUNDS = 15
EVERY = 10**6


def together(*acts: Callable[[], object]) -> list[object]:
    """What each of them gives, or the error it ends in, run at once."""
    barrier = Barrier(len(acts))

    def run(act: Callable[[], object]) -> object:
        barrier.wait()
        try:
            return act()
        except DomainError as error:
            return type(error)

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def held(catalog: Catalog, name: AccountKey, kind: catalog_accounts.AccountKind) -> list[str]:
    with catalog.read() as tx:
        return catalog_accounts.list_memberships(tx, name, kind, after="", limit=EVERY)


def test_concurrent_creations_create_once(catalog: Catalog, people: People) -> None:
    for number in range(ROUNDS):
        name = f"group{number}"
        made = together(*[partial(people.group, name)] * 4)
        assert sorted(map(str, made)) == sorted(map(str, [name, *[ConflictError] * 3]))


def test_concurrent_additions_change_once(catalog: Catalog, people: People) -> None:
    people.user("ada@example.org")
    for number in range(ROUNDS):
        name = people.group(f"group{number}")
        add = [partial(people.groups, "ada@example.org", name)] * 4
        assert sorted(map(bool, together(*add))) == [False, False, False, True]


def test_deleted_group_has_no_members(catalog: Catalog, people: People) -> None:
    people.user("ada@example.org")
    people.role("does")
    for number in range(ROUNDS):
        group = AccountKey("group", people.group(f"group{number}"))
        results = together(
            partial(people.groups, "ada@example.org", group.id),
            partial(people.users, group.id, "ada@example.org"),
            partial(people.roles, group, "does"),
            partial(accounts.delete_account, catalog, group, BY),
        )
        assert set(results) <= {True, False, NotFoundError, None}
        assert held(catalog, AccountKey("user", "ada@example.org"), "group") == ["user_default"]
        assert held(catalog, group, "role") == []


def test_concurrent_deletions_delete_once_and_recreated_record_is_empty(
    catalog: Catalog, people: People
) -> None:
    people.role("does")
    for _ in range(ROUNDS):
        group = AccountKey("group", people.group("phoenix", roles=["does"]))
        ended = together(*[partial(accounts.delete_account, catalog, group, BY)] * 3)
        assert sorted(map(str, ended)) == sorted(map(str, [None, NotFoundError, NotFoundError]))
        people.group("phoenix")
        assert held(catalog, group, "role") == []
        accounts.delete_account(catalog, group, BY)


def test_no_race_gets_anybody_beyond_the_limit(catalog: Catalog, people: People) -> None:
    user = AccountKey("user", people.user("ada@example.org"))
    roles = [people.role(f"role{number:03}") for number in range(accounts.MAX_ROLES + 6)]
    assert people.roles(user, *roles[: accounts.MAX_ROLES - 1])
    late = [partial(people.roles, user, role) for role in roles[-6:]]
    results = together(*late)
    assert sorted(map(str, results)) == sorted(map(str, [True, *[NotAcceptable] * 5]))
    assert len(held(catalog, user, "role")) == accounts.MAX_ROLES


def test_concurrent_first_logins_create_one_record(catalog: Catalog) -> None:
    def log_in() -> None:
        with catalog.write() as tx:
            admit_at_login(tx, "ada@example.org")

    for _ in range(ROUNDS):
        assert together(*[log_in] * 4) == [None] * 4
    with catalog.read() as tx:
        assert catalog_accounts.list_ids(tx, "user", after="", limit=9) == ["ada@example.org"]
        assert len(audit.list_records(tx, AuditFilter(), before_id=None, limit=9)) == 1


def test_every_concurrent_change_is_counted_and_logged(catalog: Catalog, people: People) -> None:
    people.role("does")
    seen: list[int] = []

    def look() -> None:
        with catalog.read() as tx:
            seen.append(read_change_count(tx))

    def change(number: int) -> None:
        name = AccountKey("user", people.user(f"user{number}@example.org"))
        accounts.set_account_policy(catalog, name, a_policy("store:Do"), BY)
        people.roles(name, "does")
        look()

    look()
    together(*[partial(change, number) for number in range(8)])
    look()
    with catalog.read() as tx:
        logged = audit.list_records(tx, AuditFilter(), before_id=None, limit=EVERY)
    assert len(logged) == 1 + 8 * 3
    assert seen[0] < min(seen[1:])
    assert max(seen) == seen[-1]
    assert [one.id for one in logged] == sorted((one.id for one in logged), reverse=True)


@pytest.mark.parametrize("kind", ["user", "group"])
def test_concurrently_deleted_role_is_assigned_to_no_user(
    catalog: Catalog, people: People, kind: catalog_accounts.AccountKind
) -> None:
    make = people.user if kind == "user" else people.group
    holder = AccountKey(kind, make("a@b"))
    for number in range(ROUNDS):
        role = AccountKey("role", people.role(f"role{number}"))
        together(
            partial(people.roles, holder, role.id),
            partial(accounts.delete_account, catalog, role, BY),
        )
        assert held(catalog, holder, "role") == []
