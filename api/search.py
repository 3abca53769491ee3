"""Search operation over HTTP, with its schemas."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from flask import Response
from marshmallow import fields, validate

from api.http.operation import (
    ResponseDoc,
    StoreContext,
    json_response,
    operation,
    page_responses,
)
from api.replication import SERVED_BY_DOC, served_by_header
from api.schemas.fields import (
    IntegerField,
    JsonObject,
    QueryInteger,
    ReplicaParameters,
    ResponseSchema,
    TextField,
    describe_field,
    in_range,
    max_length,
    one_of,
    page_size_field,
    page_token_field,
    replica_field,
    text_length,
)
from pipelines import facets, failover
from pipelines.limits import (
    FACET_FIELDS_MAX,
    FACET_VALUES,
    FACET_VALUES_MAX,
    FIELD_NAME_MAX,
    PAGE_FIELDS,
    PAGE_MAX,
    PAGE_RAW_MAX,
    PAGE_SEARCH,
)
from storage import json_codec
from storage.errors import Invalid, prefix_pointers
from storage.model import Replica
from storage.protocols import SearchHit, SearchIndex, SearchPage
from storage.search.grammar.parser import parse_query


@dataclass(frozen=True)
class SearchBundles:
    """Parameters of post_search."""

    replica: Annotated[Replica, replica_field()]
    output_format: Annotated[
        str,
        TextField(
            load_default="summary",
            validate=one_of("summary", "raw"),
            metadata=describe_field("`raw` adds the verbatim metadata."),
        ),
    ]
    per_page: Annotated[
        int | None,
        QueryInteger(
            load_default=None,
            validate=in_range(1, PAGE_MAX),
            metadata=describe_field(f"Bundles per page; at most {PAGE_RAW_MAX} with `raw`."),
        ),
    ]
    search_after: Annotated[str | None, page_token_field()]


@dataclass(frozen=True)
class SearchBody:
    """A query; an empty object matches every bundle."""

    es_query: Annotated[
        Mapping[str, Any],
        JsonObject(
            required=True,
            metadata={"example": {"query": {"match": {"files.sample_json.organism": "danio"}}}},
        ),
    ]


class SearchResult(ResponseSchema):
    """A bundle that matches."""

    bundle_fqid = fields.String(required=True)
    bundle_url = fields.String(required=True)
    search_score = fields.Float(required=True, allow_none=True)
    metadata = JsonObject(metadata=describe_field("The metadata document; only with `raw`."))


class SearchAnswer(ResponseSchema):
    """A page of matches, newest first."""

    es_query = JsonObject(required=True)
    results = fields.List(fields.Nested(SearchResult), required=True)
    total_hits = fields.Integer(required=True)


@operation(
    "POST",
    "/search",
    may_lag=True,
    tag="search",
    query=SearchBundles,
    body=SearchBody,
    while_read_only=True,
    responses=page_responses(SearchAnswer, SERVED_BY_DOC),
    errors=(504,),
    paged="results",
    description='`es_query` is `{}`, `{"query": <clause>}` or one bare clause.'
    " The newest bundles come first.",
)
def post_search(context: StoreContext[SearchBundles, SearchBody]) -> Response:
    """Find bundles by their metadata."""
    with prefix_pointers("/es_query"):
        clause = parse_query(context.body.es_query)
    query = context.query
    raw = query.output_format == "raw"
    scope = _cursor_scope(context)
    position = context.open_cursor(scope, query.search_after)
    request = failover.SearchPageRequest(
        _page_size(query), PAGE_RAW_MAX if raw else PAGE_MAX, position[0] if position else None
    )

    def search(index: SearchIndex, *, size: int, after: str | None) -> SearchPage:
        return index.search(clause, size=size, after=after, raw=raw)

    served, page = failover.search_with_failover(context.stores, query.replica, search, request)
    content = {
        "es_query": orjson.Fragment(json_codec.encode(context.body.es_query)),
        "results": [_format_hit(context, served, hit) for hit in page.hits],
        "total_hits": page.total,
    }
    return context.page_response(
        content,
        "results",
        scope=scope,
        last=[page.after] if page.after else None,
        headers=served_by_header(query.replica, served),
    )


def _page_size(query: SearchBundles) -> int:
    raw = query.output_format == "raw"
    if raw and query.per_page is not None and query.per_page > PAGE_RAW_MAX:
        message = f"Must be from 1 to {PAGE_RAW_MAX} with output_format raw."
        raise Invalid(f"Bad query parameter 'per_page': {message}", errors={"per_page": [message]})
    return query.per_page or (PAGE_RAW_MAX if raw else PAGE_SEARCH)


def _cursor_scope(context: StoreContext[SearchBundles, SearchBody]) -> tuple[str, ...]:
    """Bind page tokens to one query in one output format."""
    text = json_codec.encode(context.body.es_query, sort_keys=True)
    digest = hashlib.sha256(text).hexdigest()
    return "post_search", context.query.replica, context.query.output_format, digest


def _format_hit(
    context: StoreContext[SearchBundles, SearchBody], served: Replica, hit: SearchHit
) -> dict[str, Any]:
    # Uuids, versions and replicas need no URL escaping.
    query = f"version={hit.version}&replica={served}"
    value: dict[str, Any] = {
        "bundle_fqid": f"{hit.uuid}.{hit.version}",
        "bundle_url": f"{context.base}/v1/bundles/{hit.uuid}?{query}",
        # Hits are ordered by version, never by score.
        "search_score": None,
    }
    if hit.document is not None:
        value["metadata"] = orjson.Fragment(hit.document)
    return value


@dataclass(frozen=True)
class FacetBody(SearchBody):
    """A query, and the fields by whose values its matches are counted."""

    fields: Annotated[
        Sequence[str],
        fields.List(
            TextField(validate=text_length(FIELD_NAME_MAX)),
            required=True,
            validate=validate.Length(min=1, max=FACET_FIELDS_MAX),
            metadata=describe_field(
                "Names of fields, as in a query; `.keyword` may be left out.",
                example=["files.sample_json.organism"],
            ),
        ),
    ]
    size: Annotated[
        int,
        IntegerField(
            load_default=FACET_VALUES,
            validate=in_range(1, FACET_VALUES_MAX),
            metadata=describe_field("Values of each field, the most frequent ones."),
        ),
    ]


class FacetAnswer(ResponseSchema):
    """How many bundles match, and by field how many of them have each value."""

    total = fields.Integer(required=True, metadata=describe_field("Bundles that match."))
    facets = JsonObject(
        required=True,
        metadata=describe_field(
            "By field a list of `{value, count}`, most frequent first, ties by value."
        ),
    )
    unknown_fields = JsonObject(
        required=True,
        metadata=describe_field(
            "By requested field that no bundle has the names of the nearest fields."
        ),
    )


@operation(
    "POST",
    "/search/facets",
    tag="search",
    query=ReplicaParameters,
    body=FacetBody,
    while_read_only=True,
    responses={200: ResponseDoc("Counted.", FacetAnswer, SERVED_BY_DOC)},
    errors=(504,),
    description="A bundle counts once for each of its values. A field that no bundle has is empty"
    " and listed in `unknown_fields`.",
)
def post_search_facets(context: StoreContext[ReplicaParameters, FacetBody]) -> Response:
    """Count matching bundles by the values of fields."""
    with prefix_pointers("/es_query"):
        clause = parse_query(context.body.es_query)
    query, body = context.query, context.body
    served, found = facets.count_facets(
        context.stores, query.replica, clause, body.fields, body.size
    )
    content = {
        "total": found.counts.total,
        "facets": {
            name: [{"value": each.value, "count": each.count} for each in counts]
            for name, counts in found.counts.facets.items()
        },
        "unknown_fields": found.unknown,
    }
    return json_response(content, headers=served_by_header(query.replica, served))


@dataclass(frozen=True)
class ListFields:
    """Parameters of get_search_fields."""

    replica: Annotated[Replica, replica_field()]
    prefix: Annotated[
        str,
        TextField(
            load_default="",
            validate=max_length(FIELD_NAME_MAX),
            metadata=describe_field("List fields whose name begins with this.", example="files."),
        ),
    ]
    per_page: Annotated[int, page_size_field(PAGE_FIELDS)]
    search_after: Annotated[str | None, page_token_field()]


class SearchField(ResponseSchema):
    """A field with the kind of its values."""

    name = fields.String(required=True)
    kind = fields.String(
        required=True,
        validate=one_of("string", "number", "boolean"),
        metadata=describe_field("Its values; strings can be searched whole as `<name>.keyword`."),
    )
    documents = fields.Integer(required=True, metadata=describe_field("Bundles with such a value."))


class FieldList(ResponseSchema):
    """A page of fields by name; a field whose values are of several kinds has several entries."""

    found = fields.List(fields.Nested(SearchField), required=True, data_key="fields")


@operation(
    "GET",
    "/search/fields",
    tag="search",
    query=ListFields,
    responses=page_responses(FieldList, SERVED_BY_DOC),
    errors=(504,),
    paged="fields",
    description="Lists the fields that bundles have, ordered by name. Names longer than"
    f" {FIELD_NAME_MAX:,} characters are left out.",
)
def get_search_fields(context: StoreContext[ListFields, None]) -> Response:
    """List the fields that bundles have."""
    query = context.query
    scope = ("get_search_fields", query.replica, query.prefix)
    position = context.open_cursor(scope, query.search_after)
    after = (position[0], position[1]) if position else None
    served, found = facets.list_fields(
        context.stores, query.replica, query.prefix, after, query.per_page + 1
    )
    page = found[: query.per_page]
    rows = [{"name": f.name, "kind": f.kind, "documents": f.documents} for f in page]
    return context.page_response(
        {"fields": rows},
        "fields",
        scope=scope,
        last=[page[-1].name, page[-1].kind] if len(found) > len(page) else None,
        headers=served_by_header(query.replica, served),
    )
