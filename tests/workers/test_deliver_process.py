"""The deliver process: killed, taken over, stopped."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.ports import find_free_port
from pipelines.flow import delivery_jobs
from storage.catalog import Catalog, endpoints
from storage.pubsub import MemoryPubSub
from tests import redis_server
from tests.api.test_metrics import find, parse_samples
from tests.subscription_builders import states, subscribe, tell
from tests.waiting import PATIENCE_S, until
from workers import redis_broker

pytestmark = pytest.mark.spec("NOT-21")

ROOT = Path(__file__).resolve().parents[2]


class Receiver(ThreadingHTTPServer):
    """Takes requests and answers once it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ids: list[str] = []
        self.answering = threading.Event()


class Handler(BaseHTTPRequestHandler):
    """Remembers the transaction id."""

    server: Receiver

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.ids.append(self.headers["webhook-id"])
        self.server.answering.wait(PATIENCE_S)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    with Receiver() as receiver:
        threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.05}).start()
        try:
            yield receiver
        finally:
            receiver.answering.set()
            receiver.shutdown()


@contextmanager
def delivering(
    catalog: Catalog, home: Path, redis_url: str, **more: str
) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **more,
        "STORE_HOME": str(home),
        "STORE_CATALOG_URL": catalog.url,
        "STORE_SECRET_KEY": "a secret for tests only",
        "STORE_REDIS_URL": redis_url,
    }
    with subprocess.Popen(
        [sys.executable, "-m", "workers", "deliver"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_killed_process_is_replaced_and_stops_on_signal(catalog: Catalog, tmp_path: Path) -> None:
    with receiving() as receiver, redis_server.fake() as port:
        redis_url = f"redis://127.0.0.1:{port}/0"
        subscription = subscribe(catalog, f"http://127.0.0.1:{receiver.server_port}/")
        tell(catalog, [subscription], times=3)
        sender = redis_broker.build_sender(redis_url, MemoryPubSub())

        def tick() -> None:
            """What the clock does every second."""
            with catalog.read() as tx:
                sender.send(delivery_jobs(endpoints.list_waiting(tx, limit=10)))

        def ticking(holds: Callable[[], bool]) -> bool:
            tick()
            return holds()

        with delivering(catalog, tmp_path / "home", redis_url):
            until(lambda: ticking(lambda: len(receiver.ids) == 3))
        assert states(catalog, subscription) == ["pending"] * 3
        receiver.answering.set()
        with delivering(catalog, tmp_path / "home", redis_url) as second:
            until(lambda: ticking(lambda: states(catalog, subscription) == ["delivered"] * 3))
            second.send_signal(signal.SIGTERM)
            assert second.wait(PATIENCE_S) == 0
        assert sorted(receiver.ids[:3]) == sorted(receiver.ids[3:])


@pytest.mark.spec("OPS-02")
def test_process_with_its_own_home_serves_what_it_counts(catalog: Catalog, tmp_path: Path) -> None:
    port = find_free_port()

    def count_delivered() -> float | None:
        """Do what the clock does every second, and scrape the process."""
        with catalog.read() as tx:
            sender.send(delivery_jobs(endpoints.list_waiting(tx, limit=10)))
        try:
            page = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
        except httpx.TransportError:
            return None
        delivered = {"outcome": "delivered", "endpoint": "loopback"}
        return find(parse_samples(page), "store_deliveries_total", **delivered)

    with receiving() as receiver, redis_server.fake() as redis_port:
        receiver.answering.set()
        redis_url = f"redis://127.0.0.1:{redis_port}/0"
        subscription = subscribe(catalog, f"http://127.0.0.1:{receiver.server_port}/")
        tell(catalog, [subscription], times=3)
        sender = redis_broker.build_sender(redis_url, MemoryPubSub())
        with delivering(catalog, tmp_path / "home", redis_url, STORE_METRICS_PORT=str(port)):
            until(lambda: count_delivered() == 3)
