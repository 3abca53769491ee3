"""Spending: what the stored queries may cost one event, each of them, each owner, all together.

Every question is first asked with a small allowance, then those that need more with a larger one,
and so on: what costs little is answered before what costs much is tried, so that hostile ones
neither delay nor starve it. Who exceeds what is his has a failure of his own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from pipelines.queries import jmes
from pipelines.queries.questions import Question, Seen
from storage.errors import StoreError

OWNER_TIMES, ALL_TIMES = 4, 20
"""How many times the steps of one evaluation an owner's may take on one event, and all."""
FIRST, GROWTH = 1_000, 8
"""The first allowance, and how it grows: a repeated evaluation adds a seventh at the most."""
OWNER_SPENT = "The expressions of this owner take more steps on one event than allowed."
ALL_SPENT = "All expressions together take more steps on one event than allowed."


class Verdict(NamedTuple):
    """What an owner is told of a question: whether it matches, or why that cannot be told."""

    question: Question
    owner: str
    matches: bool
    failure: str | None = None


class Accounts:
    """The steps that one event has left: a pool for who comes first, and a share for each owner.

    However much others take, every owner has his share of one half.
    """

    def __init__(self, steps: int, owners: int, *, of_owner: int = 0, of_all: int = 0) -> None:
        self.steps = steps
        # A lower limit of one evaluation is no reason to let an owner have fewer of them.
        base = max(steps, jmes.MAX_STEPS)
        self._of_owner = of_owner or OWNER_TIMES * base
        self._pool = (of_all or ALL_TIMES * base) // 2
        self._share = self._pool // max(owners, 1)
        self._spent: dict[str, int] = {}
        self._of_share: dict[str, int] = {}

    def room(self, owner: str) -> int:
        """Steps that an owner may still take."""
        return max(0, min(self._left(owner), self._of_owner - self._spent.get(owner, 0)))

    def _left(self, owner: str) -> int:
        return self._pool + self._share - self._of_share.get(owner, 0)

    def refusal(self, owner: str) -> str:
        """Why there is no room."""
        own = self._of_owner - self._spent.get(owner, 0)
        return ALL_SPENT if self._left(owner) < own else OWNER_SPENT

    def pay(self, owners: Iterable[str], steps: int) -> None:
        """Take off what was done once for all of these owners; each owes it in full."""
        pooled = min(self._pool, steps)
        self._pool -= pooled
        for owner in owners:
            self._spent[owner] = self._spent.get(owner, 0) + steps
            if steps > pooled:
                self._of_share[owner] = self._of_share.get(owner, 0) + steps - pooled


def verdicts(
    asked: Mapping[Question, frozenset[str]],
    seen: Seen,
    accounts: Accounts,
    beat: Callable[[int], None],
) -> Iterator[Verdict]:
    """A verdict for each question and owner, in no promised order."""
    waiting, allowance = dict(asked), min(FIRST, accounts.steps)
    while waiting:
        for question in _fairly(waiting):
            owners = waiting.pop(question)
            price = allowance + question.compiling
            refused = [owner for owner in owners if accounts.room(owner) < price]
            if refused:
                yield from (Verdict(question, one, False, accounts.refusal(one)) for one in refused)
                owners -= frozenset(refused)
            budget = jmes.Budget(allowance, lambda: beat(0))
            answer = _answer(question, owners, seen, accounts, budget) if owners else []
            if answer is None:
                waiting[question] = owners
            else:
                yield from answer
            beat(1)
        allowance = min(allowance * GROWTH, accounts.steps)


def _answer(
    question: Question,
    owners: frozenset[str],
    seen: Seen,
    accounts: Accounts,
    budget: jmes.Budget,
) -> list[Verdict] | None:
    """What the question's owners are told, or None if it needs a larger allowance."""
    allowance, matches, failure = budget.left, False, None
    try:
        matches = question.ask(seen, budget)
    except jmes.Exhausted as error:
        if allowance < accounts.steps:
            return None
        failure = str(error)
    except StoreError:
        raise
    except Exception as error:
        failure = str(error) if isinstance(error, jmes.Failed) else type(error).__name__
    finally:
        accounts.pay(owners, min(allowance, allowance - budget.left) + question.compiling)
    return [Verdict(question, owner, matches, failure) for owner in owners]


def _fairly(waiting: Mapping[Question, frozenset[str]]) -> list[Question]:
    """Those of owners with few of them first: what runs out, runs out on who asks the most."""
    asking = Counter(owner for owners in waiting.values() for owner in owners)
    return sorted(waiting, key=lambda question: min(map(asking.__getitem__, waiting[question])))
