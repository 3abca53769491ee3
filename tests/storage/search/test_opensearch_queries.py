"""Query clauses translated to OpenSearch queries."""

from typing import Any

import pytest

from storage.search.grammar.clauses import RegexpClause, WildcardClause
from storage.search.grammar.parser import parse_query
from storage.search.opensearch.queries import (
    compile_dsl,
    compile_live_query,
    make_lucene_regexp,
    make_lucene_wildcard,
)

ALL: dict[str, Any] = {"match_all": {}}
NONE: dict[str, Any] = {"match_none": {}}
OPERATORS = frozenset("~&<#@")


def query(body: dict[str, Any]) -> dict[str, Any]:
    return compile_dsl(parse_query(body))


def leaf(found: dict[str, Any]) -> dict[str, Any]:
    """What is asked of one leaf."""
    assert found["nested"]["path"] == "leaf"
    inside: dict[str, Any] = found["nested"]["query"]
    return inside


def test_queries_live_documents_only() -> None:
    assert compile_live_query(parse_query({})) == {"term": {"live": True}}
    assert compile_live_query(parse_query({"match_none": {}})) == NONE
    assert compile_live_query(parse_query({"exists": {"field": "a"}})) == {
        "bool": {"filter": [{"term": {"live": True}}, {"terms": {"exists": ["a"]}}]}
    }


def test_term_queries_every_possible_kind() -> None:
    assert leaf(query({"term": {"a.b": "5"}})) == {
        "bool": {
            "filter": [
                {"terms": {"leaf.name": ["a.b"]}},
                {
                    "bool": {
                        "should": [
                            {"terms": {"leaf.words": ["5"]}},
                            {"terms": {"leaf.number": [5.0]}},
                        ],
                        "minimum_should_match": 1,
                    }
                },
            ]
        }
    }


def test_whole_strings_have_a_name_of_their_own() -> None:
    inside = leaf(query({"prefix": {"a.keyword": "x"}}))
    by_name, by_keyword = inside["bool"]["should"]
    assert by_name["bool"]["filter"][0] == {"terms": {"leaf.name": ["a.keyword"]}}
    assert by_keyword["bool"]["filter"] == [
        {"terms": {"leaf.keyword": ["a.keyword"]}},
        {"prefix": {"leaf.whole": {"value": "x", "case_insensitive": False}}},
    ]


def test_every_field_needs_no_condition_on_the_name() -> None:
    inside = leaf(query({"multi_match": {"query": "word", "fields": ["*"]}}))
    assert "leaf.name" not in str(inside)


def test_only_star_is_special_in_field_names() -> None:
    assert query({"exists": {"field": "a?*\\b"}}) == {
        "wildcard": {"exists": {"value": "a\\?*\\\\b"}}
    }


def test_minimum_should_match_counts_weights() -> None:
    asked = {"match": {"a": {"query": "x x y", "minimum_should_match": 2}}}
    (words,) = [part for part in leaf(query(asked))["bool"]["filter"] if "bool" in part]
    assert words["bool"]["minimum_should_match"] == 2
    assert [each["terms"]["leaf.words"] for each in words["bool"]["should"]] == [
        ["x"],
        ["x"],
        ["y"],
    ]


def test_alternative_words_are_one_clause() -> None:
    assert {"terms": {"leaf.words": ["x", "y", "z"]}} in leaf(query({"match": {"a": "z y x"}}))[
        "bool"
    ]["filter"]


def test_phrase_uses_analysed_words() -> None:
    inside = leaf(query({"match_phrase": {"a": {"query": "The-Brain", "slop": 2**31}}}))
    assert {"match_phrase": {"leaf.words": {"query": "the brain", "slop": 2**31 - 1}}} in inside[
        "bool"
    ]["filter"]


def test_zero_has_no_sign() -> None:
    found = str(query({"range": {"a": {"gte": -0.0, "lte": "-0"}}}))
    assert "{'leaf.number': {'gte': 0.0, 'lte': 0.0}}" in found


def test_fuzzy_terms_are_never_limited_in_number() -> None:
    inside = leaf(query({"fuzzy": {"a": {"value": "word", "fuzziness": 1}}}))
    (fuzzy,) = [each["fuzzy"] for each in inside["bool"]["filter"] if "fuzzy" in each]
    assert fuzzy["leaf.words"]["rewrite"] == "constant_score"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"bool": {"must": [{"match_all": {}}] * 3}}, ALL),
        ({"bool": {"must": [{"match_none": {}}, {"exists": {"field": "a"}}]}}, NONE),
        ({"bool": {"must_not": [{"match_none": {}}]}}, ALL),
        ({"bool": {"must_not": [{"match_all": {}}]}}, NONE),
        ({"bool": {"should": [{"match_all": {}}, {"exists": {"field": "a"}}]}}, ALL),
        ({"bool": {"should": [{"exists": {"field": "a"}}], "minimum_should_match": 2}}, NONE),
        ({"bool": {"must_not": [{"exists": {"field": "a"}}], "adjust_pure_negative": False}}, NONE),
        ({"terms": {"a": []}}, NONE),
        ({"ids": {"values": []}}, NONE),
    ],
)
def test_omits_clauses_without_effect(body: dict[str, Any], expected: dict[str, Any]) -> None:
    assert query(body) == expected


def test_match_all_counts_for_minimum() -> None:
    a, b = {"exists": {"field": "a"}}, {"exists": {"field": "b"}}
    should = [{"match_all": {}}, {"match_none": {}}, a, b]
    found = query({"bool": {"should": should, "minimum_should_match": 2}})
    assert found["bool"]["minimum_should_match"] == 1
    assert found["bool"]["should"] == [{"terms": {"exists": ["a"]}}, {"terms": {"exists": ["b"]}}]


@pytest.mark.parametrize(
    ("pattern", "insensitive", "expected"),
    [
        ("a.b", False, "a.b"),
        ("a\\.b", False, "a\\.b"),
        ('"a.b"@', False, "(a\\.b).*"),
        ("#", False, "#"),
        ("()", False, "()"),
        ("aB1é", True, "[aA][bB]1é"),
        ("[^\\x]", False, "[^x]"),
        ("[a-c\\]]", False, "([a-c]|[\\]])"),
        ("\\s{2,}", False, "([ \t\n\r]){2,}"),
        ("^$", False, "\\^\\$"),
        ("\\\\", False, "\\\\"),
    ],
)
def test_a_regular_expression_is_written_down_again(
    pattern: str, insensitive: bool, expected: str
) -> None:
    assert make_lucene_regexp(RegexpClause((), pattern, OPERATORS, insensitive)) == expected


def test_a_wildcard_keeps_backslashes_only_where_they_matter() -> None:
    assert make_lucene_wildcard(WildcardClause((), "\\A*\\*?\\\\")) == "A*\\*?\\\\"
