"""What a whole store costs: start, idle, and per small bundle; how fast bundles and callbacks are.

A store of each side is started in every round. On real engines (PostgreSQL, Redis, OpenSearch, S3
for both replicas) the processor time is that of the store's own processes.
"""

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import httpx
from sqlalchemy import Engine, create_engine, text

from bench.harness import ROOT, Figures, Measure
from bench.stores import VERSION, list_processes, memory_mb, processor_s, started_store
from ops.local_store import LocalStore
from tests.real import engines

IN_FLIGHT = 64
WARM_UP = 8
DATA_BYTES = 20_000
SETTLE_S = 5.0
PATIENCE_S = 300.0
PENDING_S = 0.25
"""Until a request is repeated whose files were not verified yet."""
BUNDLES = "SELECT count(*) FROM visible WHERE kind = 'bundle'"
OPEN_JOBS = "SELECT count(*) FROM todo WHERE parked_us IS NULL"


@contextmanager
def prepare(
    root: Path = ROOT,
    *,
    on_real_engines: bool = False,
    bundles: int = 200,
    idle_s: float = 20,
    callbacks: int = 200,
    per_second: int = 20,
) -> Iterator[Measure]:
    """Measure stores of the code in `root`; `callbacks` bundles come so many a second."""

    def measure() -> Figures:
        with (
            store_settings(on_real_engines) as settings,
            started_store(root, settings) as store,
            depositing(store) as depositor,
        ):
            return {
                "start: processor s": processor_s(store.pid),
                "start: s": store.started_in_s,
                **_measure_idle(store, idle_s),
                **_measure_load(store, depositor, bundles),
                **_measure_callbacks(depositor, callbacks, per_second),
            }

    yield measure


def store_settings(on_real_engines: bool) -> AbstractContextManager[dict[str, str]]:
    """Settings of a store on the engines that the environment names, or of an embedded one."""
    return engines.settings(gcp=engines.s3_bucket()) if on_real_engines else nullcontext({})


@dataclass(frozen=True)
class Depositor:
    """A client of one store with an upload area; threads share it."""

    http: httpx.Client
    area: str
    pool: ThreadPoolExecutor

    def put_bundles(self, count: int) -> None:
        """Put bundles of a new JSON file and a new file of 20 kB each, many at once."""

        def put(number: int) -> None:
            metadata = self.put_metadata(number)
            self.put_bundle(str(uuid4()), metadata, self.put_data(number))

        list(self.pool.map(put, range(count)))

    def put_metadata(self, number: int, wait_s: int = 0) -> str:
        """Put a JSON file that differs from all others; its uuid."""
        content = {
            "core": {"schema_url": "http://bench.example/sample.json", "schema_version": "1.0.0"},
            "sample": {"number": number, "organ": f"organ {number % 7}", "text": "word " * 50},
        }
        data = json.dumps(content).encode()
        return self._put_file(f"{number}/sample.json", data, "application/json", wait_s)

    def put_data(self, number: int, wait_s: int = 0) -> str:
        """Put a small file of random bytes; its uuid."""
        data, content_type = os.urandom(DATA_BYTES), "application/octet-stream"
        return self._put_file(f"{number}/reads.bin", data, content_type, wait_s)

    def _put_file(self, name: str, data: bytes, content_type: str, wait_s: int) -> str:
        path = f"/v1/area/{self.area}/files/{name}"
        headers = {"Content-Type": content_type}
        uploaded = self.http.put(path, content=data, headers=headers).raise_for_status().json()
        uuid, body = str(uuid4()), {"source_url": uploaded["url"], "creator_uid": 1}
        self._put_until(f"/v1/files/{uuid}?version={VERSION}&replica=aws", body, wait_s)
        return uuid

    def put_bundle(self, uuid: str, metadata: str, data: str) -> None:
        """Put a bundle of two files; waits until they are verified."""
        entries = [
            {"uuid": metadata, "version": VERSION, "name": "sample.json", "indexed": True},
            {"uuid": data, "version": VERSION, "name": "reads.bin", "indexed": False},
        ]
        body = {"creator_uid": 1, "files": entries}
        self._put_until(f"/v1/bundles/{uuid}?version={VERSION}&replica=aws", body, wait_s=60)

    def _put_until(self, path: str, body: Any, wait_s: int) -> None:
        """PUT, and repeat while the store is not done, which older releases say early."""
        prefer = f"wait={wait_s}" if wait_s else "respond-async"
        while True:
            answer = self.http.put(path, json=body, headers={"Prefer": prefer})
            if answer.status_code in (200, 201) or (answer.status_code == 202 and not wait_s):
                return
            pending = answer.status_code == 202 or "file_pending" in answer.text
            assert pending, f"{path}: {answer.status_code} {answer.text[:300]}"
            time.sleep(PENDING_S)


@contextmanager
def depositing(store: LocalStore) -> Iterator[Depositor]:
    """A depositor with a new area."""
    headers = {"Authorization": f"Bearer {store.token}"}
    limits = httpx.Limits(max_connections=IN_FLIGHT)
    with (
        httpx.Client(
            base_url=store.api, headers=headers, limits=limits, timeout=90, trust_env=False
        ) as http,
        ThreadPoolExecutor(IN_FLIGHT) as pool,
    ):
        area = str(uuid4())
        http.post(f"/v1/area/{area}").raise_for_status()
        yield Depositor(http, area, pool)


def _measure_idle(store: LocalStore, idle_s: float) -> Figures:
    time.sleep(min(SETTLE_S, idle_s))
    began, before = time.perf_counter(), processor_s(store.pid)
    time.sleep(idle_s)
    share = (processor_s(store.pid) - before) / (time.perf_counter() - began)
    return {
        "idle: % of a core": share * 100,
        "idle: MB": memory_mb(store.pid),
        "idle: processes": len(list_processes(store.pid)),
    }


def _measure_load(store: LocalStore, depositor: Depositor, bundles: int) -> Figures:
    """Bundles at once, until they are in both replicas, and until all jobs are done."""
    catalog = open_catalog(store)
    depositor.put_bundles(min(WARM_UP, bundles))
    wait_for_jobs(catalog)
    complete = _count(catalog, BUNDLES) + 2 * bundles
    began, before = time.perf_counter(), processor_s(store.pid)
    depositor.put_bundles(bundles)
    acknowledged_s = time.perf_counter() - began
    _wait_until(lambda: _count(catalog, BUNDLES) >= complete)
    took_s = time.perf_counter() - began
    wait_for_jobs(catalog)
    spent_s = processor_s(store.pid) - before
    catalog.dispose()
    return {
        "bundle: processor ms": spent_s * 1000 / bundles,
        "bundles acknowledged /s": bundles / acknowledged_s,
        "bundles in both replicas /s": bundles / took_s,
    }


def _measure_callbacks(depositor: Depositor, bundles: int, per_second: int) -> Figures:
    """Put bundles of files that exist; each at its time, whether or not those before are done."""
    sent: dict[str, float] = {}
    answered: dict[str, float] = {}
    called: dict[str, float] = {}

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            now = time.perf_counter()
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            called.setdefault(body["match"]["bundle_uuid"], now)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    def put(metadata: str) -> None:
        uuid = str(uuid4())
        sent[uuid] = time.perf_counter()
        depositor.put_bundle(uuid, metadata, data)
        answered[uuid] = time.perf_counter()

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        data = depositor.put_data(0, wait_s=60)
        files = [depositor.put_metadata(number, wait_s=60) for number in range(bundles)]
        body = {
            "callback_url": f"http://127.0.0.1:{server.server_port}/",
            "jmespath_query": "bundle_info.uuid",
        }
        depositor.http.put("/v1/subscriptions?replica=aws", json=body).raise_for_status()
        began, puts = time.perf_counter(), []
        for number, metadata in enumerate(files):
            time.sleep(max(0.0, began + number / per_second - time.perf_counter()))
            puts.append(depositor.pool.submit(put, metadata))
        for each in puts:
            each.result()
        _wait_until(lambda: sent.keys() <= called.keys())
        server.shutdown()
    figures = {}
    for name, ends in (("PUT to answer", answered), ("PUT to callback", called)):
        took = [(ends[uuid] - sent[uuid]) * 1000 for uuid in sent]
        figures[f"{name}: median ms"] = statistics.median(took)
        figures[f"{name}: p95 ms"] = statistics.quantiles(took, n=20, method="inclusive")[-1]
    return figures


def open_catalog(store: LocalStore) -> Engine:
    """The catalog of a running store."""
    embedded = f"sqlite:///{store.home}/catalog.sqlite"
    return create_engine(store.environ.get("STORE_CATALOG_URL") or embedded)


def wait_for_jobs(catalog: Engine) -> None:
    """Wait until no job is open."""
    _wait_until(lambda: _count(catalog, OPEN_JOBS) == 0)


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + PATIENCE_S
    while not holds():
        assert time.perf_counter() < deadline, "the store makes no progress"
        time.sleep(0.05)


def _count(catalog: Engine, query: str) -> int:
    """Count in the catalog: requests would load the store."""
    with catalog.connect() as connection:
        return int(connection.execute(text(query)).scalar_one())
