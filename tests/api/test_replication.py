"""The replication report, and reads while a replica is down."""

import shutil
from dataclasses import replace
from random import Random

import pytest
from flask.testing import FlaskClient
from sqlalchemy import text

from api.app import create_app
from pipelines import collections
from pipelines.collections import CollectionDraft
from pipelines.flow import Step
from pipelines.replication import sync_version
from storage.catalog import documents, events, jobs, replication, versions
from storage.catalog.documents import IndexRecord
from storage.circuit_breaker import CircuitBreaker
from storage.connect import connect
from storage.errors import Unavailable
from storage.model import FQID, REPLICAS, CollectionLink, Job
from tests.api.builders import INGEST, VERSION, Depositor, uuid_of
from tests.api.conftest import verify
from tests.builders import make_file
from tests.waiting import until
from workers.actors import STEP_FUNCTIONS
from workers.broker import MemoryBroker
from workers.claims import WorkerContext, run_job
from workers.messages import MessageSender

REPORT = "/v1/replication"


@pytest.mark.spec("REP-01")
def test_empty_store_reports_nothing(client) -> None:
    answer = client.get(REPORT)
    assert answer.status_code == 200
    told = answer.json
    assert told["lag"] == [
        {"kind": kind, "replica": replica, "versions": 0}
        for kind in ("file", "bundle", "collection")
        for replica in ("aws", "gcp")
    ]
    for name in ("oldest", "backlog", "failures", "diverged", "unindexed"):
        assert told[name] == []
    assert client.get("/replication").status_code == 200


def number_events(stores) -> None:

    with stores.catalog.write() as tx:
        events.assign_sequence(tx)


@pytest.mark.spec("REP-01")
def test_lag_is_from_publication_to_presence_in_the_other_replica(
    client, depositor, stores
) -> None:
    for number in range(1, 5):
        depositor.bundle(number)
    number_events(stores)
    with stores.catalog.write() as tx:
        for number, seconds in enumerate((1, 2, 3, 100), start=1):
            tx.execute(
                text(
                    "UPDATE events SET at_us = :us + (SELECT published_us FROM bundles"
                    " WHERE bundles.id = events.bundle_id)"
                    " WHERE uuid = :uuid AND replica = 'gcp'"
                ),
                {"us": seconds * 1_000_000, "uuid": uuid_of(number)},
            )
    (gcp,) = lags(client, "bundle", "gcp")
    assert gcp == {
        "kind": "bundle", "replica": "gcp", "versions": 4, "p50_s": 2.0, "p99_s": 100.0
    }  # fmt: skip
    with stores.catalog.write() as tx:
        tx.execute(text("UPDATE events SET at_us = at_us - 7200000000"))
    assert [lag["versions"] for lag in lags(client, "bundle")] == [0, 0]


@pytest.mark.spec("REP-01")
def test_the_slowest_of_many_is_not_what_99_of_100_were_faster_than(
    client, depositor, stores
) -> None:
    depositor.bundle(1)
    number_events(stores)
    with stores.catalog.write() as tx:
        tx.execute(
            text(
                "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 199)"
                " INSERT INTO events (id, replica, type, uuid, version, bundle_id, at_us, seq,"
                " seq_us) SELECT 'e' || n, e.replica, e.type, e.uuid, 'v' || n, e.bundle_id,"
                " b.published_us + n * 1000000, e.seq + n, e.seq_us + n FROM n, events e"
                " JOIN bundles b ON b.id = e.bundle_id WHERE e.replica = 'gcp'"
            )
        )
        # The two hundredth is the bundle's own.
        tx.execute(
            text(
                "UPDATE events SET at_us = 200000000 + (SELECT published_us FROM bundles"
                " WHERE bundles.id = events.bundle_id) WHERE replica = 'gcp' AND version = :version"
            ),
            {"version": VERSION},
        )
    (gcp,) = lags(client, "bundle", "gcp")
    assert (gcp["versions"], gcp["p50_s"], gcp["p99_s"]) == (200, 100.0, 198.0)


def lags(client, kind: str, *replicas: str):
    """Those of a kind in these replicas, or in all."""
    told = client.get(REPORT).json["lag"]
    return [one for one in told if one["kind"] == kind and one["replica"] in (replicas or REPLICAS)]


@pytest.mark.spec("REP-01")
@pytest.mark.parametrize("kind", ["file", "collection"])
def test_files_and_collections_have_a_lag_too(client, depositor, stores, kind) -> None:
    for number in range(1, 5):
        depositor.file(number)
        link = {"type": "file", "uuid": uuid_of(number), "version": VERSION}
        put = client.put(
            f"/v1/collections?replica=aws&uuid={uuid_of(10 + number)}&version={VERSION}",
            json={"name": "n", "description": "", "details": {}, "contents": [link]},
            headers=INGEST,
        )
        assert put.status_code == 201, put.text
    depositor.drain()
    with stores.catalog.write() as tx:
        for number, seconds in enumerate((4, 3, 2, 1), start=1):
            uuid = uuid_of(number if kind == "file" else 10 + number)
            ident = versions.find_published(tx, kind, "gcp", FQID(uuid, VERSION))
            tx.execute(
                text(
                    "UPDATE presence SET at_us = :us + (SELECT published_us FROM"
                    f" {kind}s WHERE {kind}s.id = presence.id)"
                    " WHERE kind = :kind AND id = :id AND replica = 'gcp'"
                ),
                {"us": seconds * 1_000_000, "kind": kind, "id": ident},
            )
    assert lags(client, kind) == [
        {"kind": kind, "replica": "aws", "versions": 0},
        {"kind": kind, "replica": "gcp", "versions": 4, "p50_s": 2.0, "p99_s": 4.0},
    ]
    with stores.catalog.write() as tx:
        tx.execute(text("UPDATE presence SET at_us = at_us - 7200000000"))
    assert [one["versions"] for one in lags(client, kind)] == [0, 0]


@pytest.mark.spec("REP-02", "REP-03", "REP-04")
def test_missing_copy_has_age_and_reason(client, depositor, stores) -> None:
    entry = depositor.file(1)
    uuid = uuid_of(7)
    assert depositor.put_bundle(uuid, [entry]).status_code == 201
    row = Job("sync", "gcp", f"bundle:{uuid}.{VERSION}")
    with stores.catalog.write() as tx:
        tx.execute(text("UPDATE todo SET born_us = born_us - 60000000 WHERE step = 'sync'"))
        held = jobs.claim(tx, row, token="t", lease_s=1, max_claims=5)
        jobs.postpone(tx, held, delay_s=30, reason="the bucket is away")
    told = client.get(REPORT).json
    (oldest,) = told["oldest"]
    assert (oldest["kind"], oldest["name"], oldest["replica"]) == (
        "bundle",
        f"{uuid}.{VERSION}",
        "gcp",
    )
    assert oldest["age_s"] >= 60
    assert oldest["reason"] == "the bucket is away"
    synced = {(one["kind"], one["step"], one["replica"]): one["rows"] for one in told["backlog"]}
    assert synced == {("bundle", "sync", "gcp"): 1, ("document", "index", "aws"): 1}
    assert [one["reason"] for one in told["failures"]] == ["the bucket is away"]


@pytest.mark.spec("REP-04")
def test_waiting_collection_names_missing_link(client, stores) -> None:
    """With the real step: its target's own copy was put aside."""
    file = make_file(stores, b"stuck")
    fqid = FQID(uuid_of(8), VERSION)
    new = CollectionDraft(fqid, "aws", "n", "d", {}, [CollectionLink("file", file)])
    collections.put(stores, new, "curator@example.org")
    theirs, ours = (Job("sync", "gcp", ref) for ref in (f"file:{file}", f"collection:{fqid}"))
    with stores.catalog.write() as tx:
        jobs.insert(tx, [theirs])
        held = jobs.claim(tx, theirs, token="t", lease_s=1, max_claims=5)
        jobs.mark_dead(tx, held, reason="it broke")
    steps = {Step.SYNC: sync_version}
    assert not run_job(
        WorkerContext(stores, MessageSender(MemoryBroker()), steps, 5, Random(1)), ours
    )
    told = client.get(REPORT).json
    parked, waits = told["failures"]
    assert (parked["kind"], parked["parked"]) == ("file", True)
    assert (waits["kind"], waits["name"], waits["parked"]) == ("collection", str(fqid), False)
    assert f"file {file} was put aside (it broke)" in waits["reason"]


@pytest.mark.spec("REP-02", "REP-03", "REP-04")
def test_dead_job_counts_as_failure(client, stores) -> None:
    row = Job("sync_large", "aws", f"file:{uuid_of(1)}.{VERSION}")
    with stores.catalog.write() as tx:
        others = [Job("sync", "aws", f"file:{uuid_of(number)}.{VERSION}") for number in (2, 3)]
        jobs.insert(tx, [row, *others])
        tx.execute(text("UPDATE todo SET born_us = born_us - 1000 WHERE step = 'sync_large'"))
        jobs.mark_dead(
            tx, jobs.claim(tx, row, token="t", lease_s=1, max_claims=5), reason="it broke"
        )
    told = client.get(REPORT).json
    assert [(one["step"], one["parked"]) for one in told["oldest"]] == [("sync_large", True)]
    assert [(one["parked"], one["reason"]) for one in told["failures"]] == [(True, "it broke")]
    assert [(one["step"], one["parked"], one["rows"]) for one in told["backlog"]] == [
        ("sync", False, 2),
        ("sync_large", True, 1),
    ]


@pytest.mark.spec("SEA-22", "REP-05", "REP-06")
def test_diverged_records_and_refused_documents_are_named(client, depositor, stores) -> None:
    uuid = depositor.bundle(1)
    with stores.catalog.write() as tx:
        ident = versions.find_published(tx, "bundle", "aws", FQID(uuid, VERSION))
        versions.record_stored(tx, "bundle", ident, "gcp", diverged=True)
        documents.record_states(
            tx, "aws", [IndexRecord(ident, "unindexed", "s", 9, "too many fields")]
        )
    told = client.get(REPORT).json
    (record,) = told["diverged"]
    assert (record["kind"], record["replica"], record["name"]) == (
        "bundle",
        "gcp",
        f"{uuid}.{VERSION}",
    )
    (document,) = told["unindexed"]
    assert (document["bundle"], document["reason"]) == (f"{uuid}.{VERSION}", "too many fields")
    assert (told["diverged_total"], told["unindexed_total"]) == (1, 1)


@pytest.mark.spec("REP-07")
def test_report_queries_use_indexes(stores) -> None:
    if not stores.catalog.sqlite:
        pytest.skip("the planner of an empty PostgreSQL scans")

    statement, given = replication._build_scan(["sync", "bury"], replication._SELECT_BACKLOG)
    with stores.catalog.read() as tx:
        plan = [row[3] for row in tx.execute(text(f"EXPLAIN QUERY PLAN {statement}"), given)]
        for kind in ("file", "collection"):
            lags = replication._LAGS[kind].replace(":now", "9")
            asked = {"replica": "gcp", "limit": 5, "window": 7}
            told = [row[3] for row in tx.execute(text(f"EXPLAIN QUERY PLAN {lags}"), asked)]
            assert any("ix_presence_arrived" in line for line in told), told
            assert not any(line.startswith("SCAN ") and " p" not in line for line in told), told
    scans = [line for line in plan if line.startswith("SCAN todo")]
    assert all("INDEX" in line for line in scans), plan
    assert sum("ix_todo_due" in line for line in plan) == 2


# One version


@pytest.mark.spec("BUN-20")
def test_bundle_shows_status_of_each_replica(client, depositor, stores) -> None:
    entry = depositor.file(1)
    uuid = uuid_of(7)
    depositor.put_bundle(uuid, [entry])
    path = f"/v1/bundles/{uuid}?replica=aws"
    assert "replication" not in client.get(path).json["bundle"]
    stands = client.get(f"{path}&replication=true").json["bundle"]["replication"]
    assert (stands["aws"]["state"], stands["gcp"]["state"]) == ("present", "pending")
    assert stands["gcp"]["at"]
    depositor.drain()
    stands = client.get(f"{path}&replication=1").json["bundle"]["replication"]
    assert [stands[replica]["state"] for replica in ("aws", "gcp")] == ["present", "present"]
    with stores.catalog.write() as tx:
        ident = versions.find_published(tx, "bundle", "aws", FQID(uuid, VERSION))
        versions.record_stored(tx, "bundle", ident, "gcp", diverged=True)
    stands = client.get(f"{path}&replication=1").json["bundle"]["replication"]
    assert stands["gcp"]["state"] == "diverged"


@pytest.mark.spec("BUN-20")
def test_failed_copy_has_reason(client, depositor, stores) -> None:
    uuid = uuid_of(7)
    depositor.put_bundle(uuid, [depositor.file(1)])
    row = Job("sync", "gcp", f"bundle:{uuid}.{VERSION}")
    with stores.catalog.write() as tx:
        held = jobs.claim(tx, row, token="t", lease_s=1, max_claims=5)
        jobs.mark_dead(tx, held, reason="no such bucket")
    stands = client.get(f"/v1/bundles/{uuid}?replica=aws&replication=1").json["bundle"]
    told = stands["replication"]["gcp"]
    assert (told["state"], told["reason"]) == ("parked", "no such bucket")


@pytest.mark.spec("FIL-37")
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_file_replication_is_in_header(client, depositor, method) -> None:
    depositor.file(1)
    path = f"/v1/files/{uuid_of(1)}?replica=aws"
    assert "X-STORE-REPLICATION" not in client.open(path, method=method).headers
    told = client.open(f"{path}&replication=true", method=method).headers["X-STORE-REPLICATION"]
    parts = [part.split(";at=") for part in told.split(", ")]
    assert [state for state, _ in parts] == ["aws=present", "gcp=present"]
    assert all(at.startswith('"20') for _, at in parts)


# While a replica is down


@pytest.fixture
def parts() -> CircuitBreaker:
    def fail() -> None:
        raise OSError("no route to host")

    probes = {"bucket.aws": fail}
    return CircuitBreaker(probes, {"search.aws": fail}, start=lambda work: work())


@pytest.fixture
def lame(settings, stores, job_queue, parts) -> FlaskClient:
    """A store whose bucket aws is known to be down."""
    for _ in range(2):
        parts.record_failure("bucket.aws")
    own = replace(stores, circuit_breaker=parts)
    return create_app(settings, own, job_queue=job_queue, verify=verify).test_client()


@pytest.mark.spec("FIL-38")
def test_file_of_failed_replica_is_served_from_the_other(lame, client, depositor) -> None:
    depositor.file(1, b"the bytes")
    path = f"/v1/files/{uuid_of(1)}?replica=aws"
    usual, now = client.get(path), lame.get(path)
    assert "X-STORE-SERVED-BY" not in usual.headers
    assert (now.status_code, now.headers["X-STORE-SERVED-BY"]) == (302, "gcp")
    assert "/objects/aws/" in usual.headers["Location"]
    assert "/objects/gcp/" in now.headers["Location"]
    assert lame.get(now.headers["Location"]).data == b"the bytes"
    assert lame.head(path).headers["X-STORE-SERVED-BY"] == "gcp"
    assert "X-STORE-SERVED-BY" not in lame.get(path.replace("aws", "gcp")).headers


@pytest.mark.spec("BUN-21")
def test_bundle_urls_use_the_other_replica_during_outage(lame, depositor) -> None:
    uuid = depositor.bundle(1, files=2)
    path = f"/v1/bundles/{uuid}?replica=aws"
    answer = lame.get(f"{path}&presignedurls=true")
    assert answer.headers["X-STORE-SERVED-BY"] == "gcp"
    assert all("/objects/gcp/" in file["url"] for file in answer.json["bundle"]["files"])
    assert "X-STORE-SERVED-BY" not in lame.get(path).headers


@pytest.mark.spec("FIL-38")
def test_absent_objects_stay_absent_during_outage(lame, depositor, stores) -> None:
    depositor.file(1)
    with stores.catalog.write() as tx:
        tx.execute(text("DELETE FROM visible WHERE replica = 'gcp'"))
    answer = lame.get(f"/v1/files/{uuid_of(1)}?replica=aws")
    assert answer.status_code == 302
    assert "X-STORE-SERVED-BY" not in answer.headers


@pytest.mark.spec("FIL-38")
def test_file_in_other_replica_only_is_served_without_wait(lame, depositor, stores) -> None:
    depositor.file(1)
    with stores.catalog.write() as tx:
        tx.execute(text("DELETE FROM visible WHERE replica = 'aws'"))
    answer = lame.get(f"/v1/files/{uuid_of(1)}?replica=aws", headers={"Prefer": "wait=20"})
    assert (answer.status_code, answer.headers["X-STORE-SERVED-BY"]) == (302, "gcp")


@pytest.mark.spec("BUN-21")
def test_a_tombstone_hides_from_both(lame, depositor) -> None:
    uuid = depositor.bundle(1)
    lame.delete(f"/v1/bundles/{uuid}?replica=gcp", json={"reason": "withdrawn"}, headers=INGEST)
    assert lame.get(f"/v1/bundles/{uuid}?replica=aws&presignedurls=1").status_code == 404


@pytest.mark.spec("FIL-38")
def test_requested_replica_answers_if_both_are_down(settings, stores, job_queue, depositor) -> None:
    depositor.file(1)

    def fail() -> None:
        raise OSError("no route to host")

    parts = CircuitBreaker({"bucket.aws": fail, "bucket.gcp": fail}, start=lambda work: work())
    for name in ("bucket.aws", "bucket.gcp") * 2:
        parts.record_failure(name)
    own = replace(stores, circuit_breaker=parts)
    client = create_app(settings, own, job_queue=job_queue, verify=verify).test_client()
    assert "X-STORE-SERVED-BY" not in client.get(f"/v1/files/{uuid_of(1)}?replica=aws").headers


class Broken:
    """An index that cannot be reached, and counts how often that was tried."""

    def __init__(self) -> None:
        self.asked = 0

    def search(self, *_args, **_more):
        self.asked += 1
        raise Unavailable("no route to host")

    count_facets = list_fields = search


@pytest.mark.spec("SEA-30", "SEA-33")
def test_facets_and_fields_are_answered_by_the_other_index(
    settings, stores, job_queue, parts, depositor
) -> None:
    depositor.bundle(1)
    own = replace(
        stores, search={"aws": Broken(), "gcp": stores.search["gcp"]}, circuit_breaker=parts
    )
    client = create_app(settings, own, job_queue=job_queue, verify=verify).test_client()
    counted = client.post(
        "/v1/search/facets?replica=aws", json={"es_query": {}, "fields": ["uuid"]}
    )
    listed = client.get("/v1/search/fields?replica=aws&prefix=uuid")
    for answer in (counted, listed):
        assert (answer.status_code, answer.headers["X-STORE-SERVED-BY"]) == (200, "gcp")
    assert counted.json["total"] == listed.json["fields"][0]["documents"] == 1


@pytest.mark.spec("SEA-13")
def test_a_search_is_answered_by_the_other_index(
    settings, stores, job_queue, parts, depositor
) -> None:
    uuid = depositor.bundle(1)
    broken = Broken()
    own = replace(
        stores, search={"aws": broken, "gcp": stores.search["gcp"]}, circuit_breaker=parts
    )
    client = create_app(settings, own, job_queue=job_queue, verify=verify).test_client()
    for _ in range(5):
        answer = client.post("/v1/search?replica=aws", json={"es_query": {}})
        assert (answer.status_code, answer.headers["X-STORE-SERVED-BY"]) == (200, "gcp")
        (result,) = answer.json["results"]
        assert result["bundle_fqid"] == f"{uuid}.{VERSION}"
        assert "replica=gcp" in result["bundle_url"]
    assert broken.asked == 2


@pytest.mark.spec("CHK-06")
def test_a_checkout_copies_from_the_replica_that_works(
    settings, stores, job_queue, depositor: Depositor, drain
) -> None:
    uuid = depositor.bundle(1)
    root = stores.replicas["aws"].root
    hidden = root.rename(root.with_name("hidden"))
    until(lambda: stores.circuit_breaker.is_down("bucket.aws"))
    client = depositor.client
    job = client.post(f"/v1/bundles/{uuid}/checkout?replica=aws").json["checkout_job_id"]
    drain()
    state = client.get(f"/v1/bundles/checkout/{job}?replica=aws").json
    assert state["status"] == "SUCCEEDED", state
    shutil.rmtree(root, ignore_errors=True)
    hidden.rename(root)


class Away:
    """A bucket that cannot be reached until it is let back."""

    def __init__(self, inner) -> None:
        self.inner, self.back = inner, False

    def __getattr__(self, verb: str):
        if not self.back:
            raise Unavailable("no route to host")
        return getattr(self.inner, verb)


@pytest.mark.spec("CHK-06")
def test_a_checkout_waits_for_the_bucket_that_it_goes_to(
    client, depositor: Depositor, stores, job_queue
) -> None:
    """The other replica does not stand in for where somebody computes."""
    uuid = depositor.bundle(1)
    job = client.post(f"/v1/bundles/{uuid}/checkout?replica=aws").json["checkout_job_id"]
    target = Away(stores.checkouts["aws"])
    lame = replace(stores, checkouts={**stores.checkouts, "aws": target})
    working = WorkerContext(lame, job_queue, STEP_FUNCTIONS, 5, Random(0))
    row = Job("checkout", "aws", job)
    path = f"/v1/bundles/checkout/{job}?replica=aws"
    for _ in range(20):
        # As often as it takes: an engine that is away is nobody's failure.
        assert not run_job(working, row)
        with stores.catalog.write() as tx:
            tx.execute(text("UPDATE todo SET due_us = 0"))
        assert client.get(path).json["status"] == "RUNNING"
    with stores.catalog.read() as tx:
        assert jobs.count_dead(tx) == 0
    target.back = True
    assert run_job(working, row)
    told = client.get(path).json
    assert told["status"] == "SUCCEEDED"
    assert told["location"].startswith(target.inner.direct_url(""))


@pytest.mark.spec("FIL-38", "REP-08")
def test_detects_outage_and_recovery_of_a_bucket(client, depositor, stores) -> None:
    """With the store's own probes, threads and all."""
    depositor.file(1)
    path = f"/v1/files/{uuid_of(1)}?replica=aws"
    root = stores.replicas["aws"].root
    hidden = root.rename(root.with_name("hidden"))
    until(lambda: client.get(path).headers.get("X-STORE-SERVED-BY") == "gcp")
    hidden.rename(root)
    until(lambda: "X-STORE-SERVED-BY" not in client.get(path).headers)


@pytest.mark.spec("FIL-38")
def test_the_first_request_after_a_bucket_died_is_served_by_the_other(
    settings, stores, job_queue, client, depositor
) -> None:
    """With the store's own probes: by a process that was asked nothing before."""
    depositor.file(1)
    uuid = depositor.bundle(2)
    own = replace(settings, catalog_url=stores.catalog.url)
    others = [connect(own, notices=stores.pubsub) for _ in range(2)]
    root = stores.replicas["aws"].root
    hidden = root.rename(root.with_name("hidden"))
    paths = f"/v1/files/{uuid_of(1)}?", f"/v1/bundles/{uuid}?presignedurls=true&"
    for opened, path in zip(others, paths, strict=True):
        fresh = create_app(settings, opened, job_queue=job_queue, verify=verify).test_client()
        answer = fresh.get(f"{path}replica=aws")
        assert answer.headers.get("X-STORE-SERVED-BY") == "gcp"
        opened.catalog.close()
    hidden.rename(root)


@pytest.mark.spec("REP-01", "REP-02", "REP-03", "REP-04", "REP-05", "REP-06")
def test_every_member_of_the_report_is_there(client, depositor, stores) -> None:
    uuid = depositor.bundle(1)
    number_events(stores)
    row = Job("sync", "gcp", f"bundle:{uuid}.{VERSION}")
    with stores.catalog.write() as tx:
        jobs.insert(tx, [row])
        held = jobs.claim(tx, row, token="t", lease_s=1, max_claims=5)
        jobs.postpone(tx, held, delay_s=30, reason="the bucket is away")
        ident = versions.find_published(tx, "bundle", "aws", FQID(uuid, VERSION))
        versions.record_stored(tx, "bundle", ident, "gcp", diverged=True)
        documents.record_states(tx, "aws", [IndexRecord(ident, "unindexed", "s", 9, "no")])
    told = client.get(REPORT).json
    waiting = {"kind", "name", "step", "replica", "since", "age_s", "attempts", "parked", "reason"}
    assert told.keys() == {
        *("at", "window_s", "lag", "oldest", "backlog", "failures"),
        *("diverged", "diverged_total", "unindexed", "unindexed_total"),
    }
    assert told["window_s"] == 3600
    came = [one for one in told["lag"] if one["versions"]]
    assert [one["kind"] for one in came] == ["file", "bundle"]
    assert [one.keys() for one in came] == 2 * [{"kind", "replica", "versions", "p50_s", "p99_s"}]
    for name, members in {
        "oldest": waiting,
        "failures": waiting,
        "backlog": {"kind", "step", "replica", "parked", "rows", "oldest_s"},
        "diverged": {"kind", "name", "replica", "seen"},
        "unindexed": {"replica", "bundle", "reason"},
    }.items():
        assert [set(one) for one in told[name]] == [members], name
