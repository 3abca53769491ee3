"""The OpenSearch index of one replica."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from config import SettingsError
from storage.errors import NotFoundError, Unavailable
from storage.model import FQID
from storage.protocols import (
    FacetCounts,
    IndexedDocument,
    IndexedField,
    IndexRefusal,
    SearchHit,
    SearchPage,
)
from storage.search.documents import (
    decode_page_token,
    encode_page_token,
    make_not_building_error,
    prepare_each,
)
from storage.search.grammar.clauses import Clause
from storage.search.opensearch import facets, generations
from storage.search.opensearch.client import (
    MATCH_ALL_QUERY,
    Dsl,
    OpenSearchEngine,
    OpenSearchReply,
    match_every,
)
from storage.search.opensearch.documents import (
    PreparedDocument,
    decode_raw_document,
    make_index_settings,
    prepare_document,
    prepare_stub,
)
from storage.search.opensearch.generations import GenerationIndices, IndexGenerations
from storage.search.opensearch.queries import compile_live_query

NEWEST_FIRST = ({"version": "desc"}, {"uuid": "asc"})
OLDEST_FIRST = ({"version": "asc"}, {"uuid": "desc"})
BY_UUID = ({"uuid": "asc"}, {"version": "asc"})


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One page of a search, from `start` on; `raw` includes the documents."""

    query: Dsl
    size: int
    order: Sequence[Mapping[str, str]]
    start: tuple[str, ...] | None = None
    raw: bool = False


def search_page(engine: OpenSearchEngine, generation: str, page: PageRequest) -> OpenSearchReply:
    """Return the engine's `hits`.

    NotFoundError if the generation is gone, TimeLimitExceeded rather than partial results.
    """
    body: Dsl = {
        "query": page.query,
        "size": page.size,
        "sort": list(page.order),
        "version": True,
        # Every hit has its sort values, so `_source` is not needed.
        "_source": ["raw"] if page.raw else False,
    }
    if page.start is not None:
        body["search_after"] = list(page.start)
    answer = engine.search(
        generation, body, "hits.total,hits.hits._source,hits.hits.sort,hits.hits._version"
    )
    return {"hits": [], **answer["hits"]}


def make_hit(found: Mapping[str, Any], raw_limit: int | None = None) -> SearchHit:
    """Convert a hit of the engine."""
    version, uuid = found["sort"]
    source = found.get("_source")
    document = None if source is None else decode_raw_document(source, raw_limit)
    return SearchHit(uuid, version, document, encode_page_token(version, uuid))


def _walk_hits(
    search: Callable[[PageRequest], OpenSearchReply | None], query: Dsl
) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Iterate over the pages of all hits."""
    page = PageRequest(query, IDS_PER_PAGE, BY_UUID)
    while True:
        hits = (search(page) or {"hits": []})["hits"]
        yield hits
        if len(hits) < IDS_PER_PAGE:
            return
        page = replace(page, start=tuple(hits[-1]["sort"]))


DEFAULT_PREFIX = "store"
INDEX_PREFIX = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
URL_OPTIONS = ("shards", "ca")
IDS_PER_PAGE = 1_000
# Retries while generations change during one write or search.
MAX_ROUNDS = 5


def open_opensearch(
    url: str, replica: str, *, time_limit_s: float, field_limit: int
) -> "OpenSearchIndex":
    """Open the index of a URL; no request yet."""
    parts = urlsplit(url)
    options = _parse_options(parts.query)
    prefix = parts.path.strip("/") or DEFAULT_PREFIX
    address = _parse_address(parts)
    if address is None or not INDEX_PREFIX.fullmatch(prefix):
        raise SettingsError("STORE_SEARCH_URL: must be http(s)://host:port/prefix")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    engine = OpenSearchEngine(
        address, (user, password), options.get("ca"), time_limit_s=time_limit_s
    )
    shards = int(options["shards"])
    return OpenSearchIndex(engine, f"{prefix}-{replica}", field_limit=field_limit, shards=shards)


def _parse_address(parts: SplitResult) -> str | None:
    """Return scheme, host and port; None if they are malformed."""
    try:
        port = parts.port or (443 if parts.scheme == "https" else 9200)
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def _parse_options(query: str) -> dict[str, str]:
    given = {"shards": "1", **dict(parse_qsl(query, keep_blank_values=True))}
    unknown = sorted(given.keys() - {*URL_OPTIONS})
    if unknown:
        raise SettingsError(f"STORE_SEARCH_URL: unknown options {', '.join(unknown)}")
    if not given["shards"].isdecimal() or not 1 <= int(given["shards"]) <= 1024:
        raise SettingsError(
            f"STORE_SEARCH_URL: shards must be a number from 1 to 1024 (got {given['shards']})"
        )
    return given


class OpenSearchIndex:
    """See SearchIndex; usable from any thread and in a forked child."""

    def __init__(
        self, engine: OpenSearchEngine, base: str, *, field_limit: int, shards: int = 1
    ) -> None:
        self._engine = engine
        self._base = base
        self._field_limit = field_limit
        self._shards = shards
        fixed = make_index_settings(field_limit=field_limit, shards=shards)
        self._generations = GenerationIndices(engine, base, fixed)

    def write(self, documents: Sequence[IndexedDocument]) -> Sequence[IndexRefusal]:
        prepare = partial(prepare_document, field_limit=self._field_limit)
        prepared, refusals = prepare_each(documents, prepare)
        if prepared:
            refusals += self._write(prepared)
        # Two generations may refuse the same document.
        return list({(each.uuid, each.version): each for each in refusals}.values())

    def _write(self, documents: Sequence[PreparedDocument]) -> list[IndexRefusal]:
        """Write into every generation, including one that begins meanwhile."""
        refusals: list[IndexRefusal] = []
        done: set[str] = set()
        found = self._generations.last_read()
        for _ in range(MAX_ROUNDS):
            for name in self._generations.writable_names(found):
                if name not in done:
                    with suppress(NotFoundError):
                        refusals += generations.put_documents(self._engine, name, documents)
                        done.add(name)
            found = self._generations.ensure_current()
            if done.issuperset(self._generations.writable_names(found)):
                return refusals
        raise Unavailable("the generations of the search index change too fast", retry_after_s=5)

    def search(
        self,
        query: Clause,
        *,
        size: int,
        after: str | None = None,
        raw: bool = False,
        raw_limit: int | None = None,
        oldest_first: bool = False,
    ) -> SearchPage:
        page = PageRequest(
            compile_live_query(query),
            size + 1,
            OLDEST_FIRST if oldest_first else NEWEST_FIRST,
            None if after is None else decode_page_token(after),
            raw,
        )
        answer = self._search_current(page)
        if answer is None:
            return SearchPage([], 0, None)
        found = answer["hits"]
        hits = [make_hit(each, raw_limit) for each in found[:size]]
        more = len(found) > size and bool(hits)
        return SearchPage(
            hits, int(answer["total"]["value"]), hits[-1].page_token if more else None
        )

    def count_facets(self, query: Clause, fields: Sequence[str], *, size: int) -> FacetCounts:
        body = facets.make_facet_request(compile_live_query(query), fields, size, self._shards)
        answer = self._aggregate_current(body)
        return facets.read_facets(answer, fields, size)

    def list_fields(
        self, *, prefix: str = "", after: tuple[str, str] | None = None, size: int
    ) -> Sequence[IndexedField]:
        body = facets.make_field_request(prefix, after, size)
        return facets.read_fields(self._aggregate_current(body), after, size)

    def get(self, uuid: str, version: str) -> bytes | None:
        query = match_every([{"term": {"live": True}}, {"ids": {"values": [f"{uuid}.{version}"]}}])
        answer = self._search_current(PageRequest(query, 1, NEWEST_FIRST, raw=True))
        return make_hit(answer["hits"][0]).document if answer and answer["hits"] else None

    def list_ids(self) -> Iterator[FQID]:
        """See SearchIndex; reads a page at a time."""
        for hits in _walk_hits(self._search_current, MATCH_ALL_QUERY):
            yield from (FQID(*each["sort"]) for each in hits)

    def _search_current(self, page: PageRequest) -> OpenSearchReply | None:
        """Return a page of the current generation; None if there is no index."""
        return self._read_current(lambda name: search_page(self._engine, name, page))

    def _aggregate_current(self, body: Dsl) -> OpenSearchReply | None:
        """Return counts of the current generation; None if there is no index."""

        def aggregate(name: str) -> OpenSearchReply:
            if not self._generations.is_current_format(name):
                raise Unavailable("the search index counts no facets yet: rebuild it")
            return facets.aggregate(self._engine, name, body)

        return self._read_current(aggregate)

    def _read_current(self, read: Callable[[str], OpenSearchReply]) -> OpenSearchReply | None:
        for _ in range(MAX_ROUNDS):
            name = self._generations.index_to_search()
            if name is None:
                return None
            with suppress(NotFoundError):
                return read(name)
            # A rebuild or an operator dropped it meanwhile.
            self._generations.read()
        raise Unavailable("the generations of the search index change too fast", retry_after_s=5)

    def begin_rebuild(self) -> str:
        """See SearchIndex; resumes a rebuild that was begun."""
        return self._generations.begin()

    def finish_rebuild(self, generation: str) -> None:
        found = self._generations.read()
        if generation == found.current:
            return
        if generation != found.building:
            raise make_not_building_error(generation)
        with suppress(NotFoundError):
            # Another process may finish it meanwhile.
            self._copy_stubs(found)
            self._generations.finish(found)
        if self._generations.read().current != generation:
            raise make_not_building_error(generation)

    def _copy_stubs(self, found: IndexGenerations) -> None:
        """Copy the stubs, so that no late write revives a deleted document."""
        old, new = found.current, found.building
        if old is None or new is None or not self._generations.is_ours(old):
            return
        search = partial(search_page, self._engine, old)
        for hits in _walk_hits(search, {"term": {"live": False}}):
            generations.put_documents(self._engine, new, [prepare_stub(each) for each in hits])

    def ping(self) -> str:
        """See SearchIndex; also returns the current index."""
        version = self._engine.request("GET", "/")["version"]
        name = str(version.get("distribution", "search engine")).replace("opensearch", "OpenSearch")
        return f"{name} {version['number']}, {self._generations.read().current or 'no index yet'}"

    def close(self) -> None:
        """Close this process's connections."""
        self._engine.close()
