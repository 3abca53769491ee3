"""Create, change and delete records atomically, with an audit entry each."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from auth import accounts
from auth.accounts import MembershipEdit
from storage.catalog import Catalog, audit
from storage.catalog import accounts as rows
from storage.catalog.accounts import AccountKey, read_change_count
from storage.catalog.audit import AuditFilter, AuditRecord
from storage.errors import ConflictError, NotAcceptable, NotFoundError
from tests.auth.accounts.builders import BY, People, a_policy

pytestmark = pytest.mark.spec("ACC-06")

ADA = "ada@example.org"
EVERY = 10**6


def last(catalog: Catalog) -> AuditRecord:
    with catalog.read() as tx:
        return audit.list_records(tx, AuditFilter(), before_id=None, limit=1)[0]


def told(one: AuditRecord) -> tuple[object, object]:
    return tuple(None if said is None else json.loads(said) for said in (one.before, one.after))  # type: ignore[return-value]


def state(catalog: Catalog) -> tuple[int, int]:
    """How often something changed, and how much of it was written down."""
    with catalog.read() as tx:
        return read_change_count(tx), len(
            audit.list_records(tx, AuditFilter(), before_id=None, limit=EVERY)
        )


def members(catalog: Catalog, of: AccountKey, kind: rows.AccountKind) -> list[str]:
    with catalog.read() as tx:
        return rows.list_members(tx, of, kind, after="", limit=EVERY)


def test_deleting_a_group_or_role_detaches_it_everywhere(catalog: Catalog, people: People) -> None:
    people.role("does")
    people.group("team", roles=["does"])
    people.user(ADA, groups=["team"], roles=["does"])
    accounts.delete_account(catalog, AccountKey("role", "does"), BY)
    with catalog.read() as tx:
        assert rows.list_memberships(tx, AccountKey("user", ADA), "role", after="", limit=9) == []
        assert (
            rows.list_memberships(tx, AccountKey("group", "team"), "role", after="", limit=9) == []
        )
    before, after = told(last(catalog))
    assert after is None
    assert isinstance(before, dict)
    assert (before["users"], before["groups"]) == ([ADA], ["team"])
    assert (before["users_total"], before["groups_total"]) == (1, 1)
    assert before["policy"]["Statement"][0]["Action"] == ["store:Do"]
    accounts.delete_account(catalog, AccountKey("group", "team"), BY)
    assert members(catalog, AccountKey("group", "team"), "user") == []


def test_recreated_record_inherits_nothing(catalog: Catalog, people: People) -> None:
    people.group("team", policy=a_policy())
    people.user(ADA, groups=["team"])
    accounts.delete_account(catalog, AccountKey("group", "team"), BY)
    people.group("team")
    assert members(catalog, AccountKey("group", "team"), "user") == []
    with catalog.read() as tx:
        found = rows.find(tx, AccountKey("group", "team"))
    assert found is not None
    assert found.policy is None


@pytest.mark.parametrize(
    "name",
    [
        AccountKey("group", "user_default"),
        AccountKey("role", "user_default"),
        AccountKey("role", "store_ingest"),
        AccountKey("role", "store_admin"),
    ],
)
def test_protects_built_in_records(catalog: Catalog, name: AccountKey) -> None:
    refused: list[Callable[[], object]] = [
        lambda: accounts.delete_account(catalog, name, BY),
        lambda: accounts.set_account_policy(catalog, name, a_policy(), BY),
        lambda: accounts.set_account_policy(catalog, name, None, BY),
    ]
    for act in refused:
        with pytest.raises(ConflictError) as caught:
            act()
        assert caught.value.code == "protected"
    with pytest.raises(ConflictError) as taken:
        accounts.create_account(catalog, accounts.NewAccount(name, a_policy()), BY)
    assert taken.value.code == "already_exists"


def test_default_group_keeps_users_and_role(catalog: Catalog, people: People) -> None:
    people.user(ADA)
    before = state(catalog)
    refused: list[Callable[[], object]] = [
        lambda: people.groups(ADA, "user_default", action="remove"),
        lambda: people.users("user_default", ADA, action="remove"),
        lambda: people.roles(AccountKey("group", "user_default"), "user_default", action="remove"),
    ]
    for act in refused:
        with pytest.raises(ConflictError) as caught:
            act()
        assert caught.value.code == "protected"
    assert state(catalog) == before


def test_invalid_id_changes_nothing_and_all_are_named(catalog: Catalog, people: People) -> None:
    for group in ("a", "b"):
        people.group(group)
    people.user(ADA)
    before = state(catalog)
    with pytest.raises(NotFoundError) as caught:
        people.groups(ADA, "a", "x", "b", "y", "x")
    assert caught.value.errors.keys() == {"/groups/1", "/groups/3", "/groups/4"}
    assert "group x, group y" in caught.value.detail
    with pytest.raises(NotFoundError) as made:
        people.user("new@example.org", groups=["a", "p"], roles=["q"])
    assert made.value.errors.keys() == {"/groups/1", "/roles/0"}
    with pytest.raises(NotFoundError):
        people.users("a", ADA, "nobody@example.org")
    with pytest.raises(NotFoundError):
        people.groups(ADA, "a", "x", action="remove")
    assert state(catalog) == before
    with catalog.read() as tx:
        assert rows.find(tx, AccountKey("user", "new@example.org")) is None
        assert rows.list_memberships(tx, AccountKey("user", ADA), "group", after="", limit=9) == [
            "user_default"
        ]


def test_error_lists_invalid_ids_in_full_and_detail_in_short(people: People) -> None:
    people.user(ADA)
    wrong = [f"absent{number:04}" for number in range(accounts.MAX_NAMED)]
    with pytest.raises(NotFoundError) as caught:
        people.groups(ADA, *wrong)
    assert len(caught.value.errors) == accounts.MAX_NAMED
    assert len(caught.value.detail) < 1_000


def test_membership_change_logs_before_and_after(catalog: Catalog, people: People) -> None:
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


def test_change_logs_actor_action_and_request(catalog: Catalog, people: People) -> None:
    people.user(ADA)
    accounts.set_account_status(catalog, ADA, "disabled", BY)
    one = last(catalog)
    assert (one.who, one.what, one.request_id) == (BY.who, BY.what, BY.request_id)
    assert (one.target, told(one)) == (
        f"user/{ADA}",
        ({"status": "enabled"}, {"status": "disabled"}),
    )
    with catalog.read() as tx:
        found = rows.find(tx, AccountKey("user", ADA))
    assert found is not None
    assert found.changed_us >= found.created_us


def test_equal_policy_is_no_change(catalog: Catalog, people: People) -> None:
    name = AccountKey("user", people.user(ADA, policy=a_policy()))
    with catalog.write() as tx:
        rows.lock_all(tx)
        document = a_policy().document
        backwards = dict(reversed(list(document.items())))
        rows.set_policy(tx, name, json.dumps(backwards))
    assert not accounts.set_account_policy(catalog, name, a_policy(), BY)
    assert accounts.set_account_policy(catalog, name, a_policy("store:Else"), BY)
    assert accounts.set_account_policy(catalog, name, None, BY)
    assert not accounts.set_account_policy(catalog, name, None, BY)


def test_limits_groups_and_roles_of_a_record(catalog: Catalog, people: People) -> None:
    groups = [people.group(f"group{number:03}") for number in range(accounts.MAX_GROUPS)]
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


def test_absent_record_is_not_found(catalog: Catalog, people: People) -> None:
    for kind in ("user", "group", "role"):
        absent = AccountKey(kind, "nobody@example.org")
        with pytest.raises(NotFoundError):
            accounts.delete_account(catalog, absent, BY)
        with pytest.raises(NotFoundError):
            accounts.set_account_policy(catalog, absent, a_policy(), BY)
    with pytest.raises(NotFoundError):
        accounts.set_account_status(catalog, "nobody@example.org", "disabled", BY)
    with pytest.raises(NotFoundError):
        accounts.edit_memberships(
            catalog, MembershipEdit(AccountKey("user", "x@y"), "groups", [], "add"), BY
        )


def test_a_user_and_a_group_of_one_name_are_two(catalog: Catalog, people: People) -> None:
    for make in (people.user, people.group, people.role):
        make("a@b")
    accounts.delete_account(catalog, AccountKey("group", "a@b"), BY)
    with catalog.read() as tx:
        assert rows.find(tx, AccountKey("user", "a@b")) is not None
        assert rows.find(tx, AccountKey("role", "a@b")) is not None


def test_audit_entries_are_found_by_target_and_period(catalog: Catalog, people: People) -> None:
    people.user("ada@example.org")
    people.group("team")
    with catalog.read() as tx:
        (last, first) = audit.list_records(tx, AuditFilter(), before_id=None, limit=2)

    def targets(**criteria: Any) -> list[str]:
        with catalog.read() as tx:
            found = audit.list_records(tx, AuditFilter(**criteria), before_id=None, limit=EVERY)
        return [one.target for one in found]

    assert targets(target="group/team") == ["group/team"]
    assert "group/team" not in targets(until_us=last.at_us)
    assert targets(since_us=first.at_us, until_us=last.at_us) == ["user/ada@example.org"]
