"""Parse a search request into a clause, with limits on size and depth.

Nothing passes through raw: both engines and the matcher of stored queries compile clauses only.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from storage.search.grammar import leaf_clauses as leaves
from storage.search.grammar.clauses import BoolClause, Clause, MatchAllClause, MatchNoneClause
from storage.search.grammar.parameters import (
    ClauseNode,
    ParseChild,
    extend_pointer,
    make_query_error,
)
from storage.search.grammar.query_string import parse_query_string
from storage.search.grammar.simple_query_string import parse_simple_query_string

OCCURRENCES = ("must", "filter", "should", "must_not")


def parse_bool(node: ClauseNode, parse: ParseChild) -> Clause:
    """Parse `bool`; each occurrence is one clause or a list."""
    node.check_parameters("must filter should must_not minimum_should_match adjust_pure_negative")
    must, filtering, should, must_not = (
        _parse_clause_list(node, key, parse) for key in OCCURRENCES
    )
    minimum = node.minimum()
    if not node.flag("adjust_pure_negative", True) and must_not and not must + filtering + should:
        must = (MatchNoneClause(),)
    return BoolClause(must, filtering, should, must_not, minimum)


def parse_constant_score(node: ClauseNode, parse: ParseChild) -> Clause:
    """Parse `constant_score`."""
    node.check_parameters("filter")
    return BoolClause(filter=(parse(node.require("filter"), node.pointer_to("filter")),))


def parse_dis_max(node: ClauseNode, parse: ParseChild) -> Clause:
    """Parse `dis_max`."""
    node.check_parameters("queries tie_breaker")
    node.number("tie_breaker", 0.0)
    node.require("queries")
    queries = _parse_clause_list(node, "queries", parse)
    if not queries:
        raise node.error("queries", "needs at least one clause")
    return BoolClause(should=queries)


def parse_boosting(node: ClauseNode, parse: ParseChild) -> Clause:
    """Parse `boosting`; `negative` would only lower a score."""
    node.check_parameters("positive negative negative_boost")
    node.require("negative_boost")
    node.number("negative_boost", 0.0, least=0)
    positive = parse(node.require("positive"), node.pointer_to("positive"))
    negative = parse(node.require("negative"), node.pointer_to("negative"))
    return BoolClause(must=(positive,), should=(negative,))


def _parse_clause_list(node: ClauseNode, key: str, parse: ParseChild) -> tuple[Clause, ...]:
    found = node.body.get(key)
    if found is None:
        return ()
    if not isinstance(found, list):
        return (parse(found, node.pointer_to(key)),)
    return tuple(parse(clause, node.pointer_to(key, at)) for at, clause in enumerate(found))


MAX_CLAUSES = 1024
MAX_DEPTH = 20
MAX_REQUEST_BYTES = 16 * 1024

LEAF_PARSERS: dict[str, Callable[[ClauseNode], Clause]] = {
    "match_all": leaves.parse_match_all,
    "match_none": leaves.parse_match_none,
    "ids": leaves.parse_ids,
    "term": leaves.parse_term,
    "terms": leaves.parse_terms,
    "range": leaves.parse_range,
    "exists": leaves.parse_exists,
    "prefix": leaves.parse_prefix,
    "wildcard": leaves.parse_wildcard,
    "regexp": leaves.parse_regexp,
    "fuzzy": leaves.parse_fuzzy,
    "match": leaves.parse_match,
    "match_phrase": leaves.parse_match_phrase,
    "multi_match": leaves.parse_multi_match,
    "query_string": parse_query_string,
    "simple_query_string": parse_simple_query_string,
}

COMPOUND_PARSERS: dict[str, Callable[[ClauseNode, ParseChild], Clause]] = {
    "bool": parse_bool,
    "constant_score": parse_constant_score,
    "dis_max": parse_dis_max,
    "boosting": parse_boosting,
}


def parse_query(body: Mapping[str, Any]) -> Clause:
    """Parse `{}`, `{"query": clause}` or a bare clause; Invalid says what is wrong and where."""
    if not isinstance(body, Mapping):
        raise make_query_error("a query is an object", "")
    if not body:
        return MatchAllClause()
    _check_request_size(body)
    if "query" in body:
        return _check_limits(_parse_clause(_require_only_member(body, "query"), "/query", 1))
    return _check_limits(_parse_clause(body, "", 1))


def _require_only_member(body: Mapping[str, Any], name: str) -> Any:
    beside = next((key for key in body if key != name), None)
    if beside is not None:
        raise make_query_error(
            f"'{beside}' cannot stand beside '{name}'", extend_pointer("", beside)
        )
    return body[name]


def _check_request_size(body: Mapping[str, Any]) -> None:
    try:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    except (RecursionError, ValueError, TypeError) as error:
        raise make_query_error("the query is not proper JSON or nested too deep", "") from error
    if len(text.encode("utf-8", "surrogatepass")) > MAX_REQUEST_BYTES:
        raise make_query_error(f"a query has at most {MAX_REQUEST_BYTES} bytes", "")


def _parse_clause(body: Any, pointer: str, depth: int) -> Clause:
    if depth > MAX_DEPTH:
        raise make_query_error(f"clauses are nested at most {MAX_DEPTH} deep", pointer)
    if not isinstance(body, Mapping) or len(body) != 1:
        raise make_query_error("a clause is an object with one member", pointer)
    ((name, parameters),) = body.items()
    at = extend_pointer(pointer, name)
    if name in LEAF_PARSERS:
        return LEAF_PARSERS[name](ClauseNode.parse(name, at, parameters))
    if name in COMPOUND_PARSERS:
        node = ClauseNode.parse(name, at, parameters)
        return COMPOUND_PARSERS[name](
            node, lambda child, where: _parse_clause(child, where, depth + 1)
        )
    raise make_query_error(f"unknown clause '{name}'", at)


def _check_limits(clause: Clause) -> Clause:
    waiting, count = [(clause, 1)], 0
    while waiting:
        current, depth = waiting.pop()
        count += 1
        if count > MAX_CLAUSES:
            raise make_query_error(f"a query has at most {MAX_CLAUSES} clauses", "")
        if depth > MAX_DEPTH:
            raise make_query_error(f"clauses are nested at most {MAX_DEPTH} deep", "")
        if isinstance(current, BoolClause):
            children = current.must + current.filter + current.should + current.must_not
            waiting.extend((child, depth + 1) for child in children)
    return clause
