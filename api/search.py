"""Search operation over HTTP, with its schemas."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from flask import Response
from marshmallow import fields

from api.http.operation import StoreContext, operation, page_responses
from api.replication import SERVED_BY_DOC, served_by_header
from api.schemas.fields import (
    JsonObject,
    QueryInteger,
    ResponseSchema,
    TextField,
    describe_field,
    in_range,
    one_of,
    page_token_field,
    replica_field,
)
from pipelines import failover
from pipelines.limits import PAGE_MAX, PAGE_RAW_MAX, PAGE_SEARCH
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
