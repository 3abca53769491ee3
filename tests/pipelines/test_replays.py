"""Replays of a window to one subscription, across crashes."""

import json
from random import Random
from typing import Any

import pytest

from pipelines import events, subscriptions
from pipelines.events import EventWindow
from pipelines.flow import Step
from pipelines.subscriptions import NewSubscription
from storage.catalog import events as catalog_events
from storage.catalog import jobs
from storage.catalog.subscriptions import Subscription
from storage.errors import ConflictError
from storage.model import FQID, Job
from storage.stores import Stores
from tests.builders import new_uuid
from tests.pipelines.bundle_events import ALWAYS, Silent, happen, make_bundle, number
from tests.pipelines.test_journals import Died, mortal
from workers.claims import WorkerContext, run_job

pytestmark = pytest.mark.spec("EVT-19")


def subscribe(stores: Stores, **more: Any) -> Subscription:
    new = NewSubscription("http://127.0.0.1:9/x", "aws", **more)
    return subscriptions.create_subscription(
        stores,
        new,
        "me@x",
        uuid=new_uuid(),
        seal=lambda secret, _context: secret,
        limit=9,
        allow_private=True,
    )


def begin(stores: Stores, own: Subscription, window: EventWindow = ALWAYS) -> str:
    one, _ = events.request_replay(stores, own, window, ident=new_uuid(), repeatable=None)
    return one.id


def step(stores: Stores, ident: str) -> bool:
    """One claim of a replay."""
    job_queue: Any = Silent()
    working = WorkerContext(stores, job_queue, {Step.REPLAY: events.run_replay}, 50, Random(0))
    return run_job(working, Job(Step.REPLAY, "aws", ident))


def told(stores: Stores, own: Subscription) -> list[tuple[str, str, str]]:
    """(event type, uuid, state) of all deliveries, in the order in which they were made."""
    with stores.catalog.read() as tx:
        rows = tx.exec_driver_sql(
            "SELECT event_type, bundle_uuid, state FROM deliveries"
            f" WHERE subscription_id = {own.id} ORDER BY id"
        )
        return [(row[0], row[1], row[2]) for row in rows]


def created(*fqids: FQID) -> list[tuple[str, str, str]]:
    return [("CREATE", fqid.uuid, "pending") for fqid in fqids]


@pytest.mark.spec("EVT-16")
def test_replays_events_from_before_subscription_in_order(stores: Stores) -> None:
    fqids = [make_bundle(stores, place) for place in range(3)]
    number(stores)
    own = subscribe(stores)
    ident = begin(stores, own)
    assert step(stores, ident)
    assert sorted(told(stores, own)) == sorted(created(*fqids))
    assert not step(stores, ident)
    with stores.catalog.read() as tx:
        one = catalog_events.find_replay(tx, ident)
    assert one is not None
    assert one.deliveries == 3
    assert one.finished_us is not None


def test_payloads_have_the_same_fields_as_ever_and_an_id_of_their_own(stores: Stores) -> None:
    fqid = make_bundle(stores)
    number(stores)
    own = subscribe(
        stores,
        jmespath_query="event_type == 'CREATE'",
        attachments={"n": {"type": "jmespath", "expression": "files.a_json[0].number"}},
    )
    idents = []
    for _ in range(2):
        ident = begin(stores, own)
        assert step(stores, ident)
    with stores.catalog.read() as tx:
        for row in tx.exec_driver_sql("SELECT uuid, payload FROM deliveries"):
            payload = json.loads(row.payload)
            idents.append(row.uuid)
            assert payload["transaction_id"] == row.uuid
            assert payload["subscription_id"] == own.uuid
            assert payload["match"] == {"bundle_uuid": fqid.uuid, "bundle_version": fqid.version}
            assert payload["attachments"] == {"n": 0}
            assert {"event_type", "jmespath_query", "bundle_url", "event_timestamp"} < set(payload)
    assert len(set(idents)) == 2


def test_a_tombstone_supersedes_what_is_replayed_too(stores: Stores) -> None:
    fqid = make_bundle(stores)
    happen(stores, "TOMBSTONE", fqid)
    number(stores)
    own = subscribe(stores)
    step(stores, begin(stores, own))
    assert told(stores, own) == [
        ("CREATE", fqid.uuid, "superseded"),
        ("TOMBSTONE", fqid.uuid, "pending"),
    ]


def test_replays_only_delete_event_of_purged_bundle(stores: Stores) -> None:
    fqid = make_bundle(stores)
    happen(stores, "TOMBSTONE", fqid)
    happen(stores, "DELETE", fqid)
    number(stores)
    own = subscribe(stores)
    step(stores, begin(stores, own))
    assert told(stores, own) == [("DELETE", fqid.uuid, "pending")]


def test_chunks_continue_and_exclude_later_events(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "EVENTS_PER_REPLAY_JOB", 2)
    fqids = [make_bundle(stores, place) for place in range(5)]
    number(stores)
    own = subscribe(stores)
    ident = begin(stores, own)
    make_bundle(stores, 9)
    number(stores)
    assert [step(stores, ident) for _ in range(4)] == [True, True, True, False]
    assert sorted(told(stores, own)) == sorted(created(*fqids))


@pytest.mark.spec("EVT-19")
@pytest.mark.parametrize("after", [False, True])
def test_crash_repeats_and_omits_nothing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    monkeypatch.setattr(events, "EVENTS_PER_REPLAY_JOB", 1)
    fqids = [make_bundle(stores, place) for place in range(4)]
    number(stores)
    own = subscribe(stores)
    ident = begin(stores, own)
    deaths = 0
    for turn in range(40):
        moves = 1 + turn % 3
        try:
            step(mortal(stores, moves, after=after), ident)
        except Died:
            deaths += 1
        with stores.catalog.write() as tx:
            tx.exec_driver_sql("UPDATE todo SET token = NULL, due_us = 0, attempts = 0")
            if not jobs.exists(tx, Job(Step.REPLAY, "aws", ident)):
                break
    assert deaths > 2
    assert sorted(told(stores, own)) == sorted(created(*fqids))


@pytest.mark.spec("EVT-18")
def test_one_replay_per_subscription_at_a_time(stores: Stores) -> None:
    make_bundle(stores)
    number(stores)
    own, another = subscribe(stores), subscribe(stores)
    ident = begin(stores, own)
    with pytest.raises(ConflictError):
        begin(stores, own)
    begin(stores, another)
    step(stores, ident)
    begin(stores, own)


def test_removes_old_replays_and_keeps_open_ones(stores: Stores) -> None:
    own = subscribe(stores)
    ended = begin(stores, own)
    assert step(stores, ended)
    open_one = begin(stores, own)
    events.expire_replays(stores, keep_s=-1)
    with stores.catalog.read() as tx:
        assert catalog_events.find_replay(tx, ended) is None
        assert catalog_events.find_replay(tx, open_one) is not None
