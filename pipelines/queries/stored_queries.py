"""Compile the stored queries of many subscriptions, and evaluate them within step budgets.

Each distinct query is compiled once. All queries are first evaluated with a small allowance of
steps, those that need more with a larger one, and so on: expensive queries neither delay nor starve
cheap ones. A query that exceeds its limit has a failure, and the others do not.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from pipelines.queries import bounded_jmespath
from pipelines.queries.bounded_jmespath import EvaluationBudget, EvaluationFailed
from pipelines.queries.equality_index import Clause, EqualityIndex, find_clauses
from storage.catalog.subscriptions import ELASTICSEARCH, Subscription
from storage.errors import DomainError, Invalid
from storage.search.documents import FlatDocument, flatten_document
from storage.search.evaluator import compile_query
from storage.search.grammar.parser import parse_query

CACHED_NODES = 100_000
"""Syntax tree nodes cached per set, at about 400 bytes each; other expressions are compiled again
for each evaluation."""
CACHED_NODES_OF_ONE = 500
COMPILE_BATCH = 20
"""Queries that are compiled between two heartbeats."""
COMPILE_STEPS_PER_CHARACTER = 4
"""Steps that a character costs to compile."""


class QueryDocument:
    """A document as both types of stored queries read it, flattened at most once."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document

    @cached_property
    def flat(self) -> FlatDocument:
        """The leaves that es_queries search."""
        return flatten_document(self.document)


QueryFunction = Callable[[QueryDocument, EvaluationBudget], bool]
"""Whether a document matches, within a budget; raises EvaluationFailed with the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredQuery:
    """A distinct query with its subscriptions.

    A document can only match if all `clauses` hold. `nodes` counts the cached syntax tree nodes;
    `compile_steps` are paid by each evaluation that may have to compile the query first.
    """

    type: str
    query: str | None
    evaluate: QueryFunction
    clauses: tuple[Clause, ...] = ()
    nodes: int = 0
    compile_steps: int = 0
    subscribers: dict[int, Subscription] = field(default_factory=dict)


class QueryCandidate(NamedTuple):
    """A query that a document may match, with its subscriptions."""

    stored_query: StoredQuery
    subscribers: tuple[Subscription, ...]


class StoredQuerySet:
    """The stored queries of a set of subscriptions; threads may read while it changes.

    New queries are compiled by the next reader, a few at a time: ten thousand take seconds.
    """

    def __init__(self, subscriptions: Iterable[Subscription] = ()) -> None:
        self._lock = threading.Lock()
        self._pending: dict[int, Subscription] = {}
        self._by_source: dict[tuple[str, str | None], StoredQuery] = {}
        self._by_subscription: dict[int, StoredQuery] = {}
        self._index: EqualityIndex[StoredQuery] = EqualityIndex()
        self._nodes = 0
        self.update(subscriptions, gone=())

    def __len__(self) -> int:
        return len(self._by_subscription) + len(self._pending)

    def subscription_ids(self) -> set[int]:
        """Return the ids of its subscriptions."""
        with self._lock:
            return {*self._by_subscription, *self._pending}

    def update(self, fresh: Iterable[Subscription], *, gone: Iterable[int]) -> None:
        """Add subscriptions and remove others, in time proportional to their number."""
        with self._lock:
            for ident in gone:
                self._remove(ident)
            self._pending.update((subscription.id, subscription) for subscription in fresh)

    def compile_pending(self, beat: Callable[[int], None] = lambda moved: None) -> None:
        """Compile new queries in batches, with a heartbeat and the lock released in between."""
        while self._pending:
            with self._lock:
                for ident in list(islice(self._pending, COMPILE_BATCH)):
                    self._add(self._pending[ident])
                    del self._pending[ident]
            beat(0)

    def _add(self, subscription: Subscription) -> None:
        source = subscription.type, subscription.query
        query = self._by_source.get(source)
        if query is None:
            query = _compile_query(*source, room=CACHED_NODES - self._nodes)
            self._by_source[source] = query
            self._index.add(query, query.clauses)
            self._nodes += query.nodes
        query.subscribers[subscription.id] = subscription
        self._by_subscription[subscription.id] = query

    def _remove(self, ident: int) -> None:
        self._pending.pop(ident, None)
        query = self._by_subscription.pop(ident, None)
        if query is None:
            return
        del query.subscribers[ident]
        if not query.subscribers:
            del self._by_source[query.type, query.query]
            self._index.remove(query)
            self._nodes -= query.nodes

    def candidates(
        self,
        document: Mapping[str, Any],
        *,
        steps: int,
        beat: Callable[[int], None] = lambda moved: None,
    ) -> list[QueryCandidate]:
        """Return all queries that may match a document, or fail, within `steps` each."""
        self.compile_pending(beat)
        with self._lock:
            return [
                QueryCandidate(query, tuple(query.subscribers.values()))
                for query in self._index.find_candidates(document, steps=steps)
            ]


def _compile_query(kind: str, query: str | None, *, room: int) -> StoredQuery:
    """Compile a query; one that no longer compiles fails in each evaluation."""
    try:
        if kind == ELASTICSEARCH:
            return StoredQuery(kind, query, _compile_search(query or "{}"))
        if query is None:
            return StoredQuery(kind, query, lambda document, budget: True)
        return _compile_jmespath(kind, query, room=room)
    except (Invalid, ValueError, RecursionError) as error:
        return StoredQuery(kind, query, _failing_query(str(error)))


def _compile_search(query: str) -> QueryFunction:
    matches = compile_query(parse_query(json.loads(query)))

    return lambda document, budget: matches(document.flat, budget.pay)


def _compile_jmespath(kind: str, source: str, *, room: int) -> StoredQuery:
    """Cache the tree unless an index finds the query: then it is seldom evaluated."""
    expression = bounded_jmespath.parse_expression(source)
    clauses = find_clauses(expression)
    if not clauses and expression.nodes <= min(room, CACHED_NODES_OF_ONE):

        def evaluate(document: QueryDocument, budget: EvaluationBudget) -> bool:
            return expression.matches(document.document, budget)

        return StoredQuery(kind, source, evaluate, nodes=expression.nodes)
    # Unindexed queries are evaluated for each event, and would evict each other from the cache.
    load = bounded_jmespath.compile_expression if clauses else bounded_jmespath.parse_expression

    def compile_and_evaluate(document: QueryDocument, budget: EvaluationBudget) -> bool:
        return load(source).matches(document.document, budget)

    compile_steps = COMPILE_STEPS_PER_CHARACTER * len(source)
    return StoredQuery(kind, source, compile_and_evaluate, clauses, compile_steps=compile_steps)


def _failing_query(reason: str) -> QueryFunction:
    def fail(document: QueryDocument, budget: EvaluationBudget) -> bool:
        raise EvaluationFailed(reason)

    return fail


OWNER_TIMES, ALL_TIMES = 4, 20
"""Steps of one owner, and of all, on one event, in multiples of one evaluation's steps."""
OWNER_STEPS_EXCEEDED = "The expressions of this owner take more steps on one event than allowed."
ALL_STEPS_EXCEEDED = "All expressions together take more steps on one event than allowed."


class QueryOutcome(NamedTuple):
    """Whether a query matches for an owner, or why its evaluation failed."""

    stored_query: StoredQuery
    owner: str
    matches: bool
    failure: str | None = None


class StepAccounts:
    """The steps left for one event: a pool, first come first served, and a share of each owner.

    Half of the steps are divided into shares, so each owner has some whatever others take.
    """

    def __init__(self, steps: int, owners: int, *, of_owner: int = 0, of_all: int = 0) -> None:
        self.steps = steps
        # A lower limit of one evaluation must not reduce the number of evaluations.
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
        """Return why an owner has too few steps left."""
        own = self._of_owner - self._spent.get(owner, 0)
        return ALL_STEPS_EXCEEDED if self._shared_steps(owner) < own else OWNER_STEPS_EXCEEDED

    def pay(self, owners: Iterable[str], steps: int) -> None:
        """Charge steps that were taken once for several owners to each of them in full."""
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
    """Yield the outcome of each query for each of its owners, in no particular order."""
    waiting, allowance = dict(asked), min(bounded_jmespath.FIRST_ALLOWANCE, accounts.steps)
    while waiting:
        for query in _order_fairly(waiting):
            owners = waiting.pop(query)
            price = allowance + query.compile_steps
            refused = [owner for owner in owners if accounts.remaining_steps(owner) < price]
            if refused:
                yield from (
                    QueryOutcome(query, one, False, accounts.refusal_reason(one)) for one in refused
                )
                owners -= frozenset(refused)
            budget = bounded_jmespath.EvaluationBudget(allowance, lambda: beat(0))
            answer = _evaluate_query(query, owners, seen, accounts, budget) if owners else []
            if answer is None:
                waiting[query] = owners
            else:
                yield from answer
            beat(1)
        allowance = min(allowance * bounded_jmespath.ALLOWANCE_GROWTH, accounts.steps)


def _evaluate_query(
    query: StoredQuery,
    owners: frozenset[str],
    seen: QueryDocument,
    accounts: StepAccounts,
    budget: bounded_jmespath.EvaluationBudget,
) -> list[QueryOutcome] | None:
    """Return the outcomes of a query, or None if it needs a larger allowance."""
    allowance, matches, failure = budget.remaining_steps, False, None
    try:
        matches = query.evaluate(seen, budget)
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
        accounts.pay(
            owners, min(allowance, allowance - budget.remaining_steps) + query.compile_steps
        )
    return [QueryOutcome(query, owner, matches, failure) for owner in owners]


def _order_fairly(waiting: Mapping[StoredQuery, frozenset[str]]) -> list[StoredQuery]:
    """Return queries of owners with few queries first, so that others run out of steps first."""
    counts = Counter(owner for owners in waiting.values() for owner in owners)
    return sorted(waiting, key=lambda query: min(map(counts.__getitem__, waiting[query])))
