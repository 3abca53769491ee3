"""Health, metrics, log lines, request ids and error responses."""

import json
import logging
from dataclasses import replace

import pytest
from sqlalchemy import text

from api.app import create_app
from config.logs import JsonLines, bind_log_fields
from pipelines import bundles
from pipelines.bundles import BundleDraft, NewEntry
from storage.catalog import bundles as catalog_bundles
from storage.catalog import documents, jobs, now_us, store_state
from storage.catalog.documents import IndexRecord
from storage.errors import DomainError, TimeLimitExceeded, Unavailable
from storage.model import FQID, Job
from tests.api.builders import (
    ADMIN,
    INGEST,
    MIRRORED,
    READER,
    VERSION,
    record_mirror,
    uuid_of,
)
from tests.api.conftest import verify
from tests.builders import make_file, new_uuid

PARTS = {
    "catalog",
    "queue",
    "clock",
    "work",
    "replication",
    "unindexed",
    "integrity",
    "writes",
    "disk",
    "backup",
    "bucket.aws",
    "bucket.gcp",
    "search.aws",
    "search.gcp",
}


@pytest.mark.spec("OPS-01")
def test_health_lists_every_part(client) -> None:
    answer = client.get("/health")
    assert (answer.status_code, answer.json["status"]) == (200, "ok")
    assert answer.json["parts"].keys() == PARTS
    assert all({"status", "reason"} <= part.keys() for part in answer.json["parts"].values())


@pytest.mark.spec("OPS-01")
def test_health_tells_the_last_backup(client, stores) -> None:
    part = client.get("/health").json["parts"]["backup"]
    assert part == {"status": "ok", "reason": "there was none yet", "at": None, "age_s": None}
    with stores.catalog.write() as tx:
        store_state.write_value(tx, store_state.LAST_BACKUP_KEY, str(now_us(tx) - 90_000_000))
    part = client.get("/health").json["parts"]["backup"]
    assert 90 <= part["age_s"] < 90 + 60
    assert part["at"] in part["reason"]


@pytest.mark.spec("OPS-44")
@pytest.mark.parametrize(
    ("age_s", "status"), [(None, "warning"), (90, "ok"), (190, "ok"), (300, "warning")]
)
def test_health_warns_of_late_scheduled_backups(settings, stores, job_queue, age_s, status) -> None:
    if age_s is not None:
        with stores.catalog.write() as tx:
            made = str(now_us(tx) - age_s * 1_000_000)
            store_state.write_value(tx, store_state.LAST_BACKUP_KEY, made)
    scheduled = replace(settings, backup_target="s3://kept", backup_every_s=120)
    app = create_app(scheduled, stores, job_queue=job_queue, verify=verify)
    answer = app.test_client().get("/health")
    assert (answer.status_code, answer.json["parts"]["backup"]["status"]) == (200, status)


@pytest.mark.spec("OPS-62")
@pytest.mark.parametrize(
    ("age_s", "failed", "status", "shown"),
    [
        (None, 0, "warning", f"has never read {MIRRORED}"),
        (90, 0, "ok", f"last read {MIRRORED} "),
        (3500, 0, "ok", f"last read {MIRRORED} "),
        (3700, 0, "warning", f"last read {MIRRORED} "),
        (90, 2, "warning", "; 2 events are not applied: CREATE "),
    ],
)
def test_health_warns_of_a_mirror_that_is_late_or_lacks_events(
    settings, stores, job_queue, age_s, failed, status, shown
) -> None:
    if age_s is not None:
        with stores.catalog.read() as tx:
            success_us = now_us(tx) - age_s * 1_000_000
        record_mirror(stores, success_us=success_us, complete_us=1, failed=failed)
    mirror = replace(settings, mirror_of=MIRRORED)
    app = create_app(mirror, stores, job_queue=job_queue, verify=verify)
    answer = app.test_client().get("/health", headers=ADMIN)
    part = answer.json["parts"]["mirror"]
    assert (answer.status_code, part["status"], part["failed"]) == (200, status, failed)
    assert shown in part["reason"]
    others = app.test_client().get("/health").json["parts"]["mirror"]
    assert others["failed"] == failed
    assert "CREATE" not in others["reason"]
    if age_s is not None:
        assert age_s <= part["age_s"] < age_s + 60
        assert part["at"] in part["reason"]
        assert part["complete"] == "1970-01-01T000000.000001Z"


@pytest.mark.spec("OPS-01")
def test_failed_part_makes_health_503_with_reason(settings, stores) -> None:
    class Dead:
        def send(self, rows, request_id="") -> None:
            """Never raises."""

        def ping(self) -> None:
            raise Unavailable("The queue is away.")

    app = create_app(settings, stores, job_queue=Dead(), verify=verify)
    answer = app.test_client().get("/health")
    assert (answer.status_code, answer.json["status"]) == (503, "failed")
    assert answer.json["parts"]["queue"] == {"status": "failed", "reason": "The queue is away."}
    assert "Retry-After" in answer.headers


@pytest.mark.spec("OPS-01")
def test_parked_rows_are_a_warning_that_names_them(client, stores) -> None:
    with stores.catalog.write() as tx:
        jobs.insert(tx, [Job("index", "aws", "some.bundle")])
        claim = jobs.claim(
            tx, Job("index", "aws", "some.bundle"), token="t", lease_s=1, max_claims=5
        )
        jobs.mark_dead(tx, claim, reason="it broke")
    answer = client.get("/health")
    work = answer.json["parts"]["work"]
    assert (answer.status_code, work["status"], work["parked"]) == (200, "warning", 1)
    assert "it broke" in work["reason"]


@pytest.mark.spec("OPS-01")
def test_overdue_jobs_are_a_warning(client, stores) -> None:
    with stores.catalog.write() as tx:
        jobs.insert(tx, [Job("index", "aws", "some.bundle")])
    assert client.get("/health").json["parts"]["work"]["status"] == "ok"
    with stores.catalog.write() as tx:
        tx.execute(text("UPDATE todo SET due_us = due_us - 61000000"))
    work = client.get("/health").json["parts"]["work"]
    assert work["status"] == "warning"
    assert "due for 61 s" in work["reason"]


@pytest.mark.spec("OPS-01")
def test_a_clock_that_does_not_run_is_a_warning(client, stores) -> None:
    assert client.get("/health").json["parts"]["clock"]["status"] == "warning"
    with stores.catalog.write() as tx:
        store_state.acquire_lease(tx, "clock", token="t", lease_s=5)
    assert client.get("/health").json["parts"]["clock"]["status"] == "ok"


@pytest.mark.spec("SEA-22")
def test_documents_that_search_refused_are_named_with_their_reason(client, stores) -> None:
    entries = [NewEntry("a.txt", make_file(stores, b"a"), False)]
    fqid = FQID(new_uuid(), VERSION)
    bundles.put(stores, BundleDraft(fqid, "aws", 1, entries), "writer@example.org")
    with stores.catalog.write() as tx:
        bundle = catalog_bundles.find(tx, fqid)
        documents.record_states(
            tx, "gcp", [IndexRecord(bundle.id, "unindexed", "s", 1, "too many fields")]
        )
    part = client.get("/health").json["parts"]["unindexed"]
    assert (part["status"], part["replicas"]) == ("warning", {"gcp": 1})
    assert f"{fqid} in gcp: too many fields" in part["reason"]


@pytest.mark.spec("OPS-02")
def test_figures_are_for_operators(client) -> None:
    client.get("/v1/bundles/all?replica=aws")
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers=READER).status_code == 403
    page = client.get("/metrics", headers=ADMIN)
    assert page.status_code == 200
    assert 'store_requests_total{operation="get_bundles_all",status="200"} 1.0' in page.text
    assert 'store_request_seconds_count{code="2xx",operation="get_bundles_all"} 1.0' in page.text
    assert "store_todo_parked 0.0" in page.text
    assert "store_deliveries_pending 0.0" in page.text


@pytest.mark.spec("OPS-02")
def test_the_operators_own_port_serves_figures_without_a_token_and_nothing_else(
    settings, stores, job_queue
) -> None:
    own = replace(settings, ops_port=9999)
    client = create_app(own, stores, job_queue=job_queue, verify=verify).test_client()
    there = {"SERVER_PORT": "9999"}
    assert client.get("/metrics", environ_overrides=there).status_code == 200
    assert client.get("/health", environ_overrides=there).status_code == 200
    refused = client.get("/v1/bundles/all?replica=aws", environ_overrides=there)
    assert refused.status_code == 404
    assert client.get("/metrics").status_code == 401


@pytest.mark.spec("ERR-02", "OPS-03")
def test_logs_one_line_per_request_without_query(client, caplog) -> None:
    with caplog.at_level(logging.INFO, logger="api.requests"):
        client.get("/v1/bundles/all?replica=aws&search_after=secret", headers=INGEST)
    (record,) = [one for one in caplog.records if one.name == "api.requests"]
    line = json.loads(JsonLines("api").format(record))
    assert line["path"] == "/v1/bundles/all"
    assert (line["method"], line["status"]) == ("GET", 400)
    assert line["principal"] == "ingest@example.org"
    assert "secret" not in json.dumps(line)


@pytest.mark.spec("OPS-03")
@pytest.mark.parametrize(
    "odd",
    ["\u202e", "\u2066", "\u200b", "\x7f", "\x9b", "\u2028", "\x00", "\n", "\udc80", "\U000e0041"],
)
def test_log_escapes_control_characters(odd: str) -> None:
    record = logging.makeLogRecord({"msg": "request", "path": f"/é{odd}x", "name": "n"})
    line = JsonLines("api").format(record)
    assert odd not in line
    assert "é" in line
    assert json.loads(line)["path"] == f"/é{odd}x"


@pytest.mark.spec("OPS-03")
def test_a_line_carries_what_is_bound_around_it() -> None:
    record = logging.makeLogRecord({"msg": "hello %s", "args": ("world",), "name": "n"})
    with bind_log_fields(request_id="r-1"):
        line = json.loads(JsonLines("api").format(record))
    assert (line["message"], line["request_id"], line["process"]) == ("hello world", "r-1", "api")
    assert "request_id" not in json.loads(JsonLines("api").format(record))


@pytest.mark.spec("ERR-03")
def test_keeps_valid_request_id_and_replaces_others(client) -> None:
    kept = client.get("/health", headers={"X-Request-Id": "abc-123"})
    assert kept.headers["X-Request-Id"] == "abc-123"
    for bad in ("a b", "x" * 200, "<script>", ""):
        made = client.get("/health", headers={"X-Request-Id": bad})
        assert made.headers["X-Request-Id"] not in ("", bad)


@pytest.mark.spec("ERR-03")
@pytest.mark.parametrize("path", ["/", "/health", "/nothing", "/v1/swagger.json", "/v1/search"])
def test_every_answer_has_a_request_id_and_a_content_type(client, path) -> None:
    for method in ("GET", "HEAD", "OPTIONS", "POST"):
        answer = client.open(path, method=method)
        assert answer.headers["X-Request-Id"]
        assert answer.headers["Content-Type"]


@pytest.mark.spec("ERR-03")
def test_every_kind_of_answer_has_both(client, depositor) -> None:
    uuid = depositor.bundle(1)
    depositor.put_file(uuid_of(5))
    content = client.get(f"/v1/files/{uuid_of(0x100)}?replica=aws")
    where = content.headers["Location"]
    answers = {
        200: client.get(f"/v1/bundles/{uuid}?replica=aws"),
        206: client.get(where, headers={"Range": "bytes=0-1"}, buffered=True),
        301: client.get(f"/v1/files/{uuid_of(5)}?replica=aws"),
        302: content,
        404: client.get("/v1/nothing"),
        405: client.patch("/v1/search"),
        416: client.get(where, headers={"Range": "bytes=100-"}),
    }
    for status, answer in answers.items():
        assert answer.status_code == status
        assert answer.headers["X-Request-Id"]
        assert answer.headers["Content-Type"]


@pytest.mark.spec("CON-22", "ERR-42")
def test_read_only_store_rejects_writes_and_serves_reads(settings, stores, job_queue) -> None:
    app = create_app(replace(settings, read_only=True), stores, job_queue=job_queue, verify=verify)
    client = app.test_client()
    path = f"/v1/bundles/{uuid_of(1)}?replica=aws&version={VERSION}"
    refused = client.put(path, json={}, headers=INGEST)
    assert (refused.status_code, refused.json["code"]) == (503, "read_only")
    assert "Retry-After" in refused.headers
    assert client.get("/v1/bundles/all?replica=aws").status_code == 200
    assert client.post("/v1/search?replica=aws", json={"es_query": {}}).status_code == 200


@pytest.mark.spec("ERR-02", "ERR-04", "ERR-40", "ERR-41", "ERR-43")
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Unavailable("away"), 503, "service_unavailable"),
        (TimeLimitExceeded("slow"), 504, "timed_out"),
        (DomainError("odd"), 500, "internal_error"),
        (RuntimeError("a secret"), 500, "internal_error"),
    ],
)
def test_a_failure_is_a_problem_with_retry_after_and_no_inside_story(
    app, client, error, status, code, caplog
) -> None:
    def fail() -> None:
        raise error

    app.add_url_rule("/fail", "fail", fail, methods=["GET", "POST"])
    answer = client.get("/fail")
    assert (answer.status_code, answer.json["code"]) == (status, code)
    assert "Retry-After" in answer.headers
    assert "secret" not in answer.text
    for inside in ("Traceback", "RuntimeError", "storage.errors", "test_service"):
        assert inside not in answer.text
    posted = client.post("/fail")
    assert ("Retry-After" in posted.headers) == (status != 500)
