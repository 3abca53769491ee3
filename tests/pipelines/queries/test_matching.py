"""Matching of events with subscriptions, isolated from each other."""

import json
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy

from pipelines import matching
from pipelines.matching import StoredQueryCache, evaluate_event
from pipelines.queries.stored_queries import StoredQuerySet
from storage.catalog import Catalog, subscriptions
from storage.catalog.deliveries import NewDelivery, make_delivery_id
from storage.catalog.subscriptions import Subscription
from storage.model import EventType
from storage.stores import Stores
from tests.subscription_builders import BASE_URL, a_subscription, an_event, subscribe

DOCUMENT: dict[str, Any] = {
    "event_type": "CREATE",
    "bundle_info": {"uuid": "u", "version": "v"},
    "files": {"project_json": [{"organ": "brain", "count": 3}]},
}
URL = "https://receiver.example/hook"


def questions(*asked: Subscription) -> StoredQuerySet:
    """A set of them, numbered in order where they have no number."""
    return StoredQuerySet(replace(each, id=each.id or n) for n, each in enumerate(asked, 1))


def found(
    *asked: Subscription, kind: EventType = "CREATE", at_us: int = 2**52, steps: int = 10_000
) -> list[NewDelivery]:
    event = an_event(kind, at_us=at_us)
    return list(evaluate_event(questions(*asked), event, DOCUMENT, base_url=BASE_URL, steps=steps))


def payloads(*asked: Subscription, kind: EventType = "CREATE") -> list[dict[str, Any]]:
    return [json.loads(delivery.payload) for delivery in found(*asked, kind=kind)]


def es(query: dict[str, Any], **given: Any) -> Subscription:
    return a_subscription(type="elasticsearch", query=json.dumps(query), **given)


ORGAN = "files.project_json[0].organ"


@pytest.mark.spec("NOT-09")
@pytest.mark.parametrize(
    ("query", "matches"),
    [
        (None, True),
        (f"{ORGAN} == 'brain'", True),
        (f"{ORGAN} == 'liver'", False),
        (ORGAN, True),
        ("missing", False),
        ("files.project_json[?count > `2`]", True),
        ("files.project_json[?count > `5`]", False),
    ],
)
def test_a_jmespath_query_matches_what_is_not_false(query: str | None, matches: bool) -> None:
    assert bool(found(a_subscription(query=query))) is matches


@pytest.mark.spec("NOT-08")
@pytest.mark.parametrize(
    ("query", "matches"),
    [
        ({}, True),
        ({"query": {"match_all": {}}}, True),
        ({"term": {"files.project_json.organ.keyword": "brain"}}, True),
        ({"bool": {"must_not": [{"match": {"files.project_json.organ": "Brain"}}]}}, False),
        ({"range": {"files.project_json.count": {"gte": 4}}}, False),
    ],
)
def test_an_es_query_matches_as_a_search_would(query: dict[str, Any], matches: bool) -> None:
    assert bool(found(es(query))) is matches


@pytest.mark.spec("NOT-10")
@pytest.mark.parametrize("kind", ["TOMBSTONE", "DELETE"])
def test_later_events_show_the_created_document_with_their_type(kind: EventType) -> None:
    attachments = {
        "type": {"type": "jmespath", "expression": "event_type"},
        "organ": {"type": "jmespath", "expression": ORGAN},
    }
    watching = a_subscription(query=f"event_type == '{kind}'", attachments=attachments)
    only_new = a_subscription(query="event_type == 'CREATE'")
    (told,) = payloads(watching, only_new, es({}), kind=kind)
    assert told["event_type"] == kind
    assert told["attachments"] == {"type": kind, "organ": "brain"}
    assert DOCUMENT["event_type"] == "CREATE"


@pytest.mark.spec("NOT-11")
def test_skips_subscriptions_newer_than_event() -> None:
    early, late = a_subscription(id=1, created_us=5), a_subscription(id=2, created_us=6)
    assert [delivery.subscription_id for delivery in found(early, late, at_us=5)] == [1]


@pytest.mark.spec("NOT-14")
def test_a_delivery_is_named_by_its_subscription_and_event() -> None:
    subscription, event = a_subscription(), an_event()
    (delivery,) = evaluate_event(questions(subscription), event, DOCUMENT, base_url=BASE_URL)
    assert delivery.uuid == make_delivery_id(subscription.uuid, event.id)
    assert json.loads(delivery.payload)["transaction_id"] == delivery.uuid


@pytest.mark.spec("NOT-24")
def test_a_hostile_query_is_its_own_failure() -> None:
    hostile = a_subscription(query="|".join(["[@,@]"] * 30) + "|to_string(@)")
    wrong = a_subscription(query="abs(event_type)")
    fine = a_subscription(id=7)
    first, second, third = found(hostile, wrong, fine)
    assert "steps" in (first.failure or "")
    assert "abs()" in (second.failure or "")
    assert first.payload == second.payload == ""
    assert (third.failure, third.subscription_id) == (None, 7)


def test_a_stored_query_that_no_longer_compiles_is_its_own_failure() -> None:
    broken = [
        es({"nonsense": {}}),
        a_subscription(query="a["),
        a_subscription(type="elasticsearch", query="{"),
    ]
    assert all(delivery.failure for delivery in found(*broken))


@pytest.mark.spec("NOT-06")
def test_attachments_that_fail_are_sent_along() -> None:
    attachments = {"bad": {"type": "jmespath", "expression": "abs(event_type)"}}
    (told,) = payloads(a_subscription(attachments=attachments))
    assert told["attachments"].keys() == {"_errors"}


def test_reports_progress_to_step() -> None:
    stored = questions(a_subscription(query="abs(missing)"), a_subscription())
    beats: list[int] = []
    deliveries = evaluate_event(stored, an_event(), DOCUMENT, base_url=BASE_URL, beat=beats.append)
    assert len(list(deliveries)) == 2
    assert beats == [0, 1, 1, 1, 1]


def of(queries: StoredQueryCache, catalog: Catalog, kind: str = "jmespath") -> list[int]:
    with catalog.read() as tx:
        return sorted(queries.get_queries(tx, "aws", kind).subscription_ids())  # type: ignore[arg-type]


@pytest.mark.spec("SUB-18")
def test_cache_follows_catalog(stores: Stores) -> None:
    catalog, queries = stores.catalog, StoredQueryCache()
    assert of(queries, catalog) == []
    one, two = subscribe(catalog, URL), subscribe(catalog, URL, query="a")
    stored = subscribe(catalog, URL, type="elasticsearch", query="{}")
    assert of(queries, catalog) == [one.id, two.id]
    assert of(queries, catalog, "elasticsearch") == [stored.id]
    with catalog.write() as tx:
        subscriptions.mark_deleted(tx, one)
    assert of(queries, catalog) == [two.id]


def test_reads_new_subscriptions_only(stores: Stores) -> None:
    catalog, queries = stores.catalog, StoredQueryCache()
    first = subscribe(catalog, URL)
    of(queries, catalog)
    second = subscribe(catalog, URL)
    told: list[tuple[Any, ...]] = []

    def record(*given: Any) -> None:
        told.append(tuple(given[3].values() if isinstance(given[3], dict) else given[3]))

    with catalog.read() as tx:
        sqlalchemy.event.listen(tx, "before_cursor_execute", record)
        queries.get_queries(tx, "aws", "jmespath")
    assert of(queries, catalog) == [first.id, second.id]
    assert [values for values in told if first.id in values] == []
    assert (second.id,) in told


def test_threads_share_cache(stores: Stores) -> None:
    made = [subscribe(stores.catalog, URL).id for _ in range(5)]
    seen: list[list[int]] = []

    def look() -> None:
        with stores.catalog.read() as tx:
            known = matching.load_stored_queries(stores.catalog, tx, "aws", "jmespath")
            seen.append(sorted(known.subscription_ids()))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [made] * 4


@pytest.mark.spec("NOT-25")
def test_matches_thousand_subscriptions_fast() -> None:
    stored = questions(
        *(a_subscription(query=f"length({ORGAN}) == `{n + 10}`") for n in range(1000))
    )
    began = time.thread_time()
    assert list(evaluate_event(stored, an_event(), DOCUMENT, base_url=BASE_URL)) == []
    assert time.thread_time() - began < 2
