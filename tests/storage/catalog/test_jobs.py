"""The jobs table: claims, leases, dead jobs and refill."""

import pytest

from storage.catalog import Catalog, jobs
from storage.errors import ClaimLost
from storage.model import Job, JobClaim

pytestmark = pytest.mark.spec("OPS-09", "OPS-19")

ROW = Job("index", "aws", "b.1")


def put(catalog: Catalog, *rows: Job, sent: bool = True) -> None:
    with catalog.write() as tx:
        jobs.insert(tx, rows or (ROW,), request_id="r", sent=sent)


def take(catalog: Catalog, *, token: str = "t", lease_s: float = 30) -> JobClaim | None:
    with catalog.write() as tx:
        return jobs.claim(tx, ROW, token=token, lease_s=lease_s, max_claims=3)


def test_a_row_is_claimed_once(catalog: Catalog) -> None:
    put(catalog)
    assert take(catalog) == JobClaim(ROW, "t", 1, "r")
    assert take(catalog, token="u") is None


def test_missing_job_is_not_claimed(catalog: Catalog) -> None:
    assert take(catalog) is None


def test_expired_claim_is_taken_over_and_old_one_is_void(
    catalog: Catalog,
) -> None:
    put(catalog)
    first = take(catalog, lease_s=0)
    second = take(catalog, token="u")
    assert first is not None
    assert second is not None
    assert second.attempts == 2
    with pytest.raises(ClaimLost), catalog.write() as tx:
        jobs.finish(tx, first)
    with catalog.write() as tx:
        jobs.finish(tx, second)
        assert jobs.count_open(tx) == {}


def test_a_lost_completion_rolls_its_effect_back(catalog: Catalog) -> None:
    put(catalog)
    first = take(catalog, lease_s=0)
    take(catalog, token="u")
    assert first is not None
    other = Job("match", "aws", "event")

    def complete() -> None:
        with catalog.write() as tx:
            jobs.insert(tx, [other])
            jobs.finish(tx, first)

    with pytest.raises(ClaimLost):
        complete()
    with catalog.read() as tx:
        assert jobs.count_open(tx) == {("index", "aws"): 1}


def test_a_need_that_arises_again_voids_the_present_claim(catalog: Catalog) -> None:
    put(catalog)
    held = take(catalog)
    put(catalog)
    assert held is not None
    with pytest.raises(ClaimLost), catalog.write() as tx:
        jobs.finish(tx, held)
    assert take(catalog, token="u") is not None


def test_renewing_keeps_others_away(catalog: Catalog) -> None:
    put(catalog)
    held = take(catalog, lease_s=0)
    assert held is not None
    with catalog.write() as tx:
        assert jobs.renew(tx, held, lease_s=30)
    assert take(catalog, token="u") is None


def test_a_row_that_kills_its_workers_is_parked(catalog: Catalog) -> None:
    put(catalog)
    for attempt in range(3):
        assert take(catalog, token=str(attempt), lease_s=0) is not None
    assert take(catalog, token="last") is None
    with catalog.read() as tx:
        assert [row.todo for row in jobs.list_dead(tx)] == [ROW]
        assert jobs.count_dead(tx) == 1
        assert jobs.find_due_steps(tx, ["index", "match"]) == set()


def test_a_parked_row_is_due_again_when_it_is_needed_again(catalog: Catalog) -> None:
    put(catalog)
    held = take(catalog)
    assert held is not None
    with catalog.write() as tx:
        jobs.mark_dead(tx, held, reason="broken")
    with catalog.read() as tx:
        assert jobs.list_dead(tx)[0].reason == "broken"
    put(catalog)
    again = take(catalog)
    assert again is not None
    assert again.attempts == 1


def test_a_postponed_row_waits(catalog: Catalog) -> None:
    put(catalog)
    held = take(catalog)
    assert held is not None
    with catalog.write() as tx:
        jobs.postpone(tx, held, delay_s=60, reason="busy", counted=False)
    assert take(catalog, token="u") is None
    with catalog.write() as tx:
        assert jobs.take_due(tx, "index", limit=9, resend=True) == []


def test_scheduler_sends_unsent_jobs_once(catalog: Catalog) -> None:
    put(catalog, sent=False)
    with catalog.write() as tx:
        assert jobs.take_due(tx, "index", limit=9, resend=False) == [(ROW, "r", 0)]
        assert jobs.take_due(tx, "index", limit=9, resend=False) == []


def test_an_empty_queue_is_refilled_at_once(catalog: Catalog) -> None:
    put(catalog)
    with catalog.write() as tx:
        assert jobs.take_due(tx, "index", limit=9, resend=False) == []
        assert jobs.take_due(tx, "index", limit=9, resend=True) == [(ROW, "r", 0)]


def test_refilling_is_bounded(catalog: Catalog) -> None:
    put(catalog, *(Job("index", "aws", f"b.{number}") for number in range(20)), sent=False)
    with catalog.write() as tx:
        assert len(jobs.take_due(tx, "index", limit=7, resend=False)) == 7
        assert len(jobs.take_due(tx, "index", limit=50, resend=False)) == 13


def test_claim_names_its_worker(catalog: Catalog) -> None:
    put(catalog)
    with catalog.read() as tx:
        assert not jobs.is_claimed(tx, ROW)
    take(catalog)
    with catalog.read() as tx:
        assert jobs.is_claimed(tx, ROW)


def test_completed_job_wakes_waiting_jobs(catalog: Catalog) -> None:
    """Only in its replica, and only while no worker holds it."""
    other, parked = Job("index", "gcp", "b.1"), Job("index", "aws", "b.2")
    put(catalog, ROW, other, parked)
    for row in (ROW, other, parked):
        with catalog.write() as tx:
            held = jobs.claim(tx, row, token="t", lease_s=30, max_claims=3)
            assert held is not None
            jobs.postpone(tx, held, delay_s=600, reason="not yet", until="b.0")
    with catalog.write() as tx:
        tx.exec_driver_sql("UPDATE todo SET parked_us = 1 WHERE ref = 'b.2'")
        assert jobs.wake(tx, "index", "aws", "b.3") == ()
        assert jobs.wake(tx, "index", "aws", "b.0") == (ROW,)
        assert jobs.wake(tx, "index", "aws", "b.0") == ()
    assert take(catalog) is not None


def test_running_job_is_not_woken(catalog: Catalog) -> None:
    put(catalog)
    held = take(catalog)
    assert held is not None
    with catalog.write() as tx:
        jobs.postpone(tx, held, delay_s=0, reason="not yet", until="b.0")
    again = take(catalog, token="u")
    assert again is not None
    with catalog.write() as tx:
        assert jobs.wake(tx, "index", "aws", "b.0") == ()
        jobs.finish(tx, again)


def test_failing_job_does_not_count_earlier_crashes(catalog: Catalog) -> None:
    """During an outage attempts are long, so a killed worker holds the row."""
    put(catalog)
    for _ in range(3):
        for _ in range(2):
            assert take(catalog, lease_s=0) is not None
        held = take(catalog)
        assert held is not None
        with catalog.write() as tx:
            jobs.postpone(tx, held, delay_s=0, reason="the bucket is away", counted=False)
    assert take(catalog) == JobClaim(ROW, "t", 1, "r")
