"""Effective policies of a user, with their origins."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event

from auth import accounts
from auth.decisions import LocalDecisionPoint, load_permissions
from auth.policies.evaluator import Decision
from storage.catalog import Catalog
from storage.catalog import accounts as catalog_accounts
from storage.catalog.accounts import AccountKey
from storage.errors import DamagedObjectError
from storage.model import Principal
from tests.auth.accounts.builders import BY, Given, People, a_policy

pytestmark = pytest.mark.spec("ACC-12")

ADA = "ada@example.org"
BUNDLE = "arn:store:local:aws:bundles/1"
EVERYTHING = "store:Whatever"


def decided(decisions: LocalDecisionPoint, action: str, *claimed: str, who: str = ADA) -> Decision:
    found = decisions.decide(Principal(who, frozenset(claimed)), [action], [BUNDLE])
    return found.results[0].decision


@contextmanager
def counted(catalog: Catalog) -> Iterator[list[str]]:
    """The statements of a block, but for those that begin a unit of work."""
    said: list[str] = []

    def listen(_c: object, _k: object, statement: str, *_: object) -> None:
        if not statement.startswith(("BEGIN", "PRAGMA")):
            said.append(statement)

    event.listen(catalog.engine, "before_cursor_execute", listen)
    yield said
    event.remove(catalog.engine, "before_cursor_execute", listen)


def test_policies_of_user_roles_and_groups_all_apply(
    people: People, decisions: LocalDecisionPoint
) -> None:
    people.role("own_role", a_policy("store:ByRole"))
    people.role("group_role", a_policy("store:ByGroupsRole"))
    people.group("team", policy=a_policy("store:ByGroup"), roles=["group_role"])
    people.user(ADA, policy=a_policy("store:ByUser"), groups=["team"], roles=["own_role"])
    sources = {
        "store:ByUser": f"user {ADA}",
        "store:ByRole": "role own_role",
        "store:ByGroup": "group team",
        "store:ByGroupsRole": "group team, role group_role",
    }
    for action, source in sources.items():
        found = decided(decisions, action)
        assert (found.allowed, found.source) == (True, source)
        assert found.statement == action.partition(":")[2]
    assert not decided(decisions, "store:Another").allowed


def test_a_deny_of_any_of_them_beats_every_allow(
    people: People, decisions: LocalDecisionPoint
) -> None:
    people.role("denies", a_policy("store:*", effect="Deny"))
    people.group("team", roles=["denies"])
    people.user(ADA, policy=a_policy("store:*"))
    assert decided(decisions, "store:PutBundle").allowed
    people.groups(ADA, "team")
    found = decided(decisions, "store:PutBundle")
    assert (found.reason, found.source) == ("explicit_deny", "group team, role denies")


def test_claimed_group_applies_like_group_of_records(
    people: People, decisions: LocalDecisionPoint
) -> None:
    people.role("reads", a_policy("store:Read"))
    people.group("team", policy=a_policy("store:Write"), roles=["reads"])
    for action in ("store:Read", "store:Write"):
        assert decided(decisions, action, "team").allowed
        assert not decided(decisions, action).allowed
    assert not decided(decisions, "store:Read", "nobody-made-this-one").allowed


def test_settings_grant_roles_to_claimed_groups_and_administrators(
    decisions: LocalDecisionPoint,
) -> None:
    assert decided(decisions, "store:PutBundle", "store_ingest").source == "role store_ingest"
    assert not decided(decisions, EVERYTHING, "store_ingest").allowed
    assert decided(decisions, EVERYTHING, "store_admin").source == "role store_admin"
    assert decided(decisions, EVERYTHING, who="root@example.org").allowed
    assert decided(decisions, EVERYTHING, who="Root@Example.org").allowed
    assert not decided(decisions, EVERYTHING, who="root@example.orgs").allowed


def test_name_of_group_record_grants_nothing(people: People, decisions: LocalDecisionPoint) -> None:
    people.group("store_admin")
    people.user(ADA, groups=["store_admin"])
    assert not decided(decisions, EVERYTHING).allowed


def test_default_rights_apply_to_known_and_unknown_users(
    people: People, decisions: LocalDecisionPoint
) -> None:
    people.user(ADA)
    for who in (ADA, "nobody@example.org"):
        found = decided(decisions, "store:GetBundle", who=who)
        assert found.source == "group user_default, role user_default"
        own = f"arn:auth:local:*:user/{who}"
        assert decisions.decide(Principal(who, frozenset()), ["auth:GetUser"], [own]).allowed
        other = "arn:auth:local:*:user/other@example.org"
        assert not decisions.decide(Principal(who, frozenset()), ["auth:GetUser"], [other]).allowed


def test_roles_of_default_group_apply_to_all_users(
    people: People, decisions: LocalDecisionPoint
) -> None:
    people.role("courtesy", a_policy("store:Greet"))
    assert not decided(decisions, "store:Greet", who="nobody@example.org").allowed
    people.roles(AccountKey("group", "user_default"), "courtesy")
    assert decided(decisions, "store:Greet", who="nobody@example.org").allowed


@pytest.mark.spec("ACC-04")
def test_disabled_user_is_denied_even_as_administrator(
    catalog: Catalog, people: People, decisions: LocalDecisionPoint
) -> None:
    for who, claimed in ((ADA, ("store_admin",)), ("root@example.org", ())):
        people.user(who, policy=a_policy("*"))
        assert decided(decisions, EVERYTHING, *claimed, who=who).allowed
        accounts.set_account_status(catalog, who, "disabled", BY)
        assert decided(decisions, EVERYTHING, *claimed, who=who).reason == "disabled"
        assert decided(decisions, "store:GetBundle", *claimed, who=who).reason == "disabled"
        accounts.set_account_status(catalog, who, "enabled", BY)
        assert decided(decisions, EVERYTHING, *claimed, who=who).allowed


def test_role_from_several_sources_counts_once(catalog: Catalog, people: People) -> None:
    people.role("shared", a_policy("store:Share"))
    for group in ("a", "b"):
        people.group(group, roles=["shared"])
    people.user(ADA, groups=["a", "b"], roles=["shared"])
    with catalog.read() as tx:
        found = load_permissions(tx, ADA, ["a"], Given())
    assert found.roles == ("shared", "user_default")
    assert found.groups == ("a", "b", "user_default")
    assert found.compiled.decide("store:Share", "arn:x").source == "role shared"


def test_rights_take_one_query_and_version_another(
    catalog: Catalog, people: People, decisions: LocalDecisionPoint
) -> None:
    for number in range(5):
        people.role(f"role{number}")
        people.group(f"group{number}", roles=[f"role{number}"])
    people.user(ADA, groups=[f"group{number}" for number in range(5)])
    with counted(catalog) as first:
        decided(decisions, "store:Do", "claimed")
    with counted(catalog) as again:
        decided(decisions, "store:Do", "claimed")
    assert (len(first), len(again)) == (2, 1)


def test_unreadable_stored_policy_is_an_error(
    catalog: Catalog, people: People, decisions: LocalDecisionPoint
) -> None:
    people.user(ADA, policy=a_policy("store:*", effect="Deny"))
    with catalog.write() as tx:
        catalog_accounts.lock_all(tx)
        catalog_accounts.set_policy(tx, AccountKey("user", ADA), '{"Version":"1999-01-01"}')
        catalog_accounts.count_change(tx)
    with pytest.raises(DamagedObjectError):
        decided(decisions, "store:GetBundle")
