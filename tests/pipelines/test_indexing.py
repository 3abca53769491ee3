"""Indexing evaluates stored queries once, when a bundle first becomes searchable."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from config import Settings
from pipelines import bundles, search, subscriptions
from pipelines.subscriptions import NewSubscription
from storage.catalog import documents, jobs
from storage.model import FQID, Job
from storage.protocols import IndexedDocument, IndexRefusal
from storage.search.embedded.index import EmbeddedIndex
from storage.stores import Stores
from tests.builders import new_uuid
from tests.pipelines.bundle_events import Silent
from tests.pipelines.lost_catalog import AUTHOR
from tests.pipelines.test_reindex import bundle, found, run
from workers.actors import STEP_FUNCTIONS
from workers.claims import WorkerContext, run_job

pytestmark = pytest.mark.spec("NOT-08")

Drain = Callable[[], int]


@pytest.fixture
def refusing(settings: Settings, stores: Stores) -> Iterator[Stores]:
    """The same stores with an engine that takes no document."""
    narrow = EmbeddedIndex(settings.home / "search" / "aws.sqlite", field_limit=1)
    yield replace(stores, search={**stores.search, "aws": narrow})
    narrow.close()


def indexed(stores: Stores, fqid: FQID, *, well: bool = True) -> None:
    """The step INDEX of a bundle, now."""
    row, job_queue = Job("index", "aws", str(fqid)), Silent()
    with stores.catalog.write() as tx:
        jobs.insert_new(tx, [row])
    assert run_job(WorkerContext(stores, job_queue, STEP_FUNCTIONS, 5, Random(0)), row) is well  # type: ignore[arg-type]


def subscribe(stores: Stores, **query: Any) -> None:
    subscriptions.create_subscription(
        stores,
        NewSubscription("http://127.0.0.1:1/x", "aws", **(query or {"es_query": {}})),
        AUTHOR,
        uuid=new_uuid(),
        seal=lambda plain, _context: plain,
        limit=9,
        allow_private=True,
    )


def deliveries(stores: Stores) -> int:
    with stores.catalog.read() as tx:
        return int(tx.exec_driver_sql("SELECT count(*) FROM deliveries").scalar_one())


def rebuild(stores: Stores, drain: Drain) -> None:
    search.begin_reindex(stores, "aws")
    run(stores, drain)


def test_refused_document_notifies_once_found(
    stores: Stores, refusing: Stores, drain: Drain
) -> None:
    subscribe(stores)
    fqid = bundle(stores)
    for _ in range(2):
        indexed(refusing, fqid)
        drain()
        assert (found(stores), deliveries(stores)) == (set(), 0)
    rebuild(stores, drain)
    assert (found(stores), deliveries(stores)) == ({fqid}, 1)
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("DELETE FROM deliveries")
    rebuild(stores, drain)
    indexed(refusing, fqid)
    rebuild(stores, drain)
    assert deliveries(stores) == 0


def test_jmespath_subscriptions_do_not_wait_for_the_engine(
    stores: Stores, refusing: Stores, drain: Drain
) -> None:
    subscribe(stores, jmespath_query="event_type == 'CREATE'")
    fqid = bundle(stores)
    indexed(refusing, fqid)
    drain()
    assert deliveries(stores) == 1


def test_subscription_made_between_bundle_and_index_is_not_notified(
    stores: Stores, refusing: Stores, drain: Drain
) -> None:
    fqid = bundle(stores)
    indexed(refusing, fqid)
    subscribe(stores)
    rebuild(stores, drain)
    assert (found(stores), deliveries(stores)) == ({fqid}, 0)


def test_bundle_deleted_before_indexing_is_never_notified(
    stores: Stores, refusing: Stores, drain: Drain
) -> None:
    subscribe(stores)
    fqid = bundle(stores)
    indexed(refusing, fqid)
    bundles.delete(stores, "aws", *fqid, reason="wrong", author=AUTHOR)
    drain()
    rebuild(stores, drain)
    assert (found(stores), deliveries(stores)) == (set(), 0)
    with stores.catalog.read() as tx:
        assert documents.count_unindexed(tx) == {}


def test_documents_from_before_schema_change_are_not_matched(
    stores: Stores, refusing: Stores, drain: Drain
) -> None:
    subscribe(stores)
    fqid = bundle(stores)
    indexed(refusing, fqid)
    with stores.catalog.write() as tx:  # As the migration leaves what an engine refused.
        tx.exec_driver_sql("UPDATE documents SET told = true")
    rebuild(stores, drain)
    assert (found(stores), deliveries(stores)) == ({fqid}, 0)


class Overtaken(EmbeddedIndex):
    """An engine that takes a document while its bundle is buried."""

    meanwhile: Callable[[], object]

    def write(self, documents: Sequence[IndexedDocument]) -> Sequence[IndexRefusal]:
        refused = super().write(documents)
        self.meanwhile()
        return refused


@pytest.mark.spec("SEA-08")
def test_bundle_deleted_during_first_indexing_is_hidden(
    settings: Settings, stores: Stores, drain: Drain
) -> None:
    fqid = bundle(stores)
    overtaken = Overtaken(settings.home / "search" / "aws.sqlite")
    overtaken.meanwhile = lambda: bundles.delete(stores, "aws", *fqid, reason="x", author=AUTHOR)
    indexed(replace(stores, search={**stores.search, "aws": overtaken}), fqid, well=False)
    overtaken.close()
    assert found(stores) == {fqid}
    drain()
    assert found(stores) == set()
