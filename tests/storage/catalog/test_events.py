"""Event feeds, windows and journals are read by index."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event, text

from storage.catalog import Catalog, Tx, events, journals
from storage.keys import JournalKey
from storage.model import FQID
from tests.catalogs import ENGINES, Spares
from tests.storage.catalog.query_cost import work_of
from tests.storage.catalog.query_plans import plans_of

EVENTS = 100_000
EACH = 100
"""Events of one journal."""

_NUMBERS = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < :most)"
_EVENTS = (
    "INSERT INTO events (id, replica, type, uuid, version, bundle_id, at_us, seq, seq_us,"
    f" byte_offset, byte_size) {_NUMBERS} SELECT 'e' || n, CASE n % 2 WHEN 0 THEN 'aws' ELSE 'gcp'"
    " END, 'CREATE', 'u' || n, 'v', n, n, (n + 1) / 2, n * 10, 0, 9 FROM n"
)
_JOURNALS = (
    "INSERT INTO journals (replica, first_seq, last_seq, generation, tier, state, size, at_us)"
    f" {_NUMBERS} SELECT 'aws', (n - 1) * {EACH} + 1, n * {EACH}, 0, 3, 'current', 9, n FROM n"
)


def fill(catalog: Catalog) -> Catalog:
    with catalog.write() as tx:
        tx.execute(text(_EVENTS), {"most": EVENTS})
        tx.execute(text(_JOURNALS), {"most": EVENTS // 2 // EACH})
        if not catalog.sqlite:
            # The database was lent before: what a server remembers of it may be another test's.
            tx.execute(text("ANALYZE events, journals"))
    return catalog


@pytest.fixture
def filled(catalog: Catalog) -> Catalog:
    return fill(catalog)


@pytest.fixture(scope="module", params=ENGINES)
def only_read(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spares: Spares
) -> Iterator[Catalog]:
    """The same for all tests that change nothing: to fill it takes longer than any of them."""
    with spares.lend(request.param, tmp_path_factory.mktemp("feeds")) as url:
        opened = Catalog(url)
        yield fill(opened)
        opened.close()


ACTS: dict[str, tuple[Callable[[Tx], Any], str]] = {
    "span": (
        lambda tx: events.list_range(tx, "aws", 40_000, 40_100, limit=1000),
        "uq_events_replica_seq",
    ),
    "newest": (lambda tx: events.find_latest_sequence(tx, "aws"), "uq_events_replica_seq"),
    "first from": (
        lambda tx: events.find_sequence_at(tx, "aws", 500_000),
        "ix_events_replica_seq_us_seq",
    ),
    "purged": (lambda tx: events.filter_purged(tx, [FQID("u7", "v")]), "events"),
    "covered": (lambda tx: journals.find_last_sequence(tx, "aws"), "ix_journals_current"),
    "page": (
        lambda tx: journals.list_range(tx, "aws", 40_000, 50_000, limit=11),
        "ix_journals_current",
    ),
    "current": (lambda tx: journals.list_current(tx, "aws", 77, 77), "ix_journals_current"),
    "oldest": (lambda tx: journals.list_oldest(tx, "aws", 3, limit=16), "ix_journals_tier"),
    "aged": (lambda tx: journals.list_aged(tx, "aws", 0, limit=9), "ix_journals_other"),
    "begun": (lambda tx: journals.find_begun(tx, "aws", 50_001), "journals"),
    "others": (lambda tx: journals.list_not_current(tx, "aws", 77), "journals"),
    "point": (
        lambda tx: journals.record_positions(
            tx, "aws", [journals.LinePosition(7, 1, 2), journals.LinePosition(8, 3, 4)]
        ),
        "events_replica_seq",  # either of two that begin with both
    ),
}

_BY_NUMBERS = "uq_journals_replica_first_seq_last_seq_generation"
AS_GOOD = {"current": _BY_NUMBERS, "oldest": _BY_NUMBERS}
"""What a server may take that counted these journals, all of them current and of one tier."""


@pytest.mark.parametrize("act", ACTS)
def test_feeds_use_indexes(only_read: Catalog, act: str) -> None:
    did, index = ACTS[act]
    plans = sqlite_plans(only_read, did) if only_read.sqlite else plans_of(only_read, did)
    plan = "\n".join(plans)
    as_good = index if only_read.sqlite else AS_GOOD.get(act, index)
    assert index in plan or as_good in plan, plan
    for whole in ("SCAN events", "SCAN journals", "Seq Scan on events", "Seq Scan on journals"):
        assert whole not in plan, plan
    assert work_of(only_read, did) < EVENTS // 4


@pytest.mark.parametrize(
    ("first", "until", "limit"),
    [(1, 2, 9), (100, 101, 9), (100, 102, 9), (40_001, 40_101, 9), (40_050, 41_000, 4)],
)
def test_lists_journals_that_overlap_a_range(
    only_read: Catalog, first: int, until: int, limit: int
) -> None:
    with only_read.read() as tx:
        listed = journals.list_range(tx, "aws", first, until, limit=limit)
    starts = range(1, EVENTS // 2, EACH)
    expected = [one for one in starts if one < until and one + EACH > first]
    assert [one.first for one in listed] == expected[:limit]


def test_journals_after_a_range_are_not_read(only_read: Catalog) -> None:
    known = JournalKey("aws", 1, EACH)
    one = work_of(only_read, lambda tx: journals.list_range(tx, "aws", 1, 2, limit=1))
    assert one > 0
    assert work_of(only_read, lambda tx: journals.is_known(tx, "aws", known)) < one + 100
    assert work_of(only_read, lambda tx: journals.list_current(tx, "aws", 1, EACH)) < one + 100
    with only_read.read() as tx:
        assert journals.is_known(tx, "aws", known)
        assert journals.is_known(tx, "aws", JournalKey("aws", 2, EACH))
        assert not journals.is_known(tx, "aws", JournalKey("aws", 1, EACH, 1))
        assert not journals.is_known(tx, "aws", JournalKey("aws", EACH, EACH + 1))
        assert not journals.is_known(tx, "aws", JournalKey("aws", EVENTS, EVENTS + 1))


def sqlite_plans(catalog: Catalog, act: Callable[[Tx], object]) -> list[str]:
    """How SQLite would run the statements of a call."""
    said: list[tuple[str, Any]] = []

    def listen(_c: Any, _k: Any, statement: str, parameters: Any, *_: Any) -> None:
        said.append((statement, parameters))

    with catalog.write() as tx:
        event.listen(tx, "before_cursor_execute", listen)
        act(tx)
        event.remove(tx, "before_cursor_execute", listen)
        return [
            "\n".join(str(row[3]) for row in tx.exec_driver_sql(f"EXPLAIN QUERY PLAN {one}", given))
            for one, given in said
        ]


def test_the_sequencer_numbers_by_index_behind_many_events(filled: Catalog) -> None:
    numbered: list[int] = []
    with filled.write() as tx:
        for place in range(50):
            events.append(tx, "TOMBSTONE", "aws", FQID(f"u{place}", "v"), 1)
    assert work_of(filled, lambda tx: numbered.append(events.assign_sequence(tx))) < EVENTS // 4
    assert numbered == [50]
    with filled.read() as tx:
        fresh = events.list_range(tx, "aws", EVENTS // 2 + 1, limit=100)
    assert [one.seq for one in fresh] == list(range(EVENTS // 2 + 1, EVENTS // 2 + 51))
