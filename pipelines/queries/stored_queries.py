"""Compile the stored queries of many subscriptions, each distinct query once."""

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from pipelines.queries import bounded_jmespath
from pipelines.queries.bounded_jmespath import EvaluationBudget, EvaluationFailed
from pipelines.queries.equality_index import Clause, EqualityIndex, find_clauses
from storage.catalog.subscriptions import ELASTICSEARCH, Subscription
from storage.errors import Invalid
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
    """One document as both kinds of stored queries read it, flattened at most once."""

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

    return lambda document, budget: matches(document.flat, budget)


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
