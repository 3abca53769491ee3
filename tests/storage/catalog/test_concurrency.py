"""What many processes do to the catalog at the same instant. SQLite hides most of it: one writer
at a time; PostgreSQL does not."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from storage.catalog import Catalog, bundles, heads, todo, tombstones, visibility
from storage.catalog.tombstones import Tombstone
from storage.errors import NotFound
from storage.model import FQID, Todo
from tests.builders import new_uuid, version

ROUNDS = 40


def together(*acts: Callable[[], object]) -> list[object]:
    """Run them at the same time, as nearly as threads can."""
    barrier = Barrier(len(acts))

    def act(one: Callable[[], object]) -> object:
        barrier.wait()
        return one()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(act, acts))


def publish(catalog: Catalog, fqid: FQID) -> None:
    with catalog.write() as tx:
        heads.lock(tx, "bundle", [fqid.uuid])
        if tombstones.over(tx, "bundle", fqid.uuid, fqid.version) is None:
            visibility.show(tx, "bundle", "aws", fqid, 1)


def bury(catalog: Catalog, uuid: str) -> None:
    stone = Tombstone(0, "bundle", uuid, "", "r", "d", "aws", "a", "e", 0)
    with catalog.write() as tx:
        heads.lock(tx, "bundle", [uuid])
        tombstones.add(tx, stone)
        visibility.hide(tx, "bundle", uuid, None)


def test_no_version_survives_the_tombstone_of_its_uuid(catalog: Catalog) -> None:
    for _ in range(ROUNDS):
        fqid = FQID(new_uuid(), version())
        together(lambda f=fqid: publish(catalog, f), lambda f=fqid: bury(catalog, f.uuid))  # type: ignore[misc]
        with catalog.read() as tx:
            assert visibility.find(tx, "bundle", "aws", fqid) is None


def test_a_row_is_claimed_by_exactly_one(catalog: Catalog) -> None:
    def take(row: Todo, token: str) -> object:
        with catalog.write() as tx:
            return todo.claim(tx, row, token=token, lease_s=60, max_claims=5)

    for number in range(ROUNDS):
        row = Todo("index", "aws", str(number))
        with catalog.write() as tx:
            todo.add(tx, [row])
        got = together(*(lambda r=row, t=str(t): take(r, t) for t in range(4)))  # type: ignore[misc]
        assert sum(claim is not None for claim in got) == 1


def test_one_version_is_reserved_by_exactly_one(catalog: Catalog) -> None:
    def reserve(fqid: FQID, digest: str) -> str:
        with catalog.write() as tx:
            heads.lock(tx, "bundle", [fqid.uuid])
            row = bundles.by_fqid(tx, fqid)
            if row is not None:
                return row.digest
            new = bundles.NewBundle(fqid, digest, "aws", 1, "a", None, "e", [])
            return bundles.reserve(tx, new, segment_size=9).digest

    for _ in range(ROUNDS):
        fqid = FQID(new_uuid(), version())
        got = together(*(lambda f=fqid, d=str(d): reserve(f, d) for d in range(4)))  # type: ignore[misc]
        assert len(set(got)) == 1


def test_a_failed_unit_of_work_leaves_nothing(catalog: Catalog) -> None:
    def fail() -> None:
        with catalog.write() as tx:
            todo.add(tx, [Todo("index", "aws", "x")])
            raise NotFound("on purpose")

    for _ in range(3):
        with pytest.raises(NotFound):
            fail()
    with catalog.read() as tx:
        assert todo.backlog(tx) == {}


def test_only_what_may_be_forgotten_does_not_wait_for_the_disk(catalog: Catalog) -> None:
    setting = "PRAGMA synchronous" if catalog.sqlite else "SHOW synchronous_commit"
    levels = []
    for durable in (True, False, True):
        with catalog.write(durable=durable) as tx:
            levels.append(str(tx.exec_driver_sql(setting).scalar_one()))
    assert levels == (["2", "1", "2"] if catalog.sqlite else ["on", "off", "on"])
