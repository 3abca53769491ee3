"""How far bundles have come."""

from ops.demo.progress import (
    INDEXED,
    LEAST_REST_S,
    LONGEST_REST_S,
    NOTIFIED,
    REPLICATED,
    VERIFIED,
    Progress,
    rest_s,
    watch,
)


def progress() -> Progress:
    found = Progress(("a", "b"), frozenset({"a"}))
    found.acknowledged("a", "1.1")
    found.acknowledged("b", "2.1")
    return found


def test_only_bundles_that_match_must_be_notified() -> None:
    assert progress().wanted(NOTIFIED) == {"a"}


def test_all_stages_of_all_bundles_make_it_complete() -> None:
    found = progress()
    assert not found.complete()
    for stage in (REPLICATED, INDEXED, NOTIFIED):
        found.mark(stage, {"1.1", "2.1", "strange.1"})
    assert found.complete()
    assert found.finished_at(VERIFIED) is not None


def test_what_is_missing_is_named() -> None:
    found = progress()
    found.mark(INDEXED, {"1.1"})
    assert found.missing(INDEXED) == {"b"}
    assert found.count(INDEXED) == 1
    assert found.finished_at(INDEXED) is None


def test_watching_ends_when_nothing_moves() -> None:
    found = progress()
    assert not watch(found, lambda: None, shown=lambda: None, stop=lambda: False, stall_s=0)


def test_watching_ends_when_all_is_there() -> None:
    found = progress()

    def look() -> None:
        for stage in (REPLICATED, INDEXED, NOTIFIED):
            found.mark(stage, {"1.1", "2.1"})

    assert watch(found, look, shown=lambda: None, stop=lambda: False, stall_s=0)


def test_a_slow_look_does_not_make_the_next_one_late() -> None:
    assert rest_s(0.01) == LEAST_REST_S
    assert rest_s(0.5) == 2.0
    assert rest_s(77.0) == LONGEST_REST_S
