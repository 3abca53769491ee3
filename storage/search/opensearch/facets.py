"""Facets and fields of the OpenSearch index, as aggregations over nested leaves."""

from collections.abc import Mapping, Sequence
from typing import Any

from storage.protocols import FacetCounts, FacetValue, IndexedField
from storage.search.documents import KEYWORD_SUFFIX, MAX_LISTED_NAME, order_counts
from storage.search.opensearch.client import Dsl, OpenSearchEngine, OpenSearchReply
from storage.search.opensearch.documents import index_name

VALUE_FIELDS = {"string": "leaf.whole", "number": "leaf.number", "boolean": "leaf.boolean"}
"""The field of the values of each kind."""
# Each shard sends its most frequent values: with fewer, those of several shards could be wrong.
SHARD_SIZE = 5_000
BY_COUNT = [{"_count": "desc"}, {"_key": "asc"}]


def aggregate(engine: OpenSearchEngine, generation: str, body: Dsl) -> OpenSearchReply:
    """Return the engine's counts; errors as in a search."""
    return engine.search(generation, {"size": 0, **body}, "hits.total,aggregations")


def make_facet_request(query: Dsl, fields: Sequence[str], size: int, shards: int) -> Dsl:
    """Return a request that counts documents by value of each field."""
    facets = {
        str(at): {
            "filter": {"term": {"leaf.name": index_name(name.removesuffix(KEYWORD_SUFFIX))}},
            "aggs": {
                kind: {"terms": _make_terms(kind, size, shards)} for kind in _list_kinds(name)
            },
        }
        for at, name in enumerate(fields)
    }
    return {"query": query, "aggs": {"leaves": {"nested": {"path": "leaf"}, "aggs": facets}}}


def _list_kinds(field: str) -> Sequence[str]:
    return ("string",) if field.endswith(KEYWORD_SUFFIX) else tuple(VALUE_FIELDS)


def _make_terms(kind: str, size: int, shards: int) -> Dsl:
    shard_size = size if shards == 1 else max(size, SHARD_SIZE)
    return {"field": VALUE_FIELDS[kind], "size": size, "shard_size": shard_size, "order": BY_COUNT}


def read_facets(answer: OpenSearchReply | None, fields: Sequence[str], size: int) -> FacetCounts:
    """Return the counts of an answer; None stands for an empty index."""
    if answer is None:
        return FacetCounts(0, {name: [] for name in fields})
    leaves = answer["aggregations"]["leaves"]
    counts = {
        name: order_counts(
            {kind: _read_buckets(leaves[str(at)][kind]) for kind in _list_kinds(name)}, size
        )
        for at, name in enumerate(fields)
    }
    return FacetCounts(int(answer["hits"]["total"]["value"]), counts)


def _read_buckets(found: Mapping[str, Any]) -> Mapping[FacetValue, int]:
    # A leaf has each of its values once, so its count is that of bundles.
    return {bucket["key"]: int(bucket["doc_count"]) for bucket in found["buckets"]}


def make_field_request(prefix: str, after: tuple[str, str] | None, size: int) -> Dsl:
    """Return a request that counts documents by field, from the name of `after` on."""
    wanted: list[Dsl] = [{"prefix": {"leaf.name": {"value": prefix}}}] if prefix else []
    if after is not None:
        wanted.append({"range": {"leaf.name": {"gte": after[0]}}})
    # The first name may have been listed.
    most = size + 1
    names = {
        "field": "leaf.name",
        "size": most,
        "shard_size": most,
        "order": {"_key": "asc"},
        "exclude": f".{{{MAX_LISTED_NAME + 1},}}",
    }
    kinds: Dsl = {
        kind: {"filter": {"exists": {"field": VALUE_FIELDS[kind]}}}
        for kind in ("number", "boolean")
    }
    counted = {"names": {"terms": names, "aggs": kinds}}
    return {
        "query": {"term": {"live": True}},
        "aggs": {
            "leaves": {
                "nested": {"path": "leaf"},
                "aggs": {"wanted": {"filter": {"bool": {"filter": wanted}}, "aggs": counted}},
            }
        },
    }


def read_fields(
    answer: OpenSearchReply | None, after: tuple[str, str] | None, size: int
) -> Sequence[IndexedField]:
    """Return the fields of an answer after a name and kind; None stands for an empty index."""
    if answer is None:
        return []
    buckets = answer["aggregations"]["leaves"]["wanted"]["names"]["buckets"]
    found = [
        IndexedField(bucket["key"], kind, count)
        for bucket in buckets
        for kind, count in _count_kinds(bucket)
        if count and (after is None or (bucket["key"], kind) > after)
    ]
    return found[:size]


def _count_kinds(bucket: Mapping[str, Any]) -> Sequence[tuple[str, int]]:
    """Return the documents by kind, in order; a leaf without numbers is a string."""
    boolean, number = (int(bucket[kind]["doc_count"]) for kind in ("boolean", "number"))
    return (
        ("boolean", boolean),
        ("number", number),
        ("string", int(bucket["doc_count"]) - number - boolean),
    )
