"""Subscriptions: validation, visibility, and their deliveries."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from pipelines import subscriptions
from pipelines.subscriptions import NewSubscription
from storage.catalog.subscriptions import Subscription
from storage.errors import ConflictError, Invalid, NotAcceptable, NotFoundError
from storage.stores import Stores
from tests.subscription_builders import happen, match, states, tell, told

OWNER, OTHER = "owner@example.org", "other@example.org"
NEW = NewSubscription("https://receiver.example/hook", "aws")


def create(stores: Stores, owner: str = OWNER, *, limit: int = 100, **given: Any) -> Subscription:
    return subscriptions.create_subscription(
        stores,
        replace(NEW, **given),
        owner,
        uuid=str(uuid4()),
        seal=lambda plain, context: context + b":" + plain[::-1],
        limit=limit,
        allow_private=False,
    )


@pytest.mark.spec("SUB-04")
def test_the_type_follows_from_the_query(stores: Stores) -> None:
    assert create(stores).type == "jmespath"
    assert create(stores, jmespath_query="a").query == "a"
    stored = create(stores, es_query={})
    assert (stored.type, stored.query) == ("elasticsearch", "{}")


@pytest.mark.spec("SUB-08")
def test_the_secret_is_sealed_into_its_subscription(stores: Stores) -> None:
    made = create(stores, hmac_secret_key="key")
    assert made.hmac_secret == f"subscription/{made.uuid}:yek".encode()
    assert "yek" not in repr(made)
    assert "key" not in repr(replace(NEW, hmac_secret_key="secret-key")).replace("hmac_key_id", "")


@pytest.mark.spec("SUB-05", "SUB-07")
@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"callback_url": "ftp://receiver.example"}, "invalid_callback_url"),
        ({"callback_url": "http://127.0.0.1/"}, "invalid_callback_url"),
        ({"jmespath_query": "a["}, "invalid_jmespath"),
        ({"jmespath_query": "nope(a)"}, "invalid_jmespath"),
        ({"jmespath_query": ""}, "invalid_jmespath"),
        ({"es_query": {"nonsense": {}}}, "elasticsearch_bad_request"),
        ({"es_query": {}, "jmespath_query": "a"}, "illegal_arguments"),
        (
            {"attachments": {"_a": {"type": "jmespath", "expression": "a"}}},
            "invalid_attachment_name",
        ),
        (
            {"attachments": {"a": {"type": "jmespath", "expression": "a["}}},
            "invalid_attachment_expression",
        ),
        ({"form_fields": {"payload": "x"}}, "illegal_arguments"),
        ({"form_fields": {"a": "\ud800"}}, "illegal_arguments"),
        ({"hmac_key_id": 'a"b'}, "illegal_arguments"),
        ({"hmac_key_id": "a\r\nb"}, "illegal_arguments"),
        ({"hmac_secret_key": "\ud800"}, "illegal_arguments"),
        ({"jmespath_query": "'\x00'"}, "illegal_arguments"),
        ({"payload_form_field": "\x00"}, "illegal_arguments"),
        (
            {"attachments": {"a": {"type": "jmespath", "expression": "'\ud800'"}}},
            "illegal_arguments",
        ),
    ],
)
def test_rejects_invalid_subscriptions(stores: Stores, given: dict[str, Any], code: str) -> None:
    with pytest.raises(Invalid) as refused:
        create(stores, **given)
    assert refused.value.code == code
    assert subscriptions.list_subscriptions(stores, OWNER, "aws") == []


def test_beyond_the_quota_nothing_is_accepted(stores: Stores) -> None:
    create(stores, limit=1)
    with pytest.raises(NotAcceptable):
        create(stores, limit=1)
    create(stores, OTHER, limit=1)


@pytest.mark.spec("SUB-13")
def test_only_owner_sees_it_in_its_replica_and_type(stores: Stores) -> None:
    made = create(stores)
    assert subscriptions.find_subscription(stores, made.uuid, OWNER, replica="aws") == made
    assert (
        subscriptions.find_subscription(stores, made.uuid, OWNER, replica="aws", kind=None) == made
    )
    assert subscriptions.list_subscriptions(stores, OWNER, "aws") == [made]
    assert subscriptions.list_subscriptions(stores, OTHER, "aws") == []
    assert subscriptions.list_subscriptions(stores, None, "aws") == []
    for uuid, owner, replica, kind in (
        (made.uuid, OTHER, "aws", "jmespath"),
        (made.uuid, OWNER, "gcp", "jmespath"),
        (made.uuid, OWNER, "aws", "elasticsearch"),
        (str(uuid4()), OWNER, "aws", "jmespath"),
    ):
        for act in (subscriptions.find_subscription, subscriptions.delete_subscription):
            with pytest.raises(NotFoundError, match="Cannot find subscription!"):
                act(stores, uuid, owner, replica=replica, kind=kind)  # type: ignore[operator]


@pytest.mark.spec("SUB-17", "SUB-18")
def test_deletion_has_time_and_cancels_deliveries(stores: Stores) -> None:
    made = create(stores)
    tell(stores.catalog, [made], times=2)
    at = subscriptions.delete_subscription(stores, made.uuid, OWNER, replica="aws")
    assert at.startswith("20")
    assert at.endswith("Z")
    assert states(stores.catalog, made) == ["cancelled", "cancelled"]
    with pytest.raises(NotFoundError):
        subscriptions.delete_subscription(stores, made.uuid, OWNER, replica="aws")


@pytest.mark.spec("SUB-33")
def test_lists_retries_and_tests_deliveries(stores: Stores) -> None:
    made = create(stores)
    event, *_ = tell(stores.catalog, [made], times=2)
    assert len(subscriptions.list_deliveries(stores, made, limit=1)) == 1
    tested = subscriptions.ping_subscription(stores, made, uuid=str(uuid4()))
    assert (tested.event_type, tested.state) == ("TEST", "pending")
    assert subscriptions.list_deliveries(stores, made, limit=9)[0] == tested
    assert subscriptions.retry_delivery(stores, made, tested.uuid).state == "pending"
    with pytest.raises(NotFoundError):
        subscriptions.retry_delivery(stores, made, str(uuid4()))
    match(stores.catalog, happen(stores.catalog, "TOMBSTONE", event.fqid))
    with pytest.raises(ConflictError):
        subscriptions.retry_delivery(stores, made, told(stores.catalog, made)[0].uuid)
