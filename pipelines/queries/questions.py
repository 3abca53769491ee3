"""Questions: the stored queries of many subscriptions, each distinct one once, with its askers."""

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from pipelines.queries import jmes
from pipelines.queries.conditions import MAX_NODES, Conditions, conditions
from pipelines.queries.equalities import Index, satisfies
from pipelines.queries.sharing import Shared, mark
from pipelines.queries.terms import Look
from storage.catalog.subscriptions import ELASTICSEARCH, Subscription
from storage.errors import Invalid
from storage.query.analysis import Flat, flatten
from storage.query.evaluate import compile_query
from storage.query.grammar import parse_request

KEPT_NODES = 100_000
"""Nodes of the syntax trees that one set keeps, at about 400 bytes each; what is beyond them is
compiled whenever it is asked."""
KEPT_NODES_OF_ONE = 500
AT_ONCE = 20
"""Questions that are compiled between two signs of progress."""
COMPILING = 4
"""Steps that a character costs to compile."""
VISITS_PER_NODE = 3
"""At the most, of an expression whose conditions decide, for each element that it looks at."""
LOOK_STEPS, LOOK_STEPS_OF_ALL = 1_000, 250_000
"""What one term, and all of them, may take in one document; the rest is left to the questions."""


class Seen:
    """One document as both kinds of stored queries look at it, flattened at most once."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.shared = Shared()

    @cached_property
    def flat(self) -> Flat:
        """The leaves that es_queries ask about."""
        return flatten(self.document)


Ask = Callable[[Seen, jmes.Budget], bool]
"""Whether a document matches, within a budget; Failed says why it cannot be told."""


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A stored query with the subscriptions that ask it.

    `nodes` says how much of it is kept, `visits` in how many steps its conditions are evaluated,
    `compiling` how many more it takes if it has to be compiled first.
    """

    type: str
    query: str | None
    ask: Ask
    conditions: Conditions = field(default_factory=Conditions)
    nodes: int = 0
    visits: int = 0
    compiling: int = 0
    askers: dict[int, Subscription] = field(default_factory=dict)


class Candidate(NamedTuple):
    """A question that a document may answer with yes; `certain` when it is known to."""

    question: Question
    certain: bool
    askers: tuple[Subscription, ...]


class Questions:
    """The stored queries of a set of subscriptions; threads may look while it changes.

    Fresh ones are compiled by whoever looks next, a few at a time: ten thousand take seconds.
    """

    def __init__(self, subscriptions: Iterable[Subscription] = ()) -> None:
        self._lock = threading.Lock()
        self._fresh: dict[int, Subscription] = {}
        self._by_query: dict[tuple[str, str | None], Question] = {}
        self._of: dict[int, Question] = {}
        self._index: Index[Question] = Index()
        self._nodes = self._visits = 0
        self.change(subscriptions, gone=())

    def __len__(self) -> int:
        return len(self._of) + len(self._fresh)

    def ids(self) -> set[int]:
        """The subscriptions that are in it."""
        with self._lock:
            return {*self._of, *self._fresh}

    def change(self, fresh: Iterable[Subscription], *, gone: Iterable[int]) -> None:
        """Add subscriptions and remove others; costs what these do, not what there is."""
        with self._lock:
            for ident in gone:
                self._remove(ident)
            self._fresh.update((subscription.id, subscription) for subscription in fresh)

    def settle(self, beat: Callable[[int], None] = lambda moved: None) -> None:
        """Compile what is fresh, telling of progress; the lock is free in between."""
        while self._fresh:
            with self._lock:
                for ident in list(islice(self._fresh, AT_ONCE)):
                    self._add(self._fresh[ident])
                    del self._fresh[ident]
            beat(0)

    def _add(self, subscription: Subscription) -> None:
        named = subscription.type, subscription.query
        question = self._by_query.get(named)
        if question is None:
            question = _compiled(*named, room=KEPT_NODES - self._nodes)
            self._by_query[named] = question
            self._index.add(question, question.conditions)
            self._nodes += question.nodes
            self._visits = max(self._visits, question.visits)
        question.askers[subscription.id] = subscription
        self._of[subscription.id] = question

    def _remove(self, ident: int) -> None:
        self._fresh.pop(ident, None)
        question = self._of.pop(ident, None)
        if question is None:
            return
        del question.askers[ident]
        if not question.askers:
            del self._by_query[question.type, question.query]
            self._index.remove(question)
            self._nodes -= question.nodes

    def candidates(
        self,
        document: Mapping[str, Any],
        *,
        steps: int,
        shared: Shared | None = None,
        beat: Callable[[int], None] = lambda moved: None,
    ) -> list[Candidate]:
        """All questions but those that a document is known to answer with no.

        With fewer steps than the conditions stand for, every question has to be asked.
        """
        # So that each question decided here takes no more than `steps`, were it asked.
        limit = min(LOOK_STEPS, steps // (2 * VISITS_PER_NODE * MAX_NODES) - 1)
        look = Look(document, limit=limit, of_all=LOOK_STEPS_OF_ALL, shared=shared)
        self.settle(beat)
        with self._lock:
            if steps < self._visits:
                return [_candidate(one, certain=False) for one in self._by_query.values()]
            return [
                _candidate(one, certain=one.conditions.complete)
                for one in self._index.waiting_for(look)
                if satisfies(look, one.conditions)
            ]


def _candidate(question: Question, *, certain: bool) -> Candidate:
    return Candidate(question, certain, tuple(question.askers.values()))


def _compiled(kind: str, query: str | None, *, room: int) -> Question:
    """A question that no longer compiles fails whenever it is asked."""
    try:
        if kind == ELASTICSEARCH:
            return Question(kind, query, _of_search(query or "{}"))
        if query is None:
            always = Conditions(complete=True)
            return Question(kind, query, lambda seen, budget: True, always)
        return _of_expression(kind, jmes.parse(query), room=room)
    except (Invalid, ValueError, RecursionError) as error:
        return Question(kind, query, _failing(str(error)))


def _of_search(query: str) -> Ask:
    fits = compile_query(parse_request(json.loads(query)))

    return lambda seen, budget: fits(seen.flat, budget)


def _of_expression(kind: str, parsed: jmes.Expression, *, room: int) -> Question:
    source, kept = parsed.source, parsed.nodes <= min(room, KEPT_NODES_OF_ONE)
    if kept:
        mark(parsed.tree)
    found = conditions(parsed.tree, rich=kept and parsed.nodes <= MAX_NODES)
    # What its conditions decide is hardly ever asked: its tree would only lie about.
    kept = kept and not found.complete

    def ask(seen: Seen, budget: jmes.Budget) -> bool:
        return jmes.parse(source).matches(seen.document, budget)

    def ask_kept(seen: Seen, budget: jmes.Budget) -> bool:
        return parsed.matches(seen.document, budget, seen.shared)

    return Question(
        kind,
        source,
        ask_kept if kept else ask,
        found,
        nodes=parsed.nodes if kept else 0,
        visits=_visits(parsed) if found.clauses else 0,
        compiling=0 if kept else COMPILING * len(source),
    )


def _visits(parsed: jmes.Expression) -> int:
    """Texts are compared with its literals, which takes as many steps as these have."""
    return VISITS_PER_NODE * parsed.nodes + jmes.size(parsed.source)


def _failing(reason: str) -> Ask:
    def ask(seen: Seen, budget: jmes.Budget) -> bool:
        raise jmes.Failed(reason)

    return ask
