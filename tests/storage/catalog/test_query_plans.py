"""Query plans on large PostgreSQL tables use indexes."""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text

from pipelines.limits import SEGMENT_ENTRIES
from storage.catalog import (
    Catalog,
    Tx,
    bundle_contents,
    bundle_versions,
    bundles,
    collections,
    deliveries,
    delivery_log,
    documents,
    endpoints,
    events,
    files,
    ingest,
    integrity,
    jobs,
    migrate,
    statistics,
    subscriptions,
    versions,
)
from storage.catalog.deliveries import AttemptResult
from storage.catalog.delivery_log import DeliveryFilter, RetryWindow
from storage.catalog.tables import metadata
from storage.catalog.versions import split_runs
from storage.model import FQID, BundleEvent, Job
from tests.builders import new_uuid, version
from tests.catalogs import POSTGRES, fresh
from tests.storage.catalog.bulk_rows import FILES, fill, some
from tests.storage.catalog.query_plans import plans_of
from tests.subscription_builders import a_subscription

ANY = 10**18
FQ = FQID("7", "v")
SUBSCRIPTION = a_subscription(id=7, endpoint_id=7)


@pytest.fixture(scope="module", params=[POSTGRES] if POSTGRES else [], ids=["postgresql"])
def unanalysed(request: pytest.FixtureRequest) -> Iterator[Catalog]:
    """Hundreds of thousands of rows of which the planner knows nothing but their room."""
    with fresh(request.param) as url:
        catalog = Catalog(url)
        migrate.upgrade(catalog)
        with catalog.write() as tx:
            for table in metadata.tables:
                tx.execute(text(f"ALTER TABLE {table} SET (autovacuum_enabled = false)"))
        fill(catalog)
        with catalog.write() as tx:
            for table in ("bundles", "segments"):
                serial = f"pg_get_serial_sequence('{table}', 'id')"
                tx.execute(text(f"SELECT setval({serial}, (SELECT max(id) FROM {table}))"))
        yield catalog
        catalog.close()


@pytest.fixture(scope="module")
def filled(unanalysed: Catalog) -> Catalog:
    """The same, looked over by the planner."""
    with unanalysed.write() as tx:
        tx.execute(text("ANALYZE"))
    return unanalysed


def keys(catalog: Catalog) -> list[FQID]:
    return some(catalog, "file", 20_000)


@pytest.mark.spec("BUN-31")
def test_lookup_of_many_keys_uses_index(unanalysed: Catalog) -> None:
    _look_up_by_index(unanalysed)
    with unanalysed.write() as tx:
        tx.execute(text("ANALYZE"))
    _look_up_by_index(unanalysed)


def _look_up_by_index(catalog: Catalog) -> None:
    wanted = keys(catalog)
    assert FILES >= 200_000
    acts: dict[str, tuple[Callable[[Tx], object], tuple[str, ...]]] = {
        "look-up": (
            lambda tx: files.look_up(tx, "aws", wanted),
            ("pk_visible on visible", "pk_files on files", "pk_blobs on blobs"),
        ),
        "reservation": (
            lambda tx: bundles.reserve(tx, _bundle_of(wanted)),
            (
                *("pk_visible on visible", "pk_files on files", "pk_blobs on blobs"),
                "pk_entries on entries",
            ),
        ),
        "hits of a search": (
            lambda tx: versions.filter_published(tx, "file", "aws", wanted[:500]),
            ("pk_visible on visible",),
        ),
        "links": (
            lambda tx: collections.filter_visible_targets(
                tx, ["aws"], "o", [("file", key) for key in wanted]
            ),
            ("pk_visible on visible",),
        ),
        "whereabouts": (
            lambda tx: files.locate(tx, wanted),
            ("uq_files_uuid_version on files",),
        ),
        "seen by id": (
            lambda tx: files.filter_published_ids(tx, "aws", range(1, 20_001)),
            ("pk_files on files", "pk_visible on visible"),
        ),
        "heads": (
            lambda tx: versions.lock_heads(tx, "file", [key.uuid for key in wanted[:500]]),
            ("uq_heads_kind_uuid on heads",),
        ),
    }
    for generic in (False, True):
        for name, (act, indexes) in acts.items():
            plans = plans_of(catalog, act, generic=generic)
            _by_index(plans, *indexes, told=f"{name} {generic=}")


def _bundle_of(wanted: list[FQID]) -> bundles.NewBundleVersion:
    rows = [(f"f/{at}", key, False) for at, key in enumerate(wanted)]
    runs = split_runs(rows, SEGMENT_ENTRIES)
    return bundles.NewBundleVersion(
        FQID(new_uuid(), version()), "d", "aws", 1, "a", None, "e", runs
    )


def _by_index(plans: list[str], *indexes: str, told: str = "") -> None:
    plan = "\n\n".join(plans)
    for other in ("Seq Scan", "Hash Join", "Merge Join"):
        assert other not in plan, f"{told}\n{plan}"
    for index in indexes:
        assert index in plan, f"{told}\n{plan}"


def test_keys_are_sorted_like_the_index(filled: Catalog) -> None:
    wanted = keys(filled)
    with filled.read() as tx:
        _, parameters = files.build_lookup(tx, "aws", wanted)
        rows = files.look_up(tx, "aws", wanted)
    asked = list(zip(parameters["wanted_uuid"], parameters["wanted_version"], strict=True))
    assert asked == sorted(wanted)
    assert sorted(row[0] for row in rows) == list(range(len(wanted)))


CALLS: dict[str, tuple[Callable[[Tx], object], str]] = {
    "latest": (lambda tx: versions.find_latest(tx, "bundle", "aws", "7"), "pk_visible"),
    "exists": (lambda tx: versions.find_published(tx, "bundle", "aws", FQ), "pk_visible"),
    "listing": (
        lambda tx: versions.list_published(tx, "bundle", "aws", prefix="", after=FQ, limit=500),
        "pk_visible",
    ),
    "prefix": (
        lambda tx: versions.list_published(tx, "bundle", "aws", prefix="ab", after=None, limit=500),
        "pk_visible",
    ),
    "hide": (lambda tx: versions.unpublish(tx, "bundle", "7", None), "pk_visible"),
    "diverged": (versions.count_diverged, "ix_presence_diverged"),
    "head": (lambda tx: versions.lock_heads(tx, "file", ["7"]), "uq_heads_kind"),
    "due": (lambda tx: jobs.take_due(tx, "index", limit=256, resend=False), "ix_todo_due"),
    "any due": (lambda tx: jobs.find_due_steps(tx, ["index", "match"]), "ix_todo_due"),
    "claim": (
        lambda tx: jobs.claim(tx, Job("index", "aws", "7"), token="t", lease_s=9, max_claims=5),
        "pk_todo",
    ),
    "unnumbered": (events.has_unsequenced, "ix_events_unnumbered"),
    "number": (events.assign_sequence, "ix_events_unnumbered"),
    "page": (
        lambda tx: bundles.list_entries(tx, 7, start=0, limit=500, span=1024),
        "pk_bundle_segments",
    ),
    "bundles of a file": (
        lambda tx: bundles.list_containing(tx, "aws", "7", "v", after=FQ, limit=500),
        "ix_entries_file_id",
    ),
    "latest arrivals": (
        lambda tx: statistics.list_latest_bundles(tx, "aws", limit=10),
        "ix_presence_arrived",
    ),
    "folder": (lambda tx: bundle_contents.list_folder(tx, 7, "", limit=99), "pk_entries"),
    "metadata": (lambda tx: bundle_contents.list_metadata_entries(tx, 7, limit=9), "pk_entries"),
    "verified": (lambda tx: bundle_contents.summarize_verification(tx, 7), "pk_blob_replicas"),
    "history": (lambda tx: bundle_versions.list_versions(tx, "7", limit=9), "uq_bundles_uuid"),
    "unshared": (lambda tx: bundle_versions.list_unshared_lines(tx, 7, 8), "pk_entries"),
    "sums": (lambda tx: bundle_versions.sum_bytes(tx, [7], max_entries=99), "pk_entries"),
    "collections of a bundle": (
        lambda tx: collections.list_containing(tx, "o", "bundle", FQ, limit=99),
        "pk_owned",
    ),
    "reserved": (
        lambda tx: versions.list_stale_reservations(tx, "bundle", ANY, limit=9),
        "ix_bundles_reserved",
    ),
    "published": (
        lambda tx: versions.list_published_after(tx, "file", FQ, before_us=ANY, limit=1000),
        "uq_files_uuid_version",
    ),
    "blobs": (
        lambda tx: files.list_blobs(tx, "aws", ("7", 0), before_us=ANY, limit=1000),
        "uq_blobs_sha256",
    ),
    "indexed": (
        lambda tx: documents.list_indexed_after(tx, "aws", FQ, before_us=ANY, limit=1000),
        "uq_bundles_uuid_version",
    ),
    "unindexed": (documents.count_unindexed, "ix_documents_unindexed"),
    "task": (lambda tx: ingest.find_current(tx, FQ), "ix_tasks_uuid_version"),
    "deliveries due": (lambda tx: deliveries.list_due(tx, 7, limit=32), "ix_deliveries_due"),
    "endpoints waiting": (lambda tx: endpoints.list_waiting(tx, limit=32), "ix_deliveries_due"),
    "cancelled": (lambda tx: deliveries.cancel_pending(tx, 8, 8), "ix_deliveries_due"),
    "held": (lambda tx: deliveries.release_paused(tx, 7), "ix_deliveries_held"),
    "loose": (lambda tx: deliveries.list_releasable(tx, limit=9), "ix_deliveries_held"),
    "given up": (
        lambda tx: delivery_log.retry_failed(tx, SUBSCRIPTION, RetryWindow(1, ANY), limit=500),
        "ix_deliveries_given_up",
    ),
    "put off": (
        lambda tx: delivery_log.retry_postponed(tx, SUBSCRIPTION, RetryWindow(1, ANY), limit=500),
        "ix_deliveries_due",
    ),
    "expired": (
        lambda tx: delivery_log.expire_deliveries(tx, 5, limit=500),
        "ix_deliveries_settled",
    ),
    "failed long ago": (
        lambda tx: delivery_log.expire_deliveries(tx, 5, failed=True, limit=500),
        "ix_deliveries_failed",
    ),
    "forgotten": (
        lambda tx: delivery_log.delete_deliveries(tx, 7, limit=9),
        "Index Cond: (subscription_id = ",
    ),
    "held for long": (
        lambda tx: deliveries.list_paused_before(tx, 5, limit=9),
        "ix_deliveries_held",
    ),
    "abandoned": (lambda tx: deliveries.cancel_paused_before(tx, 7, 5), "ix_deliveries_held"),
    "listed": (lambda tx: delivery_log.list_deliveries(tx, 7, limit=100), "ix_deliveries_latest"),
    "listed by state": (
        lambda tx: delivery_log.list_deliveries(
            tx, 7, only=DeliveryFilter(state="failed"), limit=100
        ),
        "ix_deliveries_kind",
    ),
    "listed by type": (
        lambda tx: delivery_log.list_deliveries(
            tx, 7, only=DeliveryFilter(event_type="DELETE"), limit=100
        ),
        "ix_deliveries_kind",
    ),
    "listed by bundle": (
        lambda tx: delivery_log.list_deliveries(
            tx, 7, only=DeliveryFilter("failed", "CREATE", "7"), limit=100
        ),
        "ix_deliveries_bundle",
    ),
    "latest success and failure": (
        lambda tx: subscriptions.list_statuses(tx, "owner@example.org"),
        "ix_deliveries_kind",
    ),
    "replays": (lambda tx: events.list_replays(tx, 7, limit=9), "ix_replays_latest"),
    "request": (
        lambda tx: deliveries.load_request(tx, 7, FQ[0]),
        "uq_deliveries_uuid",
    ),
    "bundle tried": (
        lambda tx: events.list_latest_created(tx, "aws", limit=9, uuid="7"),
        "uq_bundles_uuid_version",
    ),
    "fared": (
        lambda tx: subscriptions.count_failures(
            tx,
            [AttemptResult(7, 1, 0.1, 500, None, None, "pending", 1, None)],
            disable_after_s=1.0,
        ),
        "pk_deliveries",
    ),
    "latest bundles": (lambda tx: events.list_latest_created(tx, "aws", limit=9), "pk_bundles"),
    "bundles of an author": (
        lambda tx: statistics.list_bundles_of_author(tx, "me", limit=9),
        "ix_bundles_author",
    ),
    "tasks of an author": (
        lambda tx: ingest.list_unfinished(tx, "me", limit=9),
        "ix_tasks_unfinished",
    ),
    "superseded": (
        lambda tx: deliveries.insert_matches(
            tx, [], BundleEvent("e", "aws", "TOMBSTONE", FQID("7", "v"), 1, 1)
        ),
        "ix_deliveries_open_bundle",
    ),
}


def test_oldest_verification_is_found_without_sorting(filled: Catalog) -> None:
    asked = {"replica": "aws"}
    plans = plans_of(filled, lambda tx: tx.execute(integrity._SELECT_OLDEST, asked))
    assert "Sort" not in plans[0], plans
    assert "ix_presence_verified" in plans[0], plans
    assert "ix_blob_replicas_verified" in plans[0], plans


SMALL = ("on subscriptions", "on endpoints", "on segments")
"""Tables that may be read whole: no deployment has a million subscriptions."""


@pytest.mark.parametrize("generic", [False, True], ids=["custom", "generic"])
@pytest.mark.parametrize("name", CALLS)
def test_no_question_reads_a_whole_table(filled: Catalog, name: str, generic: bool) -> None:
    act, index = CALLS[name]
    plans = "\n\n".join(plans_of(filled, act, generic=generic))
    assert index in plans, plans
    whole = [line for line in plans.splitlines() if "Seq Scan" in line]
    assert [line for line in whole if not any(table in line for table in SMALL)] == [], plans
