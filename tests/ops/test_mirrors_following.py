"""A mirror follows a running store through outages, kills and wrong bytes."""

import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from ops import ports
from ops.local_store import LocalStore, running_store
from ops.procfile import ROOT
from pipelines import mirrors
from storage.model import FQID
from storage.stores import Stores
from tests.api.test_metrics import Samples, find, parse_samples
from tests.builders import version
from tests.ops.commands import opened, run_json
from tests.ops.mirror_builders import connect_to, delete_bundle, deposit_bundle, read_bundle
from tests.waiting import PATIENCE_S, until

# A follower that found nothing waits longer each time, and starting a store takes long under load.
until_followed = partial(until, limit_s=3 * PATIENCE_S, every_s=0.2)

pytestmark = pytest.mark.spec("OPS-61", "OPS-62")


class Source:
    """A store that can be stopped and started again at its address."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = ports.find_free_port_pair()
        self._running = ExitStack()

    def start(self) -> LocalStore:
        store = running_store(self.home, {"STORE_PORT": str(self.port)})
        return self._running.enter_context(store)

    def close(self) -> None:
        self._running.close()


@dataclass
class Faults:
    """What a proxy does to contents; the keys are the contents themselves."""

    flipped: set[bytes] = field(default_factory=set)
    cut: set[bytes] = field(default_factory=set)
    held: set[bytes] = field(default_factory=set)
    declared: set[bytes] = field(default_factory=set)
    """Contents whose file is declared with another checksum."""
    is_held: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def clear(self) -> None:
        for kind in (self.flipped, self.cut, self.held, self.declared):
            kind.clear()


class Proxy(ThreadingHTTPServer):
    """A proxy before a store; joins its threads when it is closed."""

    daemon_threads = False

    def __init__(self, port: int, faults: Faults) -> None:
        self.port = port
        self.faults = faults
        super().__init__(("127.0.0.1", 0), Forwarder)


class Forwarder(BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        try:
            self.forward()
        except (OSError, http.client.HTTPException):
            # The store is away, or who asked is gone: the connection just ends.
            self.close_connection = True

    do_HEAD = do_GET  # noqa: N815

    def forward(self) -> None:
        faults = self.server.faults
        behind = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE_S)
        with closing(behind):
            behind.request(self.command, self.path, headers=dict(self.headers.items()))
            answer = behind.getresponse()
            body = answer.read()
        self.send_response(answer.status)
        wrong = {sha256(content).hexdigest() for content in faults.declared}
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                self.send_header(name, "0" * 64 if value in wrong else value)
        self.end_headers()
        if body in faults.held:
            faults.is_held.set()
            faults.released.wait(PATIENCE_S)
        if body in faults.flipped:
            body = bytes([body[0] ^ 1]) + body[1:]
        self.wfile.write(body[:-1] if body in faults.cut else body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def running_proxy(port: int, faults: Faults) -> Iterator[str]:
    """A proxy before the store at a port; yields its URL."""
    with Proxy(port, faults) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}"
        finally:
            faults.released.set()
            listening.shutdown()
            thread.join()


@contextmanager
def following(home: Path, url: str, token: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The command `mirror --follow` until the block ends; then it is killed."""
    with (
        (home / "mirror.log").open("ab") as log,
        subprocess.Popen(
            [sys.executable, "-m", "ops", "mirror", url, "--token", token, "--follow"],
            cwd=ROOT,
            env={**os.environ, "STORE_HOME": str(home)},
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


@dataclass
class Mirror:
    """The mirror's home, and what is in it."""

    home: Path
    stores: Stores

    def has(self, fqid: FQID, content: bytes | None) -> bool:
        """Whether a bundle is here with this content; None stands for no bundle."""
        found = read_bundle(self.stores, fqid)
        return (None if found is None else found[1]) == (content and {"a.txt": content})

    def is_complete(self, url: str, at: float) -> bool:
        """Whether all events until then are applied."""
        report = mirrors.build_report(self.stores, url)
        return (report.complete_us or 0) >= at * 1e6 and not report.failed

    def count_lines(self, *parts: str) -> int:
        """The number of lines of the log with all these parts."""
        lines = (self.home / "mirror.log").read_text().splitlines()
        return sum(all(part in line for part in parts) for line in lines)


def scrape(port: int) -> Samples:
    try:
        page = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False)
    except httpx.TransportError:
        return {}
    return parse_samples(page.text)


def read_counts(port: int) -> tuple[float | None, ...]:
    """Bundles that the mirror copied and deleted."""
    samples = scrape(port)
    return (
        find(samples, "store_mirror_events_total", outcome="copied"),
        find(samples, "store_mirror_events_total", outcome="deleted"),
    )


@pytest.fixture
def mirror(home: Path) -> Iterator[Mirror]:
    stores = opened(home)
    with closing(stores.catalog):
        yield Mirror(home, stores)


def test_follows_through_outages_kills_and_wrong_bytes(
    mirror: Mirror, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, faults = Source(tmp_path_factory.mktemp("source")), Faults()
    with closing(source), running_proxy(source.port, faults) as url:
        monkeypatch.setenv("STORE_MIRROR_OF", url)
        metrics_port = ports.find_free_port()
        monkeypatch.setenv("STORE_METRICS_PORT", str(metrics_port))
        store = source.start()
        with following(mirror.home, url, store.token):
            with connect_to(store) as http:
                first = deposit_bundle(http, {"a.txt": b"first"})
            until_followed(lambda: mirror.has(first, b"first"))
            source.close()
            until_followed(lambda: mirror.count_lines("cannot be read", "again in"))
            store = source.start()
            with connect_to(store) as http:
                second = deposit_bundle(http, {"a.txt": b"second"}, FQID(first.uuid, version(1)))
                delete_bundle(http, first)
            until_followed(lambda: mirror.has(second, b"second"))
            until_followed(lambda: mirror.has(first, None))
            faults.held.add(b"third")
            with connect_to(store) as http:
                third = deposit_bundle(http, {"a.txt": b"third"})
            assert faults.is_held.wait(PATIENCE_S)
        # It was killed while it read the file.
        assert mirror.has(third, None)
        faults.released.set()
        wrong = {content: f"wrong {content}".encode() for content in ("flipped", "cut", "declared")}
        for name, content in wrong.items():
            getattr(faults, name).add(content)
        with connect_to(store) as http:
            refused = {
                name: deposit_bundle(http, {"a.txt": content}) for name, content in wrong.items()
            }
            deposited_at = time.time()
            last = deposit_bundle(http, {"a.txt": b"last"})
        with following(mirror.home, url, store.token):
            until_followed(lambda: mirror.has(third, b"third") and mirror.has(last, b"last"))
            for fqid in refused.values():
                # The log is written after the page was saved, in which the last bundle comes.
                until_followed(lambda: mirror.count_lines("is not applied", str(fqid)))  # noqa: B023
                assert mirror.has(fqid, None)
            faults.clear()
            for name, fqid in refused.items():
                until_followed(lambda: mirror.has(fqid, wrong[name]))  # noqa: B023
            until_followed(lambda: read_counts(metrics_port) == (7, 1))
            until_followed(lambda: mirror.is_complete(url, deposited_at))
        assert mirror.count_lines("follows replica aws of", url) == 2
        done = run_json("mirror", url, "--token", store.token)
        assert done == {"bundles": 0, "deleted": 0, "failures": []}
