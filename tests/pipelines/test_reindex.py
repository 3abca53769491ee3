"""A search index is rebuilt beside the live one."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from config import Settings
from pipelines import bundles, search, subscriptions
from pipelines.subscriptions import NewSubscription
from storage.catalog import documents, jobs, store_state
from storage.errors import ConflictError
from storage.model import FQID, Job
from storage.search.embedded.index import EmbeddedIndex
from storage.search.grammar.parser import parse_query
from storage.stores import Stores
from tests.builders import make_file, new_uuid
from tests.pipelines.bundle_events import Silent
from tests.pipelines.lost_catalog import AUTHOR, write
from workers.actors import STEP_FUNCTIONS
from workers.claims import WorkerContext, run_job

pytestmark = pytest.mark.spec("SEA-24", "OPS-15")

Drain = Callable[[], int]


def bundle(stores: Stores, number: int = 1) -> FQID:
    text = f'{{"describedBy": "x/a", "number": {number}}}'.encode()
    file = make_file(stores, text, content_type="application/json", everywhere=True)
    return write(stores, file)


def found(stores: Stores) -> set[FQID]:
    page = stores.search["aws"].search(parse_query({}), size=100)
    return {FQID(hit.uuid, hit.version) for hit in page.hits}


def run(stores: Stores, drain: Drain, turns: int = 20) -> None:
    for _ in range(turns):
        if search.advance_reindex(stores, "aws", batch=2).done:
            return
        drain()
    raise AssertionError("It never ends.")


def test_new_generation_has_old_and_new_documents(stores: Stores, drain: Drain) -> None:
    first = [bundle(stores, number) for number in range(5)]
    gone = bundle(stores, 9)
    drain()
    name = search.begin_reindex(stores, "aws")
    search.advance_reindex(stores, "aws", batch=2)
    late, buried = bundle(stores, 10), first.pop()
    bundles.delete(stores, "aws", *gone, reason="r", author=AUTHOR)
    drain()
    assert name not in stores.search["aws"].ping()
    assert found(stores) == {*first, buried, late}
    bundles.delete(stores, "aws", *buried, reason="r", author=AUTHOR)
    run(stores, drain)
    assert name in stores.search["aws"].ping()
    assert found(stores) == {*first, late}


def test_resumes_rebuild_after_crash(stores: Stores, drain: Drain) -> None:
    first = bundle(stores)
    drain()
    name = search.begin_reindex(stores, "aws")
    assert search.begin_reindex(stores, "aws") == name
    search.advance_reindex(stores, "aws")
    assert search.begin_reindex(stores, "aws") == name
    drain()
    # As if it had died after the alias moved.
    stores.search["aws"].finish_rebuild(name)
    run(stores, drain)
    assert found(stores) == {first}
    assert search.begin_reindex(stores, "aws") != name


def test_repeats_write_that_reached_old_generation_only(stores: Stores, drain: Drain) -> None:
    fqid = bundle(stores)
    row = Job("index", "aws", str(fqid))
    with stores.catalog.write() as tx:
        held = jobs.claim(tx, row, token="slow", lease_s=600, max_claims=5)
    assert held is not None
    search.begin_reindex(stores, "aws")
    search.advance_reindex(stores, "aws")
    with stores.catalog.write() as tx:
        assert jobs.claim(tx, row, token="next", lease_s=0, max_claims=5) is not None


def test_dead_jobs_keep_old_index_unless_forced(stores: Stores, drain: Drain) -> None:
    fqid = bundle(stores)
    drain()
    name = search.begin_reindex(stores, "aws")
    search.advance_reindex(stores, "aws")
    with stores.catalog.write() as tx:
        held = jobs.claim(tx, Job("index", "aws", str(fqid)), token="t", lease_s=9, max_claims=5)
        assert held is not None
        jobs.mark_dead(tx, held, reason="never")
    for _ in range(3):
        now = search.advance_reindex(stores, "aws")
    assert (now.dead, now.waiting, now.all_requested, now.done) == (1, 0, True, False)
    assert found(stores) == {fqid}
    assert search.advance_reindex(stores, "aws", force=True).done
    assert name in stores.search["aws"].ping()


def test_documents_that_were_refused_are_tried_again(
    settings: Settings, stores: Stores, drain: Drain
) -> None:
    fqid = bundle(stores)
    narrow = EmbeddedIndex(settings.home / "search" / "aws.sqlite", field_limit=1)
    beside = replace(stores, search={**stores.search, "aws": narrow})
    job_queue: Any = Silent()
    assert run_job(
        WorkerContext(beside, job_queue, STEP_FUNCTIONS, 5, Random(0)),
        Job("index", "aws", str(fqid)),
    )
    narrow.close()
    drain()
    with stores.catalog.read() as tx:
        assert documents.count_unindexed(tx) == {"aws": 1}
    search.begin_reindex(stores, "aws")
    run(stores, drain)
    with stores.catalog.read() as tx:
        assert documents.count_unindexed(tx) == {}
    assert found(stores) == {fqid}


def deliveries(stores: Stores) -> int:
    with stores.catalog.read() as tx:
        return int(tx.exec_driver_sql("SELECT count(*) FROM deliveries").scalar_one())


def test_reindexing_sends_no_notifications(stores: Stores, drain: Drain) -> None:
    new = NewSubscription("http://127.0.0.1:1/x", "aws", es_query={"query": {"match_all": {}}})
    subscriptions.create_subscription(
        stores,
        new,
        "me@example.org",
        uuid=new_uuid(),
        seal=lambda plain, _context: plain,
        limit=9,
        allow_private=True,
    )
    bundle(stores)
    drain()
    assert deliveries(stores) == 1
    search.begin_reindex(stores, "aws")
    run(stores, drain)
    assert deliveries(stores) == 1


def test_refuses_rebuild_while_in_doubt(stores: Stores) -> None:
    with stores.catalog.write() as tx:
        store_state.write_value(tx, store_state.EPOCH_IN_DOUBT_KEY, "They disagree.")
    with pytest.raises(ConflictError, match="They disagree"):
        search.begin_reindex(stores, "aws")
