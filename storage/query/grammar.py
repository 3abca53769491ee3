"""The one door for queries from outside: a request's JSON becomes a clause of the closed grammar.

Nothing passes through raw. Both engines and the matching of stored queries compile clauses only.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from storage.query.clauses import Clause, MatchAll, children
from storage.query.compound import (
    parse_bool,
    parse_boosting,
    parse_constant_score,
    parse_dis_max,
)
from storage.query.full_text import parse_match, parse_match_phrase, parse_multi_match
from storage.query.node import Node, ParseChild, refuse, step
from storage.query.query_string import parse_query_string
from storage.query.simple_query_string import parse_simple_query_string
from storage.query.term_level import (
    parse_exists,
    parse_fuzzy,
    parse_ids,
    parse_match_all,
    parse_match_none,
    parse_prefix,
    parse_range,
    parse_regexp,
    parse_term,
    parse_terms,
    parse_wildcard,
)

__all__ = ["Clause", "parse_request"]

MAX_CLAUSES = 1024
MAX_DEPTH = 20
MAX_REQUEST_BYTES = 16 * 1024

LEAVES: dict[str, Callable[[Node], Clause]] = {
    "match_all": parse_match_all,
    "match_none": parse_match_none,
    "ids": parse_ids,
    "term": parse_term,
    "terms": parse_terms,
    "range": parse_range,
    "exists": parse_exists,
    "prefix": parse_prefix,
    "wildcard": parse_wildcard,
    "regexp": parse_regexp,
    "fuzzy": parse_fuzzy,
    "match": parse_match,
    "match_phrase": parse_match_phrase,
    "multi_match": parse_multi_match,
    "query_string": parse_query_string,
    "simple_query_string": parse_simple_query_string,
}

COMPOUNDS: dict[str, Callable[[Node, ParseChild], Clause]] = {
    "bool": parse_bool,
    "constant_score": parse_constant_score,
    "dis_max": parse_dis_max,
    "boosting": parse_boosting,
}


def parse_request(body: Mapping[str, Any]) -> Clause:
    """Read `{}`, `{"query": clause}` or one bare clause; Invalid names what is wrong and where."""
    if not isinstance(body, Mapping):
        raise refuse("a query is an object", "")
    if not body:
        return MatchAll()
    _check_size(body)
    if "query" in body:
        return _limited(_parse(_alone(body, "query"), "/query", 1))
    return _limited(_parse(body, "", 1))


def _alone(body: Mapping[str, Any], name: str) -> Any:
    beside = next((key for key in body if key != name), None)
    if beside is not None:
        raise refuse(f"'{beside}' cannot stand beside '{name}'", step("", beside))
    return body[name]


def _check_size(body: Mapping[str, Any]) -> None:
    try:
        size = len(
            json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(
                "utf-8", "surrogatepass"
            )
        )
    except (RecursionError, ValueError, TypeError) as error:
        raise refuse("the query is not proper JSON or nested too deep", "") from error
    if size > MAX_REQUEST_BYTES:
        raise refuse(f"a query has at most {MAX_REQUEST_BYTES} bytes", "")


def _parse(body: Any, pointer: str, depth: int) -> Clause:
    if depth > MAX_DEPTH:
        raise refuse(f"clauses are nested at most {MAX_DEPTH} deep", pointer)
    if not isinstance(body, Mapping) or len(body) != 1:
        raise refuse("a clause is an object with one member", pointer)
    ((name, parameters),) = body.items()
    at = step(pointer, name)
    if name in LEAVES:
        return LEAVES[name](Node.of(name, at, parameters))
    if name in COMPOUNDS:
        node = Node.of(name, at, parameters)
        return COMPOUNDS[name](node, lambda child, where: _parse(child, where, depth + 1))
    raise refuse(f"unknown clause '{name}'", at)


def _limited(clause: Clause) -> Clause:
    for count, depth in enumerate(_depths(clause), 1):
        if count > MAX_CLAUSES:
            raise refuse(f"a query has at most {MAX_CLAUSES} clauses", "")
        if depth > MAX_DEPTH:
            raise refuse(f"clauses are nested at most {MAX_DEPTH} deep", "")
    return clause


def _depths(clause: Clause) -> Iterator[int]:
    """The depth of every clause, in no promised order."""
    waiting = [(clause, 1)]
    while waiting:
        current, depth = waiting.pop()
        yield depth
        waiting.extend((child, depth + 1) for child in children(current))
