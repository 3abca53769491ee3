"""Listing of all bundles in process, beside listing the same names in a bucket.

Names are the keys of the bundles' records. Ours asks the catalog page by page, as the API does.
Run as `python -m bench.real.listings [bundles] [rounds]`.
"""

import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from bench import rows
from bench.real import engines, tools
from pipelines.limits import PAGE_MAX
from storage import keys
from storage.catalog import Catalog, versions
from storage.model import FQID

Lister = Callable[[], int]
"""Walks everything; how many there were."""


def main(bundles: int = 100_000, rounds: int = 3) -> None:
    """Print rows per second of each way."""
    fqids = rows.new_fqids(bundles, salt="bundle")
    target = engines.bucket("s3")
    _fill(target, fqids)
    with ExitStack() as open_until_the_end:
        ways = _ways(target, fqids, open_until_the_end)
        rates: Mapping[str, list[float]] = {name: [] for name in ways}
        for turn in range(rounds):
            order = list(ways)
            for name in order[turn % len(order) :] + order[: turn % len(order)]:
                began = time.perf_counter()
                assert ways[name]() == bundles, name
                rates[name].append(bundles / (time.perf_counter() - began))
    _show(bundles, rounds, rates)


def _ways(target: str, fqids: list[FQID], resources: ExitStack) -> dict[str, Lister]:
    folder = resources.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
    urls = {
        "catalog on PostgreSQL": resources.enter_context(engines.database()),
        "catalog on SQLite": f"sqlite:///{Path(folder) / 'catalog.sqlite'}",
    }
    found: dict[str, Lister] = {}
    for name, url in urls.items():
        catalog = resources.enter_context(engines.catalog(url))
        rows.add_bundles(catalog, fqids)
        found[name] = lambda catalog=catalog: sum(_pages(catalog))  # type: ignore[misc]
    bucket = engines.name_of(target)
    found["list_objects_v2"] = lambda: len(tools.keys(bucket))
    found["s5cmd ls"] = lambda: tools.listed(bucket)
    return found


def _fill(target: str, fqids: list[FQID]) -> None:
    """Records without content under the bundles' keys."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for fqid in fqids:
            path = Path(folder) / keys.record_key("bundle", fqid)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        tools.upload(folder, target)


def _pages(catalog: Catalog) -> Iterator[int]:
    after: FQID | None = None
    while page := _page(catalog, after):
        yield len(page)
        after = page[-1]


def _page(catalog: Catalog, after: FQID | None) -> list[FQID]:
    with catalog.read() as tx:
        return versions.list_published(tx, "bundle", "aws", prefix="", after=after, limit=PAGE_MAX)


def _show(bundles: int, rounds: int, rates: Mapping[str, list[float]]) -> None:
    print(f"{bundles:,} bundles, {rounds} rounds, pages of {PAGE_MAX} (the bucket's: 1,000)")
    print(f"{'':<24}{'rows/s median':>14}{'best':>10}{'of list_objects_v2':>20}")
    theirs = statistics.median(rates["list_objects_v2"])
    for name, found in rates.items():
        middle = statistics.median(found)
        print(f"  {name:<22}{middle:>14,.0f}{max(found):>10,.0f}{middle / theirs:>19.1f}×")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(f"{os.cpu_count()} cores; {engines.versions()}")
    main(*map(int, sys.argv[1:]))
