"""Search over HTTP."""

import hashlib
from functools import partial
from typing import Any

import orjson
from flask import Response

from api.operation import Answer, Call, Operation, operation, reply
from api.paging import next_url, paged
from api.replication import SERVED, served_by
from api.schemas.search import Search, SearchAnswer, SearchBody, SearchQuery, Wanted
from pipelines.depositing import replicas
from pipelines.limits import PAGE_MAX, PAGE_RAW_MAX, PAGE_SEARCH
from storage import json_codec
from storage.errors import Invalid, within
from storage.model import Replica
from storage.protocols import Hit, SearchIndex, SearchPage
from storage.query.clauses import Clause
from storage.query.grammar import parse_request


@operation(
    "POST",
    "/search",
    tag="search",
    query=SearchQuery,
    body=SearchBody,
    while_read_only=True,
    answers={
        200: Answer("The last page.", SearchAnswer, SERVED),
        206: Answer("A page.", SearchAnswer, SERVED),
    },
    errors=(504,),
    paged="results",
    about='`es_query` is `{}`, `{"query": <clause>}` or one bare clause; newest bundles first.',
)
def post_search(call: Call[Search, Wanted]) -> Response:
    """Find bundles by their metadata."""
    with within("/es_query"):
        clause = parse_request(call.body.es_query)
    raw, size = call.query.output_format == "raw", _page_size(call.query)
    scope = _scope(call)
    served, page = replicas.search(
        call.stores,
        call.query.replica,
        partial(_search, clause=clause, raw=raw),
        replicas.Wanted(size, PAGE_RAW_MAX if raw else PAGE_MAX, _after(call, scope)),
    )
    response = reply(_answer(call, served, page), headers=served_by(call.query.replica, served))
    return paged(response, "results", _next(call, scope, page.after) if page.after else None)


def _search(
    index: SearchIndex, *, size: int, after: str | None, clause: Clause, raw: bool
) -> SearchPage:
    return index.search(clause, size=size, after=after, raw=raw)


def _page_size(query: Search) -> int:
    """Within the format's own bounds."""
    raw = query.output_format == "raw"
    if raw and query.per_page is not None and query.per_page > PAGE_RAW_MAX:
        said = f"Must be from 1 to {PAGE_RAW_MAX} when raw."
        raise Invalid(f"Bad query parameter 'per_page': {said}", errors={"per_page": [said]})
    return query.per_page or (PAGE_RAW_MAX if raw else PAGE_SEARCH)


def _scope(call: Call[Search, Wanted]) -> tuple[str, ...]:
    """A pointer belongs to one query in one form."""
    text = json_codec.encode(call.body.es_query, sort_keys=True)
    digest = hashlib.sha256(text).hexdigest()
    return "post_search", call.query.replica, call.query.output_format, digest


def _after(call: Call[Search, Wanted], scope: tuple[str, ...]) -> str | None:
    pointer = call.query.search_after
    return None if pointer is None else call.services.cursors.open(scope, pointer)[0]


def _next(call: Call[Search, Wanted], scope: tuple[str, ...], after: str) -> str:
    pointer = call.services.cursors.seal(scope, [after])
    return next_url(call.request, call.base, {"search_after": pointer})


def _answer(call: Call[Search, Wanted], served: Replica, page: SearchPage) -> dict[str, Any]:
    return {
        "es_query": orjson.Fragment(json_codec.encode(call.body.es_query)),
        "results": [_result(call, served, hit) for hit in page.hits],
        "total_hits": page.total,
    }


def _result(call: Call[Search, Wanted], served: Replica, hit: Hit) -> dict[str, Any]:
    # Neither a uuid, a version nor a replica has a character that a URL would escape.
    asked = f"version={hit.version}&replica={served}"
    shown: dict[str, Any] = {
        "bundle_fqid": f"{hit.uuid}.{hit.version}",
        "bundle_url": f"{call.base}/v1/bundles/{hit.uuid}?{asked}",
        "search_score": hit.score,
    }
    if hit.document is not None:
        shown["metadata"] = orjson.Fragment(hit.document)
    return shown


OPERATIONS: tuple[Operation, ...] = (post_search,)
