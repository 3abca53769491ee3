"""Search: results as cards, facets, and what to do with all of them."""

import csv
import io
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Any
from urllib.parse import urlencode

from flask import Response

from api.collections import WriteCollection
from api.schemas.fields import TextField, one_of, optional_text, replica_field, text_length
from pipelines import collections, facets
from pipelines.collections import CollectionDraft
from pipelines.formats import new_uuid, version_from_us
from pipelines.limits import (
    COLLECTION_DESCRIPTION_MAX,
    COLLECTION_ITEMS_MAX,
    COLLECTION_NAME_MAX,
    FACET_VALUES,
    MANIFEST_BUNDLES_MAX,
    MANIFEST_LINES_MAX,
    PAGE_MAX,
)
from pipelines.search_results import (
    MANIFEST_COLUMNS,
    CardPage,
    CardRequest,
    HitList,
    count_files,
    find_cards,
    list_hits,
    list_manifest_lines,
)
from storage.errors import DomainError, Invalid, TimeLimitExceeded, Unavailable
from storage.model import FQID, REPLICAS, CollectionLink, Replica
from storage.protocols import FacetCount
from storage.search.grammar.clauses import Clause
from web.formats import shorten
from web.pages import FormErrors, PageContext, page, protect
from web.search_query import NEWEST, OLDEST, FieldFilter, SearchRequest, parse_filters

MAX_QUERY_CHARACTERS = 16 * 1024
MANIFEST_BLOCK_LINES = 500


@dataclass(frozen=True)
class SearchParameters:
    """Parameters of the search page; `filter` may be repeated and is read apart."""

    q: Annotated[str, optional_text(MAX_QUERY_CHARACTERS)]
    sort: Annotated[str, TextField(load_default=NEWEST, validate=one_of(NEWEST, OLDEST))]
    replica: Annotated[Replica, replica_field(required=False, load_default=REPLICAS[0])]
    after: Annotated[str | None, TextField(load_default=None)]


@dataclass(frozen=True)
class CollectResults(SearchParameters):
    """The form that makes a collection of the results."""

    name: Annotated[str, TextField(required=True, validate=text_length(COLLECTION_NAME_MAX))]
    description: Annotated[str, optional_text(COLLECTION_DESCRIPTION_MAX)]


@dataclass(frozen=True, slots=True)
class FacetLink:
    """A value of a facet; the link adds it to the filters, or removes it."""

    label: str
    count: int | None
    is_selected: bool
    url: str


@dataclass(frozen=True, slots=True)
class FacetBox:
    """The values of one field."""

    label: str
    field: str
    links: Sequence[FacetLink]


@page("GET", "/search", access="post_search", query=SearchParameters, may_lag=True)
def show_search(context: PageContext[SearchParameters]) -> Response:
    """Show bundles that match words or a query, with facets."""
    request = _read_request(context.query, context.request.args.getlist("filter"))
    return _render_search(context, request, after=context.query.after)


def _read_request(given: SearchParameters, filters: Sequence[str]) -> SearchRequest:
    return SearchRequest(given.q, parse_filters(filters), given.replica, given.sort)


def _render_search(
    context: PageContext[Any],
    request: SearchRequest,
    *,
    after: str | None = None,
    form_errors: Mapping[str, Sequence[str]] | None = None,
    form: Mapping[str, str] | None = None,
) -> Response:
    status = 400 if form_errors else 200
    values: dict[str, Any] = {"search": request, "errors": form_errors or {}, "form": form or {}}
    try:
        clause = request.clause()
    except Invalid as error:
        values["q_errors"] = [error.detail]
        return context.render("search.html", "Search", status=400, chips=_chips(request), **values)
    scope = ("web_search", request.url())
    position = context.open_cursor(scope, after, "after")
    start = position[0] if position else None
    settings = context.services.settings
    wanted = CardRequest(
        clause,
        settings.web_title_fields,
        settings.web_card_fields,
        start,
        oldest_first=request.sort == OLDEST,
    )
    try:
        found = find_cards(context.stores, request.replica, wanted)
        values |= _describe_results(context, request, found, scope)
    except (Unavailable, TimeLimitExceeded) as error:
        values["away"] = _explain(error)
    else:
        values["manifest_lines"] = _count_lines(context, request, clause, found.total)
        values |= _make_facets(context, request, clause)
        values |= _explain_no_results(context, request, clause, found.total)
    return context.render(
        "search.html",
        "Search",
        status=status,
        chips=_chips(request),
        is_first=start is None,
        may_collect=context.principal is not None,
        **values,
    )


def _count_lines(
    context: PageContext[Any], request: SearchRequest, clause: Clause, total: int
) -> int | None:
    """Return how many lines the manifest has; None if its bundles do not fit in one page."""
    if total >= PAGE_MAX:
        return None
    try:
        hits = list_hits(context.stores, request.replica, clause, PAGE_MAX)
    except (Unavailable, TimeLimitExceeded):
        return None
    return count_files(context.stores, hits)


def _explain(error: DomainError) -> str:
    if isinstance(error, TimeLimitExceeded):
        return "This search takes too long. Name a field, or search for longer words."
    return "The search engine does not answer now. Your search is kept: reload in a moment."


def _describe_results(
    context: PageContext[Any], request: SearchRequest, found: CardPage, scope: Sequence[str]
) -> dict[str, Any]:
    query = json.dumps(request.es_query(), ensure_ascii=False)
    token = context.services.cursors.seal(scope, [found.after]) if found.after else None
    replica = request.replica
    reads = f"--replica {replica} --url {shlex.quote(context.base)}"
    bundles = f"--es-query {shlex.quote(query)} --download-dir bundles {reads}"
    subscription = urlencode({"es_query": query, "replica": replica})
    return {
        "found": found,
        "next_url": request.url(after=token) if token else None,
        "manifest_url": request.url("/search/manifest"),
        "manifest_command": (
            f"store download-manifest --manifest manifest.tsv --layout bundle {reads}"
        ),
        "download_command": f"store download {bundles}",
        "subscription_url": f"/subscriptions/new?{subscription}",
        "collection_max": COLLECTION_ITEMS_MAX,
        "manifest_max": MANIFEST_BUNDLES_MAX,
        "es_query": query,
        "sort_urls": {sort: replace(request, sort=sort).url() for sort in (NEWEST, OLDEST)},
    }


def _chips(request: SearchRequest) -> list[FacetLink]:
    return [
        FacetLink(
            f"{_label(each.field, ())}: {shorten(each.value, 60)}",
            None,
            True,
            request.without_filter(each).url(),
        )
        for each in request.filters
    ]


def _label(field: str, others: Sequence[str]) -> str:
    """Return the last part of a field's name, with the part before it if another ends so, too."""
    parts = field.split(".")
    is_unique = sum(1 for other in others if other.rpartition(".")[2] == parts[-1]) < 2
    return parts[-1] if is_unique else ".".join(parts[-2:])


def _make_facets(
    context: PageContext[Any], request: SearchRequest, clause: Clause
) -> dict[str, Any]:
    """Count facets; those of filtered fields as if their filters were not there."""
    if not context.may("post_search_facets"):
        return {"facets": []}
    stores, replica = context.stores, request.replica
    try:
        featured = list(context.services.settings.web_facets)
        fields = featured or context.site.facet_fields[replica].read()
        filtered = list(dict.fromkeys(each.field for each in request.filters))
        names = list(dict.fromkeys([*fields, *filtered]))[: facets.MAX_FACETS]
        counts: dict[str, Sequence[FacetCount]] = {}
        if plain := [name for name in names if name not in filtered]:
            _, found = facets.count_facets(stores, replica, clause, plain, FACET_VALUES)
            counts |= found.counts.facets
        for name in names:
            if name in filtered:
                others = request.without_field(name).clause()
                _, found = facets.count_facets(stores, replica, others, [name], FACET_VALUES)
                counts |= found.counts.facets
    except (Unavailable, TimeLimitExceeded):
        return {"facets": [], "no_facets": True}
    boxes = [
        _make_box(request, name, counts[name], names)
        for name in names
        if featured or name in filtered or _narrows(counts[name])
    ]
    return {"facets": [box for box in boxes if box.links]}


def _narrows(counts: Sequence[FacetCount]) -> bool:
    """Return whether the values stand for more than single bundles."""
    return len(counts) == 1 or any(each.count > 1 for each in counts)


def _make_box(
    request: SearchRequest, field: str, counts: Sequence[FacetCount], names: Sequence[str]
) -> FacetBox:
    selected = {each.value for each in request.filters if each.field == field}
    shown = [(_format_facet(each), each.count) for each in counts]
    hidden = sorted(selected - {value for value, _ in shown})
    links = [
        FacetLink(
            value or "(empty)",
            count,
            value in selected,
            _toggle(request, FieldFilter(field, value), value in selected),
        )
        for value, count in [*shown, *((value, None) for value in hidden)]
    ]
    return FacetBox(_label(field, names), field, links)


def _format_facet(each: FacetCount) -> str:
    return str(each.value).lower() if isinstance(each.value, bool) else str(each.value)


def _toggle(request: SearchRequest, each: FieldFilter, is_selected: bool) -> str:
    return (request.without_filter(each) if is_selected else request.with_filter(each)).url()


def _explain_no_results(
    context: PageContext[Any], request: SearchRequest, clause: Clause, total: int
) -> dict[str, Any]:
    """Return unknown fields with the nearest ones as links to a mended query, and hints."""
    names = list(facets.list_query_fields(clause))
    bare = request.list_bare_fields() if total == 0 else []
    wrong = facets.find_wrong_fields(context.stores, request.replica, [*names, *bare])
    jmespath = urlencode({"jmespath_query": request.q, "replica": request.replica})
    return {
        "wrong": [
            (name, [(near, _mend(request, name, near).url()) for near in nearest])
            for name, nearest in wrong.items()
            if nearest or name in names
        ],
        "jmespath_url": f"/subscriptions/new?{jmespath}"
        if total == 0 and request.looks_like_jmespath()
        else None,
    }


def _mend(request: SearchRequest, name: str, near: str) -> SearchRequest:
    bare = name.removesuffix(".keyword")
    filters = tuple(
        replace(each, field=near) if each.field == bare else each for each in request.filters
    )
    return replace(request, q=request.q.replace(bare, near), filters=filters)


@page("GET", "/search/manifest", access="post_search", query=SearchParameters)
def download_manifest(context: PageContext[SearchParameters]) -> Response:
    """Send a table of the files of all results, for `store download-manifest`."""
    request = _read_request(context.query, context.request.args.getlist("filter"))
    hits = list_hits(context.stores, request.replica, request.clause(), MANIFEST_BUNDLES_MAX)
    message = _refuse_manifest(context, hits)
    if message:
        return _render_search(context, request, form_errors={"manifest": [message]})
    return send_manifest(context, list_manifest_lines(context.stores, hits), "manifest.tsv")


def _refuse_manifest(context: PageContext[Any], hits: HitList) -> str | None:
    """Return why the manifest of these bundles would be too large; None if it is not."""
    if hits.total > MANIFEST_BUNDLES_MAX:
        return f"A manifest has at most {MANIFEST_BUNDLES_MAX:,} bundles, and {hits.total:,} match."
    lines = count_files(context.stores, hits)
    if lines > MANIFEST_LINES_MAX:
        return (
            f"A manifest has at most {MANIFEST_LINES_MAX:,} lines, and these have {lines:,} files."
        )
    return None


def send_manifest(
    context: PageContext[Any], lines: Iterable[Sequence[str | int]], name: str
) -> Response:
    """Send a table of files as an attachment, for `store download-manifest`."""
    body = _write_table(chain([MANIFEST_COLUMNS], lines))
    response = Response(body, content_type="text/tab-separated-values; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return protect(response, context.site)


def _write_table(rows: Iterable[Sequence[str | int]]) -> Iterator[bytes]:
    """Yield a table of values separated by tabs."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    for number, row in enumerate(rows, 1):
        writer.writerow(row)
        if number % MANIFEST_BLOCK_LINES == 0:
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode()


@page("POST", "/search/collection", login=True)
def collect_results(context: PageContext[Any]) -> Response:
    """Make a collection of the results."""
    form = context.request.form
    filters = form.getlist("filter")
    try:
        given = context.load_form(CollectResults)
    except FormErrors as error:
        plain = SearchParameters(form.get("q", ""), NEWEST, _form_replica(form), None)
        request = _read_request(plain, filters)
        context.authorize("post_search", query=plain)
        return _render_search(context, request, form_errors=error.errors, form=form)
    request = _read_request(given, filters)
    context.authorize("post_search", query=given)
    version = version_from_us(int(context.site.clock() * 1_000_000))
    target = WriteCollection(new_uuid(), version, given.replica)
    allowed = context.authorize("put_collection", query=target)
    found = list_hits(context.stores, request.replica, request.clause(), COLLECTION_ITEMS_MAX)
    if not found.hits:
        message = (
            f"A collection has at most {COLLECTION_ITEMS_MAX:,} bundles, and {found.total:,} match."
            if found.total
            else "No bundle matches."
        )
        return _render_search(context, request, form_errors={"name": [message]}, form=form)
    draft = CollectionDraft(
        FQID(target.uuid, version),
        given.replica,
        given.name,
        given.description,
        {"search": request.es_query()},
        [CollectionLink("bundle", fqid, None) for _, fqid in found.hits],
    )
    written = collections.put(
        context.stores, draft, allowed.caller.email, request_id=context.request_id
    )
    context.send(written.jobs)
    query = urlencode({"version": version, "replica": given.replica})
    return context.redirect(f"/collections/{target.uuid}?{query}", "The collection is made.")


def _form_replica(form: Mapping[str, str]) -> Replica:
    return next((name for name in REPLICAS if name == form.get("replica")), REPLICAS[0])
