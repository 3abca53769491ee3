"""The decision cache, and its invalidation."""

import pytest

from auth import accounts
from auth.accounts import MembershipEdit
from auth.decisions import LocalDecisionPoint
from storage.catalog import Catalog
from storage.catalog import accounts as catalog_accounts
from storage.catalog.accounts import AccountKey, read_change_count
from storage.catalog.sql import parse
from storage.model import Principal
from tests.auth.accounts.builders import BY, Given, People, a_policy

pytestmark = pytest.mark.spec("ACC-04")

ADA = Principal("ada@example.org", frozenset())
DO = ["store:Do"]
ON = ["arn:x"]


def may(decisions: LocalDecisionPoint, who: Principal = ADA) -> bool:
    return decisions.decide(who, DO, ON).allowed


def version(catalog: Catalog) -> int:
    with catalog.read() as tx:
        return read_change_count(tx)


def test_every_change_counts_at_once_in_every_process(catalog: Catalog, people: People) -> None:
    processes = [LocalDecisionPoint(catalog, Given()) for _ in range(2)]

    def all_say(expected: bool) -> None:
        assert [may(one) for one in processes] == [expected, expected]

    user, team = AccountKey("user", ADA.email), AccountKey("group", "team")
    people.role("does", a_policy("store:Do"))
    people.group("team", roles=["does"])
    people.user(ADA.email)
    all_say(False)
    people.groups(ADA.email, "team")
    all_say(True)
    people.groups(ADA.email, "team", action="remove")
    all_say(False)
    people.users("team", ADA.email)
    all_say(True)
    people.roles(team, "does", action="remove")
    all_say(False)
    people.roles(user, "does")
    all_say(True)
    accounts.delete_account(catalog, AccountKey("role", "does"), BY)
    all_say(False)
    accounts.set_account_policy(catalog, team, a_policy("store:Do"), BY)
    all_say(True)
    accounts.set_account_policy(catalog, user, a_policy("store:Do", effect="Deny"), BY)
    all_say(False)
    accounts.set_account_policy(catalog, user, None, BY)
    all_say(True)
    accounts.set_account_status(catalog, ADA.email, "disabled", BY)
    all_say(False)
    accounts.set_account_status(catalog, ADA.email, "enabled", BY)
    all_say(True)
    accounts.delete_account(catalog, team, BY)
    all_say(False)


def test_a_change_that_changes_nothing_keeps_what_is_remembered(
    catalog: Catalog, people: People
) -> None:
    people.role("does", a_policy("store:Do"))
    people.user(ADA.email, roles=["does"], policy=a_policy("store:Do"))
    before = version(catalog)
    user = AccountKey("user", ADA.email)
    assert not people.roles(user, "does")
    assert not people.groups(ADA.email, action="add")
    assert not accounts.set_account_status(catalog, ADA.email, "enabled", BY)
    assert not accounts.set_account_policy(catalog, user, a_policy("store:Do"), BY)
    absent = MembershipEdit(user, "roles", [AccountKey("role", "store_admin")], "remove")
    assert not accounts.edit_memberships(catalog, absent, BY)
    assert version(catalog) == before


def test_all_actions_and_resources_must_be_allowed(
    people: People, decisions: LocalDecisionPoint
) -> None:
    people.user(ADA.email, policy=a_policy("store:Do", "arn:a*"))
    assert decisions.decide(ADA, DO, ["arn:a", "arn:ab"]).allowed
    mixed = decisions.decide(ADA, [*DO, "store:Other"], ["arn:a", "arn:b"])
    assert (mixed.allowed, mixed.reason) == (False, "implicit_deny")
    assert [one.decision.allowed for one in mixed.results] == [True, False, False, False]


def test_an_explicit_deny_is_the_worst_reason(
    people: People, decisions: LocalDecisionPoint
) -> None:
    people.user(ADA.email, policy=a_policy("store:Not", effect="Deny"))
    verdict = decisions.decide(ADA, ["store:Other", "store:Not"], ON)
    assert verdict.reason == "explicit_deny"


@pytest.mark.parametrize(("actions", "resources"), [([], ON), (DO, []), ([], [])])
def test_empty_question_is_denied(
    decisions: LocalDecisionPoint, actions: list[str], resources: list[str]
) -> None:
    root = Principal("root@example.org", frozenset())
    assert decisions.decide(root, DO, ON).allowed
    assert not decisions.decide(root, actions, resources).allowed


def test_limits_cached_principals(catalog: Catalog) -> None:
    decisions = LocalDecisionPoint(catalog, Given(decisions_kept=3))
    for number in range(10):
        decisions.find_permissions(Principal(f"user{number}@example.org", frozenset()))
    kept = decisions.find_permissions(Principal("user9@example.org", frozenset()))
    assert decisions.find_permissions(Principal("user9@example.org", frozenset())) is kept
    assert len(decisions._cached) == 3


def test_claimed_groups_are_part_of_cache_key(
    people: People, decisions: LocalDecisionPoint
) -> None:
    people.group("team", policy=a_policy("store:Do"))
    assert may(decisions, Principal(ADA.email, frozenset({"team"})))
    assert not may(decisions)


def test_evaluation_creates_no_record(catalog: Catalog, decisions: LocalDecisionPoint) -> None:
    before = version(catalog)
    decisions.decide(ADA, ["store:GetBundle"], ["*"])
    assert version(catalog) == before
    with catalog.read() as tx:
        assert catalog_accounts.find(tx, AccountKey("user", ADA.email)) is None


def test_a_catalog_that_counted_less_far_is_believed(catalog: Catalog, people: People) -> None:
    decisions = LocalDecisionPoint(catalog, Given())
    decisions._version = 10**6
    people.user(ADA.email)
    assert not may(decisions)
    accounts.set_account_policy(catalog, AccountKey("user", ADA.email), a_policy("store:Do"), BY)
    assert may(decisions)


def test_policy_version_never_repeats(catalog: Catalog, people: People) -> None:
    people.user(ADA.email)
    decisions = LocalDecisionPoint(catalog, Given())
    before, counted = decisions.version(), version(catalog)
    people.role("lost")
    lost = version(catalog)
    with catalog.write() as tx:
        # As a backup that was made before that change brings it back.
        tx.execute(parse("UPDATE heads SET changes = :it WHERE kind = 'accounts'"), {"it": counted})
    assert decisions.version() == before
    people.role("another")
    assert version(catalog) > lost


@pytest.mark.parametrize(
    "other",
    [
        Given(administrators=("root@example.org",)),
        Given(ingest_groups=("others",)),
        Given(admin_groups=("others",)),
        Given(deployment="elsewhere"),
    ],
)
def test_settings_are_part_of_policy_version(catalog: Catalog, other: Given) -> None:
    same, also = (
        LocalDecisionPoint(catalog, Given()),
        LocalDecisionPoint(catalog, Given(decisions_kept=7)),
    )
    assert same.version() == also.version() != LocalDecisionPoint(catalog, other).version()
