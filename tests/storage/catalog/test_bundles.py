"""Manifest segments, batched lookups, and listings in byte order."""

import random
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event, text

from pipelines.limits import SEGMENT_ENTRIES
from storage.catalog import Catalog, Tx, bundles, files, revisions, versions
from storage.catalog.files import NewFileVersion
from storage.catalog.versions import split_runs
from storage.model import FQID, Checksums
from tests.builders import new_uuid, version
from tests.catalogs import PARTS, list_differences


def add_files(tx: Tx, count: int) -> list[FQID]:
    fqids = [FQID(new_uuid(), version(number)) for number in range(count)]
    for number, fqid in enumerate(fqids):
        sums = Checksums("1" * 40, f"{number % 7:064d}", "c" * 8, "e" * 32)
        new = NewFileVersion(fqid, "d", "aws", 1, "a", "text/plain", number, sums, "e" * 32, "e")
        row = files.reserve(tx, new)
        versions.mark_published(tx, "file", row.fqid)
        versions.publish(tx, "file", "aws", fqid, row.id)
    return fqids


def add_bundle(tx: Tx, fqids: list[FQID], *, segment_size: int = SEGMENT_ENTRIES) -> int:
    found = {row[0]: row[1] for row in files.look_up(tx, "aws", fqids)}
    rows = [(found[place], f"f/{place}", place % 2 == 0) for place in range(len(fqids))]
    fqid = FQID(new_uuid(), version())
    versions.lock_heads(tx, "bundle", [fqid.uuid])
    runs = split_runs(rows, segment_size)
    new = bundles.NewBundleVersion(fqid, "d", "aws", 1, "a", None, "e", runs)
    return bundles.insert(tx, new).id


@pytest.mark.spec("BUN-13")
@pytest.mark.parametrize("count", [1, 3, 4, 5, 12, 13])
def test_entries_keep_manifest_order_on_any_page(catalog: Catalog, count: int) -> None:
    with catalog.write() as tx:
        fqids = add_files(tx, count)
        ident = add_bundle(tx, fqids, segment_size=4)
    with catalog.read() as tx:
        for limit in range(1, count + 2):
            walked = [
                entry
                for start in range(0, count, limit)
                for entry in bundles.list_entries(tx, ident, start=start, limit=limit, span=4)
            ]
            assert [entry.file for entry in walked] == fqids
            assert [entry.name for entry in walked] == [f"f/{place}" for place in range(count)]


def named(fqids: list[FQID]) -> bundles.NewBundleVersion:
    rows = [(f'f/{at} "ä"', fqid, at % 2 == 0) for at, fqid in enumerate(fqids)]
    runs = split_runs(rows, 4)
    return bundles.NewBundleVersion(
        FQID(new_uuid(), version()), "d", "aws", 1, "a", None, "e", runs
    )


def test_reservation_looks_up_files(catalog: Catalog) -> None:
    with catalog.write() as tx:
        fqids = add_files(tx, 11)
        random.Random(4).shuffle(fqids)
        reserved = bundles.reserve(tx, named(fqids))
        assert reserved.row
        assert reserved.facts
        assert not reserved.lacks_files
        found = bundles.list_entries(tx, reserved.row.id, start=0, limit=99, span=4)
        assert [(one.file, one.name, one.indexed) for one in found] == [
            (fqid, f'f/{at} "ä"', at % 2 == 0) for at, fqid in enumerate(fqids)
        ]
        assert [*zip(*reserved.facts, strict=True)] == [
            (one.content_type, one.size, sums.sha1, sums.sha256, sums.crc32c, sums.s3_etag)
            for one in found
            for sums in [one.checksums]
        ]


def test_reservation_uses_index_per_key(catalog: Catalog) -> None:
    if not catalog.sqlite:
        pytest.skip("PostgreSQL's plans are those of test_plans.py")
    said: list[tuple[str, Any]] = []

    def listen(_c: Any, _k: Any, statement: str, parameters: Any, *_: Any) -> None:
        said.append((statement, parameters))

    with catalog.write() as tx:
        fqids = add_files(tx, 9)
        event.listen(catalog.engine, "before_cursor_execute", listen)
        bundles.reserve(tx, named(fqids))
        event.remove(catalog.engine, "before_cursor_execute", listen)
        plan = "\n".join(
            str(row)
            for statement, given in said
            for row in tx.exec_driver_sql(
                f"EXPLAIN QUERY PLAN {statement}", given[0] if isinstance(given, list) else given
            )
        )
    # What is read by segments and positions needs no sorting.
    assert "TEMP B-TREE" not in plan
    for table in ("v", "s", "e"):
        assert f"SEARCH {table} USING PRIMARY KEY" in plan
    for table in ("f", "b"):
        assert f"SEARCH {table} USING INTEGER PRIMARY KEY" in plan


def test_a_reservation_lacks_files_that_its_origin_does_not_show(catalog: Catalog) -> None:
    with catalog.write() as tx:
        fqids = add_files(tx, 5)
        new = named([*fqids, FQID(new_uuid(), version())])
        assert bundles.reserve(tx, new).lacks_files
        assert bundles.reserve(tx, replace(named(fqids), origin="gcp")).lacks_files


def test_a_version_is_reserved_once(catalog: Catalog) -> None:
    with catalog.write() as tx:
        new = named(add_files(tx, 5))
        first, again = bundles.reserve(tx, new), bundles.reserve(tx, new)
    assert again.row == first.row
    assert (again.facts, again.lacks_files) == (None, False)


def test_a_lookup_finds_what_is_visible_in_its_replica_only(catalog: Catalog) -> None:
    with catalog.write() as tx:
        fqids = add_files(tx, 3)
        absent = FQID(new_uuid(), version())
        assert sorted(row[0] for row in files.look_up(tx, "aws", [absent, *fqids])) == [1, 2, 3]
        assert files.look_up(tx, "gcp", fqids) == []
        assert files.locate(tx, [absent, *fqids]) == dict.fromkeys(fqids, "elsewhere")


@pytest.mark.spec("BUN-31")
def test_lookup_uses_index_per_key(catalog: Catalog) -> None:
    with catalog.write() as tx:
        fqids = add_files(tx, 300)
    with catalog.read() as tx:
        explain = "EXPLAIN QUERY PLAN" if catalog.sqlite else "EXPLAIN"
        source, parameters = files.build_lookup(tx, "aws", fqids)
        rows = tx.execute(text(f"{explain} SELECT b.sha256 FROM {source}"), parameters)
        plan = "\n".join(str(tuple(row)) for row in rows)
    if catalog.sqlite:
        for table in ("v USING PRIMARY KEY", "f USING INTEGER PRIMARY", "b USING INTEGER PRIMARY"):
            assert f"SEARCH {table}" in plan
    else:
        assert "Hash Join" not in plan
        index = "pk_visible" if PARTS == 1 else f"_of_{PARTS}_pkey"
        assert f"{index} on visible" in plan


def test_bundle_sums_and_lists_its_files(catalog: Catalog) -> None:
    with catalog.write() as tx:
        fqids = add_files(tx, 4)
        first, second = add_bundle(tx, fqids[:2]), add_bundle(tx, fqids[1:])
        assert bundles.sum_bytes(tx, first) > 0
        assert len(bundles.list_file_ids(tx, second)) == 3


@pytest.mark.spec("BUN-05")
def test_listings_are_in_byte_order(catalog: Catalog) -> None:
    rng = random.Random(3)
    fqids = [FQID(new_uuid(), version(rng.randrange(5))) for _ in range(40)]
    fqids += [FQID(fqids[0].uuid, version(number)) for number in range(100, 110)]
    with catalog.write() as tx:
        for fqid in fqids:
            versions.publish(tx, "bundle", "aws", fqid, 1)
    wanted = sorted(set(fqids))
    for limit in (1, 7, 500):
        walked: list[FQID] = []
        with catalog.read() as tx:
            while page := versions.list_published(
                tx,
                "bundle",
                "aws",
                prefix="",
                after=walked[-1] if walked else None,
                limit=limit,
            ):
                walked += page
        assert walked == wanted


@pytest.mark.spec("BUN-07")
def test_a_prefix_is_a_range(catalog: Catalog) -> None:
    uuids = [f"{start}{new_uuid()[2:]}" for start in ("aa", "ab", "ab", "b0", "ff")]
    with catalog.write() as tx:
        for uuid in uuids:
            versions.publish(tx, "bundle", "aws", FQID(uuid, version()), 1)
        for prefix in ("a", "ab", "b", "f", "0", uuids[1], uuids[1] + "0"):
            found = versions.list_published(tx, "bundle", "aws", prefix=prefix, after=None, limit=9)
            assert [f.uuid for f in found] == sorted(u for u in uuids if u.startswith(prefix))


def test_migrations_create_the_schema(catalog: Catalog) -> None:
    assert revisions.read_current_revision(catalog) == revisions.expected_revision()
    assert list_differences(catalog) == []
