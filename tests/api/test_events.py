"""Events over HTTP: windows, presigned streams, live feed, replays."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from api.app import create_app
from pipelines import journals
from pipelines.events import latest_position
from pipelines.recovery import epochs
from storage.catalog import events, store_state
from storage.circuit_breaker import CircuitBreaker
from storage.model import FQID
from storage.stores import Stores
from tests.api.builders import ADMIN, INGEST, VERSION, Depositor, uuid_of
from tests.api.conftest import verify


@pytest.fixture
def happened(stores: Stores, depositor: Depositor, drain: Callable[[], int]) -> Callable[[], None]:
    """What the clock does about events."""

    def tend() -> None:
        with stores.catalog.write() as tx:
            events.assign_sequence(tx)
        journals.enqueue_journal_jobs(stores, age_s=3600)
        drain()

    return tend


def listed(client: Any, query: str = "", *, replica: str = "aws") -> list[dict[str, Any]]:
    """All streams of a walk."""
    url: str | None = f"/v1/events?replica={replica}{query}"
    found = []
    while url:
        answer = client.get(url)
        assert answer.status_code in (200, 206), answer.text
        assert answer.headers["X-OpenAPI-Paginated-Content-Key"] == "event_streams"
        found += answer.json["event_streams"]
        assert (answer.status_code == 206) == ("Link" in answer.headers)
        link = answer.headers.get("Link")
        url = link.partition(">")[0].removeprefix("<") if link else None
    return found


@pytest.mark.spec("SVC-11", "EVT-03", "EVT-04", "EVT-05", "CON-04")
def test_a_life_is_listed_with_its_documents_behind_a_url_that_honours_ranges(
    client, depositor, happened
) -> None:
    uuid = depositor.bundle(1)
    happened()
    client.delete(
        f"/v1/bundles/{uuid}?replica=gcp&version={VERSION}", json={"reason": "x"}, headers=INGEST
    )
    depositor.drain()
    happened()
    for replica in ("aws", "gcp"):
        streams = listed(client, replica=replica)
        told = [each for one in streams for each in one["events"]]
        assert [each["event_type"] for each in told] == ["CREATE", "TOMBSTONE"]
        for one in streams:
            whole = client.get(one["stream_url"])
            assert len(whole.data) == one["size"]
            assert whole.headers["Content-Type"] == "application/x-ndjson"
            assert one["from_date"] == one["events"][0]["timestamp"] < one["to_date"]
            for each in one["events"]:
                first, last = each["offset"], each["offset"] + each["size"] - 1
                part = client.get(one["stream_url"], headers={"Range": f"bytes={first}-{last}"})
                assert part.status_code in (200, 206)
                document = json.loads(part.data)
                assert document["event_type"] == each["event_type"]
                assert document["bundle_info"] == {"uuid": uuid, "version": VERSION}
                assert (each["bundle_uuid"], each["bundle_version"]) == (uuid, VERSION)
                assert document["manifest"]["files"]


@pytest.mark.spec("EVT-02")
def test_pages_have_one_journal_by_default(client, depositor, happened) -> None:
    for number in range(1, 4):
        depositor.bundle(number)
        happened()
    first = client.get("/v1/events?replica=aws")
    assert first.status_code == 206
    assert len(first.json["event_streams"]) == 1
    assert "token=" in first.headers["Link"]
    assert len(client.get("/v1/events?replica=aws&per_page=10").json["event_streams"]) == 3
    assert len(listed(client)) == len(listed(client, "&per_page=2")) == 3


@pytest.mark.spec("EVT-01", "EVT-03", "EVT-04")
def test_a_window_cuts_a_journal(client, depositor, stores, happened) -> None:
    for number in range(1, 4):
        depositor.bundle(number)
        with stores.catalog.write() as tx:
            events.assign_sequence(tx)
    happened()
    (whole,) = listed(client)
    times = [each["timestamp"] for each in whole["events"]]
    assert len(set(times)) == 3
    (cut,) = listed(client, f"&from_date={times[1]}&to_date={times[2]}")
    assert cut["events"] == whole["events"][1:2]
    assert cut["from_date"] == times[1]
    assert cut["size"] == whole["size"]
    assert listed(client, f"&from_date={times[1]}&to_date={times[1]}") == []
    assert listed(client, f"&to_date={times[0]}") == []


@pytest.mark.spec("EVT-01", "EVT-02", "CON-05")
@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("&from_date=2026", "illegal_version"),
        ("&to_date=2026-01-01T00:00:00Z", "illegal_version"),
        (
            "&from_date=2026-01-02T000000.000000Z&to_date=2026-01-01T000000.000000Z",
            "illegal_version",
        ),
        ("&per_page=11", "illegal_arguments"),
        ("&per_page=0", "illegal_arguments"),
        ("&token=AAAA", "illegal_token"),
        ("&token=", "illegal_token"),
    ],
)
def test_rejects_invalid_windows(client, query: str, code: str) -> None:
    answer = client.get(f"/v1/events?replica=aws{query}")
    assert (answer.status_code, answer.json["code"]) == (400, code)
    assert set(answer.json["errors"]) <= {query[1:].partition("=")[0], "from_date"}


@pytest.mark.spec("EVT-02")
def test_a_pointer_belongs_to_its_window(client, depositor, happened) -> None:
    for number in (1, 2):
        depositor.bundle(number)
        happened()
    link = client.get("/v1/events?replica=aws").headers["Link"]
    token = link.partition("token=")[2].partition(">")[0]
    assert client.get(f"/v1/events?replica=aws&token={token}").status_code == 200
    assert client.get(f"/v1/events?replica=gcp&token={token}").status_code == 400


@pytest.mark.spec("EVT-09", "EVT-10")
def test_an_events_document_is_read_until_it_is_purged(client, depositor, stores) -> None:
    uuid = depositor.bundle(1)
    url = f"/v1/events/{uuid.upper()}?replica=aws&version={VERSION}"
    document = client.get(url).json
    assert document["bundle_info"] == {"uuid": uuid, "version": VERSION}
    assert document["uuid"] == uuid
    client.delete(f"/v1/bundles/{uuid}?replica=aws", json={"reason": "x"}, headers=INGEST)
    depositor.drain()
    assert client.get(url).json == document
    with stores.catalog.write() as tx:
        events.append(tx, "DELETE", "gcp", FQID(uuid, VERSION), 0)
    assert client.get(url).status_code == 404
    missing = client.get(f"/v1/events/{uuid}?replica=aws")
    assert (missing.status_code, missing.json["detail"]) == (
        400,
        "Missing query parameter 'version'",
    )
    assert client.get(f"/v1/events/{uuid_of(9)}?replica=aws&version={VERSION}").status_code == 404


@pytest.mark.spec("EVT-11", "EVT-12")
def test_feed_returns_each_event_once(client, depositor, happened) -> None:
    first, second = depositor.bundle(1), depositor.bundle(2)
    happened()
    answer = client.get("/v1/events/feed?replica=aws&after=&per_page=1").json
    assert [one["bundle_uuid"] for one in answer["events"]] == [first]
    answer = client.get(f"/v1/events/feed?replica=aws&after={answer['cursor']}").json
    assert [one["bundle_uuid"] for one in answer["events"]] == [second]
    assert answer["events"][0]["bundle_url"].startswith("http://localhost/v1/bundles/")
    again = client.get(f"/v1/events/feed?replica=aws&after={answer['cursor']}")
    assert again.json == {"events": [], "cursor": answer["cursor"]}
    assert again.headers["Cache-Control"] == "no-store"


@pytest.mark.spec("EVT-11")
def test_feed_without_cursor_starts_now(client, depositor, happened) -> None:
    depositor.bundle(1)
    happened()
    now = client.get("/v1/events/feed?replica=aws").json
    assert now["events"] == []
    second = depositor.bundle(2)
    happened()
    after = client.get(f"/v1/events/feed?replica=aws&after={now['cursor']}").json
    assert [one["bundle_uuid"] for one in after["events"]] == [second]


@pytest.mark.spec("EVT-25")
def test_feed_starts_at_a_time(client, depositor, happened) -> None:
    for number in (1, 2):
        depositor.bundle(number)
        happened()
    everything = client.get("/v1/events/feed?replica=aws&after=").json["events"]
    feed = "/v1/events/feed?replica=aws&from_date="
    early, late = "2026-01-01T000000.000000Z", "2999-01-01T000000.000000Z"
    second = everything[1]["timestamp"]
    for date, expected in ((early, everything), (second, everything[1:]), (late, [])):
        answer = client.get(f"{feed}{date}").json
        assert answer["events"] == expected
        rest = client.get(f"/v1/events/feed?replica=aws&after={answer['cursor']}").json
        assert rest["events"] == []
        assert client.get(f"{feed}{date}&after=").json["events"] == everything
    wrong = client.get(f"{feed}2026")
    assert (wrong.status_code, wrong.json["code"]) == (400, "illegal_version")


@pytest.mark.spec("EVT-25")
def test_stream_starts_at_a_time(client, depositor, happened) -> None:
    for number in (1, 2):
        depositor.bundle(number)
        happened()
    everything = client.get("/v1/events/feed?replica=aws&after=").json["events"]
    path = f"/v1/events/feed?replica=aws&from_date={everything[1]['timestamp']}"
    answer = client.get(path, headers={"Accept": "text/event-stream"}, buffered=False)
    lines = b""
    for chunk in answer.response:
        lines += chunk if isinstance(chunk, bytes) else chunk.encode()
        if b"data: " in lines:
            break
    answer.close()
    assert everything[1]["event_id"].encode() in lines
    assert everything[0]["event_id"].encode() not in lines


@pytest.mark.spec("EVT-11")
def test_a_cursor_of_another_replica_is_refused(client, depositor) -> None:
    cursor = client.get("/v1/events/feed?replica=aws").json["cursor"]
    answer = client.get(f"/v1/events/feed?replica=gcp&after={cursor}")
    assert (answer.status_code, answer.json["code"]) == (400, "illegal_token")
    assert list(answer.json["errors"]) == ["after"]


def subscribe(client: Any, **more: Any) -> str:
    body = {"callback_url": "http://127.0.0.1:9/x", **more}
    answer = client.put("/v1/subscriptions?replica=aws", json=body, headers=INGEST)
    assert answer.status_code == 201, answer.text
    return str(answer.json["uuid"])


def deliveries(client: Any, uuid: str) -> list[dict[str, Any]]:
    answer = client.get(f"/v1/subscriptions/{uuid}/deliveries?replica=aws", headers=INGEST)
    return list(reversed(answer.json["deliveries"]))


@pytest.mark.spec("SVC-11", "EVT-16", "EVT-17")
def test_a_window_is_replayed_into_one_subscription(client, depositor, stores, happened) -> None:
    first = depositor.bundle(1)
    mine, another = subscribe(client), subscribe(client)
    second = depositor.bundle(2)
    happened()
    before = {one["id"] for one in deliveries(client, mine)}
    assert len(before) == 1
    begun = client.post(f"/v1/subscriptions/{mine}/replay?replica=aws", json={}, headers=INGEST)
    assert begun.status_code == 202
    depositor.drain()
    told = [one for one in deliveries(client, mine) if one["id"] not in before]
    assert sorted(one["bundle_uuid"] for one in told) == [first, second]
    assert len(deliveries(client, another)) == 1
    url = f"/v1/subscriptions/{mine}/replays/{begun.json['replay_id']}?replica=aws"
    ended = client.get(url, headers=INGEST).json
    assert ended == {
        "replay_id": begun.json["replay_id"],
        "state": "SUCCEEDED",
        "events_left": 0,
        "deliveries": 2,
    }
    assert client.get(url, headers=ADMIN).status_code == 404


@pytest.mark.spec("EVT-16")
def test_replay_uses_query_and_window(client, depositor, stores, happened) -> None:
    uuids = []
    for number in range(1, 4):
        uuids.append(depositor.bundle(number))
        happened()
    times = [each["timestamp"] for one in listed(client) for each in one["events"]]
    mine = subscribe(client, jmespath_query=f"uuid != '{uuids[1]}'")
    window = {"from_date": times[1], "to_date": times[2]}
    for wanted, body in (([], window), ([uuids[2]], {"from_date": times[1]})):
        url = f"/v1/subscriptions/{mine}/replay?replica=aws"
        assert client.post(url, json=body, headers=INGEST).status_code == 202
        depositor.drain()
        assert [one["bundle_uuid"] for one in deliveries(client, mine)] == wanted


@pytest.mark.spec("EVT-18", "ERR-28")
def test_repeated_replay_starts_nothing_and_concurrent_one_is_refused(
    client, depositor, happened
) -> None:
    depositor.bundle(1)
    happened()
    mine = subscribe(client)
    url = f"/v1/subscriptions/{mine}/replay?replica=aws"
    keyed = INGEST | {"Idempotency-Key": "one"}
    first = client.post(url, json={}, headers=keyed)
    assert client.post(url, json={}, headers=keyed).json == first.json
    refused = client.post(url, headers=INGEST)
    assert (refused.status_code, refused.json["code"]) == (409, "already_exists")
    depositor.drain()
    assert client.post(url, json={}, headers=keyed).json["replay_id"] == first.json["replay_id"]
    assert len(deliveries(client, mine)) == 1
    assert client.post(url, headers=INGEST).status_code == 202
    depositor.drain()
    assert len(deliveries(client, mine)) == 2


@pytest.mark.spec("EVT-18", "WHO-05")
def test_replays_are_their_owners_and_windows_are_checked(client, depositor) -> None:
    mine = subscribe(client)
    url = f"/v1/subscriptions/{mine}/replay?replica=aws"
    assert client.post(url, json={}).status_code == 401
    assert client.post(url, json={}, headers=ADMIN).status_code == 404
    turned = {"from_date": "2026-01-02T000000.000000Z", "to_date": "2026-01-01T000000.000000Z"}
    assert client.post(url, json=turned, headers=INGEST).json["code"] == "illegal_version"
    assert client.post(url, json={"more": 1}, headers=INGEST).status_code == 400


@pytest.mark.spec("EVT-18")
def test_replay_ends_with_its_subscription(client, depositor, stores, happened) -> None:
    depositor.bundle(1)
    happened()
    mine = subscribe(client)
    client.post(f"/v1/subscriptions/{mine}/replay?replica=aws", json={}, headers=INGEST)
    client.delete(f"/v1/subscriptions/{mine}?replica=aws", headers=INGEST)
    assert depositor.drain()
    assert depositor.drain() == 0
    assert latest_position(stores, "aws").seq == 1


@pytest.mark.spec("EVT-09")
def test_the_document_of_an_event_is_that_of_the_bundle(client, depositor) -> None:
    source = depositor.stage(b'{"organ": "brain"}', "d.json", "application/json")
    depositor.put_file(uuid_of(0x50), source=source)
    depositor.drain()
    entry = {"uuid": uuid_of(0x50), "version": VERSION, "name": "donor_0.json", "indexed": True}
    depositor.put_bundle(uuid_of(1), [entry])
    depositor.drain()
    for replica in ("aws", "gcp"):
        told = client.get(f"/v1/events/{uuid_of(1)}?replica={replica}&version={VERSION}").json
        read = client.get(f"/v1/bundles/{uuid_of(1)}?replica={replica}").json["bundle"]
        assert told == {
            "event_type": "CREATE",
            "bundle_info": {"uuid": uuid_of(1), "version": VERSION},
            "uuid": uuid_of(1),
            "manifest": {"creator_uid": 7, "files": read["files"]},
            "files": {"donor_json": [{"organ": "brain"}]},
            "shape_descriptor": "unversioned",
        }


@pytest.mark.spec("EVT-12")
def test_every_member_of_an_event_is_shown(client, depositor, happened) -> None:
    uuid = depositor.bundle(1)
    happened()
    for replica in ("aws", "gcp"):
        (one,) = client.get(f"/v1/events/feed?replica={replica}&after=").json["events"]
        ((listing,),) = [stream["events"] for stream in listed(client, replica=replica)]
        assert one == {
            "event_id": listing["event_id"],
            "event_type": "CREATE",
            "timestamp": listing["timestamp"],
            "replica": replica,
            "bundle_uuid": uuid,
            "bundle_version": VERSION,
            "bundle_url": f"http://localhost/v1/bundles/{uuid}?version={VERSION}&replica={replica}",
        }


@pytest.mark.spec("EVT-17")
def test_running_replay_reports_events_left(client, depositor, happened) -> None:
    for number in (1, 2):
        depositor.bundle(number)
    happened()
    mine = subscribe(client)
    begun = client.post(f"/v1/subscriptions/{mine}/replay?replica=aws", json={}, headers=INGEST)
    expected = {
        "replay_id": begun.json["replay_id"],
        "state": "RUNNING",
        "events_left": 2,
        "deliveries": 0,
    }
    assert begun.json == expected
    path = f"/v1/subscriptions/{mine}/replays/{begun.json['replay_id']}?replica=aws"
    assert client.get(path, headers=INGEST).json == expected
    assert client.get(path.replace("aws", "gcp"), headers=INGEST).status_code == 404
    assert client.get(path).status_code == 401


@pytest.mark.spec("EVT-22")
def test_paging_reports_restored_catalog(client, depositor, stores, happened) -> None:
    for number in (1, 2):
        depositor.bundle(number)
        happened()
    link = client.get("/v1/events?replica=aws").headers["Link"]
    url = link.partition(">")[0].removeprefix("<")
    epochs.force_new_epoch(stores)
    refused = client.get(url)
    assert (refused.status_code, refused.json["code"]) == (400, "illegal_token")
    assert "restored" in refused.json["detail"]
    assert list(refused.json["errors"]) == ["token"]
    assert len(listed(client)) == 2


@pytest.mark.spec("EVT-21")
def test_stream_urls_use_other_bucket_during_outage(
    settings, stores, job_queue, client, depositor, happened
) -> None:
    depositor.bundle(1)
    happened()
    (usual,) = listed(client)
    parts = CircuitBreaker({"bucket.aws": lambda: 1 / 0}, start=lambda _work: None)
    for _ in range(2):
        parts.record_failure("bucket.aws")
    own = replace(stores, circuit_breaker=parts)
    lame = create_app(settings, own, job_queue=job_queue, verify=verify).test_client()
    answer = lame.get("/v1/events?replica=aws")
    (now,) = answer.json["event_streams"]
    assert answer.headers["X-STORE-SERVED-BY"] == "gcp"
    assert "/objects/aws/" in usual["stream_url"]
    assert "/objects/gcp/" in now["stream_url"]
    assert client.get(now["stream_url"]).data == client.get(usual["stream_url"]).data
    assert {**now, "stream_url": ""} == {**usual, "stream_url": ""}
    assert "X-STORE-SERVED-BY" not in lame.get("/v1/events?replica=gcp").headers


@pytest.mark.spec("EVT-23")
def test_feed_continues_after_restore_and_reports_it(client, depositor, stores, happened) -> None:
    first, second = depositor.bundle(1), depositor.bundle(2)
    happened()
    cursor = client.get("/v1/events/feed?replica=aws&after=&per_page=2").json["cursor"]
    with stores.catalog.write() as tx:
        # As a catalog knows it that is older than the second event.
        tx.exec_driver_sql("UPDATE events SET seq = NULL, seq_us = NULL WHERE seq > 1")
        tx.exec_driver_sql("DELETE FROM journals")
        store_state.write_value(tx, store_state.EPOCH_IN_DOUBT_KEY, "restored")
    url = f"/v1/events/feed?replica=aws&after={cursor}&per_page=7"
    for sent in ({}, {"Accept": "text/event-stream"}):
        waits = client.get(url, headers=sent)
        assert (waits.status_code, waits.json["code"]) == (503, "service_unavailable")
        assert int(waits.headers["Retry-After"]) > 0
    epochs.force_new_epoch(stores)
    third = depositor.bundle(3)
    happened()
    streamed = {"Accept": "text/event-stream", "Last-Event-ID": cursor}
    for sent in ({}, streamed):
        refused = client.get(url, headers=sent)
        assert (refused.status_code, refused.json["code"]) == (400, "illegal_token")
        assert "event_id" in refused.json["detail"]
        link = refused.headers["Link"]
        assert link.endswith('; rel="next"')
        assert "per_page=7" in link
        again = client.get(link.partition(">")[0].removeprefix("<"))
        assert again.status_code == 200
        told = [one["bundle_uuid"] for one in again.json["events"]]
        assert set(told) >= {second, third}
        assert len(told) == len(set(told))
    assert first not in told or len(told) == 3


@pytest.mark.spec("EVT-24")
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_head_of_the_feed_does_not_wait(settings, stores, job_queue, accept) -> None:
    patient = replace(settings, wait_s=30.0, feed_life_s=30.0)
    client = create_app(patient, stores, job_queue=job_queue, verify=verify).test_client()
    began = time.monotonic()
    for sent in ({}, {"Prefer": "wait=30"}):
        headed = client.head("/v1/events/feed?replica=aws", headers={"Accept": accept, **sent})
        assert (headed.status_code, headed.data) == (200, b"")
        assert headed.mimetype == accept
        assert headed.headers["Cache-Control"] == "no-store"
    assert time.monotonic() - began < 10
    refused = client.head("/v1/events/feed?replica=aws&after=x", headers={"Accept": accept})
    assert refused.status_code == 400
