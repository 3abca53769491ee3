"""`/metrics` of a served embedded store: one address shows all processes."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ops.local_store import LocalStore, running_store
from storage import keys
from storage.blobs.folder import FolderBlobs
from storage.blobs.signed_urls import UrlSigner
from storage.catalog import Catalog, jobs
from storage.model import Job
from tests.api.builders import AREA
from tests.api.test_metrics import Samples, find, parse_samples
from tests.builders import new_uuid, version
from tests.damage import damage_file
from tests.reference import known_metrics
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.spec("OPS-02")]

CONTENT = b'{"a": 1}'
SETTINGS = {"STORE_DELIVERY_DELAYS_S": "0,0.2", "STORE_HOST": "127.0.0.1"}
NOT_CAUSED = {
    "store_claims_lost",
    "store_documents_unindexed",
    "store_catalog_reads",
    "store_catalog_standby_lag_seconds",
    "store_mirror_events",
    "store_mirror_success_time_seconds",
    "store_mirror_events_failed",
    "store_mirror_complete_time_seconds",
}
"""Metrics of faults and of engines that this tour does not have; other tests do."""


class Handler(BaseHTTPRequestHandler):
    """Refuses the first request, and accepts the others."""

    server: "Receiver"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests += 1
        self.send_response(500 if self.server.requests == 1 else 204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Receiver(ThreadingHTTPServer):
    """A receiver on loopback."""

    daemon_threads = True
    requests = 0


@contextmanager
def receiving() -> Iterator[str]:
    with Receiver(("127.0.0.1", 0), Handler) as receiver:
        threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.05}).start()
        try:
            yield f"http://127.0.0.1:{receiver.server_port}/"
        finally:
            receiver.shutdown()


class Tour:
    """A depositor, a subscriber, and an operator of one store."""

    def __init__(self, store: LocalStore) -> None:
        self.store = store
        self.http = httpx.Client(
            base_url=store.api,
            headers={"Authorization": f"Bearer {store.token}"},
            trust_env=False,
            timeout=30,
        )
        self.bundle_body = b""

    def scrape(self) -> str:
        answer = self.http.get("/metrics")
        assert answer.status_code == 200, answer.text
        return answer.text

    def samples(self) -> Samples:
        return parse_samples(self.scrape())

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        answer = self.http.request(method, f"/v1{path}", **more)
        assert answer.status_code < 300, answer.text
        return answer

    def subscribe(self, url: str) -> None:
        self.ask(
            "PUT",
            "/subscriptions",
            params={"replica": "aws"},
            json={"callback_url": url, "jmespath_query": "event_type == 'CREATE'"},
        )

    def deposit(self) -> str:
        """Deposit a bundle of one file; return the file's SHA-256."""
        self.ask("POST", f"/area/{AREA}")
        headers = {"Content-Type": "application/json"}
        staged = self.ask("PUT", f"/area/{AREA}/files/a.json", content=CONTENT, headers=headers)
        named = {"version": version(), "replica": "aws"}
        file = new_uuid()
        body = {"source_url": staged.json()["url"], "creator_uid": 1}
        self.ask("PUT", f"/files/{file}", params=named, json=body, headers={"Prefer": "wait=20"})
        entry = {"uuid": file, "version": named["version"], "name": "a.json", "indexed": True}
        put = self.ask(
            "PUT",
            f"/bundles/{new_uuid()}",
            params=named,
            json={"creator_uid": 1, "files": [entry]},
        )
        self.bundle_body = put.request.content
        head = self.ask("HEAD", f"/files/{file}", params={"replica": "aws"})
        return str(head.headers["X-STORE-SHA256"])

    def damage_replica(self, sha256: str) -> None:
        """Damage the blob in one bucket, and have the worker repair it."""
        bucket = FolderBlobs(str(self.store.home / "replicas" / "gcp"), UrlSigner(b"k" * 32, "gcp"))
        damage_file(bucket, keys.blob_key(sha256), "first byte")
        self.add_job(Job("repair", "gcp", keys.blob_key(sha256)))

    def add_job(self, job: Job) -> None:
        catalog = Catalog(f"sqlite:///{self.store.home}/catalog.sqlite")
        with catalog.write() as tx:
            jobs.insert(tx, [job], sent=False)
        catalog.close()


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tour]:
    """The store after all of it was done."""
    home = tmp_path_factory.mktemp("store")
    with running_store(home, SETTINGS) as store, receiving() as url:
        done = Tour(store)
        with done.http:
            done.subscribe(url)
            sha256 = done.deposit()
            until(lambda: find(done.samples(), "store_replication_waiting", replica="gcp") == 0)
            until(lambda: find(done.samples(), "store_objects", replica="gcp") == 3)
            done.damage_replica(sha256)
            done.ask("POST", f"/area/{AREA}/uploads/b.bin", json={"size": 100_000_000})
            done.store.run_command("backup", str(home / "backup"))
            until(lambda: find(done.samples(), "store_repairs_total", replica="gcp") == 1)
            until(
                lambda: find(done.samples(), "store_delivery_attempts_count", endpoint="loopback")
            )
            # A step of a later release: no worker takes it.
            done.add_job(Job("later", "aws", "1"))
            until(lambda: find(done.samples(), "store_jobs", **LATER, state="waiting") == 1)
            until(lambda: find(done.samples(), "store_backup_age_seconds") is not None)
            yield done


LATER = {"step": "later", "replica": "aws"}


def test_every_documented_metric_is_exposed_and_the_reverse(tour: Tour) -> None:
    families = {one.name: one for one in text_string_to_metric_families(tour.scrape())}
    known = {one.name: one for one in known_metrics()}
    assert {name for name in families if name.startswith("store_")} == known.keys() - NOT_CAUSED
    assert {name for name in families if not name.startswith(("store_", "dramatiq_"))} == set()
    for name in known.keys() - NOT_CAUSED:
        assert families[name].type == known[name].kind, name
        assert families[name].documentation == known[name].description, name
        for sample in families[name].samples:
            assert sample.labels.keys() - {"le"} == set(known[name].labels), sample


def test_counts_requests_and_bytes_of_both_services(tour: Tour) -> None:
    before = tour.samples()
    assert find(before, "store_requests_total", operation="put_bundle", status="201") == 1
    received = find(before, "store_received_bytes_total", operation="put_bundle")
    assert received == len(tour.bundle_body)
    uploaded = find(before, "store_received_bytes_total", operation="put_area_file")
    assert uploaded == len(CONTENT)
    with httpx.Client(trust_env=False) as http:
        keys_answer = http.get(f"{tour.store.auth}/.well-known/jwks.json")
    after = tour.samples()
    name, labels = "store_sent_bytes_total", {"operation": "auth_get_jwks.json"}
    sent = (find(after, name, **labels) or 0) - (find(before, name, **labels) or 0)
    assert sent == int(keys_answer.headers["Content-Length"])


def test_counts_work_of_the_worker_and_shows_both_processes(tour: Tour) -> None:
    samples = tour.samples()
    endpoint = {"endpoint": "loopback"}
    assert find(samples, "store_deliveries_total", outcome="refused", **endpoint) == 1
    assert find(samples, "store_deliveries_total", outcome="delivered", **endpoint) == 1
    assert find(samples, "store_delivery_attempts_sum", **endpoint) == 2
    assert find(samples, "store_delivery_attempts_count", **endpoint) == 1
    assert find(samples, "store_damaged_bytes_total", replica="gcp") == len(CONTENT)
    assert find(samples, "store_repaired_bytes_total", replica="gcp") == len(CONTENT)
    assert find(samples, "store_damage_found_total", replica="gcp") == 1
    assert find(samples, "store_uploads_open") == 1
    for verb in ("put", "head", "read"):
        found = find(samples, "store_bucket_seconds_count", replica="aws", verb=verb, outcome="ok")
        assert found, verb
    indexed = find(samples, "store_search_seconds_count", replica="gcp", verb="write", outcome="ok")
    assert indexed == 1
    starts = [
        find(samples, "store_process_start_time_seconds", process=p) for p in ("web", "worker")
    ]
    assert all(starts)
    assert find(samples, "store_event_loop_lag_seconds", process="worker") is not None
    limit = find(samples, "store_catalog_connections", state="limit")
    in_use = find(samples, "store_catalog_connections", state="in_use")
    assert limit
    assert in_use is not None
    assert 0 <= in_use <= limit


def test_killed_worker_leaves_its_counts_and_no_files(tour: Tour) -> None:
    folder = tour.store.home / "metrics"
    name, labels = "store_repaired_bytes_total", {"replica": "gcp"}
    counts: list[int] = []
    for _ in range(3):
        pid = tour.store.read_processes()["processes"]["worker"]["pid"]
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: _find_worker(tour.store) not in (None, pid))
        until(
            lambda: (
                find(tour.samples(), "store_event_loop_lag_seconds", process="worker") is not None
            )
        )
        assert find(tour.samples(), name, **labels) == len(CONTENT)
        counts.append(_count_files(folder))
    assert counts[0] == counts[-1]
    assert not [*folder.glob(f"*_{pid}.db")]


def _find_worker(store: LocalStore) -> int | None:
    fact = store.read_processes()["processes"].get("worker")
    return fact["pid"] if fact else None


def _count_files(folder: Path) -> int:
    return len([*folder.glob("*.db")])
