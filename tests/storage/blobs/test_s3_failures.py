"""The S3 engine against a scripted server that fails."""

import os
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from unittest.mock import patch

import pytest

from storage.blobs.clients import CloudLimits
from storage.blobs.s3 import S3Blobs, open_s3_blobs
from storage.errors import AlreadyExists, Forbidden, NotFoundError, SourceChanged, Unavailable
from storage.protocols import BLOCK
from tests.http_server import serving
from tests.peak_memory import memory_below
from tests.storage.blobs.backend_s3 import SIMULATED, opened

LIMITS = CloudLimits(connect_s=5, read_s=30, attempts=3, connections=4)
"""A script's answers are read in turn: a busy machine must not make the client ask again."""
ETAG = '"' + "0" * 32 + '"'


@dataclass(frozen=True)
class Say:
    """One answer. `cut` bytes of the body are kept back, `silent` is no answer at all."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0
    silent: bool = False


def error(status: int, code: str) -> Say:
    return Say(status, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())


OK = Say(headers={"ETag": ETAG})


class Script:
    """A server's answers, and what it was asked."""

    def __init__(self, *says: Say) -> None:
        self.says = deque(says)
        self.asked: list[tuple[str, dict[str, str]]] = []

    @contextmanager
    def bucket(self, limits: CloudLimits = LIMITS) -> Iterator[S3Blobs]:
        with patch.dict(os.environ, SIMULATED), serving(self.handler()) as endpoint:
            yield opened(endpoint, "bucket", limits)

    def handler(script: "Script") -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                script.asked.append(
                    (f"{self.command} {self.path}", {n.lower(): v for n, v in self.headers.items()})
                )
                left = int(self.headers.get("Content-Length") or 0)
                while left:
                    left -= len(self.rfile.read(min(left, 65_536)))
                # The last line of a script is said again and again.
                say = script.says.popleft() if len(script.says) > 1 else script.says[0]
                if not say.silent:
                    self.say(say)
                self.close_connection = say.silent or bool(say.cut)

            def say(self, say: Say) -> None:
                self.send_response(say.status)
                for name, value in say.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(say.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(say.body[: len(say.body) - say.cut])

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Silent."""

        return Handler


def test_sends_bodies_without_expect_continue() -> None:
    script = Script(OK)
    with script.bucket() as bucket:
        bucket.put("a", b"bytes")
        upload = bucket.upload("b", part_size=5 << 20, content_type="text/plain", token="known")
        upload.part(1, [b"bytes"])
    sent = [headers for asked, headers in script.asked if asked.startswith("PUT ")]
    assert [headers.get("expect") for headers in sent] == [None, None]


def test_retries_busy_server() -> None:
    script = Script(error(503, "SlowDown"), error(500, "InternalError"), OK)
    with script.bucket() as blobs:
        assert blobs.head("k").etag == "0" * 32
    assert len(script.asked) == 3


def test_a_server_that_stays_busy_is_unavailable_in_the_end() -> None:
    script = Script(error(503, "SlowDown"))
    with script.bucket() as blobs, pytest.raises(Unavailable, match="503"):
        blobs.put("k", b"bytes")
    assert LIMITS.attempts <= len(script.asked) <= LIMITS.attempts + 1


def test_silent_server_is_unavailable() -> None:
    script = Script(Say(silent=True))
    with script.bucket() as blobs, pytest.raises(Unavailable, match="cannot be reached"):
        blobs.head("k")


def test_refused_connection_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with patch.dict(os.environ, SIMULATED), pytest.raises(Unavailable):
        list(opened(f"http://127.0.0.1:{port}", "bucket", LIMITS).list(""))


def test_times_out_without_response() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf, patch.dict(os.environ, SIMULATED):
        blobs = opened(
            f"http://127.0.0.1:{deaf.getsockname()[1]}", "bucket", CloudLimits(1, 0.1, 1, 1)
        )
        with pytest.raises(Unavailable):
            blobs.head("k")


def test_put_with_lost_response_finds_key_taken() -> None:
    script = Script(Say(silent=True), error(412, "PreconditionFailed"))
    with script.bucket() as blobs, pytest.raises(AlreadyExists):
        blobs.put("k", b"bytes")
    assert {headers["if-none-match"] for _, headers in script.asked} == {"*"}


def test_a_conflict_in_flight_is_tried_again() -> None:
    conflict = error(409, "ConditionalRequestConflict")
    with Script(conflict, conflict, OK).bucket() as blobs:
        assert blobs.put("k", b"bytes").size == 5
    lost = Script(conflict, error(412, "PreconditionFailed"))
    with lost.bucket() as blobs, pytest.raises(AlreadyExists):
        blobs.put("k", b"bytes")


def test_endless_conflict_is_unavailable() -> None:
    script = Script(error(409, "ConditionalRequestConflict"))
    with script.bucket() as blobs, pytest.raises(Unavailable, match="409"):
        blobs.put("k", b"bytes")


def test_replacing_has_no_condition() -> None:
    script = Script(OK)
    with script.bucket() as blobs:
        blobs.put("k", b"bytes", replace=True)
    assert "if-none-match" not in script.asked[0][1]


def test_missing_bucket_is_no_absent_object() -> None:
    with Script(Say(404)).bucket() as blobs, pytest.raises(Unavailable, match="does not exist"):
        blobs.head("k")
    with Script(error(404, "NoSuchBucket")).bucket() as blobs:
        with pytest.raises(Unavailable):
            b"".join(blobs.read("k"))
        with pytest.raises(Unavailable):
            blobs.delete("k")


def test_absent_object_costs_one_bucket_check() -> None:
    script = Script(Say(404), Say(200), Say(404))
    with script.bucket() as blobs:
        for _ in range(3):
            with pytest.raises(NotFoundError):
                blobs.head("k")
    assert [asked for asked, _ in script.asked if asked == "HEAD /bucket"] == ["HEAD /bucket"]


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"])
def test_wrong_credentials_are_an_outage_with_reason(code: str) -> None:
    with Script(error(403, code)).bucket() as blobs:
        with pytest.raises(Unavailable, match=f"{code}.*credentials"):
            blobs.put("k", b"")
        with pytest.raises(Unavailable, match="credentials"):
            blobs.head("k")


def test_probes_writes_to_another_bucket() -> None:
    with Script(error(403, "AccessDenied")).bucket() as blobs, pytest.raises(Forbidden):
        blobs.open_sibling("theirs")
    with Script(error(404, "NoSuchBucket")).bucket() as blobs, pytest.raises(NotFoundError):
        blobs.open_sibling("nowhere")


def ranged(whole: bytes, start: int, cut: int = 0) -> Say:
    told = f"bytes {start}-{len(whole) - 1}/{len(whole)}"
    return Say(206, whole[start:], {"ETag": ETAG, "Content-Range": told}, cut)


WHOLE = bytes(range(256)) * 12_000


def test_resumes_broken_body_with_first_pin() -> None:
    half = BLOCK
    script = Script(
        Say(200, WHOLE, {"ETag": ETAG}, len(WHOLE) - half),
        ranged(WHOLE, half, len(WHOLE) - 2 * BLOCK),
    )
    script.says.append(ranged(WHOLE, 2 * BLOCK))
    with script.bucket() as blobs:
        assert b"".join(blobs.read("k")) == WHOLE
    first, second, third = (headers for _, headers in script.asked)
    assert "if-match" not in first
    assert (second["if-match"], second["range"]) == (ETAG, f"bytes={half}-")
    assert (third["if-match"], third["range"]) == (ETAG, f"bytes={2 * BLOCK}-")


def test_a_truncated_body_is_never_passed_off_as_whole() -> None:
    script = Script(Say(200, b"0123456789", {"ETag": ETAG}, 10))
    with script.bucket() as blobs, pytest.raises(Unavailable, match=r"interrupted|cut off"):
        b"".join(blobs.read("k"))


def test_never_appends_other_bytes() -> None:
    script = Script(
        Say(200, WHOLE, {"ETag": ETAG}, len(WHOLE) - BLOCK), error(412, "PreconditionFailed")
    )
    with script.bucket() as blobs, pytest.raises(SourceChanged):
        b"".join(blobs.read("k"))


def test_a_server_that_does_not_know_ranges_is_not_believed() -> None:
    script = Script(Say(200, WHOLE, {"ETag": ETAG}))
    with script.bucket() as blobs, pytest.raises(Unavailable, match="another range"):
        b"".join(blobs.read("k", start=5, length=5))


@pytest.mark.parametrize(
    ("told", "body"),
    [("bytes 5-7/50", b"567"), ("bytes 5-12/50", b"56789012"), ("bytes 5-9/50", b"567"), ("", b"")],
)
def test_rejects_short_and_long_bodies(told: str, body: bytes) -> None:
    script = Script(Say(206, body, {"ETag": ETAG, "Content-Range": told}))
    with script.bucket() as blobs, pytest.raises(Unavailable):
        b"".join(blobs.read("k", start=5, length=5))


def test_range_up_to_end_is_complete() -> None:
    script = Script(Say(206, b"567", {"ETag": ETAG, "Content-Range": "bytes 5-7/8"}))
    with script.bucket() as blobs:
        assert b"".join(blobs.read("k", start=5, length=5)) == b"567"


ASKING: list[Callable[[S3Blobs], object]] = [
    lambda blobs: blobs.head("k"),
    lambda blobs: blobs.put("k", b""),
    lambda blobs: blobs.sign("k", expires_s=60),
    lambda blobs: list(blobs.list("")),
]


@pytest.mark.parametrize("asking", ASKING)
def test_unknown_credentials_are_unavailable(
    asking: Callable[[S3Blobs], object],
) -> None:
    ambient = {name: value for name, value in SIMULATED.items() if "_KEY" not in name}
    with patch.dict(os.environ, ambient, clear=True):
        for url in ("s3://b?profile=absent", "s3://b?endpoint=http://127.0.0.1:9"):
            with pytest.raises(Unavailable):
                asking(open_s3_blobs(url, CloudLimits(0.1, 0.1, 1, 1)))


def test_a_large_part_passes_through_little_memory() -> None:
    begun = b"<R><UploadId>u</UploadId></R>"
    with Script(Say(200, begun), OK).bucket() as blobs:
        upload = blobs.upload("k", part_size=64 * BLOCK, content_type="x/y")
        block = bytes(BLOCK)
        with memory_below(12 * BLOCK):
            upload.part(1, (block for _ in range(64)))


def test_completion_with_lost_response_finds_key_taken() -> None:
    listed = (
        b"<R><Part><PartNumber>1</PartNumber><Size>1</Size><ETag>e</ETag></Part>"
        b"<IsTruncated>false</IsTruncated></R>"
    )
    begun = b"<R><UploadId>u</UploadId></R>"
    script = Script(Say(200, begun), Say(200, listed), Say(silent=True))
    script.says.extend([error(404, "NoSuchUpload"), OK])
    with script.bucket() as blobs:
        upload = blobs.upload("k", part_size=5, content_type="x/y")
        with pytest.raises(AlreadyExists):
            upload.complete()
