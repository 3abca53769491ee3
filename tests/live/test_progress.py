"""Progress of deposited bundles."""

import pytest

from tests.live.progress import (
    INDEXED,
    MAX_DELAY_S,
    MIN_DELAY_S,
    NOTIFIED,
    REPLICATED,
    Progress,
    delay_s,
    watch,
)

pytestmark = pytest.mark.spec("OPS-17")


def progress() -> Progress:
    found = Progress(("a", "b"), frozenset({"a"}))
    found.acknowledge("a", "1.1")
    found.acknowledge("b", "2.1")
    return found


def test_only_matching_bundles_must_be_notified() -> None:
    assert progress().wanted(NOTIFIED) == {"a"}


def test_is_complete_when_all_bundles_reached_all_stages() -> None:
    found = progress()
    assert not found.is_complete()
    for stage in (REPLICATED, INDEXED, NOTIFIED):
        found.mark(stage, {"1.1", "2.1", "strange.1"})
    assert found.is_complete()


def test_names_missing_bundles() -> None:
    found = progress()
    found.mark(INDEXED, {"1.1"})
    assert found.missing(INDEXED) == {"b"}
    assert found.count(INDEXED) == 1


def test_watch_ends_when_nothing_changes() -> None:
    found = progress()
    assert not watch(found, lambda: None, show=lambda: None, stop=lambda: False, stall_s=0)


def test_watch_ends_when_all_is_complete() -> None:
    found = progress()

    def update() -> None:
        for stage in (REPLICATED, INDEXED, NOTIFIED):
            found.mark(stage, {"1.1", "2.1"})

    assert watch(found, update, show=lambda: None, stop=lambda: False, stall_s=0)


def test_delay_after_a_slow_update_is_bounded() -> None:
    assert delay_s(0.01) == MIN_DELAY_S
    assert delay_s(0.5) == 2.0
    assert delay_s(77.0) == MAX_DELAY_S
