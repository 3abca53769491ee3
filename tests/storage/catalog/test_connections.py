"""Connections to a database server: cost, failures and server restarts."""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, ProgrammingError

from config import SettingsError
from storage.catalog import Catalog, Tx, bundles, engine, jobs, migrate, now_us, versions
from storage.catalog.versions import split_runs
from storage.errors import Unavailable
from storage.model import FQID, Job
from tests.builders import new_uuid, version
from tests.catalogs import POSTGRES
from tests.engines import postgres
from tests.engines.engine import Running
from tests.storage.catalog.tcp_proxy import Wire, wired

ROW = Job("index", "aws", "b.1")


@pytest.fixture
def wire(server_url: str) -> Iterator[tuple[Wire, Catalog]]:
    """A catalog whose every byte is seen, and can be stopped."""
    with wired(server_url) as (opened, url):
        catalog = Catalog(url, connections=4, overflow=0, wait_s=5)
        yield opened, catalog
        catalog.close()


def add(catalog: Catalog, ref: str = "b.1") -> None:
    with catalog.write() as tx:
        jobs.insert(tx, [ROW._replace(ref=ref)])


def refs(catalog: Catalog) -> set[str]:
    with catalog.read() as tx:
        return set(tx.execute(text("SELECT ref FROM todo")).scalars())


def turns(wire: Wire) -> int:
    """How often the client spoke since it was last asked, waiting for an answer each time."""
    spoken = len(wire.carried)
    wire.carried.clear()
    return spoken


def test_a_claim_is_three_round_trips(wire: tuple[Wire, Catalog]) -> None:
    line, catalog = wire
    add(catalog)
    turns(line)
    with catalog.write(durable=False) as tx:
        assert jobs.claim(tx, ROW, token="t", lease_s=60, max_claims=5)
    assert turns(line) == 3, "beginning, claiming, committing"


def test_read_transaction_is_three_round_trips(wire: tuple[Wire, Catalog]) -> None:
    line, catalog = wire
    catalog.ping()
    turns(line)
    with catalog.read() as tx:
        versions.find_latest(tx, "bundle", "aws", "u")
    assert turns(line) == 3


def test_a_question_is_one_round_trip_unless_a_pooler_is_between(
    wire: tuple[Wire, Catalog],
) -> None:
    line, catalog = wire
    is_direct = catalog.run_query(engine.is_direct_session)
    turns(line)
    assert not catalog.run_query(lambda tx: jobs.find_due_steps(tx, ["index", "match"]))
    assert turns(line) == (1 if is_direct else 3)


def test_rows_of_a_bundle_do_not_add_round_trips(wire: tuple[Wire, Catalog]) -> None:
    line, catalog = wire
    catalog.ping()
    spoken = []
    for count in (1, 3000):
        turns(line)
        with catalog.write() as tx:
            tx.execute(text("SET LOCAL session_replication_role TO replica"))
            new = bundles.NewBundleVersion(
                FQID(new_uuid(), version()),
                "d",
                "aws",
                1,
                "a",
                None,
                "e",
                split_runs([(n, f"f{n}", False) for n in range(count)], 100),
            )
            bundles.insert(tx, new)
        statements = [said for said in line.carried if b"INSERT" in said]
        turns(line)
        spoken.append(len(statements))
    assert spoken == [4, 4]


def kill_others(catalog: Catalog) -> None:
    """End every session of the catalog's database, idle ones too."""
    other = Catalog(catalog.url, connections=1, overflow=0)
    query = (
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with other.read() as tx:
        tx.execute(text(query))
    other.close()


def test_connections_that_died_idle_are_not_noticed(server: Catalog) -> None:
    add(server)
    for _ in range(3):
        kill_others(server)
        assert refs(server) == {"b.1"}
        kill_others(server)
        add(server)
        kill_others(server)
        assert server.run_query(lambda tx: jobs.exists(tx, ROW))


def test_broken_session_leaves_nothing(server: Catalog) -> None:
    def half() -> None:
        with server.write() as tx:
            jobs.insert(tx, [ROW])
            kill_others(server)
            tx.execute(text("SELECT 1"))

    with pytest.raises(Unavailable):
        half()
    assert refs(server) == set()


def test_a_cut_wire_is_unavailable_and_mends_by_itself(wire: tuple[Wire, Catalog]) -> None:
    line, catalog = wire
    add(catalog)
    line.up = False
    line.cut()
    with pytest.raises(Unavailable):
        add(catalog, "b.2")
    line.up = True
    add(catalog, "b.3")
    assert refs(catalog) == {"b.1", "b.3"}


def test_lost_commit_response_is_unavailable_and_repeatable(
    wire: tuple[Wire, Catalog],
) -> None:
    line, catalog = wire
    add(catalog)
    line.cut_after = b"COMMIT\0"
    with pytest.raises(Unavailable):
        add(catalog, "b.2")
    add(catalog, "b.2")
    assert refs(catalog) == {"b.1", "b.2"}


def test_concurrent_work_sees_only_unavailable_during_restarts(
    wire: tuple[Wire, Catalog],
) -> None:
    line, catalog = wire
    stop = threading.Event()

    def work(name: int) -> tuple[set[str], list[Exception]]:
        done, failed, number = set(), [], 0
        while not stop.is_set():
            number += 1
            try:
                add(catalog, f"{name}.{number}")
                done.add(f"{name}.{number}")
                refs(catalog)
            except Exception as error:
                failed.append(error)
        return done, failed

    with ThreadPoolExecutor(6) as pool:
        working = [pool.submit(work, name) for name in range(6)]
        for _ in range(3):
            time.sleep(0.2)
            line.up = False
            line.cut()
            time.sleep(0.1)
            line.up = True
        time.sleep(0.3)
        stop.set()
        ends = [each.result() for each in working]
    failures = [error for _, failed in ends for error in failed]
    assert failures
    assert {type(error) for error in failures} == {Unavailable}
    assert set().union(*(done for done, _ in ends)) <= refs(catalog), "what was answered is there"


@pytest.mark.parametrize("state", ["40001", "40P01", "53300", "55P03", "57014", "57P01", "57P03"])
def test_temporary_errors_are_unavailable(server: Catalog, state: str) -> None:
    with pytest.raises(Unavailable), server.write() as tx:
        _raise(tx, state)


@pytest.mark.parametrize("state", ["42P01", "23514", "22012", "54000", "XX000"])
def test_permanent_errors_are_not_retried(server: Catalog, state: str) -> None:
    with pytest.raises(DBAPIError), server.write() as tx:
        _raise(tx, state)


def _raise(tx: Tx, state: str) -> None:
    tx.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}'; END $$")


def test_too_few_connections_are_unavailable_after_a_wait(server_url: str) -> None:
    small = Catalog(server_url, connections=1, overflow=0, wait_s=0.1)
    with small.read(), pytest.raises(Unavailable), small.read():
        pass
    small.close()


def test_a_view_is_consistent_and_cannot_write(server: Catalog) -> None:
    with server.read() as tx:
        assert jobs.count_open(tx) == {}
        add(server)
        assert jobs.count_open(tx) == {}
    with pytest.raises(Unavailable), server.read() as tx:
        jobs.insert(tx, [ROW])


def test_leaves_no_session_state(server: Catalog) -> None:
    names = ("synchronous_commit", "lock_timeout", "idle_in_transaction_session_timeout", "jit")

    def settings() -> list[str]:
        connection = server.engine.raw_connection()
        try:
            cursor = connection.cursor()
            return [cursor.execute(f"SHOW {name}").fetchone()[0] for name in names]
        finally:
            connection.close()

    before = settings()
    for durable in (True, False):
        with server.write(durable=durable) as tx:
            within = [tx.execute(text(f"SHOW {name}")).scalar_one() for name in names]
        assert within[1:] == ["30s", "1min", "off"]
        assert settings() == before
    assert within[0] == "off"


def test_prepares_statements_only_without_pooler(
    server: Catalog, request: pytest.FixtureRequest
) -> None:
    for _ in range(8):
        server.ping()
    with server.read() as tx:
        mine = text("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SHOW%'")
        prepared = tx.execute(mine).scalar_one()
    assert bool(prepared) == ("pgbouncer" not in request.node.name)


_OTHER_NODE = """
import sys, time
real = time.time_ns
time.time_ns = lambda: real() + {ahead_s} * 10**9
time.time = lambda: time.time_ns() / 1e9
from storage.catalog import Catalog, jobs, now_us, versions
from storage.model import Job
catalog = Catalog(sys.argv[1])
with catalog.write() as tx:
    jobs.insert(tx, [Job("index", "aws", "b.1")])
    claim = jobs.claim(tx, Job("index", "aws", "b.1"), token="other", lease_s=60, max_claims=5)
    print(now_us(tx), claim is not None)
catalog.close()
"""


@pytest.mark.parametrize("ahead_s", [-7200, 7200])
def test_times_are_the_servers(server: Catalog, ahead_s: int) -> None:
    script = _OTHER_NODE.format(ahead_s=ahead_s)
    with server.read() as tx:
        before = now_us(tx)
    told = subprocess.run(
        [sys.executable, "-c", script, server.url], capture_output=True, text=True, check=True
    )
    at, claimed = told.stdout.split()
    assert claimed == "True"
    with server.write() as tx:
        assert before < int(at) < now_us(tx)
        due = tx.execute(text("SELECT due_us FROM todo")).scalar_one()
        assert abs(due - int(at) - 60_000_000) < 1_000_000
        assert jobs.claim(tx, ROW, token="t", lease_s=60, max_claims=5) is None, "it is held"


def test_a_time_is_that_of_after_the_lock(server: Catalog) -> None:
    """Else who waited for a head would date its event before that of the one it waited for."""
    uuid = new_uuid()
    waiting = threading.Event()

    def second() -> int:
        with server.write() as tx:
            waiting.set()
            versions.lock_heads(tx, "bundle", [uuid])
            jobs.insert(tx, [ROW])
            return int(tx.execute(text("SELECT born_us FROM todo")).scalar_one())

    with ThreadPoolExecutor(1) as pool:
        with server.write() as tx:
            versions.lock_heads(tx, "bundle", [uuid])
            later = pool.submit(second)
            waiting.wait()
            time.sleep(0.1)
            released = now_us(tx)
        assert later.result() > released


def test_a_misspelled_statement_is_not_tried_again(server: Catalog) -> None:
    with pytest.raises(ProgrammingError), server.read() as tx:
        tx.execute(text("SELECT nothing FROM nowhere"))


@pytest.mark.parametrize(
    "url",
    [
        "postgres://me:hush@host/db",
        "postgresql://me:hush@host/db",
        "postgresql+psycopg://me:hush@host:port/db",
        "postgresql+psycopg:/me:hush@host",
    ],
)
def test_a_url_that_names_no_server_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Catalog(url)
    assert "hush" not in str(caught.value)


@pytest.fixture(params=["own"] if POSTGRES and postgres.missing() is None else [])
def restarting() -> Iterator[Running]:
    """A private server, since the test restarts it; its account cannot enter pytest's folders."""
    with (
        tempfile.TemporaryDirectory(prefix="restarting-") as home,
        postgres.running(Path(home)) as running,
    ):
        yield running


def test_a_restart_is_unavailable_for_a_while_and_loses_nothing(restarting: Running) -> None:
    catalog = Catalog(restarting.url, wait_s=5)
    migrate.upgrade(catalog)
    stop = threading.Event()

    def work(name: int) -> tuple[list[str], list[Exception], float]:
        done, failed, number, well = [], [], 0, 0.0
        while not stop.is_set():
            number += 1
            ref = f"{name}.{number}"
            try:
                with catalog.write() as tx:
                    jobs.insert(tx, [Job("index", "aws", ref)])
                done.append(ref)
                with catalog.read() as tx:
                    assert jobs.exists(tx, Job("index", "aws", ref))
                well = time.monotonic()
            except Unavailable as error:
                failed.append(error)
                time.sleep(0.01)
        return done, failed, well

    with ThreadPoolExecutor(6) as pool:
        working = [pool.submit(work, name) for name in range(6)]
        time.sleep(0.5)
        restarting.restart()
        restarted = time.monotonic()
        time.sleep(1)
        stop.set()
        ends = [each.result() for each in working]
    with catalog.read() as tx:
        kept = set(tx.exec_driver_sql("SELECT ref FROM todo").scalars())
    catalog.close()
    assert {ref for done, _, _ in ends for ref in done} <= kept
    assert any(failed for _, failed, _ in ends)
    assert all(well > restarted for _, _, well in ends), "a process did not recover by itself"
