"""Every query of the catalog with few bundles and with a hundred times as many, on PostgreSQL.

Both catalogs are filled by the server itself, with the indexes of the migrations, and are on one
server; a filled catalog is used again. Each call of the catalog is recorded once and its statements
are explained and executed in turns on either side, in a transaction that is rolled back: with the
keys of several rows, the best of some runs for each, so that what they read is in memory. Compared
are the plans (nodes, indexes, order), the rows and the pages they read, and the time to execute
them. Rows are the same at every load of the machine, and do not count the levels of indexes.
"""

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import make_url

from bench import scale_rows
from bench.harness import ROOT, Figures, Measure
from bench.scale_calls import CALLS, find_uncalled
from bench.scale_keys import Call, RowKeys
from storage.catalog import Catalog

ENOUGH = 1.2
"""Times as long, or as many rows or pages, as with few bundles: more is reported."""
SLOW_MS = 5.0
NOTICEABLE_MS = 0.05
"""A call is not reported for a ratio of times shorter than this: they are lost in the noise."""
NOTICEABLE_ROWS = 10
"""A call is not reported for so few rows more."""
EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "
EXPLAINED = ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")


@dataclass(frozen=True)
class Cost:
    """What the statements of one call took."""

    plan: tuple[str, ...]
    rows: int
    pages: int
    ms: float


@dataclass
class Costs:
    """The costs of a call with several keys: the best of each."""

    plans: set[tuple[str, ...]] = field(default_factory=set)
    rows: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    times_ms: list[float] = field(default_factory=list)

    @property
    def ms(self) -> float:
        """The median over the keys."""
        return statistics.median(self.times_ms)

    @property
    def median_rows(self) -> float:
        """The median over the keys."""
        return statistics.median(self.rows)

    @property
    def median_pages(self) -> float:
        """The median over the keys."""
        return statistics.median(self.pages)


@contextmanager
def prepare(
    root: Path = ROOT,
    *,
    sizes: Sequence[int] = (100_000, 10_000_000),
    keys: int = 3,
    runs: int = 4,
    report: Path | None = None,
) -> Iterator[Measure]:
    """Compare catalogs of these sizes, each with the next."""
    assert root == ROOT, "the catalog of another commit has other functions"
    server = os.environ["STORE_TEST_POSTGRES"]
    catalogs = {size: _open_filled(server, size) for size in sizes}

    def measure() -> Figures:
        figures: Figures = {"functions neither called nor excused": len(find_uncalled())}
        for few, many in pairwise(sizes):
            found = _compare_all({size: catalogs[size] for size in (few, many)}, keys, runs)
            figures |= _summarize(found, few, many)
        if report is not None:
            report.write_text("\n".join([*find_uncalled(), *_describe(found, *sizes[-2:])]))
        for size, catalog in catalogs.items():
            figures[f"{size:,} bundles: bytes a bundle"] = _measure_bytes(catalog) / size
        return figures

    try:
        yield measure
    finally:
        for catalog in catalogs.values():
            catalog.close()


def _open_filled(server: str, bundles: int) -> Catalog:
    """Open the catalog of that size; fill it unless the server has it."""
    url = make_url(server).set(database=f"scale_{bundles}")
    catalog = Catalog(url.render_as_string(hide_password=False), connections=1)
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        there = text("SELECT 1 FROM pg_database WHERE datname = :name")
        if connection.execute(there, {"name": url.database}).first() is None:
            connection.execute(text(f"CREATE DATABASE {url.database} TEMPLATE template0"))
            scale_rows.fill(catalog, bundles)
    engine.dispose()
    return catalog


Found = Mapping[str, Mapping[int, Costs]]


def _compare_all(catalogs: Mapping[int, Catalog], keys: int, runs: int) -> Found:
    """Measure each call in turns on all catalogs."""
    return {name: _compare(call, catalogs, keys, runs) for name, call in CALLS.items()}


def _compare(
    call: Call, catalogs: Mapping[int, Catalog], keys: int, runs: int
) -> Mapping[int, Costs]:
    found = {size: Costs() for size in catalogs}
    for key in range(keys):
        measured: dict[int, list[Cost]] = {size: [] for size in catalogs}
        for run in range(runs + 1):
            for size, catalog in catalogs.items():
                number = size // (keys + 1) * (key + 1) + 7
                cost = _explain(catalog, call, RowKeys(number, size))
                if run:
                    measured[size].append(cost)
        for size, costs in measured.items():
            found[size].plans.add(costs[0].plan)
            found[size].rows.append(min(cost.rows for cost in costs))
            found[size].pages.append(min(cost.pages for cost in costs))
            found[size].times_ms.append(min(cost.ms for cost in costs))
    return found


def _explain(catalog: Catalog, call: Call, keys: RowKeys) -> Cost:
    """Record what a call says to the server, and execute it again, explained; undo both."""
    said: list[tuple[str, Any]] = []

    def listen(_c: Any, _k: Any, statement: str, parameters: Any, *_: Any) -> None:
        said.append((statement, parameters))

    with catalog.engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        try:
            # Foreign keys are not checked: sequences are not rolled back, so that ids differ.
            driver.execute("BEGIN; SET LOCAL session_replication_role TO replica; SAVEPOINT before")
            event.listen(catalog.engine, "before_cursor_execute", listen)
            try:
                call(connection, keys)
            finally:
                event.remove(catalog.engine, "before_cursor_execute", listen)
            driver.execute("ROLLBACK TO before")
            plan, rows, pages, ms = [], 0, 0, 0.0
            for statement, given in said:
                if not statement.lstrip().startswith(EXPLAINED):
                    driver.execute(statement, given)
                    continue
                for one in given if isinstance(given, list) else [given]:
                    explained = driver.execute(EXPLAIN + statement, one).fetchone()[0][0]
                    nodes, read = _walk(explained["Plan"])
                    plan += nodes
                    rows += read
                    pages += _count_pages(explained["Plan"])
                    ms += explained["Execution Time"]
        finally:
            driver.execute("ROLLBACK")
    return Cost(tuple(plan), rows, pages, ms)


def _walk(node: Mapping[str, Any], depth: int = 0) -> tuple[list[str], int]:
    """Return the nodes of a plan with their indexes, and the rows that it reads of tables."""
    what = node.get("Index Name") or node.get("Relation Name") or ""
    nodes, rows = [f"{'.' * depth}{node['Node Type']} {what}".rstrip()], 0
    if "Relation Name" in node and node["Node Type"] != "ModifyTable":
        read = node["Actual Rows"] + sum(node.get(key, 0) for key in _REMOVED)
        rows += round(read * node["Actual Loops"])
    for child in node.get("Plans", ()):
        more, read = _walk(child, depth + 1)
        nodes += more
        rows += read
    return nodes, rows


_REMOVED = ("Rows Removed by Filter", "Rows Removed by Index Recheck")


def _count_pages(plan: Mapping[str, Any]) -> int:
    return int(plan.get("Shared Hit Blocks", 0) + plan.get("Shared Read Blocks", 0))


def _summarize(found: Found, few: int, many: int) -> Figures:
    """Count the calls that are as before, and report each that is not."""
    ratios = {name: _compare_costs(costs[few], costs[many]) for name, costs in found.items()}
    figures: Figures = {
        f"{few:,} → {many:,}: calls": len(found),
        "statements planned otherwise: calls": sum(
            costs[few].plans != costs[many].plans for costs in found.values()
        ),
    }
    for what in ("rows", "pages", "time"):
        figures[f"{what}, median ×"] = statistics.median(one[what] for one in ratios.values())
    more_rows = {name for name, costs in found.items() if _has_more_rows(costs[few], costs[many])}
    slower = {
        name
        for name, costs in found.items()
        if costs[many].ms >= NOTICEABLE_MS and ratios[name]["time"] > ENOUGH
    }
    figures[f"rows ≤ {ENOUGH} ×: calls"] = len(found) - len(more_rows)
    figures[f"pages ≤ {ENOUGH} ×: calls"] = sum(one["pages"] <= ENOUGH for one in ratios.values())
    figures[f"time ≤ {ENOUGH} ×: calls"] = len(found) - len(slower)
    for name, costs in found.items():
        is_reported = name in slower | more_rows
        if is_reported or costs[many].ms >= SLOW_MS:
            figures[f"{name} ms"] = costs[many].ms
        if is_reported:
            figures |= {f"{name} {what} ×": ratio for what, ratio in ratios[name].items()}
    return figures


def _compare_costs(small: Costs, large: Costs) -> Mapping[str, float]:
    return {
        "rows": large.median_rows / max(1, small.median_rows),
        "pages": large.median_pages / max(1, small.median_pages),
        "time": large.ms / small.ms,
    }


def _has_more_rows(small: Costs, large: Costs) -> bool:
    most = ENOUGH * small.median_rows + NOTICEABLE_ROWS
    return large.median_rows > most


def _describe(found: Found, few: int, many: int) -> Iterator[str]:
    """Yield a line for each call, and the plans of those that are planned otherwise."""
    for name, costs in found.items():
        small, large = costs[few], costs[many]
        yield (
            f"{name:45} {small.ms:10.3f} {large.ms:10.3f} ms {large.ms / small.ms:8.2f} ×"
            f" {small.median_rows:8.0f} {large.median_rows:8.0f} rows"
            f" {small.median_pages:8.0f} {large.median_pages:8.0f} pages"
        )
        if small.plans != large.plans:
            for size, plans in ((few, small.plans), (many, large.plans)):
                for plan in sorted(plans):
                    yield f"  {size}: {' | '.join(plan)}"


def _measure_bytes(catalog: Catalog) -> float:
    with catalog.engine.connect() as connection:
        query = "SELECT pg_database_size(current_database())"
        return float(connection.execute(text(query)).scalar_one())
