"""Accounts in the catalog: byte order, ranges of indexes however many there are, one query."""

import pytest
from sqlalchemy import text

from storage.catalog import Catalog, accounts, audit, memberships
from storage.catalog.accounts import Name
from storage.catalog.audit import Change, Filter
from storage.catalog.memberships import Held, Membership
from tests.storage.catalog.plans import plans_of

ADA = Name("user", "ada@example.org")


def add(catalog: Catalog, *names: Name, policy: str | None = None) -> None:
    with catalog.write() as tx:
        accounts.hold(tx)
        for name in names:
            accounts.add(tx, name, policy)


def test_ids_are_listed_in_byte_order(catalog: Catalog) -> None:
    names = ["a", "A", "-", "_", "z", "Z", "0", "a.b", "a@b", "aa", "$", ",", "="]
    add(catalog, *(Name("group", one) for one in names))
    with catalog.read() as tx:
        found = accounts.listing(tx, "group", after="", limit=99)
        assert accounts.listing(tx, "group", after="Z", limit=2) == ["_", "a"]
    assert found == sorted([*names, "user_default"], key=str.encode)


def test_what_is_built_in_is_there_from_the_first(catalog: Catalog) -> None:
    with catalog.read() as tx:
        groups = accounts.listing(tx, "group", after="", limit=9)
        roles = accounts.listing(tx, "role", after="", limit=9)
        found = accounts.find(tx, Name("role", "store_admin"))
        of_everybody = memberships.held(
            tx, Name("group", "user_default"), "role", after="", limit=9
        )
    assert (groups, roles) == (["user_default"], ["store_admin", "store_ingest", "user_default"])
    assert of_everybody == ["user_default"]
    assert found is not None
    assert (found.built_in, found.policy) == (True, None)


def test_memberships_are_made_and_ended_once(catalog: Catalog) -> None:
    one, other = (Membership(ADA, Name("group", name)) for name in "ab")
    with catalog.write() as tx:
        accounts.hold(tx)
        assert memberships.join(tx, [other, one, one]) == [one, other]
        assert memberships.join(tx, [one]) == []
        assert memberships.leave(tx, [one, Membership(ADA, Name("group", "c"))]) == [one]
        assert memberships.leave(tx, [one]) == []
        assert memberships.join(tx, []) == memberships.leave(tx, []) == []
        assert memberships.held(tx, ADA, "group", after="", limit=9) == ["b"]


def test_whoever_has_too_many_is_named(catalog: Catalog) -> None:
    eve = Name("user", "eve@example.org")
    pairs = [Membership(ADA, Name("group", f"g{number}")) for number in range(3)]
    with catalog.write() as tx:
        accounts.hold(tx)
        memberships.join(
            tx, [*pairs, Membership(ADA, Name("role", "r")), Membership(eve, pairs[0].of)]
        )
        assert memberships.overfull(tx, [ADA, eve], "group", most=2) == [ADA.id]
        assert memberships.overfull(tx, [ADA, eve], "group", most=3) == []
        assert memberships.overfull(tx, [eve], "group", most=0) == [eve.id]
        assert memberships.overfull(tx, [], "group", most=0) == []


def test_all_that_holds_is_told_with_the_group_it_is_had_by(catalog: Catalog) -> None:
    add(catalog, ADA, Name("role", "r"), policy="{}")
    add(catalog, Name("group", "g"), Name("group", "claimed"))
    with catalog.write() as tx:
        accounts.hold(tx)
        role = Name("role", "r")
        memberships.join(tx, [Membership(ADA, Name("group", "g")), Membership(ADA, role)])
        memberships.join(tx, [Membership(Name("group", "claimed"), role)])
        found = memberships.effective(tx, ADA.id, ["claimed", "unknown"])
    assert found == [
        Held("group", "", "claimed", "enabled", None),
        Held("group", "", "g", "enabled", None),
        Held("group", "", "unknown", None, None),
        Held("role", "", "r", "enabled", "{}"),
        Held("role", "claimed", "r", "enabled", "{}"),
        Held("user", "", ADA.id, "enabled", "{}"),
    ]


def test_the_log_is_read_backwards_in_pages(catalog: Catalog) -> None:
    with catalog.write() as tx:
        for number in range(6):
            who = ("a", "b")[number % 2]
            audit.add(tx, Change(who, f"w{number % 3}", f"user/{number}", None, "{}", "request"))
    with catalog.read() as tx:
        whole = audit.listing(tx, Filter(), before_id=None, limit=9)
        rest = audit.listing(tx, Filter(), before_id=whole[2].id, limit=2)
        by_a = audit.listing(tx, Filter(who="a", what="w0"), before_id=None, limit=9)
        late = audit.listing(tx, Filter(since_us=whole[0].at_us + 1), before_id=None, limit=9)
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
def test_however_many_there_are_every_question_is_a_range_of_an_index(
    server: Catalog, generic: bool
) -> None:
    with server.write() as tx:
        for statement in FILL:
            tx.execute(text(statement))
    user, group = Name("user", "user7@example.org"), Name("group", "group7")
    pairs = [Membership(user, Name("group", f"group{number}")) for number in range(3)]
    questions = [
        lambda tx: memberships.effective(tx, user.id, ["group9", "absent"]),
        lambda tx: accounts.listing(tx, "user", after="user5", limit=16),
        lambda tx: memberships.held(tx, user, "group", after="", limit=16),
        lambda tx: memberships.members(tx, group, "user", after="user5", limit=16),
        lambda tx: accounts.absent(tx, {user, group}),
        lambda tx: memberships.overfull(tx, [user], "group", most=3),
        lambda tx: memberships.leave(tx, pairs),
        lambda tx: audit.listing(tx, Filter(), before_id=9_000, limit=16),
        lambda tx: audit.listing(tx, Filter(who="who7"), before_id=9_000, limit=16),
        lambda tx: audit.listing(tx, Filter(what="what7"), before_id=None, limit=16),
    ]
    for question in questions:
        for plan in plans_of(server, question, generic=generic):
            assert "Seq Scan" not in plan, plan
            assert "Sort Key: accounts" not in plan, plan
