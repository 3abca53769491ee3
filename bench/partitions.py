"""Conversion of `visible` to 64 hash partitions on PostgreSQL and back, and its reads with both.

The catalog's own functions read it, with random keys of a million rows and all pages in memory; the
shortest time of many calls is that of an idle machine.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from uuid import UUID

from sqlalchemy import text

from bench.harness import ROOT, Figures, Measure
from bench.scale_keys import PAGE, VERSION, md5
from bench.scale_rows import uuid_sql
from storage.catalog import Catalog, Tx, migrate, partitions, versions
from storage.model import FQID
from tests.catalogs import fresh

_FILLING = (
    "INSERT INTO visible (kind, replica, uuid, version, id)"
    f" SELECT 'file', 'aws', {uuid_sql('f')}, '{VERSION}', n FROM generate_series(1, :rows) AS n"
)


@contextmanager
def prepare(
    root: Path = ROOT, *, rows: int = 1_000_000, parts: int = 64, calls: int = 300
) -> Iterator[Measure]:
    """Fill a catalog of its own with so many visible files."""
    assert root == ROOT, "the catalog of another commit cannot convert tables"
    with (
        fresh(os.environ["STORE_TEST_POSTGRES"]) as url,
        closing(Catalog(url, connections=1)) as catalog,
    ):
        migrate.upgrade(catalog)
        with catalog.write() as tx:
            tx.execute(text(_FILLING), {"rows": rows})
        random = Random(63)

        def measure() -> Figures:
            figures: Figures = {}
            for number in (1, parts):
                name = "one table" if number == 1 else f"{parts} parts"
                for what, ms in _time_reads(catalog, rows, calls, random).items():
                    figures[f"{name}: {what} ms"] = ms
                began = time.perf_counter()
                # After the reads of a table it is converted to the other form.
                partitions.convert(catalog, "visible", parts if number == 1 else 1)
                figures[f"{name}: converted to the other s"] = time.perf_counter() - began
            return figures

        yield measure


def _time_reads(catalog: Catalog, rows: int, calls: int, random: Random) -> dict[str, float]:
    """Return the shortest time of each read, in milliseconds."""
    with catalog.engine.connect() as connection:
        # The driver commits by itself, and a vacuum must not be inside of a transaction.
        connection.exec_driver_sql("VACUUM ANALYZE visible")
    reads: Mapping[str, Callable[[Tx, FQID], object]] = {
        "latest version by uuid": lambda tx, fqid: versions.find_latest(
            tx, "file", "aws", fqid.uuid
        ),
        "one version": lambda tx, fqid: versions.find_published(tx, "file", "aws", fqid),
        f"{PAGE} versions": lambda tx, _: versions.filter_published(
            tx, "file", "aws", [_choose(random, rows) for _ in range(PAGE)]
        ),
        f"page of {PAGE} of a listing": lambda tx, fqid: versions.list_published(
            tx, "file", "aws", prefix="", after=fqid, limit=PAGE
        ),
    }
    return {name: _time_read(catalog, read, rows, calls, random) for name, read in reads.items()}


def _time_read(
    catalog: Catalog, read: Callable[[Tx, FQID], object], rows: int, calls: int, random: Random
) -> float:
    times = []
    with catalog.read() as tx:
        # The first calls read pages from disk, and prepare the statement.
        for number in range(2 * calls):
            fqid = _choose(random, rows)
            began = time.perf_counter()
            assert read(tx, fqid) is not None
            if number >= calls:
                times.append(time.perf_counter() - began)
    return 1000 * min(times)


def _choose(random: Random, rows: int) -> FQID:
    """Return the name of one of the rows."""
    return FQID(str(UUID(md5(f"f{random.randint(1, rows)}"))), VERSION)
