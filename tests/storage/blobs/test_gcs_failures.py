"""GCS that is busy, slow or breaks off."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import google_crc32c
import pytest

from storage import crc32c
from storage.blobs.clients import CloudLimits
from storage.blobs.gcs import GcsBlobs
from storage.errors import AlreadyExists, Invalid, SourceChanged, Unavailable
from storage.protocols import BLOCK, DEFAULT_CONTENT_TYPE
from tests.http_server import serving
from tests.peak_memory import memory_below
from tests.storage.blobs.backend_gcs import new_bucket, opened, running
from tests.storage.blobs.gcs_server import Gcs, Trouble

PART = 64 * 1024**2
IMPATIENT = CloudLimits(connect_s=1, read_s=0.3, attempts=2, connections=4)


@pytest.fixture
def gcs(tmp_path: Path) -> Iterator[Gcs]:
    with running(tmp_path) as gcs:
        yield gcs


@pytest.fixture
def store(gcs: Gcs) -> GcsBlobs:
    store = new_bucket(gcs)
    store.put("k", b"0123456789")
    gcs.asked.clear()
    return store


def put_large(store: GcsBlobs, key: str, data: bytes) -> None:
    store.put(key, data)


def upload_one(store: GcsBlobs) -> None:
    upload = store.upload("uploaded", part_size=PART, content_type=DEFAULT_CONTENT_TYPE)
    upload.part(1, [b"x"])
    upload.complete()


VERBS: list[Callable[[GcsBlobs], object]] = [
    lambda store: store.put("new", b"x"),
    lambda store: store.put("new", b"x", replace=True),
    lambda store: store.head("k"),
    lambda store: b"".join(store.read("k")),
    lambda store: list(store.list("")),
    lambda store: store.copy(store, "k", "copy", pin=None, part_size=PART),
    lambda store: store.delete("k"),
    upload_one,
]


@pytest.mark.parametrize("verb", VERBS)
def test_retries_temporary_errors(
    gcs: Gcs, store: GcsBlobs, verb: Callable[[GcsBlobs], object]
) -> None:
    gcs.trouble += [Trouble("", status=503), Trouble("", status=429)]
    verb(store)
    assert not any(trouble.times for trouble in gcs.trouble)


def test_gives_up_on_permanent_errors(gcs: Gcs, store: GcsBlobs) -> None:
    gcs.trouble.append(Trouble("", times=99, status=503))
    with pytest.raises(Unavailable, match="503 trouble"):
        store.head("k")
    assert len(gcs.asked) == 3, "as often as the limits say"


@pytest.mark.parametrize("status", [401, 403])
def test_reports_refusals_at_once(gcs: Gcs, store: GcsBlobs, status: int) -> None:
    gcs.trouble.append(Trouble("/o/k", times=99, status=status))
    with pytest.raises(Unavailable, match="credentials"):
        store.head("k")
    assert len([line for line in gcs.asked if "/o/k" in line]) <= 3


def test_creation_with_lost_response_finds_itself(gcs: Gcs, store: GcsBlobs) -> None:
    gcs.trouble.append(Trouble("uploadType", status=503, done=True))
    with pytest.raises(AlreadyExists):
        store.put("new", b"x")
    assert store.head("new").size == 1
    gcs.trouble.append(Trouble("rewriteTo", status=503, done=True))
    with pytest.raises(AlreadyExists):
        store.copy(store, "k", "copy", pin=None, part_size=PART)
    assert store.head("copy").size == 10


def test_deletion_with_lost_response_succeeds(gcs: Gcs, store: GcsBlobs) -> None:
    gcs.trouble.append(Trouble("DELETE", status=503, done=True))
    store.delete("k", pin=store.head("k").pin)
    assert list(store.list("")) == []


def test_upload_with_lost_response_is_read_back(gcs: Gcs, store: GcsBlobs) -> None:
    gcs.trouble.append(Trouble("/compose", status=503, done=True))
    with pytest.raises(AlreadyExists):
        upload_one(store)
    assert store.head("uploaded").size == 1
    assert store.sweep_temporaries(-60, now=time.time()) == 0, "nothing is left"


def test_bytes_that_were_mangled_on_the_way_are_sent_again(gcs: Gcs, store: GcsBlobs) -> None:
    said = 'Provided CRC32C "a" doesn\'t match calculated CRC32C "b".'
    gcs.trouble.append(Trouble("uploadType", status=400, said=said))
    assert store.put("new", b"x").size == 1
    gcs.trouble.append(Trouble("uploadType", status=400, said="no"))
    with pytest.raises(Invalid):
        store.put("newer", b"x")


# Streams


def test_reads_of_more_than_one_request_are_of_one_generation(gcs: Gcs, store: GcsBlobs) -> None:
    data = os.urandom(17 * BLOCK)
    put_large(store, "big", data)
    gcs.asked.clear()
    gcs.trouble += [Trouble("alt=media", cut=BLOCK + 7), Trouble("alt=media", cut=BLOCK)]
    assert b"".join(store.read("big")) == data
    reads = [line for line in gcs.asked if "alt=media" in line]
    assert ["generation=" in line for line in reads] == [False] * 3 + [True] * 2


@pytest.mark.parametrize(("start", "length"), [(5, None), (0, 2 * BLOCK), (BLOCK, BLOCK + 1)])
def test_resumes_broken_range(gcs: Gcs, store: GcsBlobs, start: int, length: int | None) -> None:
    data = os.urandom(2 * BLOCK + 5)
    store.put("big", data)
    gcs.trouble.append(Trouble("alt=media", cut=1000))
    end = None if length is None else start + length
    assert b"".join(store.read("big", start=start, length=length)) == data[start:end]


def test_never_appends_other_bytes(gcs: Gcs, store: GcsBlobs) -> None:
    put_large(store, "big", b"a" * 9 * BLOCK)
    blocks = store.read("big")
    assert next(blocks) == b"a" * BLOCK
    store.put("big", b"b" * 9 * BLOCK, replace=True)
    with pytest.raises(SourceChanged):
        list(blocks)


def test_gives_up_on_stream_that_always_breaks(gcs: Gcs, store: GcsBlobs) -> None:
    gcs.trouble.append(Trouble("alt=media", times=99, cut=0))
    with pytest.raises(Unavailable, match="IncompleteRead"):
        list(store.read("k"))
    assert len(gcs.asked) == 3, "as often as the limits say"


def test_mangled_bytes_are_not_believed(gcs: Gcs, store: GcsBlobs) -> None:
    """Shorter, with the length that the server says: only the checksum tells."""
    gcs.trouble.append(Trouble("alt=media", short=4))
    with pytest.raises(Unavailable, match=r"interrupted|cut off"):
        list(store.read("k"))


# Silence


def test_silence_is_waited_for_a_while_only(gcs: Gcs) -> None:
    store = new_bucket(gcs, IMPATIENT)
    store.put("k", b"x")
    gcs.trouble.append(Trouble("/o/k", wait_s=1))
    assert store.head("k").size == 1, "the second try was answered"
    gcs.trouble.append(Trouble("/o/k", times=9, wait_s=1))
    gcs.asked.clear()
    with pytest.raises(Unavailable, match=r"read timeout=0\.3"):
        store.head("k")
    assert len(gcs.asked) == IMPATIENT.attempts


def test_a_server_that_is_away_is_unavailable(gcs: Gcs) -> None:
    store = opened("http://127.0.0.1:1", "b", IMPATIENT)
    with pytest.raises(Unavailable):
        store.head("k")


# Parts that take more than one request


def large(store: GcsBlobs, data: bytes) -> None:
    upload = store.upload("large", part_size=len(data), content_type=DEFAULT_CONTENT_TYPE)
    upload.part(1, [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)])
    upload.complete()


@pytest.mark.parametrize("deaf", [0, 3 * BLOCK + 5])
def test_resumes_broken_large_part(gcs: Gcs, store: GcsBlobs, deaf: int) -> None:
    data = os.urandom(9 * BLOCK)
    gcs.trouble.append(Trouble("PUT /session", deaf=deaf))
    large(store, data)
    assert b"".join(store.read("large")) == data
    assert len([line for line in gcs.asked if "PUT /session" in line]) == 2


@pytest.mark.parametrize("done", [True, False])
def test_large_part_with_lost_response_is_stored(gcs: Gcs, store: GcsBlobs, done: bool) -> None:
    gcs.trouble.append(Trouble("PUT /session", status=503, done=done))
    large(store, bytes(9 * BLOCK))
    assert store.head("large").size == 9 * BLOCK
    assert len([line for line in gcs.asked if "PUT /session" in line]) == 2


def test_expired_session_is_unavailable(gcs: Gcs, store: GcsBlobs) -> None:
    gcs.trouble.append(Trouble("PUT /session", times=9, status=410))
    with pytest.raises(Unavailable):
        large(store, bytes(9 * BLOCK))


def test_a_large_object_is_put_in_a_session_but_never_over_another(
    gcs: Gcs, store: GcsBlobs
) -> None:
    data = os.urandom(9 * BLOCK)
    assert store.put("large", data).size == len(data)
    with pytest.raises(AlreadyExists):
        store.put("large", data)
    gcs.trouble.append(Trouble("PUT /session", times=1, status=412))
    with pytest.raises(AlreadyExists):
        store.put("larger", data)


# Memory


class Endless(BaseHTTPRequestHandler):
    """Takes and gives many bytes, and keeps none."""

    protocol_version = "HTTP/1.1"
    size = 192 * BLOCK
    base = ""

    def do_GET(self) -> None:
        if "alt=media" not in self.path:
            self.answer(b'{"generation": "1", "size": "%d"}' % self.size)
            return
        first, last = (int(end) for end in self.headers["Range"].removeprefix("bytes=").split("-"))
        last = min(last, self.size - 1)
        self.send_response(206 if first < self.size else 416)
        self.send_header("Content-Length", str(max(last + 1 - first, 0)))
        self.send_header("Content-Range", f"bytes {first}-{last}/{self.size}")
        self.send_header("X-Goog-Generation", "1")
        self.end_headers()
        for _ in range(first // BLOCK, (last + 1) // BLOCK):
            self.wfile.write(ZEROS)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(DESCRIBED, Location=f"http://{self.headers['Host']}/session")

    def do_PUT(self) -> None:
        left = int(self.headers["Content-Length"])
        while left:
            left -= len(self.rfile.read(min(left, BLOCK)))
        if self.headers["Content-Range"].endswith("/*"):
            last = self.headers["Content-Range"].partition("-")[2].partition("/")[0]
            self.answer(b"", status=308, Range=f"bytes=0-{last}")
        else:
            self.answer(ENDLESS)

    def answer(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silent."""


ZEROS = bytes(BLOCK)
DESCRIBED = b'{"name": "k", "generation": "1", "size": "1"}'
ENDLESS = json.dumps(
    {
        "name": "k",
        "generation": "1",
        # Not by google-crc32c itself: where it has no compiled form, this takes it half a minute.
        "crc32c": crc32c.encode_base64(crc32c.extend(0, bytes(Endless.size))),
    }
).encode()


class Slow(Endless):
    """Takes 20 MiB a second."""

    size = 24 * BLOCK

    def do_PUT(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BLOCK)
        for _ in range(self.size // BLOCK):
            self.rfile.read(BLOCK)
            time.sleep(0.05)
        self.answer(DESCRIBED)


def test_slow_upload_may_exceed_read_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    with serving(Slow) as base:
        store = opened(base, "b", CloudLimits(connect_s=0.4, read_s=0.4, attempts=1, connections=1))
        assert store.put("k", bytes(Slow.size)).pin == "1"


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    with serving(Endless) as base:
        store = opened(base, "b")
        upload = store.upload("k", part_size=Endless.size, content_type=DEFAULT_CONTENT_TYPE)
        with memory_below(160 * BLOCK):
            upload.part(1, (bytes(BLOCK) for _ in range(Endless.size // BLOCK)))
            assert sum(map(len, store.read("k"))) == Endless.size


def test_checksums_go_ahead_of_the_bytes(gcs: Gcs, store: GcsBlobs) -> None:
    data = os.urandom(9 * BLOCK)
    large(store, data)
    assert store.head("large").crc32c == f"{google_crc32c.value(data):08x}"


class Vague(BaseHTTPRequestHandler):
    """Says what a test wants of the length of its answer, then hangs up."""

    headers_told: tuple[tuple[str, str], ...] = ()
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        for name, value in (*self.headers_told, ("X-Goog-Generation", "1")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"<p>")
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.mark.parametrize(
    ("status", "told", "wanted"),
    [
        (200, {}, {}),
        (206, {"Content-Length": "3", "Content-Range": "bytes 5-7/50"}, {"start": 5, "length": 5}),
        (206, {"Content-Length": "3", "Content-Range": "bytes 5-7/50"}, {"start": 5}),
    ],
)
def test_rejects_short_ranges(
    monkeypatch: pytest.MonkeyPatch, status: int, told: dict[str, str], wanted: dict[str, int]
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setattr(Vague, "status", status)
    monkeypatch.setattr(Vague, "headers_told", tuple(told.items()))
    with serving(Vague) as base, pytest.raises(Unavailable):
        b"".join(opened(base, "b", IMPATIENT).read("k", **wanted))  # type: ignore[arg-type]
