"""Searches in a full index, the first page of each after a write, and facets by a plain scan.

The scan is what SQLite's JSON functions need for the facets of everything that `search` measures.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import stores as bench_stores
from bench.harness import Figures, Measure
from storage.model import FQID
from storage.protocols import IndexedDocument
from storage.search.embedded.index import EmbeddedIndex
from storage.search.grammar.parser import parse_query

SAMPLE = "files.sample_json"
FIELDS = [f"{SAMPLE}.{name}" for name in ("organ", "age", "living", "lab", "method")]
DOCUMENTS_A_WRITE = 1_000
ORGAN = {"term": {f"{SAMPLE}.organ.keyword": "organ 3"}}


def list_queries(bundles: int) -> Mapping[str, dict[str, Any]]:
    """Return the queries by what they find."""
    words = {"query": "organ 3", "operator": "and"}
    return {
        "everything": {},
        "a word of all": {"match": {f"{SAMPLE}.title": "note"}},
        "words of a seventh": {"match": {f"{SAMPLE}.organ": words}},
        "a range of all but a hundredth": {"range": {f"{SAMPLE}.number": {"gte": bundles // 100}}},
        "two filters": {"bool": {"filter": [ORGAN, {"term": {f"{SAMPLE}.living": "true"}}]}},
        "a phrase of one": {"match_phrase": {f"{SAMPLE}.title": f"note {bundles // 2}"}},
        "ten bundles": {"range": {f"{SAMPLE}.number": {"gte": 0, "lt": 10}}},
    }


@contextmanager
def prepare(bundles: int = 100_000) -> Iterator[Measure]:
    """Fill an index with so many bundles."""
    queries = {name: parse_query(query) for name, query in list_queries(bundles).items()}
    with TemporaryDirectory(prefix="bench-") as folder:
        index = EmbeddedIndex(Path(folder) / "aws.sqlite")
        fqids = bench_stores.new_fqids(bundles + 10_000, salt="search")
        fill_index(index, fqids[:bundles])
        more = iter(range(bundles, bundles + 10_000))

        def write_one() -> None:
            number = next(more)
            index.write([make_document(number, fqids[number])])

        with closing(sqlite3.connect(":memory:")) as plain:
            plain.execute("CREATE TABLE document (json TEXT)")
            texts = (make_document(number, fqid) for number, fqid in enumerate(fqids[:bundles]))
            rows = ((json.dumps(each.document),) for each in texts)
            plain.executemany("INSERT INTO document VALUES (?)", rows)

            def measure() -> Figures:
                figures: dict[str, float] = {}
                for name, query in queries.items():
                    write_one()
                    figures[f"{name} ms"] = milliseconds(partial(index.search, query, size=10))
                middle = index.search(queries["words of a seventh"], size=bundles // 50).after
                write_one()
                figures["  a later page ms"] = milliseconds(
                    lambda: index.search(queries["words of a seventh"], size=10, after=middle)
                )
                figures["facets of everything by a scan ms"] = milliseconds(lambda: _scan(plain))
                return figures

            yield measure
        index.close()


def _scan(plain: sqlite3.Connection) -> None:
    """Count the values of each field."""
    for field in FIELDS:
        path = f"$.files.sample_json[0].{field.rpartition('.')[2]}"
        plain.execute(
            "SELECT each.value, count(*) FROM document, json_each(document.json, ?) AS each"
            " GROUP BY 1 ORDER BY 2 DESC LIMIT 10",
            (path,),
        ).fetchall()


def milliseconds(work: Callable[[], Any]) -> float:
    """Processor time of this thread."""
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1000


def fill_index(index: Any, fqids: Sequence[FQID]) -> None:
    """Write a document for each."""
    for start in range(0, len(fqids), DOCUMENTS_A_WRITE):
        numbers = range(start, min(start + DOCUMENTS_A_WRITE, len(fqids)))
        index.write([make_document(number, fqids[number]) for number in numbers])


def make_document(number: int, fqid: FQID) -> IndexedDocument:
    """Return the document of a bundle with metadata and five files."""
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
