from dataclasses import replace

import pytest

from api.app import create_app
from storage.catalog import deliveries
from storage.catalog.deliveries import NewDelivery, Result, delivery_id
from storage.model import FQID, Event
from tests.api.builders import READER, VERSION, uuid_of
from tests.api.conftest import verify

OTHER = {"Authorization": "Bearer other"}
PATH = "/v1/subscriptions?replica=aws"
CALLBACK = {"callback_url": "https://receiver.example/notify"}


def subscribe(client, **body):
    """The answer to a subscription's PUT."""
    return client.put(PATH, json=CALLBACK | body, headers=READER)


def test_a_new_subscription_is_201_and_shows_everything_but_its_secret(client, stores) -> None:
    made = subscribe(
        client,
        jmespath_query="event_type == 'CREATE'",
        hmac_secret_key="very secret",
        hmac_key_id="key-1",
        attachments={"organ": {"type": "jmespath", "expression": "files"}},
    )
    assert made.status_code == 201
    shown = dict(made.json)
    uuid = shown.pop("uuid")
    assert shown == {
        "owner": "reader@example.org",
        "callback_url": CALLBACK["callback_url"],
        "replica": "aws",
        "subscription_type": "jmespath",
        "method": "POST",
        "encoding": "application/json",
        "form_fields": {},
        "payload_form_field": "payload",
        "state": "active",
        "jmespath_query": "event_type == 'CREATE'",
        "hmac_key_id": "key-1",
        "attachments": {"organ": {"type": "jmespath", "expression": "files"}},
    }
    read = client.get(f"/v1/subscriptions/{uuid}?replica=aws", headers=READER)
    assert read.json == shown | {"uuid": uuid}
    with stores.catalog.read() as tx:
        raw = tx.exec_driver_sql("SELECT hmac_secret FROM subscriptions").scalar_one()
    assert b"very secret" not in raw


def test_an_es_query_even_an_empty_one_makes_it_elasticsearch(client) -> None:
    uuid = subscribe(client, es_query={}).json["uuid"]
    one = f"/v1/subscriptions/{uuid}?replica=aws"
    assert client.get(one, headers=READER).status_code == 404
    found = client.get(f"{one}&subscription_type=elasticsearch", headers=READER)
    assert (found.json["subscription_type"], found.json["es_query"]) == ("elasticsearch", {})
    assert client.get(PATH, headers=READER).json == {"subscriptions": []}
    listed = client.get(f"{PATH}&subscription_type=elasticsearch", headers=READER)
    assert [item["uuid"] for item in listed.json["subscriptions"]] == [uuid]


def test_null_says_no_more_than_absence(client) -> None:
    nothing = {"es_query": None, "jmespath_query": None, "attachments": None, "hmac_key_id": None}
    shown = subscribe(client, **nothing).json
    assert shown["subscription_type"] == "jmespath"
    assert not shown.keys() & nothing.keys()


def test_the_replica_may_be_a_member_of_the_body(client) -> None:
    for path, replica in (("/v1/subscriptions", "gcp"), (PATH, "aws")):
        made = client.put(path, json=CALLBACK | {"replica": replica}, headers=READER)
        assert made.status_code == 201
        shown = f"/v1/subscriptions/{made.json['uuid']}?replica="
        assert client.get(shown + replica, headers=READER).json["replica"] == replica
    twice = client.put(PATH, json=CALLBACK | {"replica": "gcp"}, headers=READER)
    assert twice.status_code == 400
    missing = client.put("/v1/subscriptions", json=CALLBACK, headers=READER)
    assert missing.json["detail"] == "Missing query parameter 'replica'"
    broken = client.put("/v1/subscriptions", data=b"{", headers=READER)
    assert broken.json["detail"] == "Missing query parameter 'replica'"
    odd = client.put("/v1/subscriptions", json=CALLBACK | {"replica": 1}, headers=READER)
    assert odd.status_code == 400


def test_only_the_owner_sees_it(client) -> None:
    uuid = subscribe(client).json["uuid"]
    for method, path in (
        ("GET", f"/v1/subscriptions/{uuid}?replica=aws"),
        ("DELETE", f"/v1/subscriptions/{uuid}?replica=aws"),
        ("GET", f"/v1/subscriptions/{uuid}/deliveries?replica=aws"),
        ("POST", f"/v1/subscriptions/{uuid}/test?replica=aws"),
    ):
        answer = client.open(path, method=method, headers=OTHER)
        assert (answer.status_code, answer.json["detail"]) == (404, "Cannot find subscription!")
        assert client.open(path, method=method).status_code == 401
    assert client.get(PATH).json == {"subscriptions": []}
    assert client.get(PATH, headers=OTHER).json == {"subscriptions": []}
    assert len(client.get(PATH, headers=READER).json["subscriptions"]) == 1


def test_a_deleted_one_is_gone(client) -> None:
    one = f"/v1/subscriptions/{subscribe(client).json['uuid']}?replica=aws"
    gone = client.delete(one, headers=READER)
    assert (gone.status_code, list(gone.json)) == (200, ["timeDeleted"])
    assert client.delete(one, headers=READER).status_code == 404
    assert client.get(one, headers=READER).status_code == 404


@pytest.mark.parametrize(
    ("body", "code", "where"),
    [
        ({"callback_url": 1}, "illegal_arguments", "/callback_url"),
        ({"callback_url": "ftp://a.example/"}, "invalid_callback_url", None),
        ({"callback_url": "nonsense"}, "invalid_callback_url", None),
        ({"callback_url": ""}, "invalid_callback_url", None),
        ({"callback_url": "http://a/" + "x" * 4096}, "invalid_callback_url", None),
        ({"jmespath_query": "[["}, "invalid_jmespath", "/jmespath_query"),
        ({"jmespath_query": "nope(a)"}, "invalid_jmespath", "/jmespath_query"),
        ({"jmespath_query": "length(a, b)"}, "invalid_jmespath", "/jmespath_query"),
        ({"jmespath_query": 1}, "illegal_arguments", "/jmespath_query"),
        ({"es_query": []}, "illegal_arguments", "/es_query"),
        (
            {"es_query": {"query": {"nonsense": {}}}},
            "elasticsearch_bad_request",
            "/es_query/query/nonsense",
        ),
        ({"es_query": {}, "jmespath_query": "a"}, "illegal_arguments", "/jmespath_query"),
        ({"method": "GET"}, "illegal_arguments", "/method"),
        ({"encoding": "text/plain"}, "illegal_arguments", "/encoding"),
        ({"form_fields": {"a": 1}}, "illegal_arguments", "/form_fields/a"),
        (
            {"attachments": {"_a": {"type": "jmespath", "expression": "a"}}},
            "invalid_attachment_name",
            None,
        ),
        (
            {"attachments": {"a": {"type": "jmespath", "expression": "[["}}},
            "invalid_attachment_expression",
            None,
        ),
        (
            {"attachments": {"a": {"type": "jmespath", "expression": "nope(b)"}}},
            "invalid_attachment_expression",
            "/attachments/a",
        ),
        (
            {"attachments": {"a": {"type": "sql", "expression": "a"}}},
            "illegal_arguments",
            "/attachments/a/type",
        ),
        ({"attachments": {"a": {}}}, "illegal_arguments", "/attachments/a/type"),
        ({"attachments": {"a": 1}}, "illegal_arguments", "/attachments/a"),
        ({"unknown": 1}, "illegal_arguments", "/unknown"),
    ],
)
def test_what_cannot_work_is_refused_and_nothing_is_made(client, body, code, where) -> None:
    refused = subscribe(client, **body)
    assert (refused.status_code, refused.json["code"]) == (400, code), refused.text
    assert where is None or where in refused.json["errors"]
    assert client.get(PATH, headers=READER).json == {"subscriptions": []}


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/x", "http://localhost/x", "http://10.0.0.1/", "http://[::1]/"]
)
def test_private_callbacks_are_refused_unless_allowed(settings, stores, chains, url) -> None:
    strict = replace(settings, allow_private_callbacks=False)
    client = create_app(strict, stores, chains=chains, verify=verify).test_client()
    refused = subscribe(client, callback_url=url)
    assert (refused.status_code, refused.json["code"]) == (400, "invalid_callback_url")


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1", 201), ("0.0.0.0", 400)])
def test_private_callbacks_follow_the_address_that_the_store_listens_on(
    settings, stores, chains, host, status
) -> None:
    chosen = replace(settings, host=host, allow_private_callbacks=None)
    client = create_app(chosen, stores, chains=chains, verify=verify).test_client()
    assert subscribe(client, callback_url="http://127.0.0.1:9/x").status_code == status


def test_one_more_than_the_quota_is_406(settings, stores, chains) -> None:
    small = replace(settings, subscriptions_per_user=2)
    client = create_app(small, stores, chains=chains, verify=verify).test_client()
    statuses = [subscribe(client).status_code for _ in range(3)]
    assert statuses == [201, 201, 406]


def test_an_authorized_domain_is_wanted_where_there_are_some(settings, stores, chains) -> None:
    strict = replace(settings, authorized_domains=("lab.example",))
    client = create_app(strict, stores, chains=chains, verify=verify).test_client()
    assert subscribe(client).status_code == 403


def told(stores, uuid: str, number: int) -> str:
    """A delivery as a match records it; its id."""
    fqid = FQID(uuid_of(number), VERSION)
    event = Event(f"event-{number}", "aws", "CREATE", fqid, number, 0)
    ident = delivery_id(uuid, event.id)
    with stores.catalog.write() as tx:
        own = tx.exec_driver_sql(f"SELECT id FROM subscriptions WHERE uuid = '{uuid}'").scalar_one()
        deliveries.record(tx, [NewDelivery(ident, own, '{"a": 1}')], event)
    return ident


def test_deliveries_are_shown_by_page_with_their_attempts(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    made = [told(stores, uuid, number) for number in range(5)]
    with stores.catalog.write() as tx:
        number = tx.exec_driver_sql(f"SELECT id FROM deliveries WHERE uuid = '{made[0]}'").scalar()
        failed = Result(number, 1, 0.5, 500, None, "oops", "failed", 0, "given up")
        deliveries.close(tx, [failed])
    path, seen = f"/v1/subscriptions/{uuid}/deliveries?replica=aws&per_page=2", []
    while path:
        page = client.get(path, headers=READER)
        seen += page.json["deliveries"]
        path = page.headers.get("Link", "").partition(">")[0].removeprefix("<http://localhost")
    assert [one["transaction_id"] for one in seen] == made[::-1]
    assert [one["id"] for one in seen] == made[::-1]
    assert seen[0]["state"] == "pending"
    assert "next_attempt" in seen[0]
    assert seen[-1]["state"] == "failed"
    (attempt,) = seen[-1]["attempts"]
    assert (attempt["status"], attempt["body"]) == (500, "oops")
    some = client.get(
        f"/v1/subscriptions/{uuid}/deliveries?replica=aws&state=failed", headers=READER
    )
    assert [one["transaction_id"] for one in some.json["deliveries"]] == made[:1]


def test_a_failed_delivery_is_tried_again_when_asked(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    ident = told(stores, uuid, 1)
    with stores.catalog.write() as tx:
        number = tx.exec_driver_sql("SELECT id FROM deliveries").scalar_one()
        deliveries.close(tx, [Result(number, 1, 0.5, 500, None, None, "failed", 0, "given up")])
    path = f"/v1/subscriptions/{uuid}/deliveries/{ident}/retry?replica=aws"
    again = client.post(path, headers=READER)
    assert (again.status_code, again.json["state"]) == (202, "pending")
    absent = path.replace(ident, uuid_of(99))
    assert client.post(absent, headers=READER).status_code == 404


def test_a_test_delivery_is_recorded(client) -> None:
    uuid = subscribe(client).json["uuid"]
    made = client.post(f"/v1/subscriptions/{uuid}/test?replica=aws", headers=READER)
    assert made.status_code == 202
    page = client.get(f"/v1/subscriptions/{uuid}/deliveries?replica=aws", headers=READER)
    assert [one["transaction_id"] for one in page.json["deliveries"]] == [
        made.json["transaction_id"]
    ]


def test_the_hundredth_is_taken_and_the_next_is_406(client, stores) -> None:
    assert subscribe(client).status_code == 201
    with stores.catalog.write() as tx:
        columns = tx.exec_driver_sql("SELECT * FROM subscriptions").mappings().one()
        names = ", ".join(name for name in columns if name not in ("id", "uuid"))
        for number in range(98):
            tx.exec_driver_sql(
                f"INSERT INTO subscriptions (uuid, {names})"
                f" SELECT '{uuid_of(number)}', {names} FROM subscriptions LIMIT 1"
            )
    assert subscribe(client).status_code == 201
    assert len(client.get(PATH, headers=READER).json["subscriptions"]) == 100
    refused = subscribe(client)
    assert (refused.status_code, refused.json["code"]) == (406, "not_acceptable")
    other = client.put(PATH, json=CALLBACK, headers=OTHER)
    assert other.status_code == 201


def test_one_of_the_other_type_is_named_by_its_type(client) -> None:
    uuid = subscribe(client, es_query={}).json["uuid"]
    one = f"/v1/subscriptions/{uuid}?replica=aws"
    for query in ("", "&subscription_type=jmespath"):
        assert client.get(one + query, headers=READER).status_code == 404
        assert client.delete(one + query, headers=READER).status_code == 404
    wrong = client.get(f"{one}&subscription_type=sql", headers=READER)
    assert (wrong.status_code, wrong.json["code"]) == (400, "illegal_arguments")
    stored = f"{one}&subscription_type=elasticsearch"
    assert client.get(stored, headers=READER).status_code == 200
    assert client.delete(stored, headers=READER).status_code == 200
    assert client.get(stored, headers=READER).status_code == 404


def test_how_it_is_told_is_kept_as_it_was_asked_for(client) -> None:
    asked = {
        "method": "PUT",
        "encoding": "multipart/form-data",
        "form_fields": {"token": "t", "ä": "ö"},
        "payload_form_field": "event",
    }
    shown = subscribe(client, **asked).json
    assert {name: shown[name] for name in asked} == asked


def test_a_subscription_is_of_one_replica(client) -> None:
    uuid = subscribe(client).json["uuid"]
    other = "/v1/subscriptions?replica=gcp"
    assert client.get(other, headers=READER).json == {"subscriptions": []}
    assert client.get(f"/v1/subscriptions/{uuid}?replica=gcp", headers=READER).status_code == 404


def test_a_listing_by_one_whose_token_is_bad_is_no_anonymous_one(client) -> None:
    answer = client.get(PATH, headers={"Authorization": "Bearer nobody"})
    assert (answer.status_code, answer.json["code"]) == (401, "unauthorized")


def test_every_member_of_a_delivery_and_its_attempts_is_shown(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    ident = told(stores, uuid, 1)
    base = f"/v1/subscriptions/{uuid}/deliveries"
    with stores.catalog.write() as tx:
        number = tx.exec_driver_sql("SELECT id FROM deliveries").scalar_one()
        for result in (
            Result(number, 1, 0.5, 500, None, "oops", "pending", 2**50, None),
            Result(number, 2_000_000, 0.25, None, "No route.", None, "failed", 0, "given up"),
        ):
            deliveries.close(tx, [result])
    (shown,) = client.get(f"{base}?replica=aws", headers=READER).json["deliveries"]
    expected = {
        "id": ident,
        "transaction_id": ident,
        "event_type": "CREATE",
        "bundle_uuid": uuid_of(1),
        "bundle_version": VERSION,
        "state": "failed",
        "reason": "given up",
        "attempts": [
            {
                "number": 1,
                "at": "1970-01-01T000000.000001Z",
                "seconds": 0.5,
                "status": 500,
                "body": "oops",
            },
            {
                "number": 2,
                "at": "1970-01-01T000002.000000Z",
                "seconds": 0.25,
                "error": "No route.",
            },
        ],
    }
    assert shown.items() >= expected.items()
    assert "next_attempt" not in shown
    again = client.post(f"{base}/{ident}/retry?replica=aws", headers=READER).json
    assert again["attempts"] == expected["attempts"]
    assert again["state"] == "pending"
    assert again["next_attempt"].endswith("Z")
    tried = client.post(f"/v1/subscriptions/{uuid}/test?replica=aws", headers=READER).json
    assert tried["event_type"] == "TEST"
    assert tried.keys() >= {"id", "bundle_uuid", "bundle_version", "state", "next_attempt"}
    assert tried["attempts"] == []
