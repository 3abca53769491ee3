"""Dry runs predict notifications and store nothing."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from sqlalchemy import text

from pipelines import bundles, matching, purges, subscriptions
from pipelines.deliveries import build_request
from pipelines.limits import ATTACHMENTS_MAX_BYTES
from pipelines.matching import DryRun
from pipelines.subscriptions import NewSubscription
from storage.catalog import deliveries
from storage.errors import Invalid
from storage.model import FQID
from storage.stores import Stores
from tests.builders import new_uuid
from tests.pipelines.purge_runs import finish
from tests.pipelines.test_bundle_lifecycle import OWNER, Drain, bundle, mouse

NEW = NewSubscription("https://receiver.example/hook", "aws")
ORGANISM = "files.sample_json[0].organism.text"


def dry_run(
    stores: Stores,
    *,
    limit: int = 10,
    clock: Callable[[], float] = lambda: 0.0,
    event_ids: list[str] | None = None,
    **given: Any,
) -> DryRun:
    return matching.dry_run_subscription(
        stores,
        replace(NEW, **given),
        OWNER,
        uuid=new_uuid(),
        limit=limit,
        time_s=10.0,
        clock=clock,
        allow_private=False,
        event_ids=event_ids,
    )


def attaching(**expressions: str) -> dict[str, dict[str, str]]:
    return {name: {"type": "jmespath", "expression": text} for name, text in expressions.items()}


def rows(stores: Stores) -> list[int]:
    tables = ("subscriptions", "deliveries", "endpoints", "todo")
    with stores.catalog.read() as tx:
        return [tx.execute(text(f"SELECT count(*) FROM {name}")).scalar_one() for name in tables]


@pytest.mark.spec("SUB-35")
def test_a_test_is_about_the_latest_bundle_that_matches(stores: Stores, drain: Drain) -> None:
    older, newer = (mouse(stores, drain) for _ in range(2))
    bundle(stores, drain, {"sample_1.json": b'{"organism": {"text": "Zea mays"}}'})
    drain()
    asked = replace(
        NEW,
        jmespath_query=f"{ORGANISM} == 'Mus musculus'",
        attachments=attaching(organism=ORGANISM),
    )
    made = subscriptions.create_subscription(
        stores, asked, OWNER, uuid=new_uuid(), seal=lambda *_: b"", limit=9, allow_private=False
    )
    match = matching.find_latest_match(stores, made, limit=10, time_s=10, clock=lambda: 0.0)
    assert match is not None
    assert match.fqid == newer
    tested = subscriptions.ping_subscription(stores, made, uuid=new_uuid(), match=match)
    assert (tested.bundle_uuid, tested.bundle_version) == newer
    with stores.catalog.read() as tx:
        (sent,) = deliveries.list_due(tx, made.endpoint_id, limit=9)
    payload = json.loads(sent.payload)
    assert payload["transaction_id"] == tested.uuid
    assert (payload["test"], payload["attachments"]) == (True, {"organism": "Mus musculus"})
    assert build_request(sent, attempt=1, now_us=0).headers["X-STORE-NOTIFY-TEST"] == "true"
    bundles.delete(stores, "aws", *newer, reason="wrong", author=OWNER)
    match = matching.find_latest_match(stores, made, limit=10, time_s=10, clock=lambda: 0.0)
    assert match is not None
    assert match.fqid == older


@pytest.mark.spec("SUB-35")
def test_without_a_match_a_test_is_about_no_bundle(stores: Stores, drain: Drain) -> None:
    mouse(stores, drain)
    drain()
    asked = replace(NEW, jmespath_query="absent")
    made = subscriptions.create_subscription(
        stores, asked, OWNER, uuid=new_uuid(), seal=lambda *_: b"", limit=9, allow_private=False
    )
    assert matching.find_latest_match(stores, made, limit=10, time_s=10, clock=lambda: 0.0) is None
    times = count(step=20.0)
    assert (
        matching.find_latest_match(stores, made, limit=10, time_s=10, clock=lambda: next(times))
        is None
    )


@pytest.mark.spec("SUB-26")
def test_tries_latest_bundles(stores: Stores, drain: Drain) -> None:
    mice = [mouse(stores, drain) for _ in range(3)]
    plant = bundle(stores, drain, {"sample_1.json": b'{"organism": {"text": "Zea mays"}}'})
    drain()
    before = rows(stores)
    run = dry_run(stores, jmespath_query=f"{ORGANISM} == 'Mus musculus'")
    assert [one.fqid for one in run.bundles] == [plant, *reversed(mice)]
    assert [one.payload is not None for one in run.bundles] == [False, True, True, True]
    assert not run.timed_out
    stored = dry_run(stores, es_query={"match": {"files.sample_json.organism.text": "mus"}})
    assert [one.payload is not None for one in stored.bundles] == [False, True, True, True]
    assert [one.fqid for one in dry_run(stores, limit=2).bundles] == [plant, mice[2]]
    assert rows(stores) == before


@pytest.mark.spec("SUB-27")
@pytest.mark.parametrize(
    "query", [{"jmespath_query": "event_type == 'CREATE'"}, {"es_query": {}}, {}]
)
def test_payload_equals_that_of_a_delivery(
    stores: Stores, drain: Drain, query: dict[str, Any]
) -> None:
    asked = attaching(organism=ORGANISM, kind="event_type", bad="abs(event_type)")
    made = subscriptions.create_subscription(
        stores,
        replace(NEW, attachments=asked, **query),
        OWNER,
        uuid=new_uuid(),
        seal=lambda plain, _context: plain,
        limit=9,
        allow_private=False,
    )
    mouse(stores, drain)
    drain()
    with stores.catalog.read() as tx:
        sent = json.loads(tx.execute(text("SELECT payload FROM deliveries")).scalar_one())
    (tried,) = dry_run(stores, attachments=asked, **query).bundles
    shown = json.loads(tried.payload or "")
    own = {"subscription_id", "transaction_id"}
    assert list(shown) == list(sent)
    assert {key: shown[key] for key in shown.keys() - own} == {
        key: sent[key] for key in sent.keys() - own
    }
    assert sent["subscription_id"] == made.uuid
    assert shown["attachments"]["organism"] == "Mus musculus"
    assert shown["attachments"]["_errors"].keys() == {"bad"}


@pytest.mark.spec("SUB-27")
def test_reports_failed_evaluations_per_bundle(stores: Stores, drain: Drain) -> None:
    mouse(stores, drain)
    mouse(stores, drain)
    drain()
    run = dry_run(stores, jmespath_query="abs(event_type)")
    assert ["abs()" in (one.error or "") for one in run.bundles] == [True, True]
    hostile = "|".join(["[@,@]"] * 30) + "|to_string(@)"
    assert "steps" in (dry_run(stores, jmespath_query=hostile).bundles[0].error or "")


@pytest.mark.spec("SUB-27", "NOT-07")
@pytest.mark.parametrize("over", [0, 1])
def test_attachments_are_cut_at_the_very_byte(stores: Stores, drain: Drain, over: int) -> None:
    room = ATTACHMENTS_MAX_BYTES - len('{"a":"ä"}'.encode()) + over
    content = json.dumps({"text": "ä" + "x" * room}).encode()
    bundle(stores, drain, {"long.json": content})
    drain()
    (tried,) = dry_run(stores, attachments=attaching(a="files.long_json[0].text")).bundles
    shown = json.loads(tried.payload or "")["attachments"]
    if over:
        assert shown.keys() == {"_errors"}
        assert str(ATTACHMENTS_MAX_BYTES + 1) in shown["_errors"]
    else:
        assert len(json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode()) == (
            ATTACHMENTS_MAX_BYTES
        )


@pytest.mark.spec("SUB-26")
def test_skips_deleted_and_missing_bundles(stores: Stores, drain: Drain) -> None:
    gone, kept = mouse(stores, drain), mouse(stores, drain)
    drain()
    bundles.delete(stores, "aws", gone.uuid, None, reason="wrong", author=OWNER)
    there: FQID = mouse(stores, drain)  # synced nowhere yet
    assert [one.fqid for one in dry_run(stores).bundles] == [there, kept]
    assert [one.fqid for one in dry_run(stores, replica="gcp").bundles] == [kept]


@pytest.mark.spec("SUB-28")
def test_time_is_bounded(stores: Stores, drain: Drain) -> None:
    for _ in range(3):
        mouse(stores, drain)
    drain()
    ticks = count(step=3)
    run = dry_run(stores, clock=lambda: float(next(ticks)))
    assert run.timed_out
    assert 0 < len(run.bundles) < 3


@pytest.mark.spec("SUB-28")
@pytest.mark.parametrize(
    "given",
    [
        {"jmespath_query": "|".join(["[@,@][]"] * 40)},
        {"attachments": attaching(a="|".join(["[@,@][]"] * 40))},
    ],
)
def test_time_is_bounded_within_one_evaluation(
    stores: Stores, drain: Drain, given: dict[str, Any]
) -> None:
    mouse(stores, drain)
    drain()
    asked = count()
    run = dry_run(stores, clock=lambda: float(next(asked)), **given)
    assert run == DryRun((), timed_out=True)
    assert next(asked) < 14


@pytest.mark.spec("SUB-25")
@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"callback_url": "http://127.0.0.1/"}, "invalid_callback_url"),
        ({"jmespath_query": "a["}, "invalid_jmespath"),
        ({"jmespath_query": "nope(a)"}, "invalid_jmespath"),
        ({"es_query": {"nonsense": {}}}, "elasticsearch_bad_request"),
        ({"attachments": attaching(_a="a")}, "invalid_attachment_name"),
        ({"attachments": attaching(a="a[")}, "invalid_attachment_expression"),
        ({"attachments": attaching(a="nope(a)")}, "invalid_attachment_expression"),
    ],
)
def test_rejects_invalid_subscriptions_alike(
    stores: Stores, given: dict[str, Any], code: str
) -> None:
    with pytest.raises(Invalid) as refused:
        dry_run(stores, **given)
    assert refused.value.code == code


@pytest.mark.spec("SUB-28")
def test_empty_store_has_no_results(stores: Stores) -> None:
    assert dry_run(stores) == DryRun((), timed_out=False)


def happened(stores: Stores, *fqids: FQID) -> list[str]:
    """The ids of what happened to bundles in aws, in order."""
    with stores.catalog.read() as tx:
        rows = tx.execute(
            text("SELECT id, uuid FROM events WHERE replica = 'aws' ORDER BY at_us, id")
        )
        return [row.id for row in rows if row.uuid in {fqid.uuid for fqid in fqids}]


@pytest.mark.spec("SUB-26", "SUB-27")
@pytest.mark.parametrize(
    "query",
    [
        {"jmespath_query": f"{ORGANISM} == 'Mus musculus'"},
        {"es_query": {"match": {"files.sample_json.organism.text": "mus"}}},
        {},
    ],
)
def test_payloads_of_events_equal_deliveries(
    stores: Stores, drain: Drain, query: dict[str, Any]
) -> None:
    """To the byte, for new and deleted bundles, with the ids of the subscription."""
    asked = replace(NEW, attachments=attaching(organism=ORGANISM, kind="event_type"), **query)
    made = subscriptions.create_subscription(
        stores, asked, OWNER, uuid=new_uuid(), seal=lambda *_: b"", limit=9, allow_private=False
    )
    kept, gone = mouse(stores, drain), mouse(stores, drain)
    plant = bundle(stores, drain, {"sample_1.json": b'{"organism": {"text": "Zea mays"}}'})
    drain()
    for fqid in (gone, plant):
        bundles.delete(stores, "aws", *fqid, reason="wrong", author=OWNER)
    drain()
    idents = happened(stores, kept, gone, plant)
    assert len(idents) == 5
    run = matching.dry_run_subscription(
        stores,
        asked,
        OWNER,
        uuid=made.uuid,
        limit=1,
        time_s=10.0,
        clock=lambda: 0.0,
        allow_private=False,
        event_ids=idents,
    )
    tried = [one.payload for one in run.bundles if one.payload is not None]
    with stores.catalog.read() as tx:
        sent = tx.execute(text("SELECT payload FROM deliveries ORDER BY id")).scalars().all()
    assert sorted(tried) == sorted(sent)
    assert len(tried) == {"jmespath_query": 3, "es_query": 2}.get(next(iter(query), ""), 5)


@pytest.mark.spec("SUB-26")
def test_purged_bundles_match_by_their_last_event_only(stores: Stores, drain: Drain) -> None:
    fqid = mouse(stores, drain)
    drain()
    bundles.delete(stores, "aws", *fqid, reason="wrong", author=OWNER)
    purges.order_purge(stores, *fqid, reason="wrong", author=OWNER)
    finish(stores, drain)
    idents = happened(stores, fqid)
    assert len(idents) == 3
    for query, matches in (
        (None, [False, False, True]),
        ("event_type == 'DELETE'", [False, False, True]),
        (f"{ORGANISM} == 'Mus musculus'", [False, False, False]),
    ):
        run = dry_run(
            stores, jmespath_query=query, attachments=attaching(o=ORGANISM), event_ids=idents
        )
        assert [one.matches for one in run.bundles] == matches
        for one in run.bundles:
            if one.payload is not None:
                shown = json.loads(one.payload)
                assert (shown["event_type"], shown["attachments"]) == ("DELETE", {"o": None})


@pytest.mark.spec("SUB-28")
def test_events_are_tried_in_order_until_the_time_runs_out(stores: Stores, drain: Drain) -> None:
    mice = [mouse(stores, drain) for _ in range(3)]
    drain()
    idents = happened(stores, *mice)
    turned = [idents[2], idents[0], idents[2]]
    run = dry_run(stores, event_ids=turned)
    assert [one.fqid for one in run.bundles] == [mice[2], mice[0], mice[2]]
    times = count(step=2.0)
    late = dry_run(stores, event_ids=idents, clock=lambda: next(times))
    assert late.timed_out
    assert [one.fqid for one in late.bundles] == mice[: len(late.bundles)]
    assert len(late.bundles) < 3


@pytest.mark.spec("SUB-26")
def test_names_unknown_events_and_those_of_another_replica(stores: Stores, drain: Drain) -> None:
    fqid = mouse(stores, drain)
    drain()
    (ident,) = happened(stores, fqid)
    with pytest.raises(Invalid) as caught:
        dry_run(stores, event_ids=[ident, new_uuid()])
    assert list(caught.value.errors) == ["/event_ids/1"]
    with pytest.raises(Invalid, match="in gcp"):
        dry_run(stores, event_ids=[ident], replica="gcp")
