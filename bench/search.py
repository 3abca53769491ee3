"""Facets, the list of fields, and the search page in a full index.

Facets are those of five fields: a query that matches everything, anew after each write and again
without one, a seventh, a hundredth, and ten bundles. The first ones after a start read the columns.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench import stores as bench_stores
from bench.harness import Figures, Measure
from bench.requests import DiscardedJobs
from config import Settings
from storage.errors import Unauthorized, Unavailable
from storage.model import FQID, Principal
from storage.protocols import IndexedDocument
from storage.search.embedded.index import EmbeddedIndex
from storage.search.grammar.parser import parse_query
from storage.stores import Stores
from web.app import create_site_app

SAMPLE = "files.sample_json"
FIELDS = [f"{SAMPLE}.{name}" for name in ("organ", "age", "living", "lab", "method")]
QUERIES: Mapping[str, dict[str, Any]] = {
    "everything": {},
    "a seventh": {"term": {f"{SAMPLE}.organ.keyword": "organ 3"}},
    "a hundredth": {"range": {f"{SAMPLE}.number": {"lt": 0}}},
    "ten bundles": {"range": {f"{SAMPLE}.number": {"gte": 0, "lt": 10}}},
}
PAGES = {
    "search page": "/search",
    "search page of words": "/search?q=organ+3",
    "search page with filters": f"/search?q=note&filter={SAMPLE}.organ:organ+3&sort=oldest",
}
DOCUMENTS_A_WRITE = 1_000


@contextmanager
def prepare(bundles: int = 100_000) -> Iterator[Measure]:
    """Fill an index with so many bundles."""
    QUERIES["a hundredth"]["range"][f"{SAMPLE}.number"]["lt"] = bundles // 100
    with bench_stores.embedded_stores() as (settings, stores):
        fqids = bench_stores.new_fqids(bundles + 10_000, salt="search")
        bench_stores.add_bundles(stores.catalog, fqids[:bundles])
        index = stores.search["aws"]
        for start in range(0, bundles, DOCUMENTS_A_WRITE):
            numbers = range(start, min(start + DOCUMENTS_A_WRITE, bundles))
            index.write([_document(number, fqids[number]) for number in numbers])
        more = iter(range(bundles, bundles + 10_000))
        open_page = _open_site(settings, stores)
        path = next(Path(settings.home).rglob("aws*.generations")).with_suffix(".sqlite")

        def measure() -> Figures:
            started = EmbeddedIndex(path)
            figures = {"first facets of everything ms": _count_ms(started, {})}
            started.close()
            _count_ms(index, {})
            number = next(more)
            index.write([_document(number, fqids[number])])
            figures["facets of everything after a write ms"] = _count_ms(index, {})
            for name, query in QUERIES.items():
                figures[f"facets of {name} ms"] = _count_ms(index, query)
            figures["100 fields ms"] = _milliseconds(lambda: index.list_fields(size=100))
            for name, url in PAGES.items():
                figures[f"{name} ms"] = _milliseconds(partial(open_page, url))
            return figures

        yield measure


def _count_ms(index: Any, query: dict[str, Any]) -> float:
    clause = parse_query(query)
    return _milliseconds(lambda: index.count_facets(clause, FIELDS, size=10))


def _milliseconds(work: Callable[[], Any]) -> float:
    """Processor time of this thread."""
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1000


def _document(number: int, fqid: FQID) -> IndexedDocument:
    sample = {
        "title": f"note {number} of a bench",
        "number": number,
        "organ": f"organ {number % 7}",
        "age": number % 90,
        "living": number % 3 == 0,
        "lab": f"lab {number % 500}",
        "method": [f"method {number % 11}", f"method {number % 13}"],
        "donor": f"donor {number // 3}",
    }
    files = [{"name": f"reads_{n}.fastq", "size": 1_000 + n, "uuid": fqid.uuid} for n in range(5)]
    document = {"files": {"sample_json": [sample]}, "manifest": {"files": files}}
    return IndexedDocument(fqid.uuid, fqid.version, "bench", 1, document)


def _open_site(settings: Settings, stores: Stores) -> Callable[[str], None]:
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

    def open_page(url: str) -> None:
        page = client.get(url, headers={"Accept": "text/html"})
        assert page.status_code == 200, page.text

    return open_page
