"""Collections that link to each other are synced together."""

import itertools
from pathlib import Path
from random import Random

import pytest

from pipelines import collections
from pipelines.collections import CollectionDraft
from pipelines.flow import Step
from storage.catalog import Catalog, jobs, versions
from storage.model import FQID, CollectionLink, Job
from storage.stores import Stores
from tests.builders import build_stores, new_uuid, version
from workers.actors import STEP_FUNCTIONS
from workers.broker import MemoryBroker
from workers.claims import WorkerContext, run_job
from workers.messages import MessageSender

OWNER = "curator@example.org"


def write(stores: Stores, *links: CollectionLink) -> FQID:
    new = CollectionDraft(FQID(new_uuid(), version()), "aws", "n", "d", {}, links)
    return collections.put(stores, new, OWNER).fqid


@pytest.mark.spec("COL-14")
def test_each_collection_of_a_chain_is_woken_by_the_one_that_it_links_to(
    tmp_path: Path, catalog: Catalog
) -> None:
    stores, broker = build_stores(tmp_path, catalog), MemoryBroker()
    working = WorkerContext(stores, MessageSender(broker), STEP_FUNCTIONS, 3, Random(1))
    chain = [write(stores)]
    for _ in range(4):
        chain.append(write(stores, CollectionLink("collection", chain[-1])))
    rows = [Job(Step.SYNC, "gcp", f"collection:{fqid}") for fqid in chain]
    for row in reversed(rows[1:]):
        assert not run_job(working, row)
    with catalog.write() as tx:
        tx.exec_driver_sql(
            "UPDATE todo SET due_us = due_us + 600000000 WHERE waits_for IS NOT NULL"
        )
    for place, (here, following) in enumerate(itertools.pairwise(rows), 1):
        assert run_job(working, here)
        assert broker.depth("sync") == place, following
    assert run_job(working, rows[-1])
    with catalog.read() as tx:
        for fqid in chain:
            assert versions.resolve_version(tx, "collection", "gcp", *fqid) is not None
        assert jobs.count_open(tx) == {}
