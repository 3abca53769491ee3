"""Evaluation budgets: hostile expressions harm only their owners."""

import json
import time
from collections.abc import Iterable
from typing import Any

import pytest

from pipelines.matching import evaluate_event
from pipelines.queries import bounded_jmespath
from pipelines.queries.bounded_jmespath import ALLOWANCE_GROWTH, FIRST_ALLOWANCE
from pipelines.queries.stored_queries import (
    ALL_STEPS_EXCEEDED,
    CACHED_NODES,
    CACHED_NODES_OF_ONE,
    OWNER_STEPS_EXCEEDED,
    QueryDocument,
    QueryOutcome,
    StepAccounts,
    StoredQuery,
    StoredQuerySet,
    evaluate_queries,
)
from storage.catalog.subscriptions import Subscription
from tests.pipelines.expressions import hostile
from tests.subscription_builders import BASE_URL, a_subscription, an_event

pytestmark = pytest.mark.spec("NOT-24")

STEPS = 64_000


def costing(steps: int, asked: list[int] | None = None) -> StoredQuery:
    """A question that takes so many steps and matches."""

    def ask(seen: QueryDocument, budget: bounded_jmespath.EvaluationBudget) -> bool:
        if asked is not None:
            asked.append(budget.remaining_steps)
        budget.pay(steps)
        return True

    return StoredQuery("jmespath", None, ask)


def told(
    asked: dict[StoredQuery, Iterable[str]], accounts: StepAccounts, beats: list[int] | None = None
) -> list[QueryOutcome]:
    owners = {question: frozenset(those) for question, those in asked.items()}
    return list(
        evaluate_queries(
            owners, QueryDocument({}), accounts, (beats if beats is not None else []).append
        )
    )


def test_expensive_queries_get_more_steps_in_rounds() -> None:
    allowed: list[int] = []
    (verdict,) = told({costing(20_000, allowed): ["a"]}, StepAccounts(STEPS, 2))
    assert (verdict.matches, allowed) == (
        True,
        [FIRST_ALLOWANCE, FIRST_ALLOWANCE * ALLOWANCE_GROWTH, STEPS],
    )


def test_query_beyond_step_limit_fails_alone() -> None:
    cheap, dear = costing(STEPS), costing(STEPS + 1)
    found = {
        one.stored_query: one for one in told({dear: ["a"], cheap: ["a"]}, StepAccounts(STEPS, 2))
    }
    assert (found[cheap].matches, found[cheap].failure) == (True, None)
    assert "steps" in (found[dear].failure or "")


def test_shared_evaluation_serves_all_owners() -> None:
    allowed: list[int] = []
    found = told({costing(STEPS + 1, allowed): ["a", "b"]}, StepAccounts(STEPS, 2))
    assert {one.owner for one in found} == {"a", "b"}
    assert all(one.failure for one in found)
    assert len(allowed) == 3


def test_owner_beyond_budget_keeps_cheap_queries() -> None:
    accounts = StepAccounts(STEPS, 2, of_owner=3 * STEPS)
    cheap, other = costing(FIRST_ALLOWANCE), costing(STEPS)
    asked: dict[StoredQuery, Iterable[str]] = {costing(STEPS + n): ["greedy"] for n in range(1, 9)}
    found = told({**asked, cheap: ["greedy"], other: ["modest"]}, accounts)
    assert {one.stored_query for one in found if one.matches} == {cheap, other}
    assert OWNER_STEPS_EXCEEDED in {one.failure for one in found}


def test_owner_sharing_query_with_exhausted_owner_is_answered() -> None:
    accounts = StepAccounts(STEPS, 2, of_owner=2 * STEPS)
    shared = costing(STEPS)
    asked: dict[StoredQuery, Iterable[str]] = {costing(STEPS): ["greedy"] for _ in range(5)}
    found = told({**asked, shared: ["greedy", "modest"]}, accounts)
    assert [one.matches for one in found if one.owner == "modest"] == [True]
    assert OWNER_STEPS_EXCEEDED in {one.failure for one in found if one.owner == "greedy"}


def test_every_owner_has_reserved_share() -> None:
    accounts = StepAccounts(STEPS, 4, of_owner=100 * STEPS, of_all=10 * STEPS)
    modest = {costing(STEPS // 2): [owner] for owner in ("a", "b", "c")}
    asked: dict[StoredQuery, Iterable[str]] = {costing(STEPS): ["greedy"] for _ in range(90)}
    found = told({**asked, **modest}, accounts)
    assert {one.owner for one in found if one.matches and one.stored_query in modest} == {
        "a",
        "b",
        "c",
    }
    assert ALL_STEPS_EXCEEDED in {one.failure for one in found if one.owner == "greedy"}


def test_total_budget_is_bounded() -> None:
    accounts = StepAccounts(STEPS, 3, of_all=12 * STEPS)
    work: list[int] = []
    asked = {costing(STEPS, work): [f"owner{n % 3}"] for n in range(60)}
    told(dict(asked), accounts)
    assert sum(min(one, STEPS) for one in work) <= 12 * STEPS


def test_the_lease_is_renewed_between_any_two_evaluations() -> None:
    beats: list[int] = []
    allowed: list[int] = []
    told({costing(20_000, allowed): ["a"] for _ in range(5)}, StepAccounts(STEPS, 2), beats)
    assert len(beats) == len(allowed) == 15


def test_hostile_expressions_end_soon_and_harm_no_other_owner() -> None:
    bad = [
        a_subscription(id=n, query=hostile(n), owner=f"bad{n % 4}@example.org")
        for n in range(1, 401)
    ]
    good = a_subscription(id=1000, query="length(files) == `1`", owner="good@example.org")
    seen: dict[str, Any] = {"files": {"a": 1}}
    began = time.monotonic()
    found = list(
        evaluate_event(
            StoredQuerySet([*bad, good]), an_event(), seen, base_url=BASE_URL, steps=2_000
        )
    )
    assert time.monotonic() - began < 20
    assert len(found) == 401
    assert [one.subscription_id for one in found if one.failure is None] == [1000]


def test_attachments_are_paid_from_the_same_account() -> None:
    dear = {"all": {"type": "jmespath", "expression": hostile(1)}}
    asked = StoredQuerySet(a_subscription(id=n, attachments=dear) for n in range(1, 8))
    found = list(
        evaluate_event(
            asked, an_event(), {}, base_url=BASE_URL, steps=bounded_jmespath.MAX_STEPS // 2
        )
    )
    errors = [json.loads(one.payload)["attachments"]["_errors"]["all"] for one in found]
    assert len(errors) == 7
    assert all("steps" in error for error in errors)


def test_expression_cache_is_bounded() -> None:
    long = " || ".join(["length(a) > `1`"] * 30)
    asked = [a_subscription(id=n, query=f"{long} || b{n}") for n in range(1, 700)]
    questions = StoredQuerySet(asked)
    nodes = {one.stored_query.nodes for one in questions.candidates({}, steps=1)}
    total = sum(one.stored_query.nodes for one in questions.candidates({}, steps=1))
    assert 0 in nodes
    assert max(nodes) <= CACHED_NODES_OF_ONE
    assert total <= CACHED_NODES
    questions.update([], gone=range(1, 700))
    questions.update(asked[-1:], gone=[])
    assert [one.stored_query.nodes > 0 for one in questions.candidates({}, steps=1)] == [True]


def es(number: int, owner: str, query: dict[str, Any]) -> Subscription:
    stored = {"type": "elasticsearch", "query": json.dumps(query)}
    return a_subscription(id=number, owner=f"{owner}@example.org", **stored)


WORDS = {"text": " ".join(f"w{number}" for number in range(2_000))}


def heavy(number: int) -> dict[str, Any]:
    """About 60,000 steps, unlike any other number's."""
    return {"bool": {"should": [{"wildcard": {"text": f"*x{number}*{n}"}} for n in range(30)]}}


def test_owner_of_heavy_es_queries_is_exhausted_alone() -> None:
    greedy = [es(n, "greedy", heavy(n)) for n in range(1, 13)]
    modest = [es(n, f"modest{n}", {"match": {"text": f"w{n}"}}) for n in range(50, 60)]
    same = [es(n, owner, heavy(0)) for n, owner in ((80, "greedy"), (81, "modest81"))]
    asked = StoredQuerySet([*greedy, *modest, *same]).candidates(WORDS, steps=STEPS)
    owners = {one.stored_query: frozenset(each.owner for each in one.subscribers) for one in asked}
    accounts = StepAccounts(STEPS, 12, of_owner=4 * STEPS)
    found = list(evaluate_queries(owners, QueryDocument(WORDS), accounts, lambda moved: None))
    failed = [one.owner for one in found if one.failure is not None]
    assert len(found) == 24
    assert set(failed) == {"greedy@example.org"}
    assert 5 < len(failed) < 12
    assert sum(one.matches for one in found) == len(modest)


def test_es_query_beyond_step_limit_fails_alone() -> None:
    asked = [es(1, "a", heavy(1)), es(2, "a", {"match": {"text": "w7"}})]
    found = list(
        evaluate_event(StoredQuerySet(asked), an_event(), WORDS, base_url=BASE_URL, steps=40_000)
    )
    assert [(one.subscription_id, "steps" in (one.failure or "")) for one in found] == [
        (1, True),
        (2, False),
    ]


def test_es_queries_and_expressions_grow_alike() -> None:
    left: list[int] = []
    dear = {"bool": {"should": [heavy(1), heavy(2)]}}
    (one,) = StoredQuerySet([es(1, "a", dear)]).candidates(WORDS, steps=STEPS)

    def ask(seen: QueryDocument, budget: bounded_jmespath.EvaluationBudget) -> bool:
        left.append(budget.remaining_steps)
        return one.stored_query.evaluate(seen, budget)

    seen, question = QueryDocument(WORDS), StoredQuery("elasticsearch", None, ask)
    (verdict,) = evaluate_queries(
        {question: frozenset("a")}, seen, StepAccounts(STEPS, 1), lambda moved: None
    )
    assert "steps" in (verdict.failure or "")
    assert left == [FIRST_ALLOWANCE, FIRST_ALLOWANCE * ALLOWANCE_GROWTH, STEPS]
