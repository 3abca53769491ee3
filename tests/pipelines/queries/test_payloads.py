"""Payloads: the specification's fields for each type of subscription, and ours."""

import pytest

from pipelines.queries.payloads import dump, payload, trial, trial_members
from storage.model import FQID
from tests.telling import BASE_URL, a_subscription, an_event

FQ = FQID("11111111-1111-4111-8111-111111111111", "2026-01-31T235959.000001Z")
EVENT = an_event("TOMBSTONE", fqid=FQ, at_us=1_767_225_600_000_001)
URL = f"{BASE_URL}/v1/bundles/{FQ.uuid}?version={FQ.version}&replica=aws"


def test_a_jmespath_subscription_is_told_type_match_and_query() -> None:
    subscription = a_subscription(query="event_type")
    assert payload(subscription, EVENT, delivery="d", base_url=BASE_URL, attachments=None) == {
        "transaction_id": "d",
        "subscription_id": subscription.uuid,
        "event_type": "TOMBSTONE",
        "match": {"bundle_uuid": FQ.uuid, "bundle_version": FQ.version},
        "jmespath_query": "event_type",
        "bundle_url": URL,
        "event_timestamp": "2026-01-01T000000.000001Z",
    }


def test_an_elasticsearch_subscription_is_told_its_query_and_no_type() -> None:
    subscription = a_subscription(type="elasticsearch", query='{"match_all":{}}')
    told = payload(subscription, EVENT, delivery="d", base_url=BASE_URL, attachments=None)
    assert told["es_query"] == {"match_all": {}}
    assert told.keys().isdisjoint({"event_type", "jmespath_query", "attachments"})


def test_attachments_come_only_where_they_are_asked_for() -> None:
    told = payload(a_subscription(), EVENT, delivery="d", base_url=BASE_URL, attachments={"a": 1})
    assert told["attachments"] == {"a": 1}


def test_a_test_is_marked_as_one() -> None:
    told = trial(a_subscription(), delivery="d", now_us=1_767_225_600_000_000)
    assert (told | trial_members("e"))["test"] is True
    assert (told | trial_members("e"))["transaction_id"] == "e"
    assert told["match"]["bundle_version"] == "2026-01-01T000000.000000Z"
    assert "bundle_url" not in told


def test_what_is_sent_is_compact_utf8() -> None:
    assert dump({"a": ["ä", 2**60]}) == '{"a":["ä",1152921504606846976]}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"\udfff": 1}])
def test_what_json_cannot_say_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        dump(value)
