"""Actions and resources of each operation, and who is authorized."""

from collections.abc import Sequence

import pytest

from api.app import OPERATIONS
from auth.authorization import (
    CHECKOUT_ELSEWHERE,
    OPEN_OPERATIONS,
    RESOURCES,
    SUBSCRIBING_OPERATIONS,
    StoreAuthorizer,
    action_name,
    parse_closed_operations,
    resource_arn,
)
from auth.decisions import LocalDecisionPoint
from config import Settings
from storage.catalog import Catalog
from storage.errors import Forbidden, Invalid, Unauthorized
from storage.model import Principal
from tests.least_roles import least_role

SETTINGS = Settings(authorized_domains=("example.org",))
READER = Principal("ada@example.org", frozenset())
INGESTER = Principal("ben@example.org", frozenset({"store_ingest"}))
ADMIN = Principal("cy@example.org", frozenset({"store_admin"}))
EVERYBODY = (READER, INGESTER, ADMIN)
LET = {None: EVERYBODY, "user_default": EVERYBODY, "store_ingest": (INGESTER, ADMIN)}

# Specification, Authentication 3, written out a second time.
WRITES = {
    *("put_bundle", "patch_bundle", "delete_bundle", "put_file"),
    *("get_collections", "put_collection", "get_collection", "patch_collection"),
    "delete_collection",
}
READS = {
    *("get_bundles_all", "get_bundle", "get_file", "head_file", "get_file_bundles", "post_search"),
    *("post_search_facets", "get_search_fields", "get_schemas"),
    *("get_drs_service_info", "get_drs_object", "get_drs_access"),
    *("post_bundles_checkout", "get_bundles_checkout", "get_subscriptions"),
    *("get_events", "get_event"),
}


def access(catalog: Catalog, settings: Settings = SETTINGS) -> StoreAuthorizer:
    return StoreAuthorizer(
        LocalDecisionPoint(catalog, settings),
        settings.deployment,
        settings.authorized_domains,
        settings.closed_operations,
    )


@pytest.mark.spec("WHO-09")
def test_every_operation_of_the_store_has_a_resource() -> None:
    beside = {"get_health", "get_metrics", "retry_jobs", CHECKOUT_ELSEWHERE}
    assert {one.name for one in OPERATIONS} | beside <= set(RESOURCES)
    assert RESOURCES.keys() >= OPEN_OPERATIONS | SUBSCRIBING_OPERATIONS


@pytest.mark.spec("WHO-03", "WHO-04")
def test_the_specifications_restricted_operations_need_the_role_that_ingests() -> None:
    assert {name for name in WRITES if least_role(name) != "store_ingest"} == set()
    assert {name for name in READS if least_role(name) is not None} == set()
    assert {name for name in SUBSCRIBING_OPERATIONS if least_role(name) != "user_default"} == set()
    assert least_role("get_metrics") == "store_admin"


@pytest.mark.spec("WHO-04")
@pytest.mark.parametrize("operation", sorted(RESOURCES))
def test_without_a_token_only_open_operations_are_allowed(catalog: Catalog, operation: str) -> None:
    if operation in OPEN_OPERATIONS:
        access(catalog).require(None, operation, {}, {})
        return
    with pytest.raises(Unauthorized):
        access(catalog).require(None, operation, {}, {})


@pytest.mark.spec("WHO-03")
@pytest.mark.parametrize("operation", sorted(RESOURCES))
def test_settings_map_claimed_groups_to_roles(catalog: Catalog, operation: str) -> None:
    let: Sequence[Principal] = LET.get(least_role(operation), (ADMIN,))
    for principal in EVERYBODY:
        if principal in let:
            assert access(catalog).may(principal, operation)
            access(catalog).require(principal, operation, {"uuid": "u", "replica": "aws"}, {})
        else:
            assert not access(catalog).may(principal, operation)
            with pytest.raises(Forbidden):
                access(catalog).require(principal, operation, {"uuid": "u", "replica": "aws"}, {})


@pytest.mark.spec("SUB-12")
@pytest.mark.parametrize(
    "email",
    [
        "a@other.org",
        "a@example.org.evil",
        "a@sub.example.org",
        "example.org",
        "@",
        "a@",
        "a@example.org@evil",
    ],
)
@pytest.mark.parametrize("operation", sorted(SUBSCRIBING_OPERATIONS))
def test_subscribing_requires_authorized_domain(
    catalog: Catalog, email: str, operation: str
) -> None:
    stranger = Principal(email, frozenset({"store_admin"}))
    with pytest.raises(Forbidden):
        access(catalog).require(stranger, operation, {}, {})
    anywhere = access(catalog, Settings())
    anywhere.require(stranger, operation, {}, {})


@pytest.mark.spec("SUB-12")
def test_the_domain_is_spelled_in_any_case(catalog: Catalog) -> None:
    shouting = Principal("A@EXAMPLE.ORG", frozenset())
    access(catalog).require(shouting, "put_subscription", {}, {})


@pytest.mark.spec("WHO-04")
@pytest.mark.parametrize("operation", sorted(OPEN_OPERATIONS - {"get_health"}))
def test_closed_operation_requires_token_and_permission(catalog: Catalog, operation: str) -> None:
    for names in ((operation,), ("*",)):
        guarded = access(catalog, Settings(closed_operations=names))
        with pytest.raises(Unauthorized):
            guarded.require(None, operation, {}, {})
        guarded.require(READER, operation, {"uuid": "u"}, {})
        assert guarded.wants(operation)
    guarded.require(None, "get_health", {}, {})


@pytest.mark.spec("WHO-04")
def test_only_open_operations_can_be_closed() -> None:
    for name in ("put_bundle", "get_health", "nothing"):
        with pytest.raises(Invalid, match=f"STORE_CLOSED_OPERATIONS.*{name}"):
            parse_closed_operations([name])


@pytest.mark.spec("WHO-09")
def test_actions_and_resources_are_spelled_as_policies_spell_them() -> None:
    named = {"uuid": "u", "version": "v", "replica": "gcp"}
    assert action_name("put_bundle") == "store:PutBundle"
    assert resource_arn("put_bundle", "here", named) == "arn:store:here:gcp:bundles/u.v"
    assert resource_arn("delete_bundle", "here", {"uuid": "u"}) == "arn:store:here:*:bundles/u.*"
    assert resource_arn("get_bundles_all", "here", named) == "arn:store:here:gcp:bundles/*"


@pytest.mark.spec("WHO-06")
def test_unlisted_operation_is_not_open(catalog: Catalog) -> None:
    with pytest.raises(Unauthorized):
        access(catalog).require(None, "get_what_is_new", {}, {})


@pytest.mark.spec("WHO-06")
def test_scopes_grant_nothing(catalog: Catalog) -> None:
    scoped = Principal(
        "ada@example.org", frozenset(), frozenset({"store_admin", "store:PutBundle"})
    )
    with pytest.raises(Forbidden):
        access(catalog).require(scoped, "put_bundle", {}, {})


@pytest.mark.spec("WHO-03")
def test_without_group_settings_claimed_groups_grant_nothing(
    catalog: Catalog,
) -> None:
    for principal in (INGESTER, ADMIN):
        with pytest.raises(Forbidden):
            access(catalog, Settings(ingest_groups=(), admin_groups=())).require(
                principal, "put_bundle", {}, {}
            )
