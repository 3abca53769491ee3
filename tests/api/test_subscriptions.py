"""Subscriptions over HTTP: put, list, pause, rotate secrets, retry, dry runs, delete."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from api.app import create_app
from storage.catalog import deliveries, endpoints, events, now_us
from storage.catalog.deliveries import AttemptResult, NewDelivery, make_delivery_id
from storage.encryption import SecretBox, derive_key
from storage.model import FQID, BundleEvent
from tests.api.builders import ADMIN, INGEST, READER, VERSION, uuid_of
from tests.api.conftest import verify

OTHER = {"Authorization": "Bearer other"}
PATH = "/v1/subscriptions?replica=aws"
CALLBACK = {"callback_url": "https://receiver.example/notify"}


def subscribe(client, **body):
    """The answer to a subscription's PUT."""
    return client.put(PATH, json=CALLBACK | body, headers=READER)


@pytest.mark.spec("SUB-06", "SUB-07", "SUB-08", "SUB-10", "SUB-16")
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


@pytest.mark.spec("SUB-04", "SUB-10", "SUB-13", "SUB-16")
def test_es_query_makes_elasticsearch_subscription(client) -> None:
    uuid = subscribe(client, es_query={}).json["uuid"]
    one = f"/v1/subscriptions/{uuid}?replica=aws"
    assert client.get(one, headers=READER).status_code == 404
    found = client.get(f"{one}&subscription_type=elasticsearch", headers=READER)
    assert (found.json["subscription_type"], found.json["es_query"]) == ("elasticsearch", {})
    assert client.get(PATH, headers=READER).json == {"subscriptions": []}
    listed = client.get(f"{PATH}&subscription_type=elasticsearch", headers=READER)
    assert [item["uuid"] for item in listed.json["subscriptions"]] == [uuid]


@pytest.mark.spec("SUB-08")
def test_null_is_same_as_absent(client) -> None:
    nothing = {"es_query": None, "jmespath_query": None, "attachments": None, "hmac_key_id": None}
    shown = subscribe(client, **nothing).json
    assert shown["subscription_type"] == "jmespath"
    assert not shown.keys() & nothing.keys()


@pytest.mark.spec("SUB-01", "CON-12")
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


@pytest.mark.spec("SUB-13", "SUB-15", "WHO-05")
def test_only_owner_sees_subscription(client) -> None:
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


@pytest.mark.spec("SUB-17")
def test_deleted_subscription_is_gone(client) -> None:
    one = f"/v1/subscriptions/{subscribe(client).json['uuid']}?replica=aws"
    gone = client.delete(one, headers=READER)
    assert (gone.status_code, list(gone.json)) == (200, ["timeDeleted"])
    assert client.delete(one, headers=READER).status_code == 404
    assert client.get(one, headers=READER).status_code == 404


@pytest.mark.spec(
    "SUB-02",
    "SUB-04",
    "SUB-05",
    "SUB-06",
    "SUB-09",
    "ERR-12",
    "ERR-13",
    "ERR-14",
    "ERR-15",
    "ERR-16",
)
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
def test_rejects_invalid_subscriptions(client, body, code, where) -> None:
    refused = subscribe(client, **body)
    assert (refused.status_code, refused.json["code"]) == (400, code), refused.text
    assert where is None or where in refused.json["errors"]
    assert client.get(PATH, headers=READER).json == {"subscriptions": []}


@pytest.mark.spec("SUB-03", "ERR-16")
@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/x", "http://localhost/x", "http://10.0.0.1/", "http://[::1]/"]
)
def test_private_callbacks_are_refused_unless_allowed(settings, stores, job_queue, url) -> None:
    strict = replace(settings, allow_private_callbacks=False)
    client = create_app(strict, stores, job_queue=job_queue, verify=verify).test_client()
    refused = subscribe(client, callback_url=url)
    assert (refused.status_code, refused.json["code"]) == (400, "invalid_callback_url")


@pytest.mark.spec("SUB-03")
@pytest.mark.parametrize(("host", "status"), [("127.0.0.1", 201), ("0.0.0.0", 400)])
def test_private_callbacks_follow_the_address_that_the_store_listens_on(
    settings, stores, job_queue, host, status
) -> None:
    chosen = replace(settings, host=host, allow_private_callbacks=None)
    client = create_app(chosen, stores, job_queue=job_queue, verify=verify).test_client()
    assert subscribe(client, callback_url="http://127.0.0.1:9/x").status_code == status


@pytest.mark.spec("SUB-11", "LIM-05")
def test_exceeding_quota_is_406(settings, stores, job_queue) -> None:
    small = replace(settings, subscriptions_per_user=2)
    client = create_app(small, stores, job_queue=job_queue, verify=verify).test_client()
    statuses = [subscribe(client).status_code for _ in range(3)]
    assert statuses == [201, 201, 406]


@pytest.mark.spec("SUB-12")
def test_requires_authorized_domain(settings, stores, job_queue) -> None:
    strict = replace(settings, authorized_domains=("lab.example",))
    client = create_app(strict, stores, job_queue=job_queue, verify=verify).test_client()
    assert subscribe(client).status_code == 403


def told(stores, uuid: str, number: int) -> str:
    """A delivery as a match records it; its id."""
    fqid = FQID(uuid_of(number), VERSION)
    event = BundleEvent(f"event-{number}", "aws", "CREATE", fqid, number, 0)
    ident = make_delivery_id(uuid, event.id)
    with stores.catalog.write() as tx:
        own = tx.exec_driver_sql(f"SELECT id FROM subscriptions WHERE uuid = '{uuid}'").scalar_one()
        deliveries.insert_matches(tx, [NewDelivery(ident, own, '{"a": 1}')], event)
    return ident


@pytest.mark.spec("SUB-29", "SUB-30")
def test_deliveries_are_shown_by_page_with_their_attempts(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    made = [told(stores, uuid, number) for number in range(5)]
    with stores.catalog.write() as tx:
        number = tx.exec_driver_sql(f"SELECT id FROM deliveries WHERE uuid = '{made[0]}'").scalar()
        failed = AttemptResult(number, 1, 0.5, 500, None, "oops", "failed", 0, "given up")
        deliveries.record_attempts(tx, [failed])
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


@pytest.mark.spec("SUB-33")
def test_retries_failed_delivery(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    ident = told(stores, uuid, 1)
    with stores.catalog.write() as tx:
        number = tx.exec_driver_sql("SELECT id FROM deliveries").scalar_one()
        deliveries.record_attempts(
            tx, [AttemptResult(number, 1, 0.5, 500, None, None, "failed", 0, "given up")]
        )
    path = f"/v1/subscriptions/{uuid}/deliveries/{ident}/retry?replica=aws"
    again = client.post(path, headers=READER)
    assert (again.status_code, again.json["state"]) == (202, "pending")
    absent = path.replace(ident, uuid_of(99))
    assert client.post(absent, headers=READER).status_code == 404


@pytest.mark.spec("SUB-35")
def test_a_test_delivery_is_recorded(client) -> None:
    uuid = subscribe(client).json["uuid"]
    made = client.post(f"/v1/subscriptions/{uuid}/test?replica=aws", headers=READER)
    assert made.status_code == 202
    page = client.get(f"/v1/subscriptions/{uuid}/deliveries?replica=aws", headers=READER)
    assert [one["transaction_id"] for one in page.json["deliveries"]] == [
        made.json["transaction_id"]
    ]


@pytest.mark.spec("SUB-11", "ERR-21", "LIM-05")
def test_hundredth_subscription_is_accepted_and_next_is_406(client, stores) -> None:
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


@pytest.mark.spec("SUB-15", "SUB-17")
def test_subscription_of_other_type_is_addressed_by_type(client) -> None:
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


@pytest.mark.spec("SUB-06", "SUB-07", "SUB-10")
def test_keeps_requested_delivery_options(client) -> None:
    asked = {
        "method": "PUT",
        "encoding": "multipart/form-data",
        "form_fields": {"token": "t", "ä": "ö"},
        "payload_form_field": "event",
    }
    shown = subscribe(client, **asked).json
    assert {name: shown[name] for name in asked} == asked


@pytest.mark.spec("SUB-13", "SUB-15")
def test_a_subscription_is_of_one_replica(client) -> None:
    uuid = subscribe(client).json["uuid"]
    other = "/v1/subscriptions?replica=gcp"
    assert client.get(other, headers=READER).json == {"subscriptions": []}
    assert client.get(f"/v1/subscriptions/{uuid}?replica=gcp", headers=READER).status_code == 404


@pytest.mark.spec("SUB-13")
def test_listing_with_invalid_token_is_401(client) -> None:
    answer = client.get(PATH, headers={"Authorization": "Bearer nobody"})
    assert (answer.status_code, answer.json["code"]) == (401, "unauthorized")


@pytest.mark.spec("SUB-31", "SUB-32", "SUB-36")
def test_every_member_of_a_delivery_and_its_attempts_is_shown(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    ident = told(stores, uuid, 1)
    base = f"/v1/subscriptions/{uuid}/deliveries"
    with stores.catalog.write() as tx:
        number = tx.exec_driver_sql("SELECT id FROM deliveries").scalar_one()
        for result in (
            AttemptResult(number, 1, 0.5, 500, None, "oops", "pending", 2**50, None),
            AttemptResult(
                number, 2_000_000, 0.25, None, "No route.", None, "failed", 0, "given up"
            ),
        ):
            deliveries.record_attempts(tx, [result])
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


LONG_AGO = "2020-01-01T000000.000000Z"


def path_of(uuid: str, *rest: str) -> str:
    return "/".join(("/v1/subscriptions", uuid, *rest)) + "?replica=aws"


def give_up(stores) -> None:
    with stores.catalog.write() as tx:
        idents = tx.exec_driver_sql("SELECT id FROM deliveries").scalars().all()
        rows = [
            AttemptResult(one, 1, 0.5, 500, None, None, "failed", 0, "given up") for one in idents
        ]
        deliveries.record_attempts(tx, rows)


@pytest.mark.spec("SUB-19", "SUB-24", "STA-07")
def test_paused_subscription_shows_state_until_resumed(client) -> None:
    uuid = subscribe(client).json["uuid"]
    paused = client.post(path_of(uuid, "pause"), headers=READER)
    assert (paused.status_code, paused.json["state"]) == (200, "paused")
    assert "state_since" in paused.json
    assert client.get(path_of(uuid), headers=READER).json == paused.json
    assert client.post(path_of(uuid, "pause"), headers=READER).json == paused.json
    resumed = client.post(path_of(uuid, "resume"), headers=READER)
    assert (resumed.status_code, resumed.json["state"]) == (200, "active")
    assert "state_since" not in resumed.json
    assert client.post(path_of(uuid, "resume"), headers=READER).json == resumed.json


@pytest.mark.spec("SUB-23")
def test_an_owner_reads_why_a_subscription_is_disabled(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    with stores.catalog.write() as tx:
        tx.execute(
            text(
                "UPDATE subscriptions SET state = 'disabled', state_us = 1, failing_us = 0,"
                " state_reason = 'Nothing but failures.'"
            )
        )
    shown = client.get(path_of(uuid), headers=READER).json
    assert (shown["state"], shown["state_reason"]) == ("disabled", "Nothing but failures.")
    assert shown["state_since"] == "1970-01-01T000000.000001Z"
    assert shown["failing_since"] == "1970-01-01T000000.000000Z"


@pytest.mark.spec("SUB-22")
def test_matches_during_pause_have_no_next_attempt(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    client.post(path_of(uuid, "pause"), headers=READER)
    told(stores, uuid, 1)
    listing = path_of(uuid, "deliveries")
    (waiting,) = client.get(listing, headers=READER).json["deliveries"]
    assert (waiting["state"], "next_attempt" in waiting) == ("pending", False)
    client.post(path_of(uuid, "resume"), headers=READER)
    (going,) = client.get(listing, headers=READER).json["deliveries"]
    assert "next_attempt" in going


@pytest.mark.spec("SUB-22")
def test_pending_deliveries_of_paused_subscription_have_no_next_attempt(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    told(stores, uuid, 1)
    client.post(path_of(uuid, "pause"), headers=READER)
    asked = client.post(path_of(uuid, "test"), headers=READER).json
    assert asked["next_attempt"] == asked["recorded"]
    listed = client.get(path_of(uuid, "deliveries"), headers=READER).json["deliveries"]
    assert ["next_attempt" in one for one in listed] == [True, False]
    again = client.post(path_of(uuid, "deliveries", listed[1]["id"], "retry"), headers=READER)
    assert (again.status_code, "next_attempt" in again.json) == (202, False)


@pytest.mark.spec("SUB-35")
def test_test_delivery_wakes_resting_endpoint(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    with stores.catalog.write() as tx:
        tx.execute(text("UPDATE endpoints SET resume_us = 9e15, failures = 9"))
    client.post(path_of(uuid, "test"), headers=READER)
    with stores.catalog.read() as tx:
        assert len(endpoints.list_waiting(tx, limit=9)) == 1


@pytest.mark.spec("SUB-19", "SUB-21", "SUB-24")
def test_a_secret_is_replaced_with_an_overlap_and_sealed(client, stores, settings) -> None:
    uuid = subscribe(client, hmac_secret_key="the first", hmac_key_id="k1").json["uuid"]
    path = path_of(uuid, "secret")
    body = {"hmac_secret_key": "the second", "hmac_key_id": "k2", "overlap_s": 3600}
    changed = client.put(path, json=body, headers=READER)
    assert (changed.status_code, changed.json["hmac_key_id"]) == (200, "k2")
    assert "hmac_previous_until" in changed.json
    assert "second" not in changed.text
    with stores.catalog.read() as tx:
        query = "SELECT hmac_secret, hmac_previous FROM subscriptions"
        sealed = tx.exec_driver_sql(query).one()
    sealer = SecretBox(derive_key(settings.secret_key.encode(), b"subscription secrets"))
    context = f"subscription/{uuid}".encode()
    assert [sealer.open(bytes(one), context) for one in sealed] == [b"the second", b"the first"]
    assert all(b"the " not in bytes(one) for one in sealed)
    third = client.put(path, json={"hmac_secret_key": "x", "overlap_s": 0}, headers=READER)
    assert (third.json["hmac_key_id"], "hmac_previous_until" in third.json) == ("k2", False)


@pytest.mark.spec("SUB-21")
@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "/hmac_secret_key"),
        ({"hmac_secret_key": ""}, "/hmac_secret_key"),
        ({"hmac_secret_key": 1}, "/hmac_secret_key"),
        ({"hmac_secret_key": "x" * 1025}, "/hmac_secret_key"),
        ({"hmac_secret_key": "x", "hmac_key_id": 'a"b'}, "/hmac_key_id"),
        ({"hmac_secret_key": "x", "overlap_s": -1}, "/overlap_s"),
        ({"hmac_secret_key": "x", "overlap_s": 604_801}, "/overlap_s"),
        ({"hmac_secret_key": "x", "more": 1}, "/more"),
    ],
)
def test_a_secret_that_cannot_sign_is_refused(client, body, where) -> None:
    uuid = subscribe(client).json["uuid"]
    refused = client.put(path_of(uuid, "secret"), json=body, headers=READER)
    assert (refused.status_code, list(refused.json["errors"])) == (400, [where]), refused.text


@pytest.mark.spec("SUB-34")
def test_retries_all_failed_deliveries_since_a_time(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    for number in range(3):
        told(stores, uuid, number)
    give_up(stores)
    path = path_of(uuid, "deliveries", "retry")
    future = {"since": "2999-01-01T000000.000000Z"}
    none = client.post(path, json=future, headers=READER)
    assert (none.status_code, none.json) == (202, {"retried": 0, "more": False})
    other = client.post(path, json={"since": LONG_AGO, "event_type": "DELETE"}, headers=READER)
    assert other.json["retried"] == 0
    again = client.post(path, json={"since": LONG_AGO}, headers=READER)
    assert again.json == {"retried": 3, "more": False}
    listed = client.get(path_of(uuid, "deliveries"), headers=READER).json["deliveries"]
    assert {one["state"] for one in listed} == {"pending"}
    assert all(one["recorded"] <= one["next_attempt"] for one in listed)
    for body in ({}, {"since": "yesterday"}, {"since": LONG_AGO, "event_type": "NONE"}):
        assert client.post(path, json=body, headers=READER).status_code == 400


@pytest.mark.spec("SUB-30")
def test_filters_deliveries_by_event_bundle_and_time(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    made = [told(stores, uuid, number) for number in range(3)]
    client.post(path_of(uuid, "test"), headers=READER)
    path = path_of(uuid, "deliveries")

    def listed(query: str) -> list[str]:
        answer = client.get(f"{path}&{query}", headers=READER)
        assert answer.status_code == 200, answer.text
        return [one["id"] for one in answer.json["deliveries"]]

    assert listed("event_type=CREATE") == made[::-1]
    assert len(listed("event_type=TEST")) == 1
    assert listed(f"bundle_uuid={uuid_of(1).upper()}") == [made[1]]
    assert listed(f"until={LONG_AGO}") == []
    assert len(listed(f"since={LONG_AGO}")) == 4
    for query in ("event_type=NONE", "bundle_uuid=x", "since=today", "until=1"):
        assert client.get(f"{path}&{query}", headers=READER).status_code == 400


@pytest.mark.spec("SUB-30")
def test_page_token_is_bound_to_filter(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    for number in range(3):
        told(stores, uuid, number)
    path = path_of(uuid, "deliveries")
    page = client.get(f"{path}&per_page=1&event_type=CREATE", headers=READER)
    link = page.headers["Link"].partition(">")[0].removeprefix("<http://localhost")
    assert client.get(link, headers=READER).status_code == 206
    mixed = link.replace("event_type=CREATE", "event_type=DELETE")
    assert client.get(mixed, headers=READER).json["code"] == "illegal_token"


@pytest.mark.spec("SUB-25", "SUB-27", "SUB-28")
def test_dry_run_shows_latest_bundles_and_creates_nothing(client, depositor) -> None:
    uuids = [depositor.bundle(number) for number in (1, 2)]
    path = "/v1/subscriptions/dry-run"
    body = CALLBACK | {
        "jmespath_query": f"bundle_info.uuid == '{uuids[0]}'",
        "attachments": {"which": {"type": "jmespath", "expression": "bundle_info.uuid"}},
    }
    tried = client.post(f"{path}?replica=aws", json=body, headers=READER)
    assert tried.status_code == 200, tried.text
    assert tried.json["timed_out"] is False
    seen = {one["bundle_uuid"]: one for one in tried.json["bundles"]}
    assert seen.keys() == set(uuids)
    assert seen[uuids[1]] == {
        "bundle_uuid": uuids[1],
        "bundle_version": seen[uuids[1]]["bundle_version"],
        "matches": False,
    }
    payload = seen[uuids[0]]["payload"]
    assert payload["attachments"] == {"which": uuids[0]}
    assert payload["match"]["bundle_uuid"] == uuids[0]
    one = client.post(path, json=body | {"bundles": 1, "replica": "gcp"}, headers=READER)
    assert [each["bundle_uuid"] for each in one.json["bundles"]] == [uuids[1]]
    assert client.get(PATH, headers=READER).json == {"subscriptions": []}


@pytest.mark.spec("SUB-26")
@pytest.mark.parametrize("bundles", [0, 1_001, "1", 1.5])
def test_a_dry_run_is_bounded(client, bundles) -> None:
    body = CALLBACK | {"bundles": bundles}
    path = "/v1/subscriptions/dry-run?replica=aws"
    assert client.post(path, json=body, headers=READER).status_code == 400


@pytest.mark.spec("SUB-26", "SUB-27")
def test_dry_run_tries_events_of_the_feed(client, depositor, stores) -> None:
    uuids = [depositor.bundle(number) for number in (1, 2)]
    client.delete(f"/v1/bundles/{uuids[0]}?replica=aws", json={"reason": "x"}, headers=ADMIN)
    with stores.catalog.write() as tx:
        events.assign_sequence(tx)
    feed = client.get("/v1/events/feed?replica=aws&after=").json["events"]
    assert [one["event_type"] for one in feed] == ["CREATE", "CREATE", "TOMBSTONE"]
    own = uuid_of(77)
    body = CALLBACK | {"subscription_id": own, "jmespath_query": "event_type == 'TOMBSTONE'"}
    path = "/v1/subscriptions/dry-run?replica=aws"
    idents = [one["event_id"] for one in reversed(feed)]
    tried = client.post(path, json=body | {"event_ids": idents}, headers=READER)
    assert tried.status_code == 200, tried.text
    assert [one["bundle_uuid"] for one in tried.json["bundles"]] == [uuids[0], uuids[1], uuids[0]]
    assert [one["matches"] for one in tried.json["bundles"]] == [True, False, False]
    payload = tried.json["bundles"][0]["payload"]
    assert (payload["subscription_id"], payload["event_type"]) == (own, "TOMBSTONE")
    again = client.post(path, json=body | {"event_ids": idents}, headers=READER)
    assert again.json == tried.json, "transaction_id included"


@pytest.mark.spec("SUB-26")
@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"event_ids": []}, "/event_ids"),
        ({"event_ids": [uuid_of(1)] * 51}, "/event_ids"),
        ({"event_ids": ["x"]}, "/event_ids/0"),
        ({"event_ids": uuid_of(1)}, "/event_ids"),
        ({"event_ids": [uuid_of(1)]}, "/event_ids/0"),
        ({"event_ids": [uuid_of(1)], "bundle_uuid": uuid_of(1)}, "/event_ids"),
        ({"subscription_id": "x"}, "/subscription_id"),
    ],
)
def test_dry_run_names_invalid_events(client, given: dict[str, Any], pointer: str) -> None:
    path = "/v1/subscriptions/dry-run?replica=aws"
    answer = client.post(path, json=CALLBACK | given, headers=READER)
    assert answer.status_code == 400
    assert list(answer.json["errors"]) == [pointer]


@pytest.mark.spec("SUB-25")
def test_dry_run_requires_same_rights_as_subscribing(client, settings, stores, job_queue) -> None:
    path = "/v1/subscriptions/dry-run?replica=aws"
    assert client.post(path, json=CALLBACK).status_code == 401
    strict = replace(settings, authorized_domains=("lab.example",))
    other = create_app(strict, stores, job_queue=job_queue, verify=verify).test_client()
    assert other.post(path, json=CALLBACK, headers=READER).status_code == 403
    assert (
        client.post(path, json=CALLBACK | {"jmespath_query": "["}, headers=READER).json["code"]
        == "invalid_jmespath"
    )


@pytest.mark.spec("SUB-20", "WHO-05")
def test_only_owner_changes_subscription_status(client) -> None:
    uuid = subscribe(client).json["uuid"]
    for method, rest, body in (
        ("PUT", ("secret",), {"hmac_secret_key": "x"}),
        ("POST", ("pause",), None),
        ("POST", ("resume",), None),
        ("POST", ("deliveries", "retry"), {"since": LONG_AGO}),
    ):
        path = path_of(uuid, *rest)
        for headers in (OTHER, INGEST):
            answer = client.open(path, method=method, json=body, headers=headers)
            assert answer.status_code == 404, (path, answer.text)
            assert answer.json["detail"] == "Cannot find subscription!"
        assert client.open(path, method=method, json=body).status_code == 401
        gcp = path.replace("replica=aws", "replica=gcp")
        assert client.open(gcp, method=method, json=body, headers=READER).status_code == 404


@pytest.mark.spec("SUB-23")
def test_failing_subscription_shows_since_when(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    with stores.catalog.write() as tx:
        tx.execute(text("UPDATE subscriptions SET failing_us = :now"), {"now": now_us(tx)})
    assert "failing_since" in client.get(path_of(uuid), headers=READER).json


@pytest.mark.spec("SUB-10", "SUB-14", "SUB-16", "SUB-19", "SUB-24")
def test_list_and_get_show_the_same(client, stores) -> None:
    for more in ({"es_query": {}}, {"jmespath_query": "uuid"}):
        given = {"hmac_secret_key": "the first", "hmac_key_id": "k", "attachments": {}, **more}
        uuid = subscribe(client, **given).json["uuid"]
        body = {"hmac_secret_key": "the second", "overlap_s": 60}
        secret = client.put(path_of(uuid, "secret"), json=body, headers=READER)
        paused = client.post(path_of(uuid, "pause"), headers=READER)
        assert secret.status_code == paused.status_code == 200
        assert "hmac_previous_until" in secret.json
        assert "state_since" in paused.json
    with stores.catalog.write() as tx:
        tx.execute(
            text(
                "UPDATE subscriptions SET state = 'disabled', failing_us = 0, state_reason = 'x', failures = 3"
            )
        )
    for kind, query in (("elasticsearch", "es_query"), ("jmespath", "jmespath_query")):
        listing = f"{PATH}&subscription_type={kind}"
        (listed,) = client.get(listing, headers=READER).json["subscriptions"]
        one = f"{path_of(listed['uuid'])}&subscription_type={kind}"
        assert client.get(one, headers=READER).json == listed
        assert {*LISTED, query} <= listed.keys()
    resumed = client.post(path_of(listed["uuid"], "resume"), headers=READER).json
    assert {"state_since", "state_reason", "failing_since"}.isdisjoint(resumed)
    assert resumed["state"] == "active"


LISTED = {
    *("uuid", "owner", "callback_url", "replica", "subscription_type", "method", "encoding"),
    *("form_fields", "payload_form_field", "hmac_key_id", "hmac_previous_until", "attachments"),
    *("state", "state_since", "state_reason", "failures", "failing_since"),
}


@pytest.mark.spec("SUB-26")
def test_dry_run_shows_so_many_payloads_and_all_matches(client, depositor) -> None:
    first, second = (depositor.bundle(number) for number in (1, 2))
    path = "/v1/subscriptions/dry-run?replica=aws"
    body = CALLBACK | {"bundles": 1_000, "payloads": 1}
    tried = client.post(path, json=body, headers=READER).json["bundles"]
    assert [one["bundle_uuid"] for one in tried] == [second, first]
    assert [one["matches"] for one in tried] == [True, True]
    assert ["payload" in one for one in tried] == [True, False]
    bare = client.post(path, json=body | {"payloads": 0}, headers=READER).json["bundles"]
    assert ["payload" in one for one in bare] == [False, False]
    (one,) = client.post(path, json=body | {"bundle_uuid": first}, headers=READER).json["bundles"]
    assert one["payload"]["match"]["bundle_uuid"] == first
    refused = client.post(path, json=body | {"payloads": 51}, headers=READER)
    assert refused.status_code == 400


@pytest.mark.spec("SUB-37", "SUB-38")
def test_delivery_is_shown_with_its_requests(client, stores) -> None:
    uuid = subscribe(client, hmac_secret_key="secret").json["uuid"]
    ident = told(stores, uuid, 1)
    path = path_of(uuid, "deliveries", ident)
    fresh = client.get(path, headers=READER).json
    assert "request" in fresh, fresh
    assert fresh["request"] == {
        "method": "POST",
        "url": CALLBACK["callback_url"],
        "body": '{"a": 1}',
    }
    assert fresh["attempts"] == []
    with stores.catalog.write() as tx:
        number = tx.exec_driver_sql("SELECT id FROM deliveries").scalar_one()
        at_us = 1_767_225_600_000_000
        deliveries.record_attempts(
            tx,
            [
                AttemptResult(number, at_us, 0.5, 500, None, "oops", "pending", 2**50, None),
            ],
        )
    shown = client.get(path, headers=READER).json
    (listed,) = client.get(path_of(uuid, "deliveries"), headers=READER).json["deliveries"]
    (attempt,) = shown["attempts"]
    headers = attempt.pop("headers")
    assert shown == listed | {"request": fresh["request"]}
    assert headers["webhook-id"] == ident
    assert headers["webhook-timestamp"] == str(at_us // 1_000_000)
    assert headers["webhook-signature"].startswith("v1,")
    assert headers["Authorization"].startswith("Signature ")
    assert headers["X-STORE-NOTIFY-ATTEMPT"] == "1"
    assert client.get(path.replace(ident, uuid_of(99)), headers=READER).status_code == 404
    assert client.get(path, headers=OTHER).status_code == 404


@pytest.mark.spec("SUB-38")
def test_delivery_of_failed_query_has_no_request(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    ident = told(stores, uuid, 1)
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE deliveries SET payload = '', state = 'failed', reason = 'x'")
    shown = client.get(path_of(uuid, "deliveries", ident), headers=READER).json
    assert (shown["reason"], "request" in shown) == ("x", False)
    again = client.post(path_of(uuid, "deliveries", ident, "resend"), headers=READER)
    assert again.status_code == 409


@pytest.mark.spec("SUB-39")
def test_resends_delivery_of_paused_subscription(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    ident = told(stores, uuid, 1)
    give_up(stores)
    client.post(path_of(uuid, "pause"), headers=READER)
    path = path_of(uuid, "deliveries", ident, "resend")
    again = client.post(path, headers=READER)
    assert (again.status_code, again.json["state"], again.json["id"]) == (202, "pending", ident)
    assert again.json["next_attempt"].endswith("Z")
    assert [one["number"] for one in again.json["attempts"]] == [1]
    assert client.post(path.replace(ident, uuid_of(99)), headers=READER).status_code == 404
    assert client.post(path, headers=OTHER).status_code == 404


@pytest.mark.spec("SUB-10", "SUB-14", "SUB-16")
def test_failures_are_counted_since_last_success(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    assert "failures" not in client.get(path_of(uuid), headers=READER).json
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE subscriptions SET failures = 3")
    assert client.get(path_of(uuid), headers=READER).json["failures"] == 3
