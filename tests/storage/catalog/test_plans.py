"""Plans on PostgreSQL over tables too large to be read whole: as they come, and as prepared ones
whose plan knows no values; before the tables were analysed, and after."""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text

from pipelines.limits import SEGMENT_ENTRIES
from storage.catalog import (
    Catalog,
    Tx,
    bundles,
    collections,
    deliveries,
    delivery_log,
    documents,
    endpoints,
    events,
    faring,
    figures,
    files,
    heads,
    holding,
    migrate,
    recent,
    retrying,
    segments,
    tasks,
    todo,
    versions,
    visibility,
)
from storage.catalog.deliveries import Result
from storage.catalog.delivery_log import Only
from storage.catalog.retrying import Span
from storage.catalog.schema import metadata
from storage.model import FQID, Event, Todo
from tests.builders import new_uuid, version
from tests.catalogs import POSTGRES, fresh
from tests.storage.catalog.filling import FILES, fill, some
from tests.storage.catalog.plans import plans_of
from tests.telling import a_subscription

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


def test_many_keys_are_looked_up_by_their_index(unanalysed: Catalog) -> None:
    _look_up_by_index(unanalysed)
    with unanalysed.write() as tx:
        tx.execute(text("ANALYZE"))
    _look_up_by_index(unanalysed)


def _look_up_by_index(catalog: Catalog) -> None:
    wanted = keys(catalog)
    assert FILES >= 200_000
    acts: dict[str, tuple[Callable[[Tx], object], tuple[str, ...]]] = {
        "look-up": (
            lambda tx: files.lookup(tx, "aws", wanted),
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
            lambda tx: visibility.among(tx, "file", "aws", wanted[:500]),
            ("pk_visible on visible",),
        ),
        "links": (
            lambda tx: collections.seen(tx, ["aws"], "o", [("file", key) for key in wanted]),
            ("pk_visible on visible",),
        ),
        "whereabouts": (
            lambda tx: files.whereabouts(tx, wanted),
            ("uq_files_uuid_version on files",),
        ),
        "seen by id": (
            lambda tx: files.seen_by_id(tx, "aws", range(1, 20_001)),
            ("pk_files on files", "pk_visible on visible"),
        ),
        "heads": (
            lambda tx: heads.lock(tx, "file", [key.uuid for key in wanted[:500]]),
            ("uq_heads_kind_uuid on heads",),
        ),
    }
    for generic in (False, True):
        for name, (act, indexes) in acts.items():
            plans = plans_of(catalog, act, generic=generic)
            _by_index(plans, *indexes, told=f"{name} {generic=}")


def _bundle_of(wanted: list[FQID]) -> bundles.NewBundle:
    rows = [(f"f/{at}", key, False) for at, key in enumerate(wanted)]
    runs = segments.cut(rows, SEGMENT_ENTRIES)
    return bundles.NewBundle(FQID(new_uuid(), version()), "d", "aws", 1, "a", None, "e", runs)


def _by_index(plans: list[str], *indexes: str, told: str = "") -> None:
    plan = "\n\n".join(plans)
    for other in ("Seq Scan", "Hash Join", "Merge Join"):
        assert other not in plan, f"{told}\n{plan}"
    for index in indexes:
        assert index in plan, f"{told}\n{plan}"


def test_keys_are_asked_for_in_the_order_of_the_index(filled: Catalog) -> None:
    wanted = keys(filled)
    with filled.read() as tx:
        _, parameters = files.lookup_source(tx, "aws", wanted)
        rows = files.lookup(tx, "aws", wanted)
    asked = list(zip(parameters["wanted_uuid"], parameters["wanted_version"], strict=True))
    assert asked == sorted(wanted)
    assert sorted(row[0] for row in rows) == list(range(len(wanted)))


CALLS: dict[str, tuple[Callable[[Tx], object], str]] = {
    "latest": (lambda tx: visibility.latest(tx, "bundle", "aws", "7"), "pk_visible"),
    "exists": (lambda tx: visibility.find(tx, "bundle", "aws", FQ), "pk_visible"),
    "listing": (
        lambda tx: visibility.listing(tx, "bundle", "aws", prefix="", after=FQ, limit=500),
        "pk_visible",
    ),
    "prefix": (
        lambda tx: visibility.listing(tx, "bundle", "aws", prefix="ab", after=None, limit=500),
        "pk_visible",
    ),
    "hide": (lambda tx: visibility.hide(tx, "bundle", "7", None), "pk_visible"),
    "diverged": (visibility.count_diverged, "ix_presence_diverged"),
    "head": (lambda tx: heads.lock(tx, "file", ["7"]), "uq_heads_kind"),
    "due": (lambda tx: todo.due(tx, "index", limit=256, resend=False), "ix_todo_due"),
    "any due": (lambda tx: todo.steps_due(tx, ["index", "match"]), "ix_todo_due"),
    "claim": (
        lambda tx: todo.claim(tx, Todo("index", "aws", "7"), token="t", lease_s=9, max_claims=5),
        "pk_todo",
    ),
    "unnumbered": (events.unnumbered, "ix_events_unnumbered"),
    "number": (events.number, "ix_events_unnumbered"),
    "page": (lambda tx: bundles.page(tx, 7, start=0, limit=500, span=1024), "pk_bundle_segments"),
    "bundles of a file": (lambda tx: bundles.of_file(tx, 77), "ix_entries_file_id"),
    "reserved": (
        lambda tx: versions.reserved_before(tx, "bundle", ANY, limit=9),
        "ix_bundles_reserved",
    ),
    "published": (
        lambda tx: versions.published_after(tx, "file", FQ, before_us=ANY, limit=1000),
        "uq_files_uuid_version",
    ),
    "blobs": (
        lambda tx: files.blobs_after(tx, "aws", ("7", 0), before_us=ANY, limit=1000),
        "uq_blobs_sha256",
    ),
    "indexed": (
        lambda tx: documents.recorded_after(tx, "aws", FQ, before_us=ANY, limit=1000),
        "uq_bundles_uuid_version",
    ),
    "unindexed": (figures.unindexed, "ix_documents_unindexed"),
    "task": (lambda tx: tasks.current(tx, FQ), "ix_tasks_uuid_version"),
    "deliveries due": (lambda tx: deliveries.due(tx, 7, limit=32), "ix_deliveries_due"),
    "endpoints waiting": (lambda tx: endpoints.waiting(tx, limit=32), "ix_deliveries_due"),
    "cancelled": (lambda tx: deliveries.cancel(tx, 8, 8), "ix_deliveries_due"),
    "held": (lambda tx: holding.release(tx, 7), "ix_deliveries_held"),
    "loose": (lambda tx: holding.loose(tx, limit=9), "ix_deliveries_held"),
    "given up": (
        lambda tx: retrying.given_up(tx, SUBSCRIPTION, Span(1, ANY), limit=500),
        "ix_deliveries_given_up",
    ),
    "put off": (
        lambda tx: retrying.put_off(tx, SUBSCRIPTION, Span(1, ANY), limit=500),
        "ix_deliveries_due",
    ),
    "expired": (lambda tx: delivery_log.expire(tx, 5, limit=500), "ix_deliveries_settled"),
    "failed long ago": (
        lambda tx: delivery_log.expire(tx, 5, failed=True, limit=500),
        "ix_deliveries_failed",
    ),
    "forgotten": (
        lambda tx: delivery_log.forget(tx, 7, limit=9),
        "Index Cond: (subscription_id = ",
    ),
    "held for long": (lambda tx: holding.aged(tx, 5, limit=9), "ix_deliveries_held"),
    "abandoned": (lambda tx: holding.abandon(tx, 7, 5), "ix_deliveries_held"),
    "listed": (lambda tx: delivery_log.page(tx, 7, limit=100), "ix_deliveries_latest"),
    "listed by state": (
        lambda tx: delivery_log.page(tx, 7, only=Only(state="failed"), limit=100),
        "ix_deliveries_kind",
    ),
    "listed by type": (
        lambda tx: delivery_log.page(tx, 7, only=Only(event_type="DELETE"), limit=100),
        "ix_deliveries_kind",
    ),
    "listed by bundle": (
        lambda tx: delivery_log.page(tx, 7, only=Only("failed", "CREATE", "7"), limit=100),
        "ix_deliveries_bundle",
    ),
    "fared": (
        lambda tx: faring.count(
            tx,
            [Result(7, 1, 0.1, 500, None, None, "pending", 1, None)],
            disable_after_s=1.0,
        ),
        "pk_deliveries",
    ),
    "latest bundles": (lambda tx: recent.created(tx, "aws", limit=9), "pk_bundles"),
    "superseded": (
        lambda tx: deliveries.record(tx, [], Event("e", "aws", "TOMBSTONE", FQID("7", "v"), 1, 1)),
        "ix_deliveries_open_bundle",
    ),
}
SMALL = ("on subscriptions", "on endpoints", "on segments")
"""Tables that may be read whole: nobody has a million subscriptions."""


@pytest.mark.parametrize("generic", [False, True], ids=["custom", "generic"])
@pytest.mark.parametrize("name", CALLS)
def test_no_question_reads_a_whole_table(filled: Catalog, name: str, generic: bool) -> None:
    act, index = CALLS[name]
    plans = "\n\n".join(plans_of(filled, act, generic=generic))
    assert index in plans, plans
    whole = [line for line in plans.splitlines() if "Seq Scan" in line]
    assert [line for line in whole if not any(table in line for table in SMALL)] == [], plans
