"""A bundle's life through the workers' steps: verified, everywhere, found, told, checked out."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings
from pipelines.depositing import areas, checkouts, ingest, manifests, tombstones
from pipelines.depositing.ingest import Deposit
from pipelines.depositing.manifests import NewBundle, NewEntry
from pipelines.keeping import checksums
from pipelines.notifying import subscriptions
from pipelines.notifying.subscriptions import NewSubscription
from pipelines.replicating import sweeps
from storage import keys
from storage.catalog import deliveries, events, todo
from storage.catalog.subscriptions import Subscription
from storage.errors import NotFound
from storage.model import CHECKSUMS, FQID, Replica
from storage.query.grammar import parse_request
from storage.stores import Stores
from tests.builders import new_uuid, version

OWNER = "depositor@example.org"
Drain = Callable[[], int]


def stage(stores: Stores, content: bytes, content_type: str) -> str:
    sums = checksums.compute([content], len(content)).checksums
    metadata = {f"store-{field}": getattr(sums, field) for field in CHECKSUMS}
    area = new_uuid()
    areas.create(stores, area, OWNER)
    key = keys.area_file(area, "staged")
    stores.areas.put(key, content, content_type=content_type, metadata=metadata)
    return stores.areas.direct_url(key)


def deposit(stores: Stores, content: bytes, content_type: str = "application/json") -> FQID:
    fqid = FQID(new_uuid(), version())
    url = stage(stores, content, content_type)
    ingest.deposit(stores, Deposit(fqid, "aws", url, 1), OWNER)
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
    manifests.write(stores, NewBundle(fqid, "aws", 1, entries), OWNER)
    return fqid


def mouse(stores: Stores, drain: Drain) -> FQID:
    sample = json.dumps({"organism": {"text": "Mus musculus"}, "cells": 4}).encode()
    return bundle(stores, drain, {"sample_1.json": sample, "reads/r1.fastq": b"ACGT"})


def found(stores: Stores, replica: Replica, query: Mapping[str, Any]) -> list[str]:
    page = stores.search[replica].search(parse_request(query), size=10)
    return [f"{hit.uuid}.{hit.version}" for hit in page.hits]


def subscribe(stores: Stores, replica: Replica = "aws", **query: Any) -> Subscription:
    new = NewSubscription("http://127.0.0.1:9/hook", replica, **query)
    return subscriptions.create(
        stores,
        new,
        OWNER,
        uuid=new_uuid(),
        seal=lambda secret, _context: secret,
        limit=100,
        allow_private=True,
    )


def told(stores: Stores, subscription: Subscription) -> list[tuple[str, str]]:
    page = subscriptions.told(stores, subscription, limit=50)
    return sorted((delivery.event_type, delivery.state) for delivery in page)


def test_a_delivery_knows_the_request_that_caused_it(stores: Stores, drain: Drain) -> None:
    told_at = [subscribe(stores, **query).endpoint_id for query in ({}, {"es_query": {}})]
    entry = NewEntry("a.json", deposit(stores, b"{}"), True)
    drain()
    fqid = FQID(new_uuid(), version())
    manifests.write(stores, NewBundle(fqid, "aws", 1, [entry]), OWNER, request_id="request-1")
    drain()
    with stores.catalog.read() as tx:
        due = deliveries.due(tx, told_at[0], limit=10)
    assert [each.request_id for each in due] == ["request-1"] * 2


MICE = {"match": {"files.sample_json.organism.text": "mus"}}


def test_a_bundle_is_found_in_both_replicas(stores: Stores, drain: Drain) -> None:
    fqid = mouse(stores, drain)
    drain()
    for replica in stores.replicas:
        assert found(stores, replica, MICE) == [str(fqid)]
    with stores.catalog.read() as tx:
        assert todo.backlog(tx) == {}
        assert todo.count_parked(tx) == 0


def test_a_buried_bundle_is_found_nowhere(stores: Stores, drain: Drain) -> None:
    fqid = mouse(stores, drain)
    drain()
    tombstones.bury(stores, "gcp", fqid.uuid, None, reason="wrong", author=OWNER)
    drain()
    for replica in stores.replicas:
        assert found(stores, replica, {}) == []
        key = keys.tombstone("bundle", fqid.uuid)
        assert stores.replicas[replica].head(key).size > 0


def test_indexing_late_never_undoes_a_tombstone(stores: Stores, drain: Drain) -> None:
    fqid = mouse(stores, drain)
    tombstones.bury(stores, "aws", fqid.uuid, None, reason="wrong", author=OWNER)
    drain()
    assert found(stores, "aws", {}) == []


def test_both_kinds_of_subscriptions_are_told_and_the_tombstone_supersedes(
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
    tombstones.bury(stores, "aws", fqid.uuid, None, reason="wrong", author=OWNER)
    drain()
    assert told(stores, jmespath) == [("CREATE", "superseded"), ("TOMBSTONE", "pending")]
    assert ("TOMBSTONE", "pending") not in told(stores, stored)


def test_a_subscription_hears_nothing_of_what_was_before_it(stores: Stores, drain: Drain) -> None:
    mouse(stores, drain)
    drain()
    late = subscribe(stores, jmespath_query=None)
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE documents SET state = 'stub'")
    drain()
    assert told(stores, late) == []


def test_a_bundle_that_is_indexed_again_is_told_once(stores: Stores, drain: Drain) -> None:
    stored = subscribe(stores, es_query={})
    fqid = mouse(stores, drain)
    drain()
    with stores.catalog.write() as tx:
        todo.add_new(tx, [todo.Todo("index", "aws", str(fqid))])
        event = events.event_id("CREATE", "aws", fqid)
        todo.add_new(tx, [todo.Todo("percolate", "aws", event)])
    drain()
    assert told(stores, stored) == [("CREATE", "pending")]


def checked_out(stores: Stores, drain: Drain, fqid: FQID, **more: Any) -> Any:
    wanted = checkouts.Wanted("aws", fqid.uuid, None, **more)
    asked = checkouts.request(stores, wanted, OWNER)
    drain()
    return checkouts.status(stores, "aws", asked.job_id)


def test_a_checkout_lays_plain_files_out(stores: Stores, drain: Drain, tmp_path: Path) -> None:
    fqid = mouse(stores, drain)
    job = checked_out(stores, drain, fqid)
    assert job.state == "SUCCEEDED"
    assert (job.files, job.files_total) == (2, 2)
    assert job.bytes == job.bytes_total
    folder = Path(job.location.removeprefix("file://"))
    assert (folder / "reads/r1.fastq").read_bytes() == b"ACGT"
    assert json.loads((folder / "sample_1.json").read_bytes())["cells"] == 4


def test_a_checkout_to_an_absent_bucket_fails_with_its_cause(stores: Stores, drain: Drain) -> None:
    job = checked_out(stores, drain, mouse(stores, drain), destination="nobodys-bucket")
    assert job.state == "FAILED"
    assert "nobodys-bucket" in job.cause


def test_a_checkout_expires(stores: Stores, drain: Drain) -> None:
    job = checked_out(stores, drain, mouse(stores, drain))
    assert checkouts.expire(stores, job.finished_us + 1) == 1
    assert not Path(job.location.removeprefix("file://")).exists()
    assert checkouts.status(stores, "aws", job.id).state == "EXPIRED"


@pytest.mark.parametrize("damaged", [("aws",), ("aws", "gcp")])
def test_a_checkout_has_whole_bytes_or_fails(
    stores: Stores, drain: Drain, damaged: tuple[Replica, ...]
) -> None:
    fqid = mouse(stores, drain)
    drain()
    key = keys.blob(hashlib.sha256(b"ACGT").hexdigest())
    for replica in damaged:
        stores.replicas[replica].delete(key)
        stores.replicas[replica].put(key, b"ACGA")
    job = checked_out(stores, drain, fqid)
    if len(damaged) == 1:
        assert job.state == "SUCCEEDED", "read from the other replica"
    else:
        assert job.state in ("RUNNING", "FAILED"), "never SUCCEEDED"


@pytest.mark.parametrize("replica", ["aws", "gcp"])
def test_what_never_was_cannot_be_checked_out(stores: Stores, replica: Replica) -> None:
    with pytest.raises(NotFound):
        checkouts.request(stores, checkouts.Wanted(replica, new_uuid(), None), None)


def test_metadata_that_does_not_parse_is_reported_and_the_rest_found(
    stores: Stores, drain: Drain, caplog: pytest.LogCaptureFixture
) -> None:
    fqid = bundle(stores, drain, {"good.json": b'{"a": "b"}', "bad.json": b'{"a":'})
    with caplog.at_level("WARNING", "pipelines.finding.loading"):
        drain()
    assert any(str(fqid) in line and "bad.json" in line for line in caplog.messages)
    assert found(stores, "aws", {"match": {"files.good_json.a": "b"}}) == [str(fqid)]
    document = json.loads(stores.search["aws"].get(fqid.uuid, fqid.version) or b"{}")
    assert [error["file"] for error in document["errors"]] == ["bad.json"]


def test_documents_that_an_index_lost_are_found_again_and_nobody_is_told_twice(
    stores: Stores, drain: Drain, settings: Settings
) -> None:
    stored = subscribe(stores, es_query={})
    fqid, gone = mouse(stores, drain), mouse(stores, drain)
    drain()
    tombstones.bury(stores, "aws", gone.uuid, None, reason="wrong", author=OWNER)
    drain()
    before = told(stores, stored)
    for index in stores.search.values():
        index.close()  # type: ignore[attr-defined]
    for file in (settings.home / "search").iterdir():
        file.unlink()
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE documents SET at_us = at_us - 1000000000")
    lost = {swept.replica: swept.missing for swept in sweeps.indexing(stores)}
    assert lost == {"aws": 2, "gcp": 2}
    drain()
    for replica in stores.replicas:
        assert set(stores.search[replica].held()) == {fqid, gone}
        assert found(stores, replica, {}) == [str(fqid)]
    assert told(stores, stored) == before
    assert [swept.missing for swept in sweeps.indexing(stores)] == [0, 0]
