"""The durable queue: claims, leases, parking, refilling."""

import pytest

from storage.catalog import Catalog, todo
from storage.errors import Lost
from storage.model import Claim, Todo

ROW = Todo("index", "aws", "b.1")


def put(catalog: Catalog, *rows: Todo, sent: bool = True) -> None:
    with catalog.write() as tx:
        todo.add(tx, rows or (ROW,), request_id="r", sent=sent)


def take(catalog: Catalog, *, token: str = "t", lease_s: float = 30) -> Claim | None:
    with catalog.write() as tx:
        return todo.claim(tx, ROW, token=token, lease_s=lease_s, max_claims=3)


def test_a_row_is_claimed_once(catalog: Catalog) -> None:
    put(catalog)
    assert take(catalog) == Claim(ROW, "t", 1, "r")
    assert take(catalog, token="u") is None


def test_nothing_is_claimed_where_no_row_is(catalog: Catalog) -> None:
    assert take(catalog) is None


def test_an_expired_claim_is_taken_over_and_its_holder_can_complete_nothing(
    catalog: Catalog,
) -> None:
    put(catalog)
    first = take(catalog, lease_s=0)
    second = take(catalog, token="u")
    assert first is not None
    assert second is not None
    assert second.attempts == 2
    with pytest.raises(Lost), catalog.write() as tx:
        todo.finish(tx, first)
    with catalog.write() as tx:
        todo.finish(tx, second)
        assert todo.backlog(tx) == {}


def test_a_lost_completion_rolls_its_effect_back(catalog: Catalog) -> None:
    put(catalog)
    first = take(catalog, lease_s=0)
    take(catalog, token="u")
    assert first is not None
    other = Todo("match", "aws", "event")

    def complete() -> None:
        with catalog.write() as tx:
            todo.add(tx, [other])
            todo.finish(tx, first)

    with pytest.raises(Lost):
        complete()
    with catalog.read() as tx:
        assert todo.backlog(tx) == {("index", "aws"): 1}


def test_a_need_that_arises_again_voids_the_present_claim(catalog: Catalog) -> None:
    put(catalog)
    held = take(catalog)
    put(catalog)
    assert held is not None
    with pytest.raises(Lost), catalog.write() as tx:
        todo.finish(tx, held)
    assert take(catalog, token="u") is not None


def test_renewing_keeps_others_away(catalog: Catalog) -> None:
    put(catalog)
    held = take(catalog, lease_s=0)
    assert held is not None
    with catalog.write() as tx:
        todo.renew(tx, held, lease_s=30)
    assert take(catalog, token="u") is None


def test_a_row_that_kills_its_workers_is_parked(catalog: Catalog) -> None:
    put(catalog)
    for attempt in range(3):
        assert take(catalog, token=str(attempt), lease_s=0) is not None
    assert take(catalog, token="last") is None
    with catalog.read() as tx:
        assert [row.todo for row in todo.parked(tx)] == [ROW]
        assert todo.count_parked(tx) == 1
        assert todo.steps_due(tx, ["index", "match"]) == set()


def test_a_parked_row_is_due_again_when_it_is_needed_again(catalog: Catalog) -> None:
    put(catalog)
    held = take(catalog)
    assert held is not None
    with catalog.write() as tx:
        todo.park(tx, held, reason="broken")
    with catalog.read() as tx:
        assert todo.parked(tx)[0].reason == "broken"
    put(catalog)
    again = take(catalog)
    assert again is not None
    assert again.attempts == 1


def test_a_postponed_row_waits(catalog: Catalog) -> None:
    put(catalog)
    held = take(catalog)
    assert held is not None
    with catalog.write() as tx:
        todo.postpone(tx, held, delay_s=60, reason="busy", counted=False)
    assert take(catalog, token="u") is None
    with catalog.write() as tx:
        assert todo.due(tx, "index", limit=9, resend=True) == []


def test_the_clock_sends_what_nobody_sent_once(catalog: Catalog) -> None:
    put(catalog, sent=False)
    with catalog.write() as tx:
        assert todo.due(tx, "index", limit=9, resend=False) == [(ROW, "r", 0)]
        assert todo.due(tx, "index", limit=9, resend=False) == []


def test_an_empty_queue_is_refilled_at_once(catalog: Catalog) -> None:
    put(catalog)
    with catalog.write() as tx:
        assert todo.due(tx, "index", limit=9, resend=False) == []
        assert todo.due(tx, "index", limit=9, resend=True) == [(ROW, "r", 0)]


def test_refilling_is_bounded(catalog: Catalog) -> None:
    put(catalog, *(Todo("index", "aws", f"b.{number}") for number in range(20)), sent=False)
    with catalog.write() as tx:
        assert len(todo.due(tx, "index", limit=7, resend=False)) == 7
        assert len(todo.due(tx, "index", limit=50, resend=False)) == 13


def test_claimed_says_who_works(catalog: Catalog) -> None:
    put(catalog)
    with catalog.read() as tx:
        assert not todo.claimed(tx, ROW)
    take(catalog)
    with catalog.read() as tx:
        assert todo.claimed(tx, ROW)


def test_what_waits_for_another_row_is_woken_with_it(catalog: Catalog) -> None:
    """Only in its replica, and only while nobody works on it."""
    other, parked = Todo("index", "gcp", "b.1"), Todo("index", "aws", "b.2")
    put(catalog, ROW, other, parked)
    for row in (ROW, other, parked):
        with catalog.write() as tx:
            held = todo.claim(tx, row, token="t", lease_s=30, max_claims=3)
            assert held is not None
            todo.postpone(tx, held, delay_s=600, reason="not yet", until="b.0")
    with catalog.write() as tx:
        tx.exec_driver_sql("UPDATE todo SET parked_us = 1 WHERE ref = 'b.2'")
        assert todo.wake(tx, "index", "aws", "b.3") == ()
        assert todo.wake(tx, "index", "aws", "b.0") == (ROW,)
        assert todo.wake(tx, "index", "aws", "b.0") == ()
    assert take(catalog) is not None


def test_nobody_wakes_what_is_being_worked_on(catalog: Catalog) -> None:
    put(catalog)
    held = take(catalog)
    assert held is not None
    with catalog.write() as tx:
        todo.postpone(tx, held, delay_s=0, reason="not yet", until="b.0")
    again = take(catalog, token="u")
    assert again is not None
    with catalog.write() as tx:
        assert todo.wake(tx, "index", "aws", "b.0") == ()
        todo.finish(tx, again)


def test_what_ends_by_itself_is_not_what_killed_its_earlier_workers(catalog: Catalog) -> None:
    """During an outage every attempt is long, so that whoever is killed has the row in hand."""
    put(catalog)
    for _ in range(3):
        for _ in range(2):
            assert take(catalog, lease_s=0) is not None
        held = take(catalog)
        assert held is not None
        with catalog.write() as tx:
            todo.postpone(tx, held, delay_s=0, reason="the bucket is away", counted=False)
    assert take(catalog) == Claim(ROW, "t", 1, "r")
