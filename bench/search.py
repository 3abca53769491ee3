"""Facets, the list of fields, and the search page in a full index.

Facets are those of five fields: a query that matches everything, anew after each write and again
without one, a seventh, a hundredth, and ten bundles. The first ones after a start read the columns.
"""

import html
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench import stores as bench_stores
from bench.harness import Figures, Measure
from bench.queries import FIELDS, SAMPLE, fill_index, make_document, milliseconds
from bench.requests import DiscardedJobs
from config import Settings
from storage.errors import Unauthorized, Unavailable
from storage.model import Principal
from storage.search.embedded.index import EmbeddedIndex
from storage.search.grammar.parser import parse_query
from storage.stores import Stores
from web.app import create_site_app

QUERIES: Mapping[str, dict[str, Any]] = {
    "everything": {},
    "a seventh": {"term": {f"{SAMPLE}.organ.keyword": "organ 3"}},
    "a hundredth": {"range": {f"{SAMPLE}.number": {"lt": 0}}},
    "ten bundles": {"range": {f"{SAMPLE}.number": {"gte": 0, "lt": 10}}},
}
PAGES = {
    "everything": "/search",
    "words": "/search?q=organ+3",
    "a word of all, with a filter": f"/search?q=note&filter={SAMPLE}.organ:organ+3&sort=oldest",
    "  with three filters": f"/search?q=note&filter={SAMPLE}.organ:organ+3"
    f"&filter={SAMPLE}.organ:organ+4&filter={SAMPLE}.living:true",
    "a wide range": f"/search?q={SAMPLE}.number:>1000",
    "words that begin so": "/search?q=metho*",
    "a phrase": '/search?q="note+1234"',
}


@contextmanager
def prepare(bundles: int = 100_000) -> Iterator[Measure]:
    """Fill an index with so many bundles."""
    QUERIES["a hundredth"]["range"][f"{SAMPLE}.number"]["lt"] = bundles // 100
    with bench_stores.embedded_stores() as (settings, stores):
        fqids = bench_stores.new_fqids(bundles + 10_000, salt="search")
        bench_stores.add_bundles(stores.catalog, fqids[:bundles])
        index = stores.search["aws"]
        fill_index(index, fqids[:bundles])
        more = iter(range(bundles, bundles + 10_000))
        open_page = _open_site(replace(settings, web_facets=tuple(FIELDS)), stores)

        def write_one() -> None:
            number = next(more)
            index.write([make_document(number, fqids[number])])

        path = next(Path(settings.home).rglob("aws*.generations")).with_suffix(".sqlite")

        def measure() -> Figures:
            started = EmbeddedIndex(path)
            figures = {"first facets of everything ms": _count_ms(started, {})}
            started.close()
            _count_ms(index, {})
            write_one()
            figures["facets of everything after a write ms"] = _count_ms(index, {})
            for name, query in QUERIES.items():
                figures[f"facets of {name} ms"] = _count_ms(index, query)
            figures["100 fields ms"] = milliseconds(lambda: index.list_fields(size=100))
            for name, url in PAGES.items():
                write_one()
                figures[f"page of {name} after a write ms"] = milliseconds(partial(open_page, url))
            following = re.search(r'href="([^"]+)" rel="nofollow next"', open_page("/search"))
            if following:
                url = html.unescape(following[1])
                figures["a next page of everything ms"] = milliseconds(partial(open_page, url))
            return figures

        yield measure


def _count_ms(index: Any, query: dict[str, Any]) -> float:
    clause = parse_query(query)
    return milliseconds(lambda: index.count_facets(clause, FIELDS, size=10))


def _open_site(settings: Settings, stores: Stores) -> Callable[[str], str]:
    """Return a function that opens a page as an anonymous visitor."""

    def refuse_token(_token: str) -> Principal:
        raise Unauthorized("No tokens in this bench.")

    def refuse_form(_path: str, _form: Mapping[str, str]) -> Mapping[str, Any]:
        raise Unavailable("No authorization service in this bench.")

    app = create_site_app(
        settings,
        stores,
        job_queue=DiscardedJobs(),
        verify=refuse_token,
        auth=None,
        post_form=refuse_form,
    )

    client = app.test_client()

    def open_page(url: str) -> str:
        page = client.get(url, headers={"Accept": "text/html"})
        assert page.status_code == 200, page.text
        return page.text

    return open_page
