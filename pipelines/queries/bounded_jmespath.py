"""JMESPath evaluation with a budget of steps.

An expression of a hundred characters can make half a million elements, and shared results 2^64 as
JSON. So each step is paid from a budget before it is done.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any

from jmespath.exceptions import JMESPathError, JMESPathTypeError
from jmespath.functions import Functions
from jmespath.parser import Parser
from jmespath.visitor import TreeInterpreter

from storage.errors import DomainError, Invalid

MAX_SOURCE_BYTES = 4 * 1024
MAX_DEPTH = 64
MAX_STEPS = 1_000_000
FIRST_ALLOWANCE, ALLOWANCE_GROWTH = 1_000, 8
"""The first allowance, and how it grows: a repeated evaluation adds a seventh at the most."""
CACHED_NODES = 100_000
"""Syntax tree nodes of the expressions that a process caches, at about 400 bytes each."""

WATCH_INTERVAL_STEPS = 50_000
"""Steps between calls of `watch`, which may end an evaluation."""

_CHARACTERS_PER_STEP = 64
"""Characters of a string that count as one element."""
_JSON_CHARACTERS_PER_STEP = 8
"""The same for strings that become JSON, where a character takes up to twelve."""
_CONSTANT_TIME_FUNCTIONS = frozenset({"length", "type", "not_null", "to_array"})
"""Functions that read no element of their argument."""
_COMPARING_FUNCTIONS = frozenset({"sort", "min", "max"})
"""Functions that compare all elements with each other."""
_EQUALITY_OPERATORS = frozenset({"eq", "ne"})
_ORDERED_TYPES = frozenset({int, float, str})
"""Types that `<` and the like compare; for others they yield null."""


class EvaluationFailed(Exception):
    """An expression could not be evaluated on a document; the text says why in bounded length."""


class StepsExhausted(EvaluationFailed):
    """An evaluation took more steps than allowed; with more it might succeed."""


class EvaluationBudget:
    """Steps that are left for one evaluation, or for several that share it.

    `watch` is called every so many of them; the DomainError that it raises ends the evaluation.
    """

    def __init__(self, steps: int = MAX_STEPS, watch: Callable[[], None] | None = None) -> None:
        self._watch = watch
        self.now = steps if watch is None else min(steps, WATCH_INTERVAL_STEPS)
        self._later = steps - self.now

    @property
    def remaining_steps(self) -> int:
        """Return the steps that are left, negative if there were not enough."""
        return self.now + self._later

    def pay(self, steps: int) -> None:
        """Take steps off; raise StepsExhausted if there are not enough."""
        self.now -= steps
        if self.now < 0:
            self._refill()

    def _refill(self) -> None:
        if self.remaining_steps < 0:
            raise StepsExhausted("The expression takes more steps than allowed.")
        if self._watch is not None:
            self._watch()
        left = self.remaining_steps
        self.now = min(left, WATCH_INTERVAL_STEPS)
        self._later = left - self.now

    def pay_for(self, value: Any, characters: int = _CHARACTERS_PER_STEP) -> None:
        """Pay for walking all of a value, shared parts as often as they occur."""
        waiting = [value]
        while waiting:
            part = waiting.pop()
            self.pay(1)
            if isinstance(part, str):
                self.pay(len(part) // characters)
            elif isinstance(part, list):
                self.pay(len(part))
                waiting += part
            elif isinstance(part, dict):
                self.pay(len(part))
                waiting += part.values()


class JmespathExpression:
    """A compiled expression; may be evaluated by many threads at once."""

    def __init__(self, source: str, tree: Any) -> None:
        self.source, self.tree = source, tree
        self.nodes = sum(1 for _ in _walk_nodes(tree))

    def search(
        self,
        document: Any,
        budget: EvaluationBudget | None = None,
    ) -> Any:
        """Return the result; EvaluationFailed if it cannot be evaluated within the budget."""
        interpreter = _MeteredInterpreter(budget or EvaluationBudget())
        try:
            return interpreter.visit(self.tree, document)
        except (EvaluationFailed, DomainError):
            raise
        except RecursionError as error:
            raise EvaluationFailed("The expression is nested too deep.") from error
        except Exception as error:
            raise EvaluationFailed(_format_error(error)) from error

    def matches(
        self,
        document: Any,
        budget: EvaluationBudget | None = None,
    ) -> bool:
        """Return whether the result is true in JMESPath: not null, false or empty."""
        result = self.search(document, budget)
        return not (result is None or result is False or result in ("", [], {}))


class _UncachedParser(Parser):
    """The library's parser without its unbounded cache."""

    _CACHE: dict[str, Any] = {}  # noqa: RUF012
    _MAX_SIZE = 0


class _ExpressionCache:
    """A least-recently-used cache of expressions, bounded by their nodes, so by memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._nodes = 0
        self._kept: OrderedDict[str, JmespathExpression] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, source: str) -> JmespathExpression:
        """Return the expression of a source, compiled unless it is cached."""
        with self._lock:
            found = self._kept.get(source)
            if found is not None:
                self._kept.move_to_end(source)
                return found
        fresh = parse_expression(source)
        with self._lock:
            kept = self._kept.setdefault(fresh.source, fresh)
            if kept is fresh:
                self._nodes += fresh.nodes
            while self._nodes > self._limit:
                _, gone = self._kept.popitem(last=False)
                self._nodes -= gone.nodes
        return kept


def parse_expression(source: str) -> JmespathExpression:
    """Compile an expression; raise Invalid (`invalid_jmespath`)."""
    if len(source.encode(errors="replace")) > MAX_SOURCE_BYTES:
        raise _invalid_expression(f"it has more than {MAX_SOURCE_BYTES} bytes")
    try:
        tree = _UncachedParser().parse(source).parsed
    except JMESPathError as error:
        raise _invalid_expression(str(error).partition("\n")[0].rstrip(" :.")) from error
    except (RecursionError, ValueError, LookupError, TypeError) as error:
        raise _invalid_expression("it cannot be parsed") from error
    if max(depth for _, depth in _walk_nodes(tree)) > MAX_DEPTH:
        raise _invalid_expression(f"it is nested deeper than {MAX_DEPTH}")
    return JmespathExpression(source, tree)


_expressions = _ExpressionCache(CACHED_NODES)


def compile_expression(source: str) -> JmespathExpression:
    """Compile an expression, or return the cached one."""
    return _expressions.get(source)


def validate_expression(source: str) -> None:
    """Raise Invalid (`invalid_jmespath`) for unknown functions or wrong numbers of arguments.

    Stricter than `parse_expression`, which must also read the expressions of subscriptions that
    were made before this check.
    """
    for node, _ in _walk_nodes(compile_expression(source).tree):
        if node["type"] == "function_expression":
            _check_function_call(node["value"], len(node["children"]))


def _check_function_call(name: str, given: int) -> None:
    known = Functions.FUNCTION_TABLE.get(name)
    if known is None:
        close = get_close_matches(name, Functions.FUNCTION_TABLE, n=1, cutoff=0.75)
        hint = f" (did you mean {close[0]}()?)" if close else ""
        raise _invalid_expression(f"unknown function {name[:64]}(){hint}")
    wanted = len(known["signature"])
    at_least = wanted > 0 and "variadic" in known["signature"][-1]
    if given < wanted or (given > wanted and not at_least):
        count = f"{'at least ' * at_least}{wanted} argument{'s' * (wanted != 1)}"
        raise _invalid_expression(f"{name}() takes {count} (got {given})")


def _invalid_expression(reason: str) -> Invalid:
    return Invalid(f"Not a JMESPath expression: {reason[:300]}.", code="invalid_jmespath")


def _walk_nodes(tree: Any) -> Iterator[tuple[Any, int]]:
    """Yield each node of a tree with its depth."""
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        # The children of a slice are its numbers.
        waiting += [(child, depth + 1) for child in node["children"] if isinstance(child, dict)]


def _format_error(error: Exception) -> str:
    # The library's own text of a type error quotes the value, of whatever size.
    if isinstance(error, JMESPathTypeError):
        wanted = ", ".join(map(str, error.expected_types))
        return f"{error.function_name}() got {error.actual_type} where it takes {wanted}."
    return f"{type(error).__name__}: {error}"[:300]


class _MeteredInterpreter(TreeInterpreter):
    """The library's interpreter; it pays for each node it visits and each list it makes."""

    def __init__(self, budget: EvaluationBudget) -> None:
        # The library's own constructor would take most of a short expression's time.
        self._budget = budget
        self._dict_cls = dict
        self._functions = _MeteredFunctions(budget)

    def visit(self, node: Any, value: Any, /) -> Any:
        # The hottest lines of matching: one step is paid here, not by a call.
        budget = self._budget
        budget.now -= 1
        if budget.now < 0:
            budget.pay(0)
        return _VISITORS[node["type"]](self, node, value)

    def visit_comparator(self, node: Any, value: Any) -> Any:
        left, right = node["children"]
        left, right = self.visit(left, value), self.visit(right, value)
        if isinstance(left, str) and isinstance(right, str):
            self._budget.pay(min(len(left), len(right)) // _CHARACTERS_PER_STEP)
        elif (
            type(left) is type(right) and isinstance(left, _CONTAINERS) and len(left) == len(right)
        ):
            self._budget.pay_for(left)
        asked = node["value"]
        if asked not in _EQUALITY_OPERATORS and not (
            type(left) in _ORDERED_TYPES and type(right) in _ORDERED_TYPES
        ):
            return None
        return self.COMPARATOR_FUNC[asked](left, right)

    def visit_flatten(self, node: Any, value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        if not isinstance(base, list):
            return None
        self._budget.pay(sum(len(part) if isinstance(part, list) else 1 for part in base))
        merged: list[Any] = []
        for part in base:
            merged += part if isinstance(part, list) else [part]
        return merged

    def visit_slice(self, node: Any, value: Any) -> Any:
        if isinstance(value, list):
            self._budget.pay(len(range(*slice(*node["children"]).indices(len(value)))))
        return super().visit_slice(node, value)


_VISITORS: dict[str, Callable[[Any, Any, Any], Any]] = {
    name.removeprefix("visit_"): getattr(_MeteredInterpreter, name)
    for name in dir(_MeteredInterpreter)
    if name.startswith("visit_")
}


class _MeteredFunctions(Functions):
    """The library's functions; each pays for its arguments before it reads them."""

    def __init__(self, budget: EvaluationBudget) -> None:
        self._budget = budget

    def call_function(self, function_name: str, resolved_args: Any) -> Any:
        if function_name not in _CONSTANT_TIME_FUNCTIONS:
            self._budget.pay(sum(map(value_size, resolved_args)))
        if function_name == "to_string":
            self._budget.pay_for(resolved_args, _JSON_CHARACTERS_PER_STEP)
        elif function_name == "contains":
            self._pay_for_search(resolved_args)
        elif function_name == "join":
            self._budget.pay(sum(_joined_lengths(resolved_args)) // _CHARACTERS_PER_STEP)
        elif function_name in _COMPARING_FUNCTIONS:
            self._budget.pay(sum(map(_total_text_size, resolved_args)))
        return super().call_function(function_name, resolved_args)

    def _pay_for_search(self, args: list[Any]) -> None:
        """Charge for comparing the needle with each element of its size."""
        if len(args) != 2 or not isinstance(args[0], list) or not isinstance(args[1], _SIZED_TYPES):
            return
        for element in args[0]:
            if type(element) is type(args[1]) and len(element) == len(args[1]):
                self._budget.pay_for(args[1])

    def _create_key_func(self, expref: Any, allowed_types: Any, function_name: str) -> Any:
        key_of = super()._create_key_func(  # type: ignore[misc]
            expref, allowed_types, function_name
        )

        def charge_key(element: Any) -> Any:
            key = key_of(element)
            self._budget.pay(value_size(key))
            return key

        return charge_key


_CONTAINERS = (list, dict)
_SIZED_TYPES = (str, list, dict)


def _total_text_size(value: Any) -> int:
    return sum(map(value_size, value)) if isinstance(value, list) else 0


def value_size(value: Any) -> int:
    """Return the steps to scan a value, without its parts."""
    if isinstance(value, str):
        return len(value) // _CHARACTERS_PER_STEP
    return len(value) if isinstance(value, _CONTAINERS) else 0


def _joined_lengths(args: list[Any]) -> Iterator[int]:
    """Yield the lengths of the strings that `join` joins, and of its glue."""
    if len(args) == 2 and isinstance(args[0], str) and isinstance(args[1], list):
        yield len(args[0]) * len(args[1])
        yield from (len(part) for part in args[1] if isinstance(part, str))
