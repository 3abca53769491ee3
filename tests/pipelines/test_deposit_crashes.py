"""Deposits whose job dies, runs twice, or loses its area, at every step."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pipelines import areas, bundles, deposits
from pipelines.deposits import DONE, FAILED, STARTING, VERIFYING
from storage import keys
from storage.catalog import deposits as rows
from storage.catalog import jobs
from storage.catalog.deposits import Deposit
from storage.model import Job, JobClaim
from storage.stores import Stores
from tests.builders import new_uuid
from tests.pipelines.crashes import Crashed, crashing
from tests.pipelines.interleavings import play
from tests.pipelines.test_deposits import AREA, ME, area, put, read, request_of, start

__all__ = ["area"]  # a fixture

Drain = Callable[[], int]
MOST_CALLS = 60


def job_of(deposit: Deposit) -> Job:
    return Job("deposit", deposit.replica, deposit.id)


def take(stores: Stores, deposit: Deposit, token: str = "t") -> JobClaim:
    """Claim the deposit's job, as after the lease of another claim."""
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE todo SET due_us = 0 WHERE step = 'deposit'")
        claim = jobs.claim(tx, job_of(deposit), token=token, lease_s=60, max_claims=99)
    assert claim is not None
    return claim


def run(claim: JobClaim, stores: Stores) -> tuple[Job, ...]:
    return deposits.run_deposit(stores, claim, lambda _moved: None)


def begin(stores: Stores, drain: Drain, state: str) -> Deposit:
    """A new deposit that waits for its job in a state, with all of its files verified if any."""
    deposit = start(stores, request_of(uuid=new_uuid()))
    if state == VERIFYING:
        run(take(stores, deposit), stores)
        with stores.catalog.write() as tx:
            tx.exec_driver_sql("UPDATE todo SET due_us = due_us * 2 WHERE step = 'deposit'")
        drain()
        assert read(stores, deposit).state == VERIFYING
    return deposit


def judge(stores: Stores, deposit: Deposit, drain: Drain) -> None:
    """Let a new worker do the rest: the bundle exists once, as it was chosen."""
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE todo SET due_us = 0")
    drain()
    assert (read(stores, deposit).state, read(stores, deposit).faults) == (DONE, {})
    bundle = bundles.find(stores, "aws", deposit.uuid, None)
    assert bundle.fqid == deposit.fqid
    entries = bundles.read_entries(stores, bundle, 0, 10)
    assert [(one.name, one.file.uuid) for one in entries] == [
        (name, uuid) for name, _, uuid, _ in deposit.entries
    ]
    with stores.catalog.read() as tx:
        assert not jobs.exists(tx, job_of(deposit))
        count = "SELECT count(*) FROM events WHERE uuid = :uuid AND type = 'CREATE'"
        created = jobs.sql.execute(tx, f"{count} AND replica = 'aws'", {"uuid": deposit.uuid})
        assert created.scalar_one() == 1


@pytest.mark.parametrize("state", [STARTING, VERIFYING])
def test_job_that_dies_at_any_call_is_finished_by_another(
    stores: Stores, area: str, drain: Drain, state: str
) -> None:
    for calls in range(MOST_CALLS):
        deposit = begin(stores, drain, state)
        claim = take(stores, deposit)
        try:
            run(claim, crashing(stores, calls))
        except Crashed:
            judge(stores, deposit, drain)
        else:
            judge(stores, deposit, drain)
            break
    assert 5 < calls < MOST_CALLS - 1


@pytest.mark.parametrize("state", [STARTING, VERIFYING])
def test_two_jobs_of_one_deposit_make_one_bundle_in_every_order(
    stores: Stores, area: str, drain: Drain, state: str
) -> None:
    """The lease of the first has expired while it was stopped: both do the whole work."""
    for order in sorted(set(itertools.permutations("aaabbb"))):
        deposit = begin(stores, drain, state)
        first, second = take(stores, deposit, "a"), take(stores, deposit, "b")
        ends = play(stores, order, {"a": partial(run, first), "b": partial(run, second)})
        assert not isinstance(ends["b"], Exception), ends
        judge(stores, deposit, drain)


def test_dead_job_is_done_once_it_is_tried_again(stores: Stores, area: str, drain: Drain) -> None:
    deposit = begin(stores, drain, STARTING)
    with stores.catalog.write() as tx:
        claim = jobs.claim(tx, job_of(deposit), token="t", lease_s=60, max_claims=5)
        assert claim is not None
        jobs.mark_dead(tx, claim, reason="killed five workers")
    assert deposits.retry(stores, deposit.id, ME) == (job_of(deposit),)
    judge(stores, deposit, drain)


@pytest.mark.parametrize("state", [STARTING, VERIFYING])
def test_second_try_changes_nothing_while_the_first_runs(
    stores: Stores, area: str, drain: Drain, state: str
) -> None:
    deposit = begin(stores, drain, state)
    claim = take(stores, deposit)
    assert deposits.retry(stores, deposit.id, ME) == ()
    run(claim, stores)
    judge(stores, deposit, drain)
    assert deposits.retry(stores, deposit.id, ME) == ()
    assert read(stores, deposit).state == DONE


def test_deposit_that_is_started_twice_keeps_its_job(
    stores: Stores, area: str, drain: Drain
) -> None:
    """A second job would take the claim from the first, or run after the end."""
    deposit = begin(stores, drain, STARTING)
    claim = take(stores, deposit)
    assert deposits.start(stores, deposit) == ()
    run(claim, stores)
    judge(stores, deposit, drain)
    assert deposits.start(stores, deposit) == ()
    with stores.catalog.read() as tx:
        assert not jobs.exists(tx, job_of(deposit))


def test_two_tries_at_once_run_one_job(stores: Stores, area: str, drain: Drain) -> None:
    for order in ("ab", "ba"):
        deposit = begin(stores, drain, STARTING)
        run(take(stores, deposit), stores)
        with stores.catalog.write() as tx:
            rows.set_state(tx, deposit.id, FAILED, {"": "an example"})
            jobs.delete(tx, job_of(deposit))
        again: Any = partial(_retry, deposit)
        ends = play(stores, order, {"a": again, "b": again})
        assert sorted(map(len, ends.values())) == [0, 1]
        judge(stores, deposit, drain)


def _retry(deposit: Deposit, stores: Stores) -> tuple[Job, ...]:
    return deposits.retry(stores, deposit.id, ME)


@pytest.mark.parametrize("moment", ["planned", "started", "verified"])
def test_area_deleted_in_the_middle_ends_the_deposit(
    stores: Stores, area: str, drain: Drain, moment: str
) -> None:
    deposit = begin(stores, drain, VERIFYING if moment == "verified" else STARTING)
    if moment == "started":
        run(take(stores, deposit), stores)
    areas.delete(stores, AREA, ME)
    if moment != "started":
        drain()
    if moment == "verified":
        judge(stores, deposit, drain)
        return
    # The removal is done before the files are verified.
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE todo SET due_us = due_us * 2 WHERE step <> 'area_remove'")
    drain()
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE todo SET due_us = 0")
    drain()
    failed = read(stores, deposit)
    assert failed.state == FAILED
    assert set(failed.faults) == {"a.json", "b/c.txt"}
    deposits.retry(stores, deposit.id, ME)
    drain()
    assert read(stores, deposit).state == FAILED
    assert not stores.catalog.run_query(lambda tx: bundles.bundles.find(tx, deposit.fqid))


def test_two_deposits_of_one_version_make_one_bundle(
    stores: Stores, area: str, drain: Drain
) -> None:
    """As of two tabs in the same microsecond: the second one says that the version exists."""
    first = deposits.plan(stores, request_of(), ME)
    second = deposits.plan(stores, request_of(), ME)
    object.__setattr__(second, "version", first.version)
    for deposit in (first, second):
        deposits.start(stores, deposit)
    drain()
    states = {read(stores, one).state for one in (first, second)}
    assert states == {DONE, FAILED}


def test_file_that_changes_before_its_verification_is_refused(
    stores: Stores, area: str, drain: Drain
) -> None:
    """The deposit never takes other bytes than were chosen; trying again takes the new ones."""
    deposit = begin(stores, drain, STARTING)
    run(take(stores, deposit), stores)
    put(stores, "a.json", b'{"new": 1}')
    drain()
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE todo SET due_us = 0")
    drain()
    assert list(read(stores, deposit).faults) == ["a.json"]
    assert not stores.catalog.run_query(lambda tx: bundles.bundles.find(tx, deposit.fqid))
    deposits.retry(stores, deposit.id, ME)
    judge(stores, deposit, drain)
    (entry, _) = bundles.read_entries(stores, bundles.find(stores, "aws", deposit.uuid, None), 0, 2)
    assert entry.size == len(b'{"new": 1}')


def test_checksums_that_lie_are_refused(stores: Stores, area: str, drain: Drain) -> None:
    """Somebody writes to the area's bucket directly, past the checks of the area."""
    key = keys.area_file_key(AREA, "a.json")
    metadata = stores.areas.head(key).metadata
    stores.areas.put(key, b"[]", content_type="application/json", metadata=metadata, replace=True)
    deposit = begin(stores, drain, STARTING)
    run(take(stores, deposit), stores)
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE todo SET due_us = 0")
    drain()
    failed = read(stores, deposit)
    assert failed.state == FAILED
    assert "was declared as" in failed.faults["a.json"]
    assert not stores.catalog.run_query(lambda tx: bundles.bundles.find(tx, deposit.fqid))
