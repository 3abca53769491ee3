"""Collections that wait for each other come to the other replica at one go."""

import itertools
from pathlib import Path
from random import Random

from pipelines.collecting import collections
from pipelines.collecting.collections import NewCollection
from pipelines.flow import Step
from storage.catalog import Catalog, todo, visibility
from storage.model import FQID, Link, Todo
from storage.stores import Stores
from tests.builders import build_stores, new_uuid, version
from workers.actors import STEPS
from workers.broker import MemoryBroker
from workers.chains import Chains
from workers.claims import Working, work

OWNER = "curator@example.org"


def write(stores: Stores, *links: Link) -> FQID:
    new = NewCollection(FQID(new_uuid(), version()), "aws", "n", "d", {}, links)
    return collections.write(stores, new, OWNER).fqid


def test_each_collection_of_a_chain_is_woken_by_the_one_that_it_links_to(
    tmp_path: Path, catalog: Catalog
) -> None:
    stores, broker = build_stores(tmp_path, catalog), MemoryBroker()
    working = Working(stores, Chains(broker), STEPS, 3, Random(1))
    chain = [write(stores)]
    for _ in range(4):
        chain.append(write(stores, Link("collection", chain[-1])))
    rows = [Todo(Step.SYNC, "gcp", f"collection:{fqid}") for fqid in chain]
    for row in reversed(rows[1:]):
        assert not work(working, row)
    with catalog.write() as tx:
        tx.exec_driver_sql(
            "UPDATE todo SET due_us = due_us + 600000000 WHERE waits_for IS NOT NULL"
        )
    for place, (here, following) in enumerate(itertools.pairwise(rows), 1):
        assert work(working, here)
        assert broker.depth("sync") == place, following
    assert work(working, rows[-1])
    with catalog.read() as tx:
        for fqid in chain:
            assert visibility.chosen(tx, "collection", "gcp", *fqid) is not None
        assert todo.backlog(tx) == {}
