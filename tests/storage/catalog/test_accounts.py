"""Accounts in the catalog: byte order, index ranges, one query."""

import pytest
from sqlalchemy import text

from storage.catalog import Catalog, accounts, audit
from storage.catalog.accounts import AccountKey, EffectiveAccount, Membership
from storage.catalog.audit import AuditChange, AuditFilter
from tests.storage.catalog.query_plans import plans_of

ADA = AccountKey("user", "ada@example.org")


def add(catalog: Catalog, *names: AccountKey, policy: str | None = None) -> None:
    with catalog.write() as tx:
        accounts.lock_all(tx)
        for name in names:
            accounts.insert(tx, name, policy)


def test_ids_are_listed_in_byte_order(catalog: Catalog) -> None:
    names = ["a", "A", "-", "_", "z", "Z", "0", "a.b", "a@b", "aa", "$", ",", "="]
    add(catalog, *(AccountKey("group", one) for one in names))
    with catalog.read() as tx:
        found = accounts.list_ids(tx, "group", after="", limit=99)
        assert accounts.list_ids(tx, "group", after="Z", limit=2) == ["_", "a"]
    assert found == sorted([*names, "user_default"], key=str.encode)


@pytest.mark.spec("ACC-09")
def test_built_in_records_exist_from_start(catalog: Catalog) -> None:
    with catalog.read() as tx:
        groups = accounts.list_ids(tx, "group", after="", limit=9)
        roles = accounts.list_ids(tx, "role", after="", limit=9)
        found = accounts.find(tx, AccountKey("role", "store_admin"))
        of_everybody = accounts.list_memberships(
            tx, AccountKey("group", "user_default"), "role", after="", limit=9
        )
    assert (groups, roles) == (["user_default"], ["store_admin", "store_ingest", "user_default"])
    assert of_everybody == ["user_default"]
    assert found is not None
    assert (found.built_in, found.policy) == (True, None)


def test_memberships_start_and_end_once(catalog: Catalog) -> None:
    one, other = (Membership(ADA, AccountKey("group", name)) for name in "ab")
    with catalog.write() as tx:
        accounts.lock_all(tx)
        assert accounts.insert_memberships(tx, [other, one, one]) == [one, other]
        assert accounts.insert_memberships(tx, [one]) == []
        assert accounts.delete_memberships(
            tx, [one, Membership(ADA, AccountKey("group", "c"))]
        ) == [one]
        assert accounts.delete_memberships(tx, [one]) == []
        assert accounts.insert_memberships(tx, []) == accounts.delete_memberships(tx, []) == []
        assert accounts.list_memberships(tx, ADA, "group", after="", limit=9) == ["b"]


def test_names_record_with_too_many_memberships(catalog: Catalog) -> None:
    eve = AccountKey("user", "eve@example.org")
    pairs = [Membership(ADA, AccountKey("group", f"g{number}")) for number in range(3)]
    with catalog.write() as tx:
        accounts.lock_all(tx)
        accounts.insert_memberships(
            tx, [*pairs, Membership(ADA, AccountKey("role", "r")), Membership(eve, pairs[0].of)]
        )
        assert accounts.find_overfull(tx, [ADA, eve], "group", most=2) == [ADA.id]
        assert accounts.find_overfull(tx, [ADA, eve], "group", most=3) == []
        assert accounts.find_overfull(tx, [eve], "group", most=0) == [eve.id]
        assert accounts.find_overfull(tx, [], "group", most=0) == []


def test_effective_policies_name_their_group(catalog: Catalog) -> None:
    add(catalog, ADA, AccountKey("role", "r"), policy="{}")
    add(catalog, AccountKey("group", "g"), AccountKey("group", "claimed"))
    with catalog.write() as tx:
        accounts.lock_all(tx)
        role = AccountKey("role", "r")
        accounts.insert_memberships(
            tx, [Membership(ADA, AccountKey("group", "g")), Membership(ADA, role)]
        )
        accounts.insert_memberships(tx, [Membership(AccountKey("group", "claimed"), role)])
        found = accounts.list_effective_accounts(tx, ADA.id, ["claimed", "unknown"])
    assert found == [
        EffectiveAccount("group", "", "claimed", "enabled", None),
        EffectiveAccount("group", "", "g", "enabled", None),
        EffectiveAccount("group", "", "unknown", None, None),
        EffectiveAccount("role", "", "r", "enabled", "{}"),
        EffectiveAccount("role", "claimed", "r", "enabled", "{}"),
        EffectiveAccount("user", "", ADA.id, "enabled", "{}"),
    ]


def test_the_log_is_read_backwards_in_pages(catalog: Catalog) -> None:
    with catalog.write() as tx:
        for number in range(6):
            who = ("a", "b")[number % 2]
            audit.append(
                tx, AuditChange(who, f"w{number % 3}", f"user/{number}", None, "{}", "request")
            )
    with catalog.read() as tx:
        whole = audit.list_records(tx, AuditFilter(), before_id=None, limit=9)
        rest = audit.list_records(tx, AuditFilter(), before_id=whole[2].id, limit=2)
        by_a = audit.list_records(tx, AuditFilter(who="a", what="w0"), before_id=None, limit=9)
        late = audit.list_records(
            tx, AuditFilter(since_us=whole[0].at_us + 1), before_id=None, limit=9
        )
    assert [one.target for one in whole] == [f"user/{number}" for number in (5, 4, 3, 2, 1, 0)]
    assert [one.target for one in rest] == ["user/2", "user/1"]
    assert [one.target for one in by_a] == ["user/0"]
    assert late == []


FILL = (
    "INSERT INTO accounts (kind, id, created_us, changed_us)"
    " SELECT 'user', 'user' || n || '@example.org', 0, 0 FROM generate_series(1, 20000) AS n",
    "INSERT INTO accounts (kind, id, policy, created_us, changed_us)"
    " SELECT kind, kind || n, '{}', 0, 0"
    " FROM generate_series(1, 500) AS n, (VALUES ('group'), ('role')) AS k(kind)",
    "INSERT INTO memberships (member_kind, member, kind, name)"
    " SELECT 'user', 'user' || n || '@example.org', 'group', 'group' || (n + k) % 500"
    " FROM generate_series(1, 20000) AS n, generate_series(1, 5) AS k",
    "INSERT INTO memberships (member_kind, member, kind, name)"
    " SELECT 'group', 'group' || n, 'role', 'role' || (n + k) % 500"
    " FROM generate_series(1, 500) AS n, generate_series(1, 3) AS k",
    "INSERT INTO audit (uuid, at_us, who, what, target, request_id)"
    " SELECT CAST(n AS text), n, 'who' || n % 100, 'what' || n % 20, 'user/x', 'r'"
    " FROM generate_series(1, 20000) AS n",
    "ANALYZE accounts, memberships, audit",
)


@pytest.mark.parametrize("generic", [False, True])
def test_queries_use_index_ranges_at_any_size(server: Catalog, generic: bool) -> None:
    with server.write() as tx:
        for statement in FILL:
            tx.execute(text(statement))
    user, group = AccountKey("user", "user7@example.org"), AccountKey("group", "group7")
    pairs = [Membership(user, AccountKey("group", f"group{number}")) for number in range(3)]
    questions = [
        lambda tx: accounts.list_effective_accounts(tx, user.id, ["group9", "absent"]),
        lambda tx: accounts.list_ids(tx, "user", after="user5", limit=16),
        lambda tx: accounts.list_memberships(tx, user, "group", after="", limit=16),
        lambda tx: accounts.list_members(tx, group, "user", after="user5", limit=16),
        lambda tx: accounts.filter_missing(tx, {user, group}),
        lambda tx: accounts.find_overfull(tx, [user], "group", most=3),
        lambda tx: accounts.delete_memberships(tx, pairs),
        lambda tx: audit.list_records(tx, AuditFilter(), before_id=9_000, limit=16),
        lambda tx: audit.list_records(tx, AuditFilter(who="who7"), before_id=9_000, limit=16),
        lambda tx: audit.list_records(tx, AuditFilter(what="what7"), before_id=None, limit=16),
    ]
    for question in questions:
        for plan in plans_of(server, question, generic=generic):
            assert "Seq Scan" not in plan, plan
            assert "Sort Key: accounts" not in plan, plan
