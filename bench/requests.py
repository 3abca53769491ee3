"""Processor time of single requests in the API, and how much code and SQL they go through.

Small requests, and those that grow: bundles of 1,000 and 20,000 files (beside what Python takes to
parse and write the same JSON), a page of a full listing, searches in a full index.
"""

import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from urllib.parse import urlsplit

from flask import Flask
from sqlalchemy import update
from werkzeug.datastructures import Headers
from werkzeug.test import EnvironBuilder, run_wsgi_app

from api.app import build_verifier, create_app
from auth.service_accounts import ServiceAccounts
from auth.tokens.issuance import TokenSpec, issue_token
from auth.tokens.signing_keys import read_keys_until
from auth.tokens.verification import GrantChecker
from bench import stores as bench_stores
from bench.harness import Figures, Measure
from bench.stores import AUTHOR, VERSION, new_fqids
from config import Settings, process
from pipelines.limits import PAGE_MAX
from storage import keys
from storage.catalog.tables.versions import blobs
from storage.model import FQID, Job
from storage.protocols import IndexedDocument
from storage.stores import Stores

ROOT = Path(bench_stores.__file__).parents[1]
OURS = tuple(f"{ROOT / name}{os.sep}" for name in ("api", "auth", "config", "pipelines", "storage"))
FILES, DOCUMENTS = 2, 50
ORGAN, NUMBER = "files.sample_json.organ", "files.sample_json.number"
QUERIES: tuple[dict[str, Any], ...] = (
    {"match_all": {}},
    {"match": {ORGAN: "organ 3"}},
    {"match": {"files.sample_json.text": "note 77"}},
    {"term": {NUMBER: 4711}},
    {"range": {NUMBER: {"gte": 100, "lt": 200}}},
    {"wildcard": {ORGAN: "organ*"}},
    {"bool": {"must": [{"match": {ORGAN: "organ 5"}}], "must_not": [{"term": {NUMBER: 5}}]}},
)

Environ = dict[str, Any]
"""A WSGI environment."""


@dataclass(frozen=True)
class Trail:
    """What one request goes through between the WSGI call and the end of its answer."""

    modules: int
    functions: int
    calls: int
    statements: int
    reads: int
    writes: int
    syncs: int


@dataclass(frozen=True)
class Site:
    """An application with a few files, bundles and documents, and a token that it accepts."""

    app: Flask
    stores: Stores
    token: str
    files: list[FQID]
    source_url: str

    def environ(self, method: str, path: str, body: Any = None, **headers: str) -> Environ:
        """The WSGI environment of a request with JSON."""
        given = Headers({"Authorization": f"Bearer {self.token}", "User-Agent": "bench", **headers})
        data = None
        if body is not None:
            given["Content-Type"] = "application/json"
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return EnvironBuilder(path=path, method=method, headers=given, data=data).get_environ()


class DiscardedJobs:
    """A queue without workers: the rows stay."""

    def send(self, rows: Iterable[Job], request_id: str = "") -> None:
        """Send nothing."""

    def ping(self) -> None:
        """Report no error."""


@contextmanager
def prepare(
    requests: int = 30,
    manifests: Sequence[int] = (1_000, 20_000),
    bundles: int = 100_000,
    documents: int = 10_000,
) -> Iterator[Measure]:
    """Carry out so many small requests of each operation a round, and one of each large one."""
    with site(documents, files=max(manifests)) as found:
        process.relax_gc()
        small = {name: requests_of(found, name) for name in OPERATIONS}
        large = {f"put_bundle, {n:,} files": (_put_bundle(found, n), n) for n in manifests}
        fqids = sorted(new_fqids(bundles, salt="listing"))
        bench_stores.add_bundles(found.stores.catalog, fqids)
        pages = {"first": _list_bundles(found, "0"), "last": _list_bundles(found, "f")}
        for environs in (*small.values(), *pages.values()):
            processor_ms(found, environs, min(requests, 5))

        def measure() -> Figures:
            figures = {}
            for name, environs in small.items():
                figures[f"{name} ms"] = processor_ms(found, environs, requests)
                trail = vars(trail_of(found, next(environs)))
                for count in ("modules", "functions", "statements"):
                    figures[f"  {name} {count}"] = trail[count]
            for name, (environs, size) in large.items():
                figures[f"{name} ms"] = ours = processor_ms(found, environs, 1)
                figures[f"  {name} / json loads and dumps"] = ours / _json_ms(found, size)
            for name, environs in pages.items():
                figures[f"{name} page of {bundles:,} bundles ms"] = processor_ms(found, environs, 5)
            times = sorted(processor_ms(found, each, 1) for each in _searches(found))
            figures[f"search in {documents:,} documents, p95 ms"] = statistics.quantiles(
                times, n=20, method="inclusive"
            )[-1]
            return figures

        yield measure


@contextmanager
def site(documents: int = DOCUMENTS, files: int = 100) -> Iterator[Site]:
    """Embedded stores, and the application as its server makes it, with real tokens."""
    with bench_stores.embedded_stores() as (settings, stores):
        fqids = new_fqids(max(files, FILES), salt="file")
        bundles = new_fqids(documents, salt="documents")
        bench_stores.add_files(stores.catalog, fqids)
        bench_stores.add_bundles(stores.catalog, bundles)
        for file in fqids[:FILES]:
            _put_bytes(stores, file)
        stores.search["aws"].write([_document(number, fqid) for number, fqid in enumerate(bundles)])
        app, token = _create_app(settings, stores)
        yield Site(app, stores, token, fqids, _upload_source(app, token))


def _create_app(settings: Settings, stores: Stores) -> tuple[Flask, str]:
    accounts = ServiceAccounts(stores.catalog, lifetime_s=settings.service_token_s)
    grant = TokenSpec(AUTHOR, (*settings.admin_groups, *settings.ingest_groups), 3600)
    token = issue_token(
        read_keys_until(settings.home, time.time() + grant.lifetime_s, settings.secret_key),
        grant,
        issuer=settings.auth_url,
        audience=settings.audiences,
        now=time.time(),
        token_id="bench",
    )
    grants = GrantChecker(stores.catalog, time.time)
    verify = build_verifier(settings, time.time, accounts=accounts, grants=grants).verify
    return create_app(settings, stores, job_queue=DiscardedJobs(), verify=verify), token


def _put_bytes(stores: Stores, file: FQID) -> None:
    """Store the bytes whose checksum `bench.stores` gives a file."""
    data = file.uuid.encode()
    digest = sha256(data).hexdigest()
    stores.replicas["aws"].put(keys.blob_key(digest), data)
    with stores.catalog.write() as tx:
        tx.execute(update(blobs).where(blobs.c.sha256 == digest).values(size=len(data)))


def _document(number: int, fqid: FQID) -> IndexedDocument:
    sample = {"number": number, "organ": f"organ {number % 7}", "text": f"note {number} of a bench"}
    return IndexedDocument(
        fqid.uuid, fqid.version, "bench", 1, {"files": {"sample_json": [sample]}}
    )


def _upload_source(app: Flask, token: str) -> str:
    http, headers = app.test_client(), {"Authorization": f"Bearer {token}"}
    area = new_fqids(1, salt="area")[0].uuid
    answer = http.post(f"/v1/area/{area}", headers=headers)
    assert answer.status_code in (200, 201), answer.text
    answer = http.put(f"/v1/area/{area}/files/a.bin", data=b"content", headers=headers)
    assert answer.status_code == 201, answer.text
    return str((answer.json or {})["url"])


def requests_of(found: Site, operation: str) -> Iterator[Environ]:
    """Endless requests of one operation."""
    return OPERATIONS[operation](found)


def _new_uuids(salt: str) -> Iterator[str]:
    """New uuids with one prefix, as a store in use has made its folders long ago."""
    for number in range(10**9):
        yield "00" + new_fqids(1, salt=f"{salt}{number}")[0].uuid[2:]


def _manifest(found: Site, files: int) -> bytes:
    entries = [
        {"uuid": uuid, "version": version, "name": f"lane_{at % 8}/{at}.gz", "indexed": False}
        for at, (uuid, version) in enumerate(found.files[:files])
    ]
    return json.dumps({"creator_uid": 1, "files": entries}).encode()


def _json_ms(found: Site, files: int) -> float:
    body = _manifest(found, files)
    began = time.thread_time()
    json.dumps(json.loads(body))
    return (time.thread_time() - began) * 1000


def _put_bundle(found: Site, files: int = FILES) -> Iterator[Environ]:
    body = _manifest(found, files)
    for uuid in _new_uuids(f"bundle{files}"):
        path = f"/v1/bundles/{uuid}?version={VERSION}&replica=aws"
        yield found.environ("PUT", path, body)


def _put_bundle_again(found: Site) -> Iterator[Environ]:
    first = next(_put_bundle(found))["REQUEST_URI"]
    while True:
        yield found.environ("PUT", first, _manifest(found, FILES))


def _put_file(found: Site) -> Iterator[Environ]:
    body = {"source_url": found.source_url, "creator_uid": 1}
    for uuid in _new_uuids("deposit"):
        path = f"/v1/files/{uuid}?version={VERSION}&replica=aws"
        yield found.environ("PUT", path, body, Prefer="respond-async")


def _get_file(found: Site) -> Iterator[Environ]:
    file = found.files[0]
    while True:
        yield found.environ("GET", f"/v1/files/{file.uuid}?version={file.version}&replica=aws")


def _get_file_bytes(found: Site) -> Iterator[Environ]:
    _, _, headers = run_wsgi_app(found.app, next(_get_file(found)))
    url = urlsplit(headers["Location"])
    while True:
        yield found.environ("GET", f"{url.path}?{url.query}")


def _get_bundle(found: Site) -> Iterator[Environ]:
    put = next(_put_bundle(found))
    run_wsgi_app(found.app, put)
    while True:
        yield found.environ("GET", put["REQUEST_URI"])


def _post_search(found: Site) -> Iterator[Environ]:
    while True:
        yield found.environ("POST", "/v1/search?replica=aws", {"es_query": QUERIES[1]})


OPERATIONS: Mapping[str, Callable[[Site], Iterator[Environ]]] = {
    "put_bundle": _put_bundle,
    "put_bundle_again": _put_bundle_again,
    "put_file": _put_file,
    "get_file": _get_file,
    "get_file_bytes": _get_file_bytes,
    "get_bundle": _get_bundle,
    "post_search": _post_search,
}


def _list_bundles(found: Site, prefix: str) -> Iterator[Environ]:
    path = f"/v1/bundles/all?replica=aws&per_page={PAGE_MAX}&prefix={prefix}"
    while True:
        yield found.environ("GET", path)


def _searches(found: Site) -> Iterator[Iterator[Environ]]:
    path = "/v1/search?replica=aws"
    for query in QUERIES:
        yield iter([found.environ("POST", path, {"es_query": query})])


def answer(found: Site, environ: Environ) -> bytes:
    """Carry a request out, as a server does; return the body."""
    status: list[str] = []

    def start_response(line: str, _headers: Any, _error: Any = None) -> Callable[[bytes], Any]:
        status.append(line)
        return lambda _data: None

    body: Any = found.app(environ, start_response)
    try:
        content = b"".join(body)
    finally:
        if hasattr(body, "close"):
            body.close()
    assert status[0][0] in "23", (status, environ["PATH_INFO"], content[:500])
    return content


def processor_ms(found: Site, requests: Iterator[Environ], count: int) -> float:
    """Milliseconds of processor time of this thread for one request."""
    environs = [next(requests) for _ in range(count)]
    began = time.thread_time()
    for environ in environs:
        answer(found, environ)
    return (time.thread_time() - began) * 1000 / count


def trail_of(found: Site, environ: Environ) -> Trail:
    """What a request goes through; the same request should have been carried out before."""
    with seen() as codes, bench_stores.counting(found.stores) as counted:
        answer(found, environ)
    return Trail(
        modules=len({code.co_filename for code in codes}),
        functions=len(codes),
        calls=sum(codes.values()),
        statements=counted["statements"],
        reads=counted["BEGIN"],
        writes=counted["BEGIN IMMEDIATE"],
        syncs=counted["syncs"],
    )


@contextmanager
def seen() -> Iterator[Counter[CodeType]]:
    """Functions of ours that this thread enters, and how often; code within them does not count."""
    codes: Counter[CodeType] = Counter()

    def note(frame: FrameType, what: str, _argument: Any) -> None:
        code = frame.f_code
        named = "<" not in code.co_name or code.co_name == "<lambda>"
        if what == "call" and named and code.co_filename.startswith(OURS):
            codes[code] += 1

    sys.setprofile(note)
    try:
        yield codes
    finally:
        sys.setprofile(None)
