"""Hostile stored queries cost bounded processor time."""

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pipelines.matching import evaluate_event
from pipelines.queries import bounded_jmespath
from pipelines.queries.stored_queries import QueryDocument, StoredQuerySet
from storage.errors import Invalid, TimeLimitExceeded
from storage.search.grammar.parser import parse_query
from tests.pipelines import hostile_queries
from tests.subscription_builders import BASE_URL, a_subscription, an_event

pytestmark = pytest.mark.spec("NOT-24")

STEPS, SECONDS = 100_000, 3.0
"""The drill allows all steps that there may be."""


@pytest.fixture(scope="module")
def seen() -> QueryDocument:
    return QueryDocument(hostile_queries.document())


@pytest.fixture(scope="module", autouse=True)
def flat(seen: QueryDocument) -> None:
    """Words are found once a document, and the expression that finds them is compiled once."""
    for path in seen.flat.strings:
        seen.flat.word_positions(path)


def asked(kind: str, source: str, seen: QueryDocument) -> float:
    """Processor time of one question with so many steps."""
    questions = StoredQuerySet([a_subscription(id=1, type=kind, query=source)])
    began = time.thread_time()
    for one in questions.candidates(seen.document, steps=STEPS):
        budget = bounded_jmespath.EvaluationBudget(STEPS)
        try:
            one.stored_query.evaluate(seen, budget)
        except bounded_jmespath.StepsExhausted:
            assert budget.remaining_steps < 0
    return time.thread_time() - began


@pytest.mark.parametrize("source", hostile_queries.JMESPATH)
def test_hostile_expression_ends_soon(source: str, seen: QueryDocument) -> None:
    bounded_jmespath.parse_expression(source)
    assert asked("jmespath", source, seen) < SECONDS


@pytest.mark.parametrize("source", hostile_queries.ES_TEXTS)
def test_hostile_es_query_ends_soon(source: str, seen: QueryDocument) -> None:
    parse_query(json.loads(source))
    assert asked("elasticsearch", source, seen) < SECONDS


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("source", hostile_queries.UNPARSED)
def test_hostile_syntax_is_parsed_or_refused_soon(source: str) -> None:
    began = time.thread_time()
    for part in (source, source[:2_000], source[:64]):
        with contextlib.suppress(Invalid):
            bounded_jmespath.parse_expression(part)
    assert time.thread_time() - began < SECONDS


LONG_RUNNING = "|".join(["[@,@][]"] * 40)


def test_long_evaluation_is_watched_and_interruptible() -> None:
    turns: list[int] = []

    def watch() -> None:
        turns.append(1)
        if len(turns) == 3:
            raise TimeLimitExceeded("Enough.")

    budget = bounded_jmespath.EvaluationBudget(1_000_000, watch)
    with pytest.raises(TimeLimitExceeded, match="Enough"):
        bounded_jmespath.parse_expression(LONG_RUNNING).search([1], budget)
    assert (
        1_000_000 - 4 * bounded_jmespath.WATCH_INTERVAL_STEPS
        < budget.remaining_steps
        < 1_000_000 - 3 * bounded_jmespath.WATCH_INTERVAL_STEPS
    )


def test_watching_does_not_change_steps() -> None:
    for steps in (10, 49_999, 50_000, 50_001, 131_000, 200_000):
        alone, watched = (
            bounded_jmespath.EvaluationBudget(steps),
            bounded_jmespath.EvaluationBudget(steps, lambda: None),
        )
        for budget in (alone, watched):
            with pytest.raises(bounded_jmespath.StepsExhausted):
                bounded_jmespath.parse_expression(LONG_RUNNING).search([1], budget)
        assert alone.remaining_steps == watched.remaining_steps < 0


@pytest.mark.parametrize(
    "given",
    [
        {"query": LONG_RUNNING},
        {"type": "elasticsearch", "query": hostile_queries.ES_TEXTS[0]},
        {"attachments": {"a": {"type": "jmespath", "expression": LONG_RUNNING}}},
    ],
)
def test_lease_is_renewed_during_evaluation(given: dict[str, Any], seen: QueryDocument) -> None:
    def beats() -> Iterator[None]:
        yield from [None] * 6
        raise TimeLimitExceeded("Lost.")

    beat, heard = beats(), list[int]()

    def hear(moved: int) -> None:
        heard.append(moved)
        next(beat)

    questions = StoredQuerySet([a_subscription(id=1, **given)])
    found = evaluate_event(questions, an_event(), seen.document, base_url=BASE_URL, beat=hear)
    with pytest.raises(TimeLimitExceeded, match="Lost"):
        list(found)
    assert len(heard) == 7


def test_fresh_questions_are_compiled_a_few_at_a_time() -> None:
    questions, heard = StoredQuerySet(a_subscription(id=n) for n in range(1, 101)), list[int]()
    assert (len(questions), questions.subscription_ids()) == (100, set(range(1, 101)))
    questions.update([], gone=[7, 8])
    assert len(questions.candidates({}, steps=1, beat=heard.append)[0].subscribers) == 98
    assert len(heard) == 5
    questions.candidates({}, steps=1, beat=heard.append)
    assert (len(heard), len(questions)) == (5, 98)
