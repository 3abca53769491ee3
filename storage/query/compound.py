"""Parsing of the clauses that hold other clauses."""

from storage.query.clauses import Bool, Boosting, Clause, ConstantScore, DisMax
from storage.query.node import Node, ParseChild

OCCURRENCES = ("must", "filter", "should", "must_not")


def parse_bool(node: Node, parse: ParseChild) -> Clause:
    """`bool`; each occurrence is one clause or a list."""
    node.only(*OCCURRENCES, "minimum_should_match", "adjust_pure_negative")
    must, filtering, should, must_not = (_listed(node, key, parse) for key in OCCURRENCES)
    return Bool(
        must, filtering, should, must_not, node.minimum(), node.flag("adjust_pure_negative", True)
    )


def parse_constant_score(node: Node, parse: ParseChild) -> Clause:
    """`constant_score`."""
    node.only("filter")
    return ConstantScore(parse(node.required("filter"), node.at("filter")))


def parse_dis_max(node: Node, parse: ParseChild) -> Clause:
    """`dis_max`."""
    node.only("queries", "tie_breaker")
    node.number("tie_breaker", 0.0)
    node.required("queries")
    queries = _listed(node, "queries", parse)
    if not queries:
        raise node.error("queries", "needs at least one clause")
    return DisMax(queries)


def parse_boosting(node: Node, parse: ParseChild) -> Clause:
    """`boosting`."""
    node.only("positive", "negative", "negative_boost")
    node.required("negative_boost")
    node.number("negative_boost", 0.0, least=0)
    positive = parse(node.required("positive"), node.at("positive"))
    return Boosting(positive, parse(node.required("negative"), node.at("negative")))


def _listed(node: Node, key: str, parse: ParseChild) -> tuple[Clause, ...]:
    found = node.body.get(key)
    if found is None:
        return ()
    if not isinstance(found, list):
        return (parse(found, node.at(key)),)
    return tuple(parse(clause, node.at(key, at)) for at, clause in enumerate(found))
