"""Processor time of single requests inside the API, and how much code and how many calls they take.

Run as `python -m bench.requests [rounds] [requests a round] [folder of another checkout]`: the
other one is then measured in turns with this one, so that both meet the same machine.
"""

import json
import logging
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import get_ident
from types import CodeType, FrameType
from typing import Any
from urllib.parse import urlsplit

from flask import Flask
from sqlalchemy import event, update
from werkzeug.datastructures import Headers
from werkzeug.test import EnvironBuilder, run_wsgi_app

from api.app import create_app
from auth.service_accounts import ServiceAccounts
from auth.tokens.issuance import TokenSpec, issue_token
from auth.tokens.signing_keys import read_keys_until
from auth.tokens.verification import GrantChecker, build_verifier
from bench import rows, stand
from config import Settings, process
from storage import keys
from storage.catalog.tables.versions import blobs
from storage.model import FQID
from storage.protocols import IndexedDocument
from storage.stores import Stores

ROOT = Path(stand.__file__).parents[1]
OURS = tuple(f"{ROOT / name}{os.sep}" for name in ("api", "auth", "config", "pipelines", "storage"))
OPERATIONS = (
    "put_bundle",
    "put_bundle_again",
    "put_file",
    "get_file",
    "get_file_bytes",
    "get_bundle",
    "post_search",
)
FILES, DOCUMENTS = 2, 50
SERVE = "--serve"


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
    opened: int


@dataclass(frozen=True)
class Site:
    """An application with a few files, bundles and documents, and a token that it accepts."""

    app: Flask
    stores: Stores
    token: str
    files: list[FQID]
    source_url: str


def main(rounds: int = 10, requests: int = 30, *, other: str = "") -> None:
    """Print what each operation takes here, and in the other checkout."""
    trees = [str(ROOT), *([other] if other else [])]
    with ExitStack() as stack:
        served = [stack.enter_context(_serving(tree)) for tree in trees]
        for operation in OPERATIONS:
            times = _in_turns(served, operation, rounds, requests)
            for tree, server, spent in zip(("here", "there"), served, times, strict=False):
                path = server(operation, 0)
                counts = ", ".join(f"{count} {name}" for name, count in path.items())
                print(f"{operation:<17}{tree:<6}{statistics.median(spent):>7.2f} ms  {counts}")
            if other:
                ratios = [mine / theirs for mine, theirs in zip(*times, strict=True)]
                print(f"{'':<17}ratio {statistics.median(ratios):>6.2f}")


Ask = Callable[[str, int], Any]


def _in_turns(served: list[Ask], operation: str, rounds: int, requests: int) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in served]
    for ask in served:
        ask(operation, 5)
    for _ in range(rounds):
        for ask, spent in zip(served, times, strict=True):
            spent.append(ask(operation, requests))
    return times


@contextmanager
def _serving(tree: str) -> Iterator[Ask]:
    """A process with the code and the bench of a checkout, which carries out commands."""
    environ = {**os.environ, "PYTHONPATH": tree, "PYTHONSAFEPATH": "1"}
    command = [sys.executable, str(Path(tree) / "bench" / "requests.py"), SERVE]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ, cwd=tree
    ) as process:
        assert process.stdin
        assert process.stdout
        into, out = process.stdin, process.stdout

        def ask(operation: str, requests: int) -> Any:
            print(operation, requests, file=into, flush=True)
            return json.loads(out.readline())

        yield ask
        into.close()


def _serve() -> None:
    with site() as found:
        # As the server does once the application is there.
        process.relax_gc()
        made = {name: requests_of(found, name) for name in OPERATIONS}
        for line in sys.stdin:
            operation, count = line.split()
            if int(count):
                told: Any = processor_ms(found, made[operation], int(count))
            else:
                told = vars(trail_of(found, next(made[operation])))
            print(json.dumps(told), flush=True)


@contextmanager
def site() -> Iterator[Site]:
    """Embedded stores, and the application as its server makes it, with real tokens."""
    with stand.stores() as (settings, stores):
        yield make_site(settings, stores)


def make_site(settings: Settings, stores: Stores) -> Site:
    """The same on open stores."""
    accounts = ServiceAccounts(stores.catalog, lifetime_s=settings.service_token_s)
    grant = TokenSpec("bench@example.org", (*settings.admin_groups, *settings.ingest_groups), 3600)
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
    app = create_app(settings, stores, job_queue=stand.Unsent(), verify=verify)
    files = rows.new_fqids(100, salt="file")
    bundles = rows.new_fqids(DOCUMENTS, salt="documents")
    rows.add_files(stores.catalog, files)
    rows.add_bundles(stores.catalog, bundles)
    for file in files[:FILES]:
        _keep_bytes(stores, file)
    stores.search["aws"].write([_document(number, fqid) for number, fqid in enumerate(bundles)])
    return Site(app, stores, token, files, _staged(app, token))


def _keep_bytes(stores: Stores, file: FQID) -> None:
    """The bytes whose checksum `rows` gives a file."""
    data = file.uuid.encode()
    digest = sha256(data).hexdigest()
    stores.replicas["aws"].put(keys.blob_key(digest), data)
    with stores.catalog.write() as tx:
        tx.execute(update(blobs).where(blobs.c.sha256 == digest).values(size=len(data)))


def _document(number: int, fqid: FQID) -> IndexedDocument:
    content = {"files": {"sample_json": [{"number": number, "organ": f"organ {number % 7}"}]}}
    return IndexedDocument(fqid.uuid, fqid.version, "bench", 1, content)


def _staged(app: Flask, token: str) -> str:
    http, headers = app.test_client(), {"Authorization": f"Bearer {token}"}
    area = rows.new_fqids(1, salt="area")[0].uuid
    answer = http.post(f"/v1/area/{area}", headers=headers)
    assert answer.status_code in (200, 201), answer.text
    answer = http.put(f"/v1/area/{area}/files/a.bin", data=b"content", headers=headers)
    assert answer.status_code == 201, answer.text
    return str((answer.json or {})["url"])


def requests_of(found: Site, operation: str) -> Iterator[dict[str, Any]]:
    """Requests of one operation, as WSGI environments, without an end."""
    made = {
        "put_bundle": _puts,
        "put_bundle_again": _puts_again,
        "put_file": _deposits,
        "get_file": _reads,
        "get_file_bytes": _bytes,
        "get_bundle": _manifests,
        "post_search": _searches,
    }
    return made[operation](found)


def _environ(
    found: Site, method: str, path: str, body: Any = None, **headers: str
) -> dict[str, Any]:
    told = Headers({"Authorization": f"Bearer {found.token}", "User-Agent": "bench", **headers})
    if body is None:
        return EnvironBuilder(path=path, method=method, headers=told).get_environ()
    told["Content-Type"] = "application/json"
    data = json.dumps(body)
    return EnvironBuilder(path=path, method=method, headers=told, data=data).get_environ()


def _content(found: Site) -> dict[str, Any]:
    return {
        "creator_uid": 1,
        "files": [
            {"uuid": file.uuid, "version": file.version, "name": f"f{at}.txt", "indexed": False}
            for at, file in enumerate(found.files[:FILES])
        ],
    }


def _new(salt: str) -> Iterator[str]:
    """Fresh uuids in one folder, as a store in use has long made its folders."""
    for number in range(10**9):
        yield "00" + rows.new_fqids(1, salt=f"{salt}{number}")[0].uuid[2:]


def _puts(found: Site) -> Iterator[dict[str, Any]]:
    for uuid in _new("bundle"):
        path = f"/v1/bundles/{uuid}?version={rows.version(0)}&replica=aws"
        yield _environ(found, "PUT", path, _content(found))


def _puts_again(found: Site) -> Iterator[dict[str, Any]]:
    first = next(_puts(found))["REQUEST_URI"]
    while True:
        yield _environ(found, "PUT", first, _content(found))


def _deposits(found: Site) -> Iterator[dict[str, Any]]:
    body = {"source_url": found.source_url, "creator_uid": 1}
    for uuid in _new("deposit"):
        path = f"/v1/files/{uuid}?version={rows.version(0)}&replica=aws"
        yield _environ(found, "PUT", path, body, Prefer="respond-async")


def _reads(found: Site) -> Iterator[dict[str, Any]]:
    file = found.files[0]
    while True:
        yield _environ(found, "GET", f"/v1/files/{file.uuid}?version={file.version}&replica=aws")


def _bytes(found: Site) -> Iterator[dict[str, Any]]:
    _, _, headers = run_wsgi_app(found.app, next(_reads(found)))
    url = urlsplit(headers["Location"])
    while True:
        yield _environ(found, "GET", f"{url.path}?{url.query}")


def _manifests(found: Site) -> Iterator[dict[str, Any]]:
    put = next(_puts(found))
    run_wsgi_app(found.app, put)
    while True:
        yield _environ(found, "GET", put["REQUEST_URI"])


def _searches(found: Site) -> Iterator[dict[str, Any]]:
    query = {"match": {"files.sample_json.organ": "organ 3"}}
    while True:
        yield _environ(found, "POST", "/v1/search?replica=aws", {"es_query": query})


def answer(found: Site, environ: dict[str, Any]) -> str:
    """Carry a request out, as a server does; returns its status line."""
    status: list[str] = []

    def start_response(line: str, _headers: Any, _error: Any = None) -> Callable[[bytes], Any]:
        status.append(line)
        return lambda _data: None

    body: Any = found.app(environ, start_response)
    try:
        for _ in body:
            pass
    finally:
        if hasattr(body, "close"):
            body.close()
    assert status[0][0] in "23", (status, environ["PATH_INFO"])
    return status[0]


def processor_ms(found: Site, requests: Iterator[dict[str, Any]], count: int) -> float:
    """Milliseconds of processor time of this thread for one request."""
    environs = [next(requests) for _ in range(count)]
    began = time.thread_time()
    for environ in environs:
        answer(found, environ)
    return (time.thread_time() - began) * 1000 / count


def trail_of(found: Site, environ: dict[str, Any]) -> Trail:
    """What a request goes through; the same request should have been carried out before."""
    with seen() as codes, _counted(found.stores) as counted:
        answer(found, environ)
    return Trail(
        modules=len({code.co_filename for code in codes}),
        functions=len(codes),
        calls=sum(codes.values()),
        statements=counted["statements"],
        reads=counted["BEGIN"],
        writes=counted["BEGIN IMMEDIATE"],
        syncs=counted["fsync"],
        opened=counted["open"],
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


@contextmanager
def _counted(stores: Stores) -> Iterator[Counter[str]]:
    """SQL statements, units of work, files that this thread opens and syncs."""
    counted: Counter[str] = Counter()
    engine, sync, me = stores.catalog.engine, os.fsync, get_ident()

    def statement(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
        counted["statements" if not text.startswith("BEGIN") else text] += 1

    def synced(descriptor: int) -> None:
        counted["fsync"] += 1
        sync(descriptor)

    _watch["opened"] = lambda: counted.update(open=1) if get_ident() == me else None
    event.listen(engine, "before_cursor_execute", statement)
    os.fsync = synced  # type: ignore[assignment]
    try:
        yield counted
    finally:
        os.fsync = sync
        _watch.clear()
        event.remove(engine, "before_cursor_execute", statement)


_watch: dict[str, Callable[[], None]] = {}


def _audit(name: str, _arguments: Any) -> None:
    if name == "open" and "opened" in _watch:
        _watch["opened"]()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    if SERVE in sys.argv:
        sys.addaudithook(_audit)
        _serve()
    else:
        given = sys.argv[1:]
        main(*map(int, given[:2]), other="".join(given[2:3]))
