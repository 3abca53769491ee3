"""A purge beside a late sync and beside a bundle that names a file which is going, in many orders.

Whatever the order, and wherever one of them dies: no record of what was purged is left, and what a
bundle names that was acknowledged is there.
"""

import random
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from sqlalchemy import event

from pipelines import flow
from pipelines.depositing import files, manifests, purging, tombstones
from pipelines.depositing.manifests import FilesPending, NewBundle, NewEntry, Written
from pipelines.keeping import integrity
from pipelines.replicating import sync
from storage import keys
from storage.catalog import todo, visibility
from storage.errors import Conflict, Damaged, Invalid, NotFound, StoreError, Unavailable
from storage.model import FQID, REPLICAS, Todo
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.damaging import damage
from tests.pipelines.interleaving import play
from tests.pipelines.purged import PURGING, STEPS

AUTHOR = "operator@example.org"


def bundle(fqid: FQID, file: FQID, stores: Stores) -> Written:
    new = NewBundle(fqid, "aws", 1, [NewEntry("a.txt", file, False)])
    return manifests.write(stores, new, AUTHOR)


def rows(fqid: FQID, file: FQID) -> list[Todo]:
    refs = (f"bundle:{fqid}", f"file:{file}")
    return [Todo(step, replica, ref) for step in PURGING for ref in refs for replica in REPLICAS]


def purge(fqid: FQID, file: FQID, stores: Stores) -> str:
    """Every step of it, as far as it gets; a twin may be at it too."""
    for _ in range(4):
        for row in rows(fqid, file):
            with stores.catalog.read() as tx:
                if not todo.exists(tx, row):
                    continue
            with stores.catalog.write() as tx:
                todo.add(tx, [row])
                claim = todo.claim(tx, row, token="p", lease_s=60, max_claims=99)
            assert claim is not None
            try:
                STEPS[flow.Step(row.step)](stores, claim, lambda _n: None)
            except Unavailable:
                continue
    return "purged"


def copy(ref: str, stores: Stores) -> str:
    row = Todo(flow.Step.SYNC, "gcp", ref)
    with stores.catalog.write() as tx:
        todo.add(tx, [row])
        claim = todo.claim(tx, row, token="s", lease_s=60, max_claims=99)
    assert claim is not None
    sync.sync(stores, claim, lambda _n: None)
    return "copied"


def doomed(stores: Stores, *, everywhere: bool = False) -> tuple[FQID, FQID]:
    """A bundle with a file of its own, under a tombstone and ordered to be purged."""
    file = make_file(stores, new_uuid().encode(), everywhere=everywhere)
    fqid = FQID(new_uuid(), version())
    bundle(fqid, file, stores)
    if everywhere:
        copy(f"bundle:{fqid}", stores)
    tombstones.bury(stores, "aws", *fqid, reason="r", author=AUTHOR)
    purging.order(stores, *fqid, reason="r", author=AUTHOR)
    with stores.catalog.write() as tx:
        for row in purging.readers(fqid):
            todo.remove(tx, row)
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
            assert keys.record("bundle", fqid) not in there
            assert keys.record("file", file) not in there


def repair(key: str, stores: Stores) -> str:
    with suppress(NotFound, Damaged):
        integrity.repair_object(stores, "aws", key)
    return "repaired"


def test_a_repair_beside_a_purge_leaves_no_record(race_stores: Stores) -> None:
    for moves in (0, 4, 8, 12, 16, 20, 60):
        fqid, file = doomed(race_stores, everywhere=True)
        key = keys.record("bundle", fqid)
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
        assert end is None or isinstance(end, Written | Invalid | Conflict), end
        purge(fqid, file, race_stores)
        if not isinstance(end, Written):
            continue
        written += 1
        assert files.locate(race_stores, "aws", *file).state == "here"
        found = manifests.find(race_stores, "aws", *other)
        assert [each.file for each in manifests.entries(race_stores, found, 0, 9)] == [file]
        race_stores.replicas["aws"].head(keys.record("file", file))
    assert 0 < written < 30, "both ends were seen"


def test_two_purges_of_one_file_take_it_along_once(race_stores: Stores) -> None:
    fqid, file = doomed(race_stores)
    rng = random.Random(14)
    order = ["p", "q"] * 20
    rng.shuffle(order)
    twins = {name: partial(purge, fqid, file) for name in ("p", "q")}
    ends = play(race_stores, order, twins)
    assert not [
        end
        for end in ends.values()
        if isinstance(end, Exception) and not isinstance(end, StoreError)
    ]
    settle(race_stores, fqid, file)
    with pytest.raises(NotFound):
        files.locate(race_stores, "aws", *file)


def test_a_file_that_comes_while_its_bundle_is_reserved_is_not_missed(race_stores: Stores) -> None:
    stores, file = race_stores, make_file(race_stores, b"late")
    with stores.catalog.write() as tx:
        (seen,) = visibility.hide(tx, "file", *file)

    looked: list[str] = []

    def come(_c: Any, _k: Any, statement: str, *_: Any) -> None:
        if "INSERT INTO entries" in statement and not stores.catalog.sqlite:
            looked.append(statement)
            if len(looked) == 1:
                with stores.catalog.write() as tx:
                    visibility.show(tx, "file", *seen)

    event.listen(stores.catalog.engine, "after_cursor_execute", come)
    fqid = FQID(new_uuid(), version())
    if stores.catalog.sqlite:
        # Nobody else writes meanwhile.
        with pytest.raises(FilesPending):
            bundle(fqid, file, stores)
    else:
        assert bundle(fqid, file, stores).created
        assert len(looked) == 2
