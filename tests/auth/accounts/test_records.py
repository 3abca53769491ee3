"""Making, changing and removing records: whole or not at all, and written down."""

import json
from collections.abc import Callable

import pytest

from auth.accounts import limits, memberships, records
from auth.accounts.effective import policy_version
from auth.accounts.memberships import Edit
from storage.catalog import Catalog, accounts, audit
from storage.catalog import memberships as rows
from storage.catalog.accounts import Name
from storage.catalog.audit import Filter, Recorded
from storage.errors import Conflict, NotAcceptable, NotFound
from tests.auth.accounts.builders import BY, People, a_policy

ADA = "ada@example.org"
EVERY = 10**6


def last(catalog: Catalog) -> Recorded:
    with catalog.read() as tx:
        return audit.listing(tx, Filter(), before_id=None, limit=1)[0]


def told(one: Recorded) -> tuple[object, object]:
    return tuple(None if said is None else json.loads(said) for said in (one.before, one.after))  # type: ignore[return-value]


def state(catalog: Catalog) -> tuple[int, int]:
    """How often something changed, and how much of it was written down."""
    with catalog.read() as tx:
        return policy_version(tx), len(audit.listing(tx, Filter(), before_id=None, limit=EVERY))


def members(catalog: Catalog, of: Name, kind: accounts.Kind) -> list[str]:
    with catalog.read() as tx:
        return rows.members(tx, of, kind, after="", limit=EVERY)


def test_deleting_a_group_or_role_detaches_it_everywhere(catalog: Catalog, people: People) -> None:
    people.role("does")
    people.group("team", roles=["does"])
    people.user(ADA, groups=["team"], roles=["does"])
    records.delete(catalog, Name("role", "does"), BY)
    with catalog.read() as tx:
        assert rows.held(tx, Name("user", ADA), "role", after="", limit=9) == []
        assert rows.held(tx, Name("group", "team"), "role", after="", limit=9) == []
    before, after = told(last(catalog))
    assert after is None
    assert isinstance(before, dict)
    assert (before["users"], before["groups"]) == ([ADA], ["team"])
    assert (before["users_total"], before["groups_total"]) == (1, 1)
    assert before["policy"]["Statement"][0]["Action"] == ["store:Do"]
    records.delete(catalog, Name("group", "team"), BY)
    assert members(catalog, Name("group", "team"), "user") == []


def test_what_is_made_again_under_an_old_name_inherits_nothing(
    catalog: Catalog, people: People
) -> None:
    people.group("team", policy=a_policy())
    people.user(ADA, groups=["team"])
    records.delete(catalog, Name("group", "team"), BY)
    people.group("team")
    assert members(catalog, Name("group", "team"), "user") == []
    with catalog.read() as tx:
        found = accounts.find(tx, Name("group", "team"))
    assert found is not None
    assert found.policy is None


@pytest.mark.parametrize(
    "name",
    [
        Name("group", "user_default"),
        Name("role", "user_default"),
        Name("role", "store_ingest"),
        Name("role", "store_admin"),
    ],
)
def test_what_is_built_in_is_protected(catalog: Catalog, name: Name) -> None:
    refused: list[Callable[[], object]] = [
        lambda: records.delete(catalog, name, BY),
        lambda: records.set_policy(catalog, name, a_policy(), BY),
        lambda: records.set_policy(catalog, name, None, BY),
    ]
    for act in refused:
        with pytest.raises(Conflict) as caught:
            act()
        assert caught.value.code == "protected"
    with pytest.raises(Conflict) as taken:
        records.create(catalog, records.New(name, a_policy()), BY)
    assert taken.value.code == "already_exists"


def test_nobody_leaves_everybody_s_group_nor_that_its_role(
    catalog: Catalog, people: People
) -> None:
    people.user(ADA)
    before = state(catalog)
    refused: list[Callable[[], object]] = [
        lambda: people.groups(ADA, "user_default", action="remove"),
        lambda: people.users("user_default", ADA, action="remove"),
        lambda: people.roles(Name("group", "user_default"), "user_default", action="remove"),
    ]
    for act in refused:
        with pytest.raises(Conflict) as caught:
            act()
        assert caught.value.code == "protected"
    assert state(catalog) == before


def test_one_bad_id_changes_nothing_and_every_bad_one_is_named(
    catalog: Catalog, people: People
) -> None:
    for group in ("a", "b"):
        people.group(group)
    people.user(ADA)
    before = state(catalog)
    with pytest.raises(NotFound) as caught:
        people.groups(ADA, "a", "x", "b", "y", "x")
    assert caught.value.errors.keys() == {"/groups/1", "/groups/3", "/groups/4"}
    assert "group x, group y" in caught.value.detail
    with pytest.raises(NotFound) as made:
        people.user("new@example.org", groups=["a", "p"], roles=["q"])
    assert made.value.errors.keys() == {"/groups/1", "/roles/0"}
    with pytest.raises(NotFound):
        people.users("a", ADA, "nobody@example.org")
    with pytest.raises(NotFound):
        people.groups(ADA, "a", "x", action="remove")
    assert state(catalog) == before
    with catalog.read() as tx:
        assert accounts.find(tx, Name("user", "new@example.org")) is None
        assert rows.held(tx, Name("user", ADA), "group", after="", limit=9) == ["user_default"]


def test_a_long_list_of_bad_ids_is_named_in_full_and_told_in_short(people: People) -> None:
    people.user(ADA)
    wrong = [f"absent{number:04}" for number in range(limits.NAMED_AT_ONCE)]
    with pytest.raises(NotFound) as caught:
        people.groups(ADA, *wrong)
    assert len(caught.value.errors) == limits.NAMED_AT_ONCE
    assert len(caught.value.detail) < 1_000


def test_membership_changes_tell_what_was_and_what_is(catalog: Catalog, people: People) -> None:
    for group in ("a", "b", "c"):
        people.group(group)
    people.user(ADA, groups=["a"])
    assert people.groups(ADA, "a", "b", "b")
    assert told(last(catalog)) == ({"groups": ["a"]}, {"groups": ["a", "b"]})
    assert people.groups(ADA, "b", "c", action="remove")
    assert told(last(catalog)) == ({"groups": ["b"]}, {"groups": []})
    assert people.users("c", ADA)
    assert (last(catalog).target, told(last(catalog))) == (
        "group/c",
        ({"users": []}, {"users": [ADA]}),
    )


def test_every_change_says_who_what_and_in_which_request(catalog: Catalog, people: People) -> None:
    people.user(ADA)
    records.set_status(catalog, ADA, "disabled", BY)
    one = last(catalog)
    assert (one.who, one.what, one.request_id) == (BY.who, BY.what, BY.request_id)
    assert (one.target, told(one)) == (
        f"user/{ADA}",
        ({"status": "enabled"}, {"status": "disabled"}),
    )
    with catalog.read() as tx:
        found = accounts.find(tx, Name("user", ADA))
    assert found is not None
    assert found.changed_us >= found.created_us


def test_documents_that_say_the_same_are_no_change(catalog: Catalog, people: People) -> None:
    name = Name("user", people.user(ADA, policy=a_policy()))
    with catalog.write() as tx:
        accounts.hold(tx)
        document = a_policy().document
        backwards = dict(reversed(list(document.items())))
        accounts.set_policy(tx, name, json.dumps(backwards))
    assert not records.set_policy(catalog, name, a_policy(), BY)
    assert records.set_policy(catalog, name, a_policy("store:Else"), BY)
    assert records.set_policy(catalog, name, None, BY)
    assert not records.set_policy(catalog, name, None, BY)


def test_a_record_holds_so_much_and_no_more(catalog: Catalog, people: People) -> None:
    groups = [people.group(f"group{number:03}") for number in range(limits.GROUPS_PER_USER)]
    people.user(ADA)
    assert people.groups(ADA, *groups[:-1])
    before = state(catalog)
    with pytest.raises(NotAcceptable):
        people.groups(ADA, groups[-1])
    with pytest.raises(NotAcceptable) as caught:
        people.users(groups[-1], ADA)
    assert ADA in caught.value.detail
    with pytest.raises(NotAcceptable):
        people.user("new@example.org", groups=groups)
    assert state(catalog) == before
    assert people.groups(ADA, groups[0], action="remove")
    assert people.groups(ADA, groups[-1])


def test_what_is_absent_is_not_found(catalog: Catalog, people: People) -> None:
    for kind in ("user", "group", "role"):
        absent = Name(kind, "nobody@example.org")
        with pytest.raises(NotFound):
            records.delete(catalog, absent, BY)
        with pytest.raises(NotFound):
            records.set_policy(catalog, absent, a_policy(), BY)
    with pytest.raises(NotFound):
        records.set_status(catalog, "nobody@example.org", "disabled", BY)
    with pytest.raises(NotFound):
        memberships.put(catalog, Edit(Name("user", "x@y"), "groups", [], "add"), BY)


def test_a_user_and_a_group_of_one_name_are_two(catalog: Catalog, people: People) -> None:
    for make in (people.user, people.group, people.role):
        make("a@b")
    records.delete(catalog, Name("group", "a@b"), BY)
    with catalog.read() as tx:
        assert accounts.find(tx, Name("user", "a@b")) is not None
        assert accounts.find(tx, Name("role", "a@b")) is not None
