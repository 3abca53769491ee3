"""The status page and the operators' page."""

import threading
import time
from typing import Any

from storage.catalog import jobs, store_state
from storage.model import Job
from storage.stores import Stores
from tests.conftest import Outbox
from tests.web.conftest import Visit, text_of
from web.operations import NO_ANSWER, HealthMonitor, find_worst


def kill_job(stores: Stores, reason: str = "the bucket refuses") -> Job:
    """Leave a dead job in the catalog."""
    job = Job("sync", "gcp", "file:6ba7b810-9dad-11d1-80b4-00c04fd430c8.2026-01-01T000000.000000Z")
    with stores.catalog.write() as tx:
        jobs.insert(tx, [job])
        claim = jobs.claim(tx, job, token="t", lease_s=60, max_claims=5)
        assert claim is not None
        jobs.mark_dead(tx, claim, reason=reason)
    return job


def test_status_is_public_and_names_no_reasons(visit: Visit, stores: Stores) -> None:
    kill_job(stores, "the secret bucket name")
    page = visit().get("/status")
    assert page.status_code == 200
    assert "needs attention" in page.text
    assert "secret bucket name" not in page.text
    assert 'href="/operations"' not in page.text


def test_operations_show_dead_jobs_with_their_reason(visit: Visit, stores: Stores) -> None:
    job = kill_job(stores, "<b>refused</b>")
    page = visit("admin").get("/operations")
    assert page.status_code == 200
    assert job.ref in page.text
    assert "&lt;b&gt;refused&lt;/b&gt;" in page.text


def test_operations_show_receivers_that_deliveries_wait_for(visit: Visit, stores: Stores) -> None:
    assert "no delivery waits" in visit("admin").get("/operations").text
    form = {"callback_url": "https://receiver.example/notify", "replica": "aws"}
    page = visit("reader").post("/subscriptions/new", **form).headers["Location"]
    assert visit("reader").post(f"{page.partition('?')[0]}/test").status_code == 303
    shown = text_of(visit("admin").get("/operations"))
    assert "1 delivery pending" in shown
    assert "https://receiver.example/notify 0 1" in shown


def test_operations_hide_secrets_in_settings(visit: Visit) -> None:
    page = visit("admin").get("/operations")
    assert "STORE_SECRET_KEY" in page.text
    assert visit().site.services.settings.secret_key not in page.text


def test_operations_are_for_operators_only(visit: Visit, stores: Stores) -> None:
    job = kill_job(stores)
    assert visit().get("/operations").headers["Location"].startswith("/login?next=%2Foperations")
    for person in ("reader", "ingest", "other"):
        assert visit(person).get("/operations").status_code == 403
        assert visit(person).post("/operations/retry", step=job.step).status_code == 403
        assert 'href="/operations"' not in visit(person).get("/").text
    with stores.catalog.read() as tx:
        assert jobs.count_dead(tx) == 1


def test_retries_one_dead_job(visit: Visit, stores: Stores, job_queue: Outbox) -> None:
    job = kill_job(stores)
    visitor = visit("admin")
    answer = visitor.post("/operations/retry", step=job.step, ref=job.ref)
    assert answer.status_code == 303
    assert [row for row, _ in job_queue.sent] == [job]
    with stores.catalog.read() as tx:
        assert jobs.count_dead(tx) == 0
    assert "1 dead job is due again." in visitor.get("/operations").text


def test_retry_of_another_step_changes_nothing(visit: Visit, stores: Stores) -> None:
    kill_job(stores)
    answer = visit("admin").post("/operations/retry", step="index")
    assert answer.status_code == 303
    with stores.catalog.read() as tx:
        assert jobs.count_dead(tx) == 1


def test_operations_show_last_backup(visit: Visit, stores: Stores) -> None:
    assert "none yet" in text_of(visit("admin").get("/operations"))
    with stores.catalog.write() as tx:
        store_state.write_value(tx, store_state.LAST_BACKUP_KEY, "1767225600000000")
    assert "2026-01-01 00:00:00 UTC" in text_of(visit("admin").get("/operations"))


def test_page_does_not_wait_for_an_engine_that_hangs() -> None:
    answered, started = threading.Event(), []

    def hang() -> dict[str, Any]:
        started.append(1)
        answered.wait(20)
        return {"status": "ok", "reason": "late"}

    monitor, began = HealthMonitor(), time.monotonic()
    checks = {"bucket.aws": hang, "catalog": lambda: {"status": "ok", "reason": "works"}}
    parts = monitor.read(checks)
    assert time.monotonic() - began < 5
    assert parts["bucket.aws"] == NO_ANSWER
    assert parts["catalog"]["status"] == "ok"
    monitor.read(checks)
    assert len(started) == 1, "a check that hangs is not started again"
    answered.set()


def test_worst_status_of_the_parts_is_shown() -> None:
    assert find_worst([("a", "ok", ""), ("b", "warning", "")]) == "warning"
    assert find_worst([("a", "failed", ""), ("b", "warning", "")]) == "failed"
    assert find_worst([("a", "ok", "")]) == "ok"
