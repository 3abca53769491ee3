"""A server that is restarted under those who read and write, as an operator restarts it."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from storage.catalog import Catalog, migrate, todo
from storage.errors import Unavailable
from storage.model import Todo
from tests.catalogs import POSTGRES
from tests.engines import postgres
from tests.engines.running import Running


@pytest.fixture(params=["own"] if POSTGRES and postgres.missing() is None else [])
def restarting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    """A server of the test's own: nobody else's may be restarted."""
    with postgres.running(tmp_path) as running:
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
                    todo.add(tx, [Todo("index", "aws", ref)])
                done.append(ref)
                with catalog.read() as tx:
                    assert todo.exists(tx, Todo("index", "aws", ref))
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
    assert all(well > restarted for _, _, well in ends), "everybody goes on by himself"
