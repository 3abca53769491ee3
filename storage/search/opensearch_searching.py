"""One page of documents out of one generation: all of it in time, or an error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.errors import TimedOut, Unavailable
from storage.protocols import Hit
from storage.search.opensearch_client import Answer, Engine
from storage.search.opensearch_combined import Dsl
from storage.search.opensearch_documents import raw
from storage.search.pointers import pointer

NEWEST = ({"version": "desc"}, {"uuid": "asc"})
BY_UUID = ({"uuid": "asc"}, {"version": "asc"})


@dataclass(frozen=True, slots=True)
class Page:
    """What to look for, in which order, from which place on; `raw` with the documents."""

    query: Dsl
    size: int
    order: Sequence[Mapping[str, str]]
    start: tuple[str, ...] | None = None
    raw: bool = False


def ask(engine: Engine, generation: str, page: Page) -> Answer:
    """The engine's `hits`. NotFound when the generation is gone, TimedOut instead of a part."""
    answer = engine.request(
        "POST",
        f"/{generation}/_search",
        _body(page, engine.time_limit_s),
        allow_partial_search_results="false",
        cancel_after_time_interval=_milliseconds(engine.time_limit_s),
        filter_path="timed_out,hits.total,hits.hits._source,hits.hits.sort,hits.hits._version",
    )
    if not {"timed_out", "hits"} <= answer.keys():
        raise Unavailable("The search engine gave no answer to a search.")
    if answer["timed_out"]:
        raise TimedOut(f"the search took longer than {engine.time_limit_s:g} s")
    return {"hits": [], **answer["hits"]}


def _body(page: Page, time_limit_s: float) -> Dsl:
    body: Dsl = {
        "query": page.query,
        "size": page.size,
        "sort": list(page.order),
        "track_total_hits": True,
        "timeout": _milliseconds(time_limit_s),
        "version": True,
        # What a page is sorted by comes with every hit, without a look into the stored documents.
        "_source": ["raw"] if page.raw else False,
    }
    return body if page.start is None else body | {"search_after": list(page.start)}


def _milliseconds(seconds: float) -> str:
    return f"{max(1, int(seconds * 1000))}ms"


def hit(found: Mapping[str, Any]) -> Hit:
    """One of the engine's hits, newest first, in our words."""
    version, uuid = found["sort"]
    document = raw(found["_source"]) if "_source" in found else None
    return Hit(uuid, version, None, document, pointer(version, uuid))
