"""Failed events of a mirror survive a second process, an outage here, and each other."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import delete

from auth.http_client import HttpClient
from ops import mirrors as command
from ops.mirrors import HttpStore
from pipelines import checksums, mirrors
from pipelines.mirror_answers import FeedPage, MirroredBundle
from pipelines.mirrors import MirrorPlan
from storage.blobs.folder import FolderBlobs
from storage.catalog import bundles as bundle_rows
from storage.catalog import store_state
from storage.catalog.tables.jobs import leases
from storage.errors import Unavailable
from storage.model import CHECKSUM_NAMES, FQID
from storage.stores import Stores
from tests.builders import new_uuid, version
from tests.ops.commands import opened, run_json, typed
from tests.waiting import PATIENCE_S, until

CONTENT = b"the content of a data file"
SUMS = checksums.compute_checksums([CONTENT], len(CONTENT)).checksums

pytestmark = pytest.mark.spec("OPS-62")


@dataclass
class Server:
    """A store whose feed has a page for each bundle; all bundles have one file."""

    url: str
    bundles: list[FQID]
    damaged: set[str] = field(default_factory=set)
    """Bundles that are answered with what no store answers."""
    fatal: set[str] = field(default_factory=set)
    """Bundles whose reading makes the server unavailable for one more request."""
    held: set[str] = field(default_factory=set)
    is_held: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    is_down: bool = False
    feed_reads: int = 0

    def __post_init__(self) -> None:
        file = FQID(new_uuid(), version())
        sums = {name: getattr(SUMS, name) for name in CHECKSUM_NAMES}
        self.entry = {**file._asdict(), "name": "a.txt", "indexed": False, **sums}
        self.headers = {f"X-Store-{name.replace('_', '-')}": value for name, value in sums.items()}
        self.headers |= {
            "X-Store-Size": str(len(CONTENT)),
            "X-Store-Content-Type": "text/plain",
            "X-Store-Creator-Uid": "1",
        }

    def answer(self, path: str) -> tuple[int, object]:
        place, _, query = path.partition("?")
        if place.startswith("/v1/events/"):
            self.feed_reads += 1
            if self.is_down:
                self.is_down = False
                return 503, {}
            at = int(query.partition("after=")[2].partition("&")[0] or 0)
            events = [
                {"bundle_uuid": one.uuid, "bundle_version": one.version, "event_type": "CREATE"}
                for one in self.bundles[at : at + 1]
            ]
            return 200, {"events": events, "cursor": str(at + len(events))}
        uuid = place.rpartition("/")[2]
        if uuid in self.held:
            self.is_held.set()
            self.released.wait(PATIENCE_S)
        if uuid in self.fatal:
            self.is_down = True
            return 503, {}
        bundle = {"creator_uid": 1, "files": [self.entry]}
        return 200, {} if uuid in self.damaged else {"bundle": bundle}


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_file = self.path.startswith("/v1/files/")
            status, answer = (200, None) if is_file else made.answer(self.path)
            body = CONTENT if is_file else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in made.headers.items() if is_file else ():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    class Listener(ThreadingHTTPServer):
        daemon_threads = False

    with Listener(("127.0.0.1", 0), Handler) as listening:
        bundles = [FQID(new_uuid(), version()) for _ in range(2)]
        made = Server(f"http://127.0.0.1:{listening.server_port}", bundles)
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield made
        finally:
            made.released.set()
            listening.shutdown()
            thread.join()


@dataclass
class Mirror:
    """The stores of a mirror, and what it mirrors."""

    stores: Stores
    source: HttpStore
    plan: MirrorPlan

    def follow(self) -> mirrors.MirrorProgress | None:
        return mirrors.follow_page(self.stores, self.source, self.plan)

    def retry(self) -> mirrors.MirrorProgress:
        return mirrors.retry_failed(self.stores, self.source, self.plan)

    def list_failed(self) -> list[FQID]:
        return [one.fqid for one in mirrors.list_failed(self.stores, self.plan)]

    def report(self) -> mirrors.MirrorReport:
        return mirrors.build_report(self.stores, self.plan.url)

    def has(self, fqid: FQID) -> bool:
        with self.stores.catalog.read() as tx:
            return bundle_rows.find(tx, fqid) is not None


@pytest.fixture
def mirror(home: Path, server: Server) -> Iterator[Mirror]:
    stores = opened(home)
    with closing(stores.catalog):
        source = HttpStore(server.url, "aws", "", 0, HttpClient(PATIENCE_S))
        yield Mirror(stores, source, MirrorPlan(server.url, "aws", "ada@example.org"))


def test_another_process_waits_and_then_refuses(
    mirror: Mirror, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that the lease does not expire on a busy machine.
    monkeypatch.setattr(mirrors, "LEASE_S", 100 * PATIENCE_S)
    monkeypatch.setattr(mirrors, "LEASE_WAIT_S", 3 * PATIENCE_S)
    first, second = server.bundles
    server.held.add(first.uuid)
    with ThreadPoolExecutor() as pool:
        following = pool.submit(mirror.follow)
        try:
            assert server.is_held.wait(PATIENCE_S)
            with monkeypatch.context() as patch:
                patch.setattr(mirrors, "LEASE_WAIT_S", 0)
                with pytest.raises(Unavailable, match="Another process applies events"):
                    mirror.follow()
            # This one waits for its turn, and finds that nothing of the page is left to do.
            waiting = pool.submit(mirror.follow)
            until(lambda: server.feed_reads == 3)
        finally:
            server.released.set()
        done, waited = following.result(), waiting.result()
    assert done is not None
    assert waited is not None
    assert done.bundles + waited.bundles == 1
    assert (mirror.has(first), mirror.has(second)) == (True, False)


def test_a_process_that_lost_its_lease_forgets_no_failed_event(
    mirror: Mirror, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that the lease is not renewed during the test.
    monkeypatch.setattr(mirrors, "LEASE_S", 100 * PATIENCE_S)
    first, second = server.bundles
    server.damaged |= {first.uuid, second.uuid}
    mirror.follow()
    server.held.add(first.uuid)
    with ThreadPoolExecutor() as pool:
        retrying = pool.submit(mirror.retry)
        try:
            assert server.is_held.wait(PATIENCE_S)
            # As if it had been stopped for longer than its lease.
            with mirror.stores.catalog.write() as tx:
                tx.execute(delete(leases))
            mirror.follow()
            assert mirror.list_failed() == [first, second]
        finally:
            server.released.set()
        retrying.result()
    assert set(mirror.list_failed()) == {first, second}


class Ended(BaseException):
    """Ends a mirror that follows for ever."""


class RecordingStore(HttpStore):
    """A store that records what is read, and ends the mirror at the third page."""

    turns: list[object]

    def __init__(self, server: Server, turns: list[object]) -> None:
        super().__init__(server.url, "aws", "", 0, HttpClient(PATIENCE_S))
        object.__setattr__(self, "turns", turns)

    def read_events(self, cursor: str) -> FeedPage:
        self._record("page")
        return super().read_events(cursor)

    def read_bundle(self, fqid: FQID) -> MirroredBundle:
        self._record(fqid)
        return super().read_bundle(fqid)

    def _record(self, turn: object) -> None:
        self.turns.append(turn)
        if self.turns.count("page") == 3 or len(self.turns) == 9:
            raise Ended


def test_an_event_that_stops_the_other_store_delays_no_others(
    mirror: Mirror, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    fatal, damaged = server.bundles
    server.damaged |= {fatal.uuid, damaged.uuid}
    assert mirror.follow()
    assert mirror.follow()
    assert mirror.list_failed() == [fatal, damaged]
    server.damaged.clear()
    server.fatal.add(fatal.uuid)
    turns = list[object]()
    source = RecordingStore(server, turns)
    for name in ("PAUSES_S", "RETRY_PAUSES_S"):
        monkeypatch.setattr(command, name, (0.0, 0.0))
    monkeypatch.setattr(command, "IDLE_S", 0.0)
    with pytest.raises(Ended):
        command._follow(mirror.stores, source, mirror.plan)
    assert turns == ["page", fatal, "page", damaged, fatal, "page"]
    assert mirror.list_failed() == [fatal]


def test_reads_new_events_between_attempts(
    mirror: Mirror, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.damaged |= {one.uuid for one in server.bundles}
    mirror.follow()
    mirror.follow()
    turns = list[object]()
    source = RecordingStore(server, turns)
    monkeypatch.setattr(command, "RETRY_EVENTS", 1)
    monkeypatch.setattr(command, "IDLE_S", 0.0)
    with pytest.raises(Ended):
        command._follow(mirror.stores, source, mirror.plan)
    first, second = server.bundles
    assert turns == ["page", first, "page", second, "page"]


def test_blames_no_event_while_its_own_bucket_is_away(mirror: Mirror, server: Server) -> None:
    bucket = mirror.stores.replicas["aws"]
    assert isinstance(bucket, FolderBlobs)
    folder = bucket.temporary_folder
    away = folder.with_name("away")
    folder.rename(away)
    with pytest.raises(Unavailable, match="This store takes no writes"):
        mirror.follow()
    assert mirror.list_failed() == []
    away.rename(folder)
    followed = mirror.follow()
    assert followed is not None
    assert (followed.bundles, followed.failed) == (1, [])


def test_reports_how_far_it_is(
    mirror: Mirror, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = server.bundles[0]
    none = mirror.report()
    assert (none.success_us, none.complete_us, none.failed) == (None, None, [])
    server.damaged.add(first.uuid)
    mirror.follow()
    failing = mirror.report()
    assert failing.success_us is not None
    assert none.now_us <= failing.success_us <= failing.now_us
    # This store tells no times of events.
    assert failing.complete_us is None
    assert [one.fqid for one in failing.failed] == [first]
    mirror.retry()
    assert mirror.report().success_us == failing.success_us
    monkeypatch.setattr(mirrors, "RECORD_S", 0)
    mirror.retry()
    retried = mirror.report()
    assert retried.success_us is not None
    assert retried.success_us > failing.success_us
    server.is_down = True
    with pytest.raises(Unavailable):
        mirror.follow()
    assert mirror.report().success_us == retried.success_us
    server.damaged.clear()
    mirror.retry()
    mirror.follow()
    assert mirror.follow() is None
    done = mirror.report()
    assert done.success_us is not None
    assert done.complete_us is not None
    assert retried.success_us < done.complete_us <= done.success_us
    assert done.failed == []
    assert mirrors.build_report(mirror.stores, f"{server.url}/").success_us == done.success_us


def test_reports_the_mirror_that_is_furthest_behind(mirror: Mirror, server: Server) -> None:
    other = replace(mirror.plan, prefix="0")
    server.damaged.add(server.bundles[0].uuid)
    mirror.follow()
    behind = mirror.report()
    assert len(behind.failed) == 1
    # The one that runs does not hide the one that does not run any more, however long ago.
    earlier = mirrors.MirrorState(success_us=1, complete_us=1)
    with mirror.stores.catalog.write() as tx:
        states = msgspec.json.encode({mirror.plan.failed_key: earlier}).decode()
        store_state.write_value(tx, mirrors.state_key(server.url), states)
    mirrors.follow_page(mirror.stores, mirror.source, other)
    found = mirror.report()
    assert (found.success_us, found.complete_us, found.options) == (1, 1, "--replica aws")
    assert found.failed == behind.failed


def test_forgets_a_mirror_that_is_not_wanted_any_more(
    mirror: Mirror, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_MIRROR_OF", server.url)
    wanted = replace(mirror.plan, prefix=server.bundles[0].uuid)
    server.damaged |= {one.uuid for one in server.bundles}
    while mirror.follow():
        pass
    while mirrors.follow_page(mirror.stores, mirror.source, wanted):
        pass
    assert len(mirror.report().failed) == 3
    assert run_json("mirror", server.url, "--forget") == {
        "url": server.url,
        "replica": "aws",
        "prefix": "",
    }
    left = mirror.report()
    assert [one.fqid for one in left.failed] == [server.bundles[0]]
    assert left.options == f"--replica aws --prefix {wanted.prefix}"
    again = typed("mirror", server.url, "--forget")
    assert again.exit_code == 1
    assert f"Others have: {left.options}." in " ".join(again.output.split())
    # If it is wanted again, it misses nothing.
    server.damaged.clear()
    while mirror.follow():
        pass
    assert all(map(mirror.has, server.bundles))


@pytest.mark.parametrize("option", ["--follow", "--list-failed"])
def test_forgets_no_mirror_that_is_to_run(
    mirror: Mirror, server: Server, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setenv("STORE_MIRROR_OF", server.url)
    mirror.follow()
    assert typed("mirror", server.url, "--forget", option).exit_code == 2
    assert mirror.report().success_us is not None


def test_a_refused_page_is_no_success(mirror: Mirror, server: Server, monkeypatch) -> None:
    server.damaged.add(server.bundles[0].uuid)
    monkeypatch.setattr(mirrors, "MAX_FAILED", 0)
    with pytest.raises(Unavailable, match="More than 0 events"):
        mirror.follow()
    assert mirror.report().success_us is None


def test_deposits_for_the_identity_of_the_administrator(
    mirror: Mirror, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_MIRROR_OF", server.url)
    monkeypatch.setenv("STORE_ALLOW_PRIVATE_CALLBACKS", "true")
    monkeypatch.setenv("STORE_DEPLOYMENT", "Example.org")
    assert run_json("mirror", server.url)["bundles"] == 2
    with mirror.stores.catalog.read() as tx:
        row = bundle_rows.find(tx, server.bundles[0])
    assert row is not None
    assert row.author == "admin@example.org"


def test_lists_failed_events_without_trying_them(
    mirror: Mirror, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_MIRROR_OF", server.url)
    monkeypatch.setenv("STORE_READ_ONLY", "true")
    plan = MirrorPlan(server.url, "aws", "")
    assert json.loads(typed("mirror", server.url, "--list-failed", "--json").stdout) == {
        "bundles": 0,
        "deleted": 0,
        "failures": [],
    }
    server.damaged.add(server.bundles[0].uuid)
    mirrors.follow_page(mirror.stores, mirror.source, plan)
    server.damaged.clear()
    listed = typed("mirror", server.url, "--list-failed", "--json")
    assert listed.exit_code == 1
    (failure,) = json.loads(listed.stdout)["failures"]
    assert failure["bundle"] == str(server.bundles[0])
    assert mirror.list_failed() == [server.bundles[0]]
