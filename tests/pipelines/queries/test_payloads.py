"""Notification payloads of each subscription type."""

import pytest

from pipelines.queries.payloads import (
    build_payload,
    build_test_members,
    build_test_payload,
    dump_json,
)
from storage.model import FQID
from tests.subscription_builders import BASE_URL, a_subscription, an_event

FQ = FQID("11111111-1111-4111-8111-111111111111", "2026-01-31T235959.000001Z")
EVENT = an_event("TOMBSTONE", fqid=FQ, at_us=1_767_225_600_000_001)
URL = f"{BASE_URL}/v1/bundles/{FQ.uuid}?version={FQ.version}&replica=aws"


@pytest.mark.spec("NOT-03", "NOT-04")
def test_jmespath_payload_has_type_match_and_query() -> None:
    subscription = a_subscription(query="event_type")
    assert build_payload(
        subscription, EVENT, delivery="d", base_url=BASE_URL, attachments=None
    ) == {
        "transaction_id": "d",
        "subscription_id": subscription.uuid,
        "event_type": "TOMBSTONE",
        "match": {"bundle_uuid": FQ.uuid, "bundle_version": FQ.version},
        "jmespath_query": "event_type",
        "bundle_url": URL,
        "event_timestamp": "2026-01-01T000000.000001Z",
    }


@pytest.mark.spec("NOT-04")
def test_elasticsearch_payload_has_query_and_no_type() -> None:
    subscription = a_subscription(type="elasticsearch", query='{"match_all":{}}')
    told = build_payload(subscription, EVENT, delivery="d", base_url=BASE_URL, attachments=None)
    assert told["es_query"] == {"match_all": {}}
    assert told.keys().isdisjoint({"event_type", "jmespath_query", "attachments"})


@pytest.mark.spec("NOT-05")
def test_attachments_are_present_only_if_requested() -> None:
    told = build_payload(
        a_subscription(), EVENT, delivery="d", base_url=BASE_URL, attachments={"a": 1}
    )
    assert told["attachments"] == {"a": 1}


@pytest.mark.spec("SUB-35")
def test_a_test_is_marked_as_one() -> None:
    told = build_test_payload(a_subscription(), delivery="d", now_us=1_767_225_600_000_000)
    assert (told | build_test_members("e"))["test"] is True
    assert (told | build_test_members("e"))["transaction_id"] == "e"
    assert told["match"]["bundle_version"] == "2026-01-01T000000.000000Z"
    assert "bundle_url" not in told


@pytest.mark.spec("NOT-03")
def test_payload_is_compact_utf8() -> None:
    assert dump_json({"a": ["ä", 2**60]}) == '{"a":["ä",1152921504606846976]}'


@pytest.mark.spec("NOT-03")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"\udfff": 1}])
def test_rejects_values_that_are_no_json(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        dump_json(value)
