"""A purge racing with a sync and with a bundle that names its files.

Whatever the order, and wherever one of them dies: no record of what was purged is left, and what a
bundle names that was acknowledged is there.
"""

import random
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from sqlalchemy import event

from pipelines import bundles, files, flow, integrity, purges, replication
from pipelines.bundles import BundleDraft, FilesPending, NewEntry
from pipelines.manifests import WriteResult
from storage import keys
from storage.catalog import jobs, versions
from storage.errors import (
    ConflictError,
    DamagedObjectError,
    DomainError,
    Invalid,
    NotFoundError,
    Unavailable,
)
from storage.model import FQID, REPLICAS, Job
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.damage import damage
from tests.pipelines.interleavings import play
from tests.pipelines.purge_runs import PURGING
from workers.actors import STEP_FUNCTIONS

pytestmark = pytest.mark.spec("BUN-62")

AUTHOR = "operator@example.org"


def bundle(fqid: FQID, file: FQID, stores: Stores) -> WriteResult:
    new = BundleDraft(fqid, "aws", 1, [NewEntry("a.txt", file, False)])
    return bundles.put(stores, new, AUTHOR)


def rows(fqid: FQID, file: FQID) -> list[Job]:
    refs = (f"bundle:{fqid}", f"file:{file}")
    return [Job(step, replica, ref) for step in PURGING for ref in refs for replica in REPLICAS]


def purge(fqid: FQID, file: FQID, stores: Stores) -> str:
    """Every step of it, as far as it gets; a twin may be at it too."""
    for _ in range(4):
        for row in rows(fqid, file):
            with stores.catalog.read() as tx:
                if not jobs.exists(tx, row):
                    continue
            with stores.catalog.write() as tx:
                jobs.insert(tx, [row])
                claim = jobs.claim(tx, row, token="p", lease_s=60, max_claims=99)
            assert claim is not None
            try:
                STEP_FUNCTIONS[flow.Step(row.step)](stores, claim, lambda _n: None)
            except Unavailable:
                continue
    return "purged"


def copy(ref: str, stores: Stores) -> str:
    row = Job(flow.Step.SYNC, "gcp", ref)
    with stores.catalog.write() as tx:
        jobs.insert(tx, [row])
        claim = jobs.claim(tx, row, token="s", lease_s=60, max_claims=99)
    assert claim is not None
    replication.sync_version(stores, claim, lambda _n: None)
    return "copied"


def doomed(stores: Stores, *, everywhere: bool = False) -> tuple[FQID, FQID]:
    """A bundle with a file of its own, under a tombstone and ordered to be purged."""
    file = make_file(stores, new_uuid().encode(), everywhere=everywhere)
    fqid = FQID(new_uuid(), version())
    bundle(fqid, file, stores)
    if everywhere:
        copy(f"bundle:{fqid}", stores)
    bundles.delete(stores, "aws", *fqid, reason="r", author=AUTHOR)
    purges.order_purge(stores, *fqid, reason="r", author=AUTHOR)
    with stores.catalog.write() as tx:
        for row in purges.document_jobs(fqid):
            jobs.delete(tx, row)
    return fqid, file


def settle(stores: Stores, fqid: FQID, file: FQID) -> None:
    for ref in (f"bundle:{fqid}", f"file:{file}"):
        copy(ref, stores)
    purge(fqid, file, stores)


@pytest.mark.parametrize("kind", ["bundle", "file"])
def test_a_sync_beside_a_purge_leaves_no_record(race_stores: Stores, kind: str) -> None:
    rng = random.Random(12)
    for _ in range(25):
        fqid, file = doomed(race_stores)
        order = ["p"] * rng.randrange(8, 30) + ["s"] * rng.randrange(1, 6)
        rng.shuffle(order)
        ref = f"{kind}:{fqid if kind == 'bundle' else file}"
        ends = play(race_stores, order, {"p": partial(purge, fqid, file), "s": partial(copy, ref)})
        assert not [end for end in ends.values() if isinstance(end, AssertionError)]
        settle(race_stores, fqid, file)
        for replica in REPLICAS:
            there = {info.key for info in race_stores.replicas[replica].list("")}
            assert keys.record_key("bundle", fqid) not in there
            assert keys.record_key("file", file) not in there


def repair(key: str, stores: Stores) -> str:
    with suppress(NotFoundError, DamagedObjectError):
        integrity.repair_object(stores, "aws", key)
    return "repaired"


def test_a_repair_beside_a_purge_leaves_no_record(race_stores: Stores) -> None:
    for moves in (0, 4, 8, 12, 16, 20, 60):
        fqid, file = doomed(race_stores, everywhere=True)
        key = keys.record_key("bundle", fqid)
        damage(race_stores, "aws", key, "last byte")
        order = ["p"] * moves + ["r"] + ["p"] * 60
        play(race_stores, order, {"p": partial(purge, fqid, file), "r": partial(repair, key)})
        settle(race_stores, fqid, file)
        for replica in REPLICAS:
            assert key not in {info.key for info in race_stores.replicas[replica].list("")}


def test_a_bundle_of_a_file_that_goes_is_refused_or_keeps_it(race_stores: Stores) -> None:
    written = 0
    for place in range(30):
        fqid, file = doomed(race_stores)
        order = ["p"] * place + ["w"] * 3 + ["p"] * 40
        other = FQID(new_uuid(), version())
        actors = {"p": partial(purge, fqid, file), "w": partial(bundle, other, file)}
        end = play(race_stores, order, actors)["w"]
        assert end is None or isinstance(end, WriteResult | Invalid | ConflictError), end
        purge(fqid, file, race_stores)
        if not isinstance(end, WriteResult):
            continue
        written += 1
        assert files.locate(race_stores, "aws", *file).state == "here"
        found = bundles.find(race_stores, "aws", *other)
        assert [each.file for each in bundles.read_entries(race_stores, found, 0, 9)] == [file]
        race_stores.replicas["aws"].head(keys.record_key("file", file))
    assert 0 < written < 30, "both ends were seen"


def test_concurrent_purges_remove_shared_file_once(race_stores: Stores) -> None:
    fqid, file = doomed(race_stores)
    rng = random.Random(14)
    order = ["p", "q"] * 20
    rng.shuffle(order)
    twins = {name: partial(purge, fqid, file) for name in ("p", "q")}
    ends = play(race_stores, order, twins)
    assert not [
        end
        for end in ends.values()
        if isinstance(end, Exception) and not isinstance(end, DomainError)
    ]
    settle(race_stores, fqid, file)
    with pytest.raises(NotFoundError):
        files.locate(race_stores, "aws", *file)


def test_file_added_during_reservation_is_not_missed(race_stores: Stores) -> None:
    stores, file = race_stores, make_file(race_stores, b"late")
    with stores.catalog.write() as tx:
        (seen,) = versions.unpublish(tx, "file", *file)

    looked: list[str] = []

    def come(_c: Any, _k: Any, statement: str, *_: Any) -> None:
        if "INSERT INTO entries" in statement and not stores.catalog.sqlite:
            looked.append(statement)
            if len(looked) == 1:
                with stores.catalog.write() as tx:
                    versions.publish(tx, "file", *seen)

    event.listen(stores.catalog.engine, "after_cursor_execute", come)
    fqid = FQID(new_uuid(), version())
    if stores.catalog.sqlite:
        # Nobody else writes meanwhile.
        with pytest.raises(FilesPending):
            bundle(fqid, file, stores)
    else:
        assert bundle(fqid, file, stores).created
        assert len(looked) == 2
