"""The command `mirror` against servers that answer what no store answers."""

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from config import SettingsError, load_settings
from pipelines import checksums, ingest, mirrors
from pipelines.area_files import checksum_metadata
from pipelines.ingest import IngestRequest
from storage.catalog import bundles as bundle_rows
from storage.catalog import files as file_rows
from storage.errors import Invalid
from storage.model import CHECKSUM_NAMES, FQID
from storage.protocols import BlobInfo
from tests.builders import new_uuid, version
from tests.ops.commands import opened, run, run_json, typed

pytestmark = pytest.mark.spec("OPS-61")

CONTENT = b"the content of a data file"
SUMS = checksums.compute_checksums([CONTENT], len(CONTENT)).checksums
AT = "2024-01-01T000000.000000Z"


@dataclass(frozen=True)
class Reply:
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200


@dataclass
class Server:
    """A server with one event, of one bundle with one file; tests replace its answers."""

    url: str
    bundle: FQID
    file: FQID
    replies: dict[str, Reply] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        sums = {name: getattr(SUMS, name) for name in CHECKSUM_NAMES}
        self.event: dict[str, Any] = {
            "bundle_uuid": self.bundle.uuid,
            "bundle_version": self.bundle.version,
            "event_type": "CREATE",
        }
        self.entry: dict[str, Any] = {
            "uuid": self.file.uuid,
            "version": self.file.version,
            "name": "a.txt",
            "indexed": False,
            **sums,
        }
        self.creator_uid = 1
        self.headers = {f"X-Store-{name.replace('_', '-')}": value for name, value in sums.items()}
        self.headers |= {
            "X-Store-Size": str(len(CONTENT)),
            "X-Store-Content-Type": "text/plain",
            "X-Store-Creator-Uid": "1",
        }

    def find_reply(self, method: str, path: str) -> Reply:
        self.paths.append(path)
        place, _, query = path.partition("?")
        kind = place.split("/")[2]
        if kind in self.replies:
            return self.replies[kind]
        if kind == "events":
            events = [] if "after=end" in query else [self.event]
            return Reply(json.dumps({"events": events, "cursor": "end"}).encode())
        if kind == "bundles":
            bundle = {"creator_uid": self.creator_uid, "files": [self.entry]}
            return Reply(json.dumps({"bundle": bundle}).encode())
        return Reply(b"" if method == "HEAD" else CONTENT, self.headers)


@pytest.fixture
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            reply = made.find_reply(self.command, self.path)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        url = f"http://127.0.0.1:{listening.server_port}"
        made = Server(url, FQID(new_uuid(), version()), FQID(new_uuid(), version()))
        monkeypatch.setenv("STORE_MIRROR_OF", url)
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield made
        listening.shutdown()
        thread.join()


def list_keys(home: Path) -> list[str]:
    return [one.key for one in opened(home).replicas["aws"].list("")]


def test_copies_what_is_right(home: Path, server: Server) -> None:
    assert run_json("mirror", server.url) == {"bundles": 1, "deleted": 0, "failures": []}


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("event", "bundle_uuid", "../../bundles/x"),
        ("event", "bundle_version", "x/../y"),
        ("event", "event_type", "RENAMED"),
        ("event", "event_type", 1),
        ("entry", "uuid", "../../../files/x"),
        ("entry", "version", "not a version"),
        ("entry", "version", "2024-99-01T000000.000000Z"),
        ("entry", "name", "../../etc/passwd"),
        ("entry", "name", "a\n\x00"),
        ("entry", "name", "\ud800"),
        ("entry", "indexed", "no"),
        ("entry", "sha256", "../../x"),
        ("headers", "X-Store-Size", "-5"),
        ("headers", "X-Store-Size", "many"),
        ("headers", "X-Store-Creator-Uid", str(2**63)),
        ("headers", "X-Store-Content-Type", "\xe9"),
        ("headers", "X-Store-Sha256", "../../x"),
    ],
)
def test_writes_nothing_of_bad_values(
    home: Path, server: Server, part: str, name: str, value: object
) -> None:
    getattr(server, part)[name] = value
    before = list_keys(home)
    refused = typed("mirror", server.url)
    assert refused.exit_code == 1, refused.output
    assert list_keys(home) == before
    stores = opened(home)
    with stores.catalog.read() as tx:
        assert bundle_rows.find(tx, server.bundle) is None
        assert not file_rows.find_all(tx, [server.file])


def test_refuses_numbers_beyond_64_bits(home: Path, server: Server) -> None:
    server.creator_uid = 2**63
    before = list_keys(home)
    assert typed("mirror", server.url).exit_code == 1
    assert list_keys(home) == before


@pytest.mark.parametrize("event_type", ["TOMBSTONE", "DELETE", "RENAMED"])
def test_keeps_bundles_of_others(home: Path, server: Server, bundle: FQID, event_type: str) -> None:
    server.event |= {
        "bundle_uuid": bundle.uuid,
        "bundle_version": bundle.version,
        "event_type": event_type,
    }
    refused = typed("mirror", server.url)
    assert refused.exit_code == 1, refused.output
    assert ("RENAMED" if event_type == "RENAMED" else "deposited it here") in refused.output
    with opened(home).catalog.read() as tx:
        row, is_buried = bundle_rows.find_with_tombstone(tx, bundle)
    assert row is not None
    assert not is_buried


def put_second_event(server: Server, event_type: str, bundle: FQID) -> None:
    """Let the feed have another event after the first one, in the same page."""
    second = {
        "bundle_uuid": bundle.uuid,
        "bundle_version": bundle.version,
        "event_type": event_type,
    }
    events = [server.event, second]
    whole = Reply(json.dumps({"events": events, "cursor": "end"}).encode())
    end = Reply(json.dumps({"events": [], "cursor": "end"}).encode())
    reply = server.find_reply

    def find_reply(method: str, path: str) -> Reply:
        if path.startswith("/v1/events/"):
            return end if "after=end" in path else whole
        return reply(method, path)

    server.find_reply = find_reply  # type: ignore[method-assign]


@pytest.mark.spec("OPS-62")
def test_goes_on_after_a_refused_bundle_and_tries_it_again(home: Path, server: Server) -> None:
    other = FQID(new_uuid(), version())
    put_second_event(server, "CREATE", other)
    refused = Reply(json.dumps({"bundle": {}}).encode())
    reply, faults = server.find_reply, [server.bundle.uuid]

    def find_reply(method: str, path: str) -> Reply:
        is_faulty = path.startswith("/v1/bundles/") and any(uuid in path for uuid in faults)
        return refused if is_faulty else reply(method, path)

    server.find_reply = find_reply  # type: ignore[method-assign]
    for bundles in (1, 0):
        done = typed("mirror", server.url, "--json")
        assert done.exit_code == 1
        (failure,) = json.loads(done.stdout)["failures"]
        assert (failure["event"], failure["bundle"]) == ("CREATE", str(server.bundle))
        assert "not a store's answer" in failure["reason"]
        assert json.loads(done.stdout)["bundles"] == bundles
    with opened(home).catalog.read() as tx:
        assert bundle_rows.find(tx, other) is not None
    faults.clear()
    assert run_json("mirror", server.url) == {"bundles": 1, "deleted": 0, "failures": []}
    with opened(home).catalog.read() as tx:
        assert bundle_rows.find(tx, server.bundle) is not None


@pytest.mark.spec("OPS-62")
def test_a_deletion_ends_the_attempts_to_copy(home: Path, server: Server) -> None:
    put_second_event(server, "TOMBSTONE", server.bundle)
    server.replies["bundles"] = Reply(b"{}")
    assert run_json("mirror", server.url) == {"bundles": 0, "deleted": 0, "failures": []}


@pytest.mark.spec("OPS-62")
def test_stops_before_too_many_events_fail(
    home: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.replies["bundles"] = Reply(b"{}")
    with monkeypatch.context() as patch:
        patch.setattr(mirrors, "MAX_FAILED", 0)
        stopped = typed("mirror", server.url)
    assert stopped.exit_code == 1
    assert "More than 0 events could not be applied" in stopped.output
    del server.replies["bundles"]
    # The place in the feed is still before the event.
    assert run_json("mirror", server.url)["bundles"] == 1


@pytest.mark.spec("OPS-62")
def test_blames_no_event_while_the_store_is_away(home: Path, server: Server) -> None:
    reply = server.find_reply

    def find_reply(method: str, path: str) -> Reply:
        is_up = path.startswith("/v1/events/") and not server.paths
        return reply(method, path) if is_up else Reply(b"", status=503)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "find_reply", find_reply)
        assert typed("mirror", server.url).exit_code == 1
    plan = mirrors.MirrorPlan(server.url, "aws", "")
    assert mirrors.list_failed(opened(home), plan) == []
    assert run_json("mirror", server.url)["bundles"] == 1


def test_blames_no_event_while_usage_is_counted(
    home: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_QUOTAS", "true")
    monkeypatch.setenv("STORE_QUOTA_FILES", "1")
    waiting = typed("mirror", server.url)
    assert waiting.exit_code == 1
    assert "Usage is being counted" in waiting.output
    assert mirrors.list_failed(opened(home), mirrors.MirrorPlan(server.url, "aws", "")) == []
    run("quotas", "count")
    assert run_json("mirror", server.url)["bundles"] == 1


def test_needs_the_setting(home: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert typed("mirror", f"{server.url}/", "--prefix", "../x").exit_code == 2
    for value in ("", "https://other.example.org"):
        monkeypatch.setenv("STORE_MIRROR_OF", value)
        refused = typed("mirror", server.url)
        assert refused.exit_code == 2
        assert "STORE_MIRROR_OF" in refused.output
    monkeypatch.setenv("STORE_MIRROR_OF", server.url)
    monkeypatch.setenv("STORE_EXTERNAL_URL", server.url)
    assert "this store itself" in typed("mirror", server.url).output
    assert not server.paths


@pytest.mark.parametrize("token", [b"se\xc3\xa9cret", b"secret\nX-Header: 1", b"secret\xff"])
def test_rejects_a_token_that_is_no_header(
    home: Path, server: Server, tmp_path: Path, token: bytes
) -> None:
    file = tmp_path / "token"
    file.write_bytes(token + b"\n")
    refused = typed("mirror", server.url, "--token-file", str(file))
    assert refused.exit_code == 2
    assert "--token-file: must be one line of printable ASCII" in refused.output
    assert "secret" not in refused.output
    assert not server.paths


@pytest.mark.parametrize(
    ("owner", "message"),
    [("nobody here", "--owner: Not an e-mail address"), ("", "'--owner': must not be empty")],
)
def test_rejects_an_owner_without_an_address(
    home: Path, server: Server, owner: str, message: str
) -> None:
    refused = typed("mirror", server.url, "--owner", owner)
    assert refused.exit_code == 2
    assert message in refused.output
    assert not server.paths


def test_refuses_a_setting_that_is_no_url() -> None:
    with pytest.raises(SettingsError, match="STORE_MIRROR_OF: must be an http or https URL"):
        load_settings({"STORE_MIRROR_OF": "foo"})


def test_writes_nothing_while_read_only(
    home: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("read-only", "on")
    assert typed("mirror", server.url).exit_code == 1
    run("read-only", "off")
    with monkeypatch.context() as patch:
        patch.setenv("STORE_READ_ONLY", "true")
        assert typed("mirror", server.url).exit_code == 1
    assert not server.paths
    assert run_json("mirror", server.url)["bundles"] == 1


def test_checks_every_address(home: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_ALLOW_PRIVATE_CALLBACKS", "false")
    assert "BlockedAddressError" in typed("mirror", server.url).output
    assert not server.paths


def test_follows_pages_of_the_same_store_only(home: Path, server: Server) -> None:
    elsewhere = server.url.replace("127.0.0.1", "localhost")
    reply = server.find_reply("GET", "/v1/bundles/x")
    link = {"Link": f'<{elsewhere}/v1/bundles/next>; rel="next"'}
    server.replies["bundles"] = replace(reply, headers=link)
    assert "does not begin with" in typed("mirror", server.url).output
    assert not [path for path in server.paths if "next" in path]


def test_ends_with_pages_without_files(home: Path, server: Server) -> None:
    body = json.dumps({"bundle": {"creator_uid": 1, "files": []}}).encode()
    link = {"Link": f'<{server.url}/v1/bundles/next>; rel="next"'}
    server.replies["bundles"] = Reply(body, link)
    assert "too many pages" in typed("mirror", server.url).output


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://x/", "", "http://[", "//u@x/"])
def test_refuses_redirects_to_no_url(home: Path, server: Server, location: str) -> None:
    reply = server.find_reply

    def find_reply(method: str, path: str) -> Reply:
        is_content = method == "GET" and path.startswith("/v1/files/")
        return Reply(b"", {"Location": location}, 302) if is_content else reply(method, path)

    server.find_reply = find_reply  # type: ignore[method-assign]
    assert "redirects to no address" in typed("mirror", server.url).output


@pytest.mark.parametrize("retry_after", ["-1", "nan", "Wed, 21 Oct 2015 07:28:00 GMT", "soon"])
def test_reads_any_retry_after(home: Path, server: Server, retry_after: str) -> None:
    reply, redirects = server.find_reply, list[str]()

    def find_reply(method: str, path: str) -> Reply:
        if method == "GET" and path.startswith("/v1/files/") and not redirects:
            redirects.append(path)
            return Reply(b"", {"Location": path, "Retry-After": retry_after}, 302)
        return reply(method, path)

    server.find_reply = find_reply  # type: ignore[method-assign]
    assert run_json("mirror", server.url)["bundles"] == 1
    assert redirects


@pytest.mark.parametrize("kind", ["events", "bundles", "files"])
@pytest.mark.parametrize(
    "body", [b"<html>hello</html>", b'{"a": 1}', b"[]", b"\xff", b'{"a":' + b"[" * 20_000]
)
def test_names_answers_of_other_programs(
    home: Path, server: Server, kind: str, body: bytes
) -> None:
    server.replies[kind] = Reply(body)
    refused = typed("mirror", server.url)
    assert refused.exit_code == 1
    assert "not a store's answer" in refused.output


def test_workers_fail_tasks_that_a_mirror_left(home: Path) -> None:
    stores = opened(home)
    info = BlobInfo(
        key="k",
        size=len(CONTENT),
        pin=SUMS.sha256,
        content_type="text/plain",
        metadata=checksum_metadata(SUMS),
    )
    new = IngestRequest(FQID(new_uuid(), AT), "aws", "https://store.example.org/v1/files/x", 1)
    claim = ingest.claim_task(stores, new, info, "ada@example.org", lease_s=60)
    assert claim is not None
    assert ingest.verify(stores, claim, lambda count: None) == ()
    task = ingest.get_task(stores, claim.job.ref)
    assert task.state == "FAILED"
    assert task.cause is not None
    for fqid in (FQID("../x", AT), FQID(new_uuid().upper(), AT), FQID(new_uuid(), "x")):
        with pytest.raises(Invalid):
            ingest.claim_task(stores, replace(new, fqid=fqid), info, "ada@example.org", lease_s=60)
