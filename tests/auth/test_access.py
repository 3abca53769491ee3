import pytest

from auth.access import CHECKOUT_ELSEWHERE, NEEDS, Need, require
from config.settings import Settings
from storage.errors import Forbidden, Unauthorized
from storage.model import Principal

SETTINGS = Settings(authorized_domains=("example.org",))
READER = Principal("ada@example.org", frozenset({"user_default"}))
INGESTER = Principal("ben@example.org", frozenset({"store_ingest"}))
ADMIN = Principal("cy@example.org", frozenset({"store_admin"}))

# Specification, Authentication 3, written out a second time.
INGEST = {
    *("put_bundle", "patch_bundle", "delete_bundle", "put_file"),
    *("get_collections", "put_collection", "get_collection", "patch_collection"),
    "delete_collection",
}
OPEN = {
    *("get_bundles_all", "get_bundle", "get_file", "head_file", "post_search"),
    *("post_bundles_checkout", "get_bundles_checkout", "get_subscriptions"),
    *("get_events", "get_event"),
}


def test_the_specifications_restricted_operations_need_ingest() -> None:
    assert {name for name in INGEST if NEEDS[name] is not Need.INGEST} == set()
    assert {name for name in OPEN if NEEDS[name] is not Need.OPEN} == set()


@pytest.mark.parametrize("operation", sorted(NEEDS))
def test_without_a_token_only_open_operations_are_allowed(operation: str) -> None:
    if NEEDS[operation] is Need.OPEN:
        require(None, operation, SETTINGS)
        return
    with pytest.raises(Unauthorized):
        require(None, operation, SETTINGS)


@pytest.mark.parametrize("operation", sorted(NEEDS))
def test_groups_give_ingest_and_operation(operation: str) -> None:
    allowed = {
        Need.OPEN: {READER, INGESTER, ADMIN},
        Need.AUTHENTICATED: {READER, INGESTER, ADMIN},
        Need.SUBSCRIBE: {READER, INGESTER, ADMIN},
        Need.INGEST: {INGESTER, ADMIN},
        Need.ADMIN: {ADMIN},
    }[NEEDS[operation]]
    for principal in (READER, INGESTER, ADMIN):
        if principal in allowed:
            require(principal, operation, SETTINGS)
        else:
            with pytest.raises(Forbidden):
                require(principal, operation, SETTINGS)


@pytest.mark.parametrize(
    "email",
    [
        "a@other.org",
        "a@sub.example.org",
        "a@example.org.evil",
        "example.org",
        "a@",
        "@other.org",
        "a@example.org@other.org",
    ],
)
def test_another_domain_may_not_subscribe(email: str) -> None:
    with pytest.raises(Forbidden):
        require(Principal(email, frozenset({"store_admin"})), "put_subscription", SETTINGS)


def test_an_authorized_domain_is_spelled_in_any_case() -> None:
    require(Principal("a@EXAMPLE.Org", frozenset()), "put_subscription", SETTINGS)


def test_no_list_of_domains_admits_any_identity() -> None:
    require(Principal("machine-7", frozenset()), "put_subscription", Settings())


def test_an_empty_list_of_groups_gives_nobody_the_right() -> None:
    with pytest.raises(Forbidden):
        require(INGESTER, "put_file", Settings(ingest_groups=()))


def test_a_scope_gives_no_right_that_the_groups_do_not() -> None:
    scoped = Principal("a@example.org", frozenset(), frozenset({"store_ingest", "store_admin"}))
    with pytest.raises(Forbidden):
        require(scoped, "put_file", SETTINGS)


def test_a_checkout_to_a_bucket_of_ones_own_needs_a_token() -> None:
    require(None, "post_bundles_checkout", SETTINGS)
    with pytest.raises(Unauthorized):
        require(None, CHECKOUT_ELSEWHERE, SETTINGS)
    require(READER, CHECKOUT_ELSEWHERE, SETTINGS)


def test_an_operation_nobody_listed_is_not_open() -> None:
    with pytest.raises(KeyError):
        require(ADMIN, "put_everything", SETTINGS)
