"""The query grammar, and its error messages."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Invalid
from storage.search.grammar.clauses import (
    BoolClause,
    ExistsClause,
    MatchAllClause,
    MatchClause,
    MatchNoneClause,
    QueryField,
    TermClause,
)
from storage.search.grammar.parser import parse_query

pytestmark = pytest.mark.spec("SEA-10")


def refused(body: Any) -> Invalid:
    with pytest.raises(Invalid) as caught:
        parse_query(body)
    assert caught.value.code == "elasticsearch_bad_request"
    return caught.value


def test_a_query_is_empty_wrapped_or_bare() -> None:
    term = TermClause((QueryField("a"),), "1")
    assert parse_query({}) == MatchAllClause()
    assert parse_query({"query": {"term": {"a": 1}}}) == term
    assert parse_query({"term": {"a": {"value": 1, "boost": 2, "_name": "x"}}}) == term


def test_shorthand_and_lists_are_the_same() -> None:
    assert parse_query({"bool": {"must": {"match": {"a": "x"}}}}) == BoolClause(
        must=(MatchClause((QueryField("a"),), "x"),)
    )


@pytest.mark.spec("SEA-09")
@pytest.mark.parametrize(
    ("body", "pointer", "named"),
    [
        ({"query": {"match_all": {}}, "size": 1}, "/size", "size"),
        ({"query": {}}, "/query", "one member"),
        ({"span_term": {"a": 1}}, "/span_term", "span_term"),
        ({"query": {"nested": {}}}, "/query/nested", "nested"),
        ({"term": {"a": 1}, "match": {"a": 1}}, "/", "one member"),
        ({"bool": {"must": [{"match_all": {}}, {"more/x": 1}]}}, "/bool/must/1/more~1x", "more/x"),
        ({"bool": {"must": [3]}}, "/bool/must/0", "object"),
        ({"bool": {"shuold": []}}, "/bool/shuold", "shuold"),
        ({"match_all": 1}, "/match_all", "match_all"),
        ({"match_all": {"boost": "x"}}, "/match_all/boost", "boost"),
        ({"match_all": {"boost": -1}}, "/match_all/boost", "boost"),
        ({"term": {}}, "/term", "one field"),
        ({"term": {"a": 1, "b": 2}}, "/term", "one field"),
        ({"term": {"a": None}}, "/term/a", "value"),
        ({"term": {"a": [1]}}, "/term/a/value", "string, number"),
        ({"term": {"a": {"value": 1, "analyzer": "x"}}}, "/term/a/analyzer", "analyzer"),
        ({"term": {"_id": 1}}, "/term/_id", "_id"),
        ({"term": {"a": "\ud800"}}, "/term/a/value", "string, number"),
        ({"terms": {"a": {"index": "i", "id": 1, "path": "p"}}}, "/terms/a", "list"),
        ({"terms": {"a": [1, None]}}, "/terms/a/1", "terms"),
        ({"range": {"a": {"gte": 1, "gt": 0}}}, "/range/a/gte", "contradicts"),
        ({"range": {"a": 1}}, "/range/a", "object"),
        ({"range": {"a": {"gte": 1, "relation": "disjoint"}}}, "/range/a/relation", "relation"),
        ({"exists": {}}, "/exists", "field"),
        ({"exists": {"field": 1}}, "/exists/field", "string"),
        ({"prefix": {"a": {"value": "x", "rewrite": "top_terms_2"}}}, "/prefix/a/rewrite", "terms"),
        ({"regexp": {"a": "a&b"}}, "/regexp/a/value", "intersection"),
        ({"regexp": {"a": "~a"}}, "/regexp/a/value", "complement"),
        ({"regexp": {"a": "<1-9>"}}, "/regexp/a/value", "interval"),
        ({"regexp": {"a": "(a"}}, "/regexp/a/value", "expected"),
        ({"regexp": {"a": "a" * 1001}}, "/regexp/a/value", "1000"),
        ({"regexp": {"a": "((a{900}){900}){900}"}}, "/regexp/a/value", "regular expression"),
        ({"regexp": {"a": {"value": "a", "flags": "SOME"}}}, "/regexp/a/flags", "SOME"),
        ({"fuzzy": {"a": {"value": "a", "fuzziness": "x"}}}, "/fuzzy/a/fuzziness", "AUTO"),
        ({"fuzzy": {"a": {"value": "a", "max_expansions": 5}}}, "/fuzzy/a/max_expansions", "max_"),
        ({"match": {"a": {"query": "x", "operator": "xor"}}}, "/match/a/operator", "or, and"),
        (
            {"match": {"a": {"query": "x", "minimum_should_match": "many"}}},
            "/match/a/minimum_should_match",
            "form",
        ),
        ({"match_phrase": {"a": {"query": "x", "slop": 1.5}}}, "/match_phrase/a/slop", "whole"),
        (
            {"multi_match": {"query": "x", "type": "cross_fields"}},
            "/multi_match/type",
            "best_fields",
        ),
        (
            {"multi_match": {"query": "x", "fields": ["a^b"]}},
            "/multi_match/fields/0/boost",
            "boost",
        ),
        (
            {"multi_match": {"query": "x", "type": "phrase", "fuzziness": 1}},
            "/multi_match/fuzziness",
            "phrase",
        ),
        ({"dis_max": {"queries": []}}, "/dis_max/queries", "at least one"),
        ({"constant_score": {}}, "/constant_score", "filter"),
        ({"boosting": {"positive": {"match_all": {}}}}, "/boosting", "negative_boost"),
        ({"query_string": {"query": "(a"}}, "/query_string/query", "parenthesis"),
        ({"query_string": {"query": "a)"}}, "/query_string/query", "unexpected"),
        ({"query_string": {"query": "a AND"}}, "/query_string/query", "end"),
        ({"query_string": {"query": 'a "b'}}, "/query_string/query", "character 2"),
        ({"query_string": {"query": "(" * 40}}, "/query_string/query", "deeper"),
        (
            {"query_string": {"query": "*a", "allow_leading_wildcard": False}},
            "/query_string/query",
            "first",
        ),
        ({"query_string": {"query": "a", "analyzer": "x"}}, "/query_string/analyzer", "analyzer"),
        (
            {"simple_query_string": {"query": "a", "flags": "X"}},
            "/simple_query_string/flags",
            "X",
        ),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else None,
)
def test_names_unsupported_clause_with_position(
    body: dict[str, Any], pointer: str, named: str
) -> None:
    error = refused(body)
    assert list(error.errors) == [pointer]
    assert named in error.detail


@pytest.mark.spec("SEA-12")
def test_queries_are_bounded() -> None:
    assert "16384" in refused({"term": {"a": "x" * 17_000}}).detail
    assert "1024" in refused({"bool": {"must": [{"ids": {}}] * 1024}}).detail
    deep: dict[str, Any] = {"match_all": {}}
    for _ in range(20):
        deep = {"bool": {"must": deep}}
    assert "20" in refused(deep).detail
    string: dict[str, Any] = {"query_string": {"query": "a " + "AND (b " * 17 + ")" * 17}}
    for _ in range(6):
        string = {"bool": {"must": string}}
    assert "20" in refused(string).detail


def test_json_without_end_is_refused() -> None:
    body: dict[str, Any] = {}
    for _ in range(100_000):
        body = {"bool": body}
    assert "nested" in refused(body).detail


def test_patterns_are_only_where_fields_may_be_patterns() -> None:
    assert parse_query({"exists": {"field": "a*"}}) == ExistsClause((QueryField("a*", True),))
    assert parse_query({"term": {"a*": "x"}}) == TermClause((QueryField("a*"),), "x")


def test_string_without_words_matches_nothing() -> None:
    for text in ("", " ", '"&"', "& %"):
        body = {"query_string": {"query": text, "default_field": "a"}}
        assert parse_query(body) == MatchNoneClause()


NAMES = st.sampled_from(
    [
        *("query", "bool", "must", "should", "must_not", "filter", "term", "terms", "range", "a"),
        *("exists", "field", "prefix", "wildcard", "regexp", "fuzzy", "match", "match_phrase"),
        *("multi_match", "fields", "query_string", "simple_query_string", "value", "gte", "lt"),
        *("minimum_should_match", "boost", "constant_score", "dis_max", "queries", "boosting"),
        *("positive", "negative", "negative_boost", "ids", "values", "fuzziness", "operator"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(NAMES, JSON, max_size=3))
def test_any_json_is_parsed_or_refused_by_name(body: dict[str, Any]) -> None:
    assert_understood_or_refused(body)


@given(st.text(max_size=30))
def test_any_simple_query_string_is_understood(text: str) -> None:
    parse_query({"simple_query_string": {"query": text.encode("utf-8", "replace").decode()}})


@pytest.mark.parametrize("text", ["(" * 16_000, "(" * 8_000 + ")" * 8_000, "-(" * 8_000])
def test_nested_parentheses_are_parsed_fast(text: str) -> None:
    began = time.process_time()
    parse_query({"simple_query_string": {"query": text}})
    assert time.process_time() - began < 3


@given(st.text(st.sampled_from('ab:()[]{}"~^*?\\/+-!&| ANDORTO<>=.19'), max_size=25))
def test_any_query_string_is_understood_or_refused(text: str) -> None:
    for name in ("query_string", "simple_query_string"):
        assert_understood_or_refused({name: {"query": text}})


def assert_understood_or_refused(body: dict[str, Any]) -> None:
    outcome = outcome_of(body)
    assert outcome is None or (outcome.code == "elasticsearch_bad_request" and outcome.errors)


def outcome_of(body: dict[str, Any]) -> Invalid | None:
    try:
        parse_query(body)
    except Invalid as error:
        return error
    return None
