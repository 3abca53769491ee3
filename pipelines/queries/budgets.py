"""Evaluate stored queries within step budgets per query, per owner and in total.

Every question is first asked with a small allowance, then those that need more with a larger one,
and so on: what costs little is answered before what costs much is tried, so that hostile ones
neither delay nor starve it. Who exceeds what is his has a failure of his own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from pipelines.queries import bounded_jmespath
from pipelines.queries.stored_queries import QueryDocument, StoredQuery
from storage.errors import DomainError

OWNER_TIMES, ALL_TIMES = 4, 20
"""How many times the steps of one evaluation an owner's may take on one event, and all."""
FIRST_ALLOWANCE, ALLOWANCE_GROWTH = 1_000, 8
"""The first allowance, and how it grows: a repeated evaluation adds a seventh at the most."""
OWNER_STEPS_EXCEEDED = "The expressions of this owner take more steps on one event than allowed."
ALL_STEPS_EXCEEDED = "All expressions together take more steps on one event than allowed."


class QueryOutcome(NamedTuple):
    """Whether a query matches for an owner, or why its evaluation failed."""

    stored_query: StoredQuery
    owner: str
    matches: bool
    failure: str | None = None


class StepAccounts:
    """The steps that one event has left: a pool for who comes first, and a share for each owner.

    However much others take, every owner has his share of one half.
    """

    def __init__(self, steps: int, owners: int, *, of_owner: int = 0, of_all: int = 0) -> None:
        self.steps = steps
        # A lower limit of one evaluation is no reason to let an owner have fewer of them.
        base = max(steps, bounded_jmespath.MAX_STEPS)
        self._of_owner = of_owner or OWNER_TIMES * base
        self._pool = (of_all or ALL_TIMES * base) // 2
        self._share = self._pool // max(owners, 1)
        self._spent: dict[str, int] = {}
        self._of_share: dict[str, int] = {}

    def remaining_steps(self, owner: str) -> int:
        """Return the steps that an owner may still take."""
        own = self._of_owner - self._spent.get(owner, 0)
        return max(0, min(self._shared_steps(owner), own))

    def _shared_steps(self, owner: str) -> int:
        return self._pool + self._share - self._of_share.get(owner, 0)

    def refusal_reason(self, owner: str) -> str:
        """Why there is no room."""
        own = self._of_owner - self._spent.get(owner, 0)
        return ALL_STEPS_EXCEEDED if self._shared_steps(owner) < own else OWNER_STEPS_EXCEEDED

    def pay(self, owners: Iterable[str], steps: int) -> None:
        """Take off what was done once for all of these owners; each owes it in full."""
        pooled = min(self._pool, steps)
        self._pool -= pooled
        for owner in owners:
            self._spent[owner] = self._spent.get(owner, 0) + steps
            if steps > pooled:
                self._of_share[owner] = self._of_share.get(owner, 0) + steps - pooled


def evaluate_queries(
    asked: Mapping[StoredQuery, frozenset[str]],
    seen: QueryDocument,
    accounts: StepAccounts,
    beat: Callable[[int], None],
) -> Iterator[QueryOutcome]:
    """A verdict for each question and owner, in no promised order."""
    waiting, allowance = dict(asked), min(FIRST_ALLOWANCE, accounts.steps)
    while waiting:
        for question in _order_fairly(waiting):
            owners = waiting.pop(question)
            price = allowance + question.compile_steps
            refused = [owner for owner in owners if accounts.remaining_steps(owner) < price]
            if refused:
                yield from (
                    QueryOutcome(question, one, False, accounts.refusal_reason(one))
                    for one in refused
                )
                owners -= frozenset(refused)
            budget = bounded_jmespath.EvaluationBudget(allowance, lambda: beat(0))
            answer = _evaluate_query(question, owners, seen, accounts, budget) if owners else []
            if answer is None:
                waiting[question] = owners
            else:
                yield from answer
            beat(1)
        allowance = min(allowance * ALLOWANCE_GROWTH, accounts.steps)


def _evaluate_query(
    question: StoredQuery,
    owners: frozenset[str],
    seen: QueryDocument,
    accounts: StepAccounts,
    budget: bounded_jmespath.EvaluationBudget,
) -> list[QueryOutcome] | None:
    """Return the outcomes of a query, or None if it needs a larger allowance."""
    allowance, matches, failure = budget.left, False, None
    try:
        matches = question.evaluate(seen, budget)
    except bounded_jmespath.StepsExhausted as error:
        if allowance < accounts.steps:
            return None
        failure = str(error)
    except DomainError:
        raise
    except Exception as error:
        failure = (
            str(error)
            if isinstance(error, bounded_jmespath.EvaluationFailed)
            else type(error).__name__
        )
    finally:
        accounts.pay(owners, min(allowance, allowance - budget.left) + question.compile_steps)
    return [QueryOutcome(question, owner, matches, failure) for owner in owners]


def _order_fairly(waiting: Mapping[StoredQuery, frozenset[str]]) -> list[StoredQuery]:
    """Those of owners with few of them first: what runs out, runs out on who asks the most."""
    asking = Counter(owner for owners in waiting.values() for owner in owners)
    return sorted(waiting, key=lambda question: min(map(asking.__getitem__, waiting[question])))
