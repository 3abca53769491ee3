"""Nothing that can be stored holds a worker up: each way to try costs bounded processor time."""

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pipelines.queries import jmes
from pipelines.queries.matching import Questions, evaluate
from pipelines.queries.questions import Seen
from storage.errors import Invalid, TimedOut
from storage.query.grammar import parse_request
from tests.pipelines import hostile
from tests.telling import BASE_URL, a_subscription, an_event

STEPS, SECONDS = 100_000, 3.0
"""The drill allows all steps that there may be."""


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen(hostile.document())


@pytest.fixture(scope="module", autouse=True)
def flat(seen: Seen) -> None:
    """Words are found once a document, and the expression that finds them is compiled once."""
    for path in seen.flat.strings:
        seen.flat.words(path)


def asked(kind: str, source: str, seen: Seen) -> float:
    """Processor time of one question with so many steps."""
    questions = Questions([a_subscription(id=1, type=kind, query=source)])
    began = time.thread_time()
    for one in questions.candidates(seen.document, steps=STEPS):
        budget = jmes.Budget(STEPS)
        try:
            one.question.ask(seen, budget)
        except jmes.Exhausted:
            assert budget.left < 0
    return time.thread_time() - began


@pytest.mark.parametrize("source", hostile.JMESPATH)
def test_an_expression_ends_soon(source: str, seen: Seen) -> None:
    jmes.parse(source)
    assert asked("jmespath", source, seen) < SECONDS


@pytest.mark.parametrize("source", hostile.ES_TEXTS)
def test_an_es_query_ends_soon(source: str, seen: Seen) -> None:
    parse_request(json.loads(source))
    assert asked("elasticsearch", source, seen) < SECONDS


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("source", hostile.UNPARSED)
def test_what_is_hard_to_read_is_read_or_refused_soon(source: str) -> None:
    began = time.thread_time()
    for part in (source, source[:2_000], source[:64]):
        with contextlib.suppress(Invalid):
            jmes.parse(part)
    assert time.thread_time() - began < SECONDS


LONG_RUNNING = "|".join(["[@,@][]"] * 40)


def test_a_long_evaluation_is_watched_and_may_be_ended() -> None:
    turns: list[int] = []

    def watch() -> None:
        turns.append(1)
        if len(turns) == 3:
            raise TimedOut("Enough.")

    budget = jmes.Budget(1_000_000, watch)
    with pytest.raises(TimedOut, match="Enough"):
        jmes.parse(LONG_RUNNING).search([1], budget)
    assert 1_000_000 - 4 * jmes.WATCHED < budget.left < 1_000_000 - 3 * jmes.WATCHED


def test_what_is_watched_takes_the_very_steps_that_it_would_take_otherwise() -> None:
    for steps in (10, 49_999, 50_000, 50_001, 131_000, 200_000):
        alone, watched = jmes.Budget(steps), jmes.Budget(steps, lambda: None)
        for budget in (alone, watched):
            with pytest.raises(jmes.Exhausted):
                jmes.parse(LONG_RUNNING).search([1], budget)
        assert alone.left == watched.left < 0


@pytest.mark.parametrize(
    "given",
    [
        {"query": LONG_RUNNING},
        {"type": "elasticsearch", "query": hostile.ES_TEXTS[0]},
        {"attachments": {"a": {"type": "jmespath", "expression": LONG_RUNNING}}},
    ],
)
def test_the_lease_is_renewed_within_an_evaluation_and_its_loss_ends_it(
    given: dict[str, Any], seen: Seen
) -> None:
    def beats() -> Iterator[None]:
        yield from [None] * 6
        raise TimedOut("Lost.")

    beat, heard = beats(), list[int]()

    def hear(moved: int) -> None:
        heard.append(moved)
        next(beat)

    questions = Questions([a_subscription(id=1, **given)])
    found = evaluate(questions, an_event(), seen.document, base_url=BASE_URL, beat=hear)
    with pytest.raises(TimedOut, match="Lost"):
        list(found)
    assert len(heard) == 7


def test_fresh_questions_are_compiled_a_few_at_a_time() -> None:
    questions, heard = Questions(a_subscription(id=n) for n in range(1, 101)), list[int]()
    assert (len(questions), questions.ids()) == (100, set(range(1, 101)))
    questions.change([], gone=[7, 8])
    assert len(questions.candidates({}, steps=1, beat=heard.append)[0].askers) == 98
    assert len(heard) == 5
    questions.candidates({}, steps=1, beat=heard.append)
    assert (len(heard), len(questions)) == (5, 98)
