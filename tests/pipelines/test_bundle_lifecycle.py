"""A bundle through all steps: verify, sync, index, notify, check out."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from config import Settings
from pipelines import areas, bundles, checkouts, checksums, ingest, subscriptions, sweeps
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.ingest import IngestRequest
from pipelines.subscriptions import NewSubscription
from storage import keys
from storage.catalog import deliveries, events, jobs
from storage.catalog.subscriptions import Subscription
from storage.errors import NotFoundError
from storage.model import CHECKSUM_NAMES, FQID, Job, Replica
from storage.search.grammar.parser import parse_query
from storage.stores import Stores
from tests.builders import new_uuid, version

OWNER = "depositor@example.org"
Drain = Callable[[], int]


def stage(stores: Stores, content: bytes, content_type: str) -> str:
    sums = checksums.compute_checksums([content], len(content)).checksums
    metadata = {f"store-{field}": getattr(sums, field) for field in CHECKSUM_NAMES}
    area = new_uuid()
    areas.create(stores, area, OWNER)
    key = keys.area_file_key(area, "staged")
    stores.areas.put(key, content, content_type=content_type, metadata=metadata)
    return stores.areas.direct_url(key)


def deposit(stores: Stores, content: bytes, content_type: str = "application/json") -> FQID:
    fqid = FQID(new_uuid(), version())
    url = stage(stores, content, content_type)
    ingest.start_task(stores, IngestRequest(fqid, "aws", url, 1), OWNER)
    return fqid


def bundle(stores: Stores, drain: Drain, contents: Mapping[str, bytes]) -> FQID:
    """Deposited whole; what follows is left to do."""
    entries = []
    for name, content in contents.items():
        metadata = name.endswith(".json")
        kind = "application/json" if metadata else "application/octet-stream"
        entries.append(NewEntry(name, deposit(stores, content, kind), metadata))
    drain()
    fqid = FQID(new_uuid(), version())
    bundles.put(stores, BundleDraft(fqid, "aws", 1, entries), OWNER)
    return fqid


def mouse(stores: Stores, drain: Drain) -> FQID:
    sample = json.dumps({"organism": {"text": "Mus musculus"}, "cells": 4}).encode()
    return bundle(stores, drain, {"sample_1.json": sample, "reads/r1.fastq": b"ACGT"})


def found(stores: Stores, replica: Replica, query: Mapping[str, Any]) -> list[str]:
    page = stores.search[replica].search(parse_query(query), size=10)
    return [f"{hit.uuid}.{hit.version}" for hit in page.hits]


def subscribe(stores: Stores, replica: Replica = "aws", **query: Any) -> Subscription:
    new = NewSubscription("http://127.0.0.1:9/hook", replica, **query)
    return subscriptions.create_subscription(
        stores,
        new,
        OWNER,
        uuid=new_uuid(),
        seal=lambda secret, _context: secret,
        limit=100,
        allow_private=True,
    )


def told(stores: Stores, subscription: Subscription) -> list[tuple[str, str]]:
    page = subscriptions.list_deliveries(stores, subscription, limit=50)
    return sorted((delivery.event_type, delivery.state) for delivery in page)


@pytest.mark.spec("BUN-35")
def test_a_delivery_knows_the_request_that_caused_it(stores: Stores, drain: Drain) -> None:
    told_at = [subscribe(stores, **query).endpoint_id for query in ({}, {"es_query": {}})]
    entry = NewEntry("a.json", deposit(stores, b"{}"), True)
    drain()
    fqid = FQID(new_uuid(), version())
    bundles.put(stores, BundleDraft(fqid, "aws", 1, [entry]), OWNER, request_id="request-1")
    drain()
    with stores.catalog.read() as tx:
        due = deliveries.list_due(tx, told_at[0], limit=10)
    assert [each.request_id for each in due] == ["request-1"] * 2


MICE = {"match": {"files.sample_json.organism.text": "mus"}}


@pytest.mark.spec("SVC-08")
def test_a_bundle_is_found_in_both_replicas(stores: Stores, drain: Drain) -> None:
    fqid = mouse(stores, drain)
    drain()
    for replica in stores.replicas:
        assert found(stores, replica, MICE) == [str(fqid)]
    with stores.catalog.read() as tx:
        assert jobs.count_open(tx) == {}
        assert jobs.count_dead(tx) == 0


@pytest.mark.spec("BUN-51", "BUN-52")
def test_a_buried_bundle_is_found_nowhere(stores: Stores, drain: Drain) -> None:
    fqid = mouse(stores, drain)
    drain()
    bundles.delete(stores, "gcp", fqid.uuid, None, reason="wrong", author=OWNER)
    drain()
    for replica in stores.replicas:
        assert found(stores, replica, {}) == []
        key = keys.tombstone_key("bundle", fqid.uuid)
        assert stores.replicas[replica].head(key).size > 0


@pytest.mark.spec("BUN-51", "SEA-08")
def test_indexing_late_never_undoes_a_tombstone(stores: Stores, drain: Drain) -> None:
    fqid = mouse(stores, drain)
    bundles.delete(stores, "aws", fqid.uuid, None, reason="wrong", author=OWNER)
    drain()
    assert found(stores, "aws", {}) == []


@pytest.mark.spec("SVC-09", "NOT-08", "NOT-12")
def test_notifies_both_kinds_of_subscriptions_and_tombstone_supersedes(
    stores: Stores, drain: Drain
) -> None:
    wanted = "files.sample_json[0].organism.text == 'Mus musculus'"
    jmespath = subscribe(stores, jmespath_query=wanted)
    unmoved = subscribe(stores, jmespath_query="files.sample_json[0].cells > `9`")
    stored = subscribe(stores, es_query={"query": MICE})
    elsewhere = subscribe(stores, "gcp", es_query={})
    fqid = mouse(stores, drain)
    drain()
    assert told(stores, jmespath) == [("CREATE", "pending")]
    assert told(stores, unmoved) == []
    assert told(stores, stored) == [("CREATE", "pending")]
    assert told(stores, elsewhere) == [("CREATE", "pending")]
    bundles.delete(stores, "aws", fqid.uuid, None, reason="wrong", author=OWNER)
    drain()
    assert told(stores, jmespath) == [("CREATE", "superseded"), ("TOMBSTONE", "pending")]
    assert ("TOMBSTONE", "pending") not in told(stores, stored)


@pytest.mark.spec("NOT-11")
def test_new_subscription_gets_no_past_events(stores: Stores, drain: Drain) -> None:
    mouse(stores, drain)
    drain()
    late = subscribe(stores, jmespath_query=None)
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE documents SET state = 'stub'")
    drain()
    assert told(stores, late) == []


@pytest.mark.spec("SEA-25", "NOT-08")
def test_reindexed_bundle_is_notified_once(stores: Stores, drain: Drain) -> None:
    stored = subscribe(stores, es_query={})
    fqid = mouse(stores, drain)
    drain()
    with stores.catalog.write() as tx:
        jobs.insert_new(tx, [Job("index", "aws", str(fqid))])
        event = events.make_event_id("CREATE", "aws", fqid)
        jobs.insert_new(tx, [Job("percolate", "aws", event)])
    drain()
    assert told(stores, stored) == [("CREATE", "pending")]


def checked_out(stores: Stores, drain: Drain, fqid: FQID, **more: Any) -> Any:
    wanted = checkouts.CheckoutRequest("aws", fqid.uuid, None, **more)
    asked = checkouts.create(stores, wanted, OWNER)
    drain()
    return checkouts.get_status(stores, "aws", asked.job_id)


@pytest.mark.spec("SVC-10", "CHK-05")
def test_a_checkout_lays_plain_files_out(stores: Stores, drain: Drain, tmp_path: Path) -> None:
    fqid = mouse(stores, drain)
    job = checked_out(stores, drain, fqid)
    assert job.state == "SUCCEEDED"
    assert (job.files, job.files_total) == (2, 2)
    assert job.bytes == job.bytes_total
    folder = Path(job.location.removeprefix("file://"))
    assert (folder / "reads/r1.fastq").read_bytes() == b"ACGT"
    assert json.loads((folder / "sample_1.json").read_bytes())["cells"] == 4


@pytest.mark.spec("CHK-10")
def test_a_checkout_to_an_absent_bucket_fails_with_its_cause(stores: Stores, drain: Drain) -> None:
    job = checked_out(stores, drain, mouse(stores, drain), destination="nobodys-bucket")
    assert job.state == "FAILED"
    assert "nobodys-bucket" in job.cause


@pytest.mark.spec("CHK-11")
def test_a_checkout_expires(stores: Stores, drain: Drain) -> None:
    job = checked_out(stores, drain, mouse(stores, drain))
    assert checkouts.expire(stores, job.finished_us + 1) == 1
    assert not Path(job.location.removeprefix("file://")).exists()
    assert checkouts.get_status(stores, "aws", job.id).state == "EXPIRED"


@pytest.mark.spec("CHK-05")
@pytest.mark.parametrize("damaged", [("aws",), ("aws", "gcp")])
def test_a_checkout_has_whole_bytes_or_fails(
    stores: Stores, drain: Drain, damaged: tuple[Replica, ...]
) -> None:
    fqid = mouse(stores, drain)
    drain()
    key = keys.blob_key(hashlib.sha256(b"ACGT").hexdigest())
    for replica in damaged:
        stores.replicas[replica].delete(key)
        stores.replicas[replica].put(key, b"ACGA")
    job = checked_out(stores, drain, fqid)
    if len(damaged) == 1:
        assert job.state == "SUCCEEDED", "read from the other replica"
    else:
        assert job.state in ("RUNNING", "FAILED"), "never SUCCEEDED"


@pytest.mark.spec("CHK-07")
@pytest.mark.parametrize("replica", ["aws", "gcp"])
def test_checkout_of_absent_bundle_is_not_found(stores: Stores, replica: Replica) -> None:
    with pytest.raises(NotFoundError):
        checkouts.create(stores, checkouts.CheckoutRequest(replica, new_uuid(), None), None)


@pytest.mark.spec("SEA-16")
def test_metadata_that_does_not_parse_is_reported_and_the_rest_found(
    stores: Stores, drain: Drain, caplog: pytest.LogCaptureFixture
) -> None:
    fqid = bundle(stores, drain, {"good.json": b'{"a": "b"}', "bad.json": b'{"a":'})
    with caplog.at_level("WARNING", "pipelines.documents"):
        drain()
    assert any(str(fqid) in line and "bad.json" in line for line in caplog.messages)
    assert found(stores, "aws", {"match": {"files.good_json.a": "b"}}) == [str(fqid)]
    document = json.loads(stores.search["aws"].get(fqid.uuid, fqid.version) or b"{}")
    assert [error["file"] for error in document["errors"]] == ["bad.json"]


@pytest.mark.spec("SEA-25", "NOT-08")
def test_reindexes_lost_documents_without_new_notifications(
    stores: Stores, drain: Drain, settings: Settings
) -> None:
    stored = subscribe(stores, es_query={})
    fqid, gone = mouse(stores, drain), mouse(stores, drain)
    drain()
    bundles.delete(stores, "aws", gone.uuid, None, reason="wrong", author=OWNER)
    drain()
    before = told(stores, stored)
    for index in stores.search.values():
        index.close()  # type: ignore[attr-defined]
    for file in (settings.home / "search").iterdir():
        file.unlink()
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE documents SET at_us = at_us - 1000000000")
    lost = {swept.replica: swept.missing for swept in sweeps.sweep_indexes(stores)}
    assert lost == {"aws": 2, "gcp": 2}
    drain()
    for replica in stores.replicas:
        assert set(stores.search[replica].list_ids()) == {fqid, gone}
        assert found(stores, replica, {}) == [str(fqid)]
    assert told(stores, stored) == before
    assert [swept.missing for swept in sweeps.sweep_indexes(stores)] == [0, 0]


@pytest.mark.spec("CHK-11")
def test_checkout_retention_starts_at_its_end(stores: Stores, drain: Drain) -> None:
    job = checked_out(stores, drain, mouse(stores, drain))
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE checkouts SET created_us = 0")

    assert checkouts.expire(stores, job.finished_us) == 0
