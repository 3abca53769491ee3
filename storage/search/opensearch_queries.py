"""A clause as a query of OpenSearch over the leaves that documents are made of there."""

from storage.query.analysis import KEYWORD
from storage.query.asks import asks
from storage.query.clauses import (
    Bool,
    Boosting,
    Clause,
    ConstantScore,
    DisMax,
    Exists,
    Field,
    Fields,
    Ids,
    Leaf,
    MatchAll,
    MatchNone,
)
from storage.query.evaluate import counting, optional_needed
from storage.search.opensearch_combined import ALL, NONE, Dsl, every, some, without
from storage.search.opensearch_documents import index_name
from storage.search.opensearch_terms import number_query, term_query, text_query


def live(clause: Clause) -> Dsl:
    """The live documents that match."""
    return every([{"term": {"live": True}}, translated(clause)])


def translated(clause: Clause) -> Dsl:
    """The documents that match."""
    match clause:
        case MatchAll():
            return ALL
        case MatchNone():
            return NONE
        case Ids():
            return {"ids": {"values": sorted(set(clause.values))}} if clause.values else NONE
        case Exists():
            return _named("exists", clause.fields)
        case Bool():
            return _bool(clause)
        case ConstantScore() | Boosting() | DisMax():
            return some([translated(part) for part in counting(clause)])
        case _:
            return _leaf(clause)


def _bool(clause: Bool) -> Dsl:
    needed = [translated(part) for part in clause.must + clause.filter]
    if not needed and not clause.should and clause.must_not and not clause.adjust_pure_negative:
        return NONE
    needed.append(some([translated(part) for part in clause.should], optional_needed(clause)))
    forbidden = some([translated(part) for part in clause.must_not])
    return without(every(needed), forbidden)


def _leaf(clause: Leaf) -> Dsl:
    """Some one leaf has a name that is asked for and what is asked of its kind."""
    question = asks(clause)
    values = [
        text_query("leaf.words", question.text) if question.text else NONE,
        number_query("leaf.number", question.number) if question.number else NONE,
        number_query("leaf.boolean", question.boolean) if question.boolean else NONE,
    ]
    by_name = every([_named("leaf.name", clause.fields), some(values)])
    whole = term_query("leaf.whole", question.whole) if question.whole else NONE
    by_keyword = every([_named("leaf.keyword", _of_keywords(clause.fields)), whole])
    query = some([by_name, by_keyword])
    return query if query == NONE else {"nested": {"path": "leaf", "query": query}}


def _of_keywords(fields: Fields) -> Fields:
    """Those that may name whole strings."""
    return tuple(field for field in fields if field.pattern or field.name.endswith(KEYWORD))


def _named(field: str, wanted: Fields) -> Dsl:
    """The term is one of these names or fits one of these patterns."""
    names = sorted({index_name(each.name) for each in wanted if not each.pattern})
    patterns = {each.name: _pattern(field, each) for each in wanted if each.pattern}
    return some([{"terms": {field: names}} if names else NONE, *patterns.values()])


def _pattern(field: str, wanted: Field) -> Dsl:
    if not wanted.name.strip("*"):
        return ALL if field.startswith("leaf.") else {"wildcard": {field: {"value": "*"}}}
    escaped = wanted.name.replace("\\", "\\\\").replace("?", "\\?")
    return {"wildcard": {field: {"value": escaped}}}
