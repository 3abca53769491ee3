"""Subscriptions over HTTP: paused, signed anew, tried again, tried out."""

from dataclasses import replace

import pytest
from sqlalchemy import text

from api.app import create_app
from storage.catalog import deliveries, endpoints, now_us
from storage.catalog.deliveries import Result
from storage.sealing import Sealer, derive
from tests.api.builders import INGEST, READER, uuid_of
from tests.api.conftest import verify
from tests.api.test_subscriptions import CALLBACK, OTHER, PATH, subscribe, told

LONG_AGO = "2020-01-01T000000.000000Z"


def path_of(uuid: str, *rest: str) -> str:
    return "/".join(("/v1/subscriptions", uuid, *rest)) + "?replica=aws"


def give_up(stores) -> None:
    with stores.catalog.write() as tx:
        idents = tx.exec_driver_sql("SELECT id FROM deliveries").scalars().all()
        rows = [Result(one, 1, 0.5, 500, None, None, "failed", 0, "given up") for one in idents]
        deliveries.close(tx, rows)


def test_a_paused_subscription_says_so_until_it_is_resumed(client) -> None:
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


def test_what_was_to_be_told_meanwhile_has_no_next_attempt(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    client.post(path_of(uuid, "pause"), headers=READER)
    told(stores, uuid, 1)
    listing = path_of(uuid, "deliveries")
    (waiting,) = client.get(listing, headers=READER).json["deliveries"]
    assert (waiting["state"], "next_attempt" in waiting) == ("pending", False)
    client.post(path_of(uuid, "resume"), headers=READER)
    (going,) = client.get(listing, headers=READER).json["deliveries"]
    assert "next_attempt" in going


def test_what_was_due_before_a_pause_has_none_either_but_tests_do(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    told(stores, uuid, 1)
    client.post(path_of(uuid, "pause"), headers=READER)
    asked = client.post(path_of(uuid, "test"), headers=READER).json
    assert asked["next_attempt"] == asked["recorded"]
    listed = client.get(path_of(uuid, "deliveries"), headers=READER).json["deliveries"]
    assert ["next_attempt" in one for one in listed] == [True, False]
    again = client.post(path_of(uuid, "deliveries", listed[1]["id"], "retry"), headers=READER)
    assert (again.status_code, "next_attempt" in again.json) == (202, False)


def test_a_test_wakes_a_receiver_that_is_left_alone(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    with stores.catalog.write() as tx:
        tx.execute(text("UPDATE endpoints SET resume_us = 9e15, failures = 9"))
    client.post(path_of(uuid, "test"), headers=READER)
    with stores.catalog.read() as tx:
        assert len(endpoints.waiting(tx, limit=9)) == 1


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
    sealer = Sealer(derive(settings.secret_key.encode(), b"subscription secrets"))
    context = f"subscription/{uuid}".encode()
    assert [sealer.open(bytes(one), context) for one in sealed] == [b"the second", b"the first"]
    assert all(b"the " not in bytes(one) for one in sealed)
    third = client.put(path, json={"hmac_secret_key": "x", "overlap_s": 0}, headers=READER)
    assert (third.json["hmac_key_id"], "hmac_previous_until" in third.json) == ("k2", False)


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


def test_all_that_was_given_up_since_a_time_is_tried_again(client, stores) -> None:
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


def test_deliveries_are_listed_by_what_they_tell_and_when(client, stores) -> None:
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


def test_a_page_of_one_filter_leads_to_no_page_of_another(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    for number in range(3):
        told(stores, uuid, number)
    path = path_of(uuid, "deliveries")
    page = client.get(f"{path}&per_page=1&event_type=CREATE", headers=READER)
    link = page.headers["Link"].partition(">")[0].removeprefix("<http://localhost")
    assert client.get(link, headers=READER).status_code == 206
    mixed = link.replace("event_type=CREATE", "event_type=DELETE")
    assert client.get(mixed, headers=READER).json["code"] == "illegal_token"


def test_a_dry_run_tells_of_the_latest_bundles_and_makes_nothing(client, depositor) -> None:
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


@pytest.mark.parametrize("bundles", [0, 51, "1", 1.5])
def test_a_dry_run_is_bounded(client, bundles) -> None:
    body = CALLBACK | {"bundles": bundles}
    path = "/v1/subscriptions/dry-run?replica=aws"
    assert client.post(path, json=body, headers=READER).status_code == 400


def test_a_dry_run_wants_what_subscribing_wants(client, settings, stores, chains) -> None:
    path = "/v1/subscriptions/dry-run?replica=aws"
    assert client.post(path, json=CALLBACK).status_code == 401
    strict = replace(settings, authorized_domains=("lab.example",))
    other = create_app(strict, stores, chains=chains, verify=verify).test_client()
    assert other.post(path, json=CALLBACK, headers=READER).status_code == 403
    assert (
        client.post(path, json=CALLBACK | {"jmespath_query": "["}, headers=READER).json["code"]
        == "invalid_jmespath"
    )


def test_only_its_owner_changes_how_a_subscription_stands(client) -> None:
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


def test_a_failing_subscription_says_since_when(client, stores) -> None:
    uuid = subscribe(client).json["uuid"]
    with stores.catalog.write() as tx:
        tx.execute(text("UPDATE subscriptions SET failing_us = :now"), {"now": now_us(tx)})
    assert "failing_since" in client.get(path_of(uuid), headers=READER).json


def test_the_list_shows_what_one_shows_whatever_its_state(client, stores) -> None:
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
            text("UPDATE subscriptions SET state = 'disabled', failing_us = 0, state_reason = 'x'")
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
    *("state", "state_since", "state_reason", "failing_since"),
}
