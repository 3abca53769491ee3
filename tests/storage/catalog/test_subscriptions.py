"""Subscription rows: quotas under races, change marker, deletion."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from storage.catalog import Catalog, subscriptions
from storage.catalog.subscriptions import Subscription
from tests.subscription_builders import a_subscription, subscribe

URL = "https://receiver.example/hook"


def test_stores_every_member(catalog: Catalog) -> None:
    made = subscribe(
        catalog,
        URL,
        type="elasticsearch",
        query="{}",
        form_fields={"ä": "ö"},
        hmac_key_id="k",
        hmac_secret=b"\x00\xff",
        attachments={"a": {"type": "jmespath", "expression": "x"}},
    )
    with catalog.read() as tx:
        assert subscriptions.find(tx, made.uuid) == made
        assert subscriptions.find_all(tx, [made.id]) == [made]
    assert (made.hmac_secret, made.form_fields) == (b"\x00\xff", {"ä": "ö"})
    assert made.id
    assert made.endpoint_id
    assert made.created_us


def test_endpoint_is_url_without_query(catalog: Catalog) -> None:
    one, same, other = (subscribe(catalog, URL + end) for end in ("?a=1", "?a=2", "/deeper"))
    assert one.endpoint_id == same.endpoint_id != other.endpoint_id


@pytest.mark.spec("SUB-11")
def test_quota_holds_under_concurrency(catalog: Catalog) -> None:
    def add(_n: int) -> Subscription | None:
        with catalog.write() as tx:
            return subscriptions.insert_subscription(tx, a_subscription(), address=URL, limit=5)

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(add, range(16)))
    assert sum(one is not None for one in made) == 5
    with catalog.read() as tx:
        assert subscriptions.count_by_owner(tx, a_subscription().owner) == 5


def test_quota_is_per_owner_and_freed_by_deletion(catalog: Catalog) -> None:
    mine = subscribe(catalog, URL, limit=1)
    subscribe(catalog, URL, limit=1, owner="other@example.org")
    with catalog.write() as tx:
        assert subscriptions.mark_deleted(tx, mine)
        assert subscriptions.mark_deleted(tx, mine) is None
    subscribe(catalog, URL, limit=1)


def test_owners_list_their_own_of_one_type_and_replica(catalog: Catalog) -> None:
    first, second = subscribe(catalog, URL), subscribe(catalog, URL)
    subscribe(catalog, URL, replica="gcp")
    subscribe(catalog, URL, type="elasticsearch", query="{}")
    subscribe(catalog, URL, owner="other@example.org")
    with catalog.write() as tx:
        subscriptions.mark_deleted(tx, second)
    with catalog.read() as tx:
        assert subscriptions.list_by_owner(tx, first.owner, "aws", "jmespath") == [first]
        assert subscriptions.find(tx, second.uuid) is None


def test_the_marker_changes_with_every_subscription_of_its_replica_and_type(
    catalog: Catalog,
) -> None:
    def marker() -> int:
        with catalog.read() as tx:
            return subscriptions.read_changes(tx, "aws", "jmespath")

    seen = [marker()]
    made = subscribe(catalog, URL)
    seen.append(marker())
    subscribe(catalog, URL, replica="gcp")
    subscribe(catalog, URL, type="elasticsearch", query="{}")
    assert marker() == seen[-1]
    with catalog.write() as tx:
        subscriptions.mark_deleted(tx, made)
    seen.append(marker())
    assert len(set(seen)) == 3
    with catalog.read() as tx:
        assert subscriptions.list_live_ids(tx, "aws", "jmespath") == []
        assert not subscriptions.has_live(tx, "aws", "jmespath")
        assert subscriptions.has_live(tx, "gcp", "jmespath")
        assert subscriptions.has_live(tx, "aws", "elasticsearch")
