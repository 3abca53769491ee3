"""What a principal may do, operation by operation."""

import pytest

from auth.accounts import AuditContext, set_account_status
from auth.authorization import list_open_operations
from auth.decisions import LocalDecisionPoint
from auth.permissions import OperationPermission, list_permissions, list_role_sources
from config import Settings
from storage.catalog import Catalog
from storage.model import Principal
from tests.auth.accounts.builders import People, a_policy

pytestmark = pytest.mark.spec("ACC-04")

ADA = "ada@example.org"


@pytest.fixture
def people(catalog: Catalog) -> People:
    return People(catalog)


def listed(
    catalog: Catalog, groups: frozenset[str] = frozenset(), closed: tuple[str, ...] = ()
) -> dict[str, OperationPermission]:
    decisions = LocalDecisionPoint(catalog, Settings())
    found = decisions.find_permissions(Principal(ADA, groups))
    opened = list_open_operations(closed)
    return {one.operation: one for one in list_permissions(found, "local", opened)}


def test_ordinary_user_reads_subscribes_and_sees_the_own_profile(catalog: Catalog) -> None:
    permissions = listed(catalog)
    assert permissions["get_bundle"].extent == "open"
    assert permissions["put_subscription"].extent == "everywhere"
    assert permissions["put_bundle"].extent == "nowhere"
    assert permissions["get_v1_user"].extent == "partly"
    assert permissions["get_v1_audit"].extent == "nowhere"
    (statement,) = permissions["put_subscription"].statements
    assert statement == (
        "group user_default, role user_default",
        "OwnSubscriptions",
        True,
        False,
    )


def test_policies_decide_on_closed_operations(catalog: Catalog, people: People) -> None:
    some = "arn:store:local:*:bundles/1234*"
    people.user(ADA, policy=a_policy("store:GetBundle", some, effect="Deny"))
    permissions = listed(catalog, closed=("get_bundle", "get_file"))
    assert permissions["get_bundle"].extent == "partly"
    assert permissions["get_file"].extent == "everywhere"
    assert permissions["post_search"].extent == "open"


def test_policy_of_some_resources_allows_partly(catalog: Catalog, people: People) -> None:
    people.user(ADA, policy=a_policy("store:PutBundle", "arn:store:local:*:bundles/1234*"))
    assert listed(catalog)["put_bundle"].extent == "partly"


def test_denying_statement_is_shown_first(catalog: Catalog, people: People) -> None:
    people.role("denies", a_policy("store:PutBundle", effect="Deny"))
    people.user(ADA, roles=["denies"])
    permission = listed(catalog, groups=frozenset({"store_admin"}))["put_bundle"]
    assert permission.extent == "partly"
    assert [(one.source, one.allows) for one in permission.statements] == [
        ("role denies", False),
        ("role store_ingest", True),
        ("role store_admin", True),
    ]


def test_disabled_user_may_do_nothing(catalog: Catalog, people: People) -> None:
    people.user(ADA)
    set_account_status(catalog, ADA, "disabled", AuditContext("root@example.org", "test"))
    assert {one.extent for one in listed(catalog).values()} == {"nowhere"}


def test_roles_name_the_groups_they_come_from(catalog: Catalog, people: People) -> None:
    people.role("reviewer", a_policy("store:PutBundle"))
    people.group("curators", roles=["reviewer"])
    people.user(ADA, groups=["curators"], roles=["reviewer"])
    sources = list_role_sources(catalog, Principal(ADA, frozenset()), Settings())
    assert sources == {"reviewer": ("", "curators"), "user_default": ("user_default",)}
