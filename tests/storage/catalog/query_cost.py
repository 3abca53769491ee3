"""Count statements and rows that a catalog call costs."""

import re
from collections.abc import Callable

from storage.catalog import Catalog, Tx
from tests.storage.catalog.query_plans import plans_of

_ACTUAL = re.compile(r"\(actual rows=([0-9.]+) loops=(\d+)\)")
_FILTERED = re.compile(r"Rows Removed by .*: (\d+)")


def work_of(catalog: Catalog, act: Callable[[Tx], object]) -> int:
    """Instructions of SQLite's machine, or rows that passed through PostgreSQL's plans."""
    return _instructions(catalog, act) if catalog.sqlite else _rows(catalog, act)


def _instructions(catalog: Catalog, act: Callable[[Tx], object]) -> int:
    done = 0

    def count() -> None:
        nonlocal done
        done += 1

    with catalog.write() as tx:
        driver = tx.connection.driver_connection
        assert driver is not None
        driver.set_progress_handler(count, 1)
        try:
            act(tx)
        finally:
            driver.set_progress_handler(None, 1)
    return done


def _rows(catalog: Catalog, act: Callable[[Tx], object]) -> int:
    plans = "\n".join(plans_of(catalog, act, analyze=True))
    passed = sum(float(rows) * int(loops) for rows, loops in _ACTUAL.findall(plans))
    return int(passed) + sum(map(int, _FILTERED.findall(plans)))
