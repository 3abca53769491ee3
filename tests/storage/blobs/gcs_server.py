"""A simulated Google Cloud Storage server on loopback.

The emulators that there are leave out conditions, which is what the store stands on. This one holds
whoever asks to tokens, generations, checksums, ranges and signatures. Trouble can be ordered: what
the server does instead of, or after, what it was asked.
"""

import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.storage.blobs.gcs_objects import Objects, Refused, Stored
from tests.storage.blobs.gcs_signatures import Tokens, expect_signed

_OBJECT = re.compile(r"/(storage|download/storage)/v1/b/([^/]+)/o/([^/]+)")
_BUCKET = re.compile(r"/storage/v1/b/([^/]+)")
_OBJECTS = re.compile(r"/storage/v1/b/([^/]+)/o")
_INSERT = re.compile(r"/upload/storage/v1/b/([^/]+)/o")
_COMPOSE = re.compile(r"/storage/v1/b/([^/]+)/o/([^/]+)/compose")
_REWRITE = re.compile(r"/storage/v1/b/([^/]+)/o/([^/]+)/rewriteTo/b/([^/]+)/o/([^/]+)")
_COPY = re.compile(r"/storage/v1/b/([^/]+)/o/([^/]+)/copyTo/b/([^/]+)/o/([^/]+)")
_SESSION = re.compile(r"/session/([0-9a-f]+)")


@dataclass
class Trouble:
    """For the next `times` requests whose `METHOD path?query` matches: answer with `status` and
    what is `said`, instead of or (`done`) after doing it; wait; send only the first bytes of a body
    (`cut`), or say that there are no more (`short`); hang up after so many bytes of the request's (`deaf`)."""

    where: str
    times: int = 1
    status: int = 0
    said: str = "trouble"
    done: bool = False
    wait_s: float = 0.0
    cut: int | None = None
    short: int | None = None
    deaf: int | None = None


@dataclass
class Session:
    """A resumable upload."""

    bucket: str
    resource: dict[str, Any]
    params: dict[str, str]
    data: bytearray = field(default_factory=bytearray)
    made: Stored | None = None


@dataclass
class Gcs:
    """The whole of it. `asked` is every request in order, `METHOD path?query`; the clock that signed
    URLs expire by may be `ahead`."""

    objects: Objects = field(default_factory=Objects)
    tokens: Tokens = field(default_factory=Tokens)
    trouble: list[Trouble] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    sessions: dict[str, Session] = field(default_factory=dict)
    endpoint: str = ""
    ahead: timedelta = timedelta()
    lock: threading.Lock = field(default_factory=threading.Lock)

    def due(self, line: str) -> Trouble | None:
        """Note a request, and find the trouble that was ordered for it."""
        with self.lock:
            self.asked.append(line)
            for trouble in self.trouble:
                if trouble.times and re.search(trouble.where, line):
                    trouble.times -= 1
                    return trouble
        return None


@dataclass
class Answer:
    """What is sent back."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class HungUp(Exception):
    """The server closed the connection."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    gcs: Gcs

    def _serve(self) -> None:
        trouble = self.gcs.due(f"{self.command} {self.path}") or Trouble("")
        time.sleep(trouble.wait_s)
        try:
            body = self._body(trouble.deaf)
            answer = Answer(trouble.status)
            if not trouble.status or trouble.done:
                answer = self._answer(body)
            if trouble.status:
                answer = Answer(trouble.status, trouble.said.encode())
        except Refused as refused:
            words = {"error": {"code": refused.status, "message": refused.message}}
            answer = Answer(refused.status, json.dumps(words).encode())
        except HungUp:
            self.close_connection = True
            return
        if trouble.short is not None:
            answer.body = answer.body[: trouble.short]
        self._send(answer, trouble.cut)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _serve  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Silent."""

    def _body(self, deaf: int | None) -> bytes:
        length = int(self.headers.get("Content-Length") or 0)
        if deaf is None:
            return self.rfile.read(length)
        self._keep(self.rfile.read(min(deaf, length)))
        raise HungUp

    def _keep(self, data: bytes) -> None:
        """A session keeps what has come, whatever became of the rest."""
        match = _SESSION.fullmatch(urlsplit(self.path).path)
        if match:
            self.gcs.sessions[match[1]].data += data

    def _send(self, answer: Answer, cut: int | None) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body if cut is None else answer.body[:cut])
        self.wfile.flush()
        if cut is not None:
            self.close_connection = True

    def _answer(self, body: bytes) -> Answer:
        parts = urlsplit(self.path)
        params = dict(parse_qsl(parts.query, keep_blank_values=True))
        if parts.path == "/token":
            given = dict(parse_qsl(body.decode()))
            return _json(self.gcs.tokens.exchange(given["assertion"]))
        session = _SESSION.fullmatch(parts.path)
        if session:
            return self._session(session[1], body)
        for method, pattern, serve in ROUTES:
            match = pattern.fullmatch(parts.path)
            if match and method == self.command:
                self.gcs.tokens.expect(self.headers["Authorization"] or "")
                return serve(self, [unquote(group) for group in match.groups()], params, body)
        now = datetime.now(UTC) + self.gcs.ahead
        expect_signed(self.command, parts.path, parts.query, self.headers, now)
        if self.command == "PUT":
            return self._signed_put(parts.path, body)
        return self._signed(parts.path, params)

    # The JSON interface

    def get(self, names: list[str], params: dict[str, str], _: bytes) -> Answer:
        found = self.gcs.objects.get(names[1], names[2], params)
        if params.get("alt") == "media":
            return self._media(found)
        return _json(found.resource(), params)

    def bucket(self, names: list[str], params: dict[str, str], _: bytes) -> Answer:
        with self.gcs.objects.bucket(names[0]):
            return _json({"kind": "storage#bucket", "name": names[0]}, params)

    def listing(self, names: list[str], params: dict[str, str], _: bytes) -> Answer:
        return _json(self.gcs.objects.list(names[0], params), params)

    def delete(self, names: list[str], params: dict[str, str], _: bytes) -> Answer:
        self.gcs.objects.delete(names[1], names[2], params)
        return Answer(204)

    def patch(self, names: list[str], params: dict[str, str], body: bytes) -> Answer:
        found = self.gcs.objects.patch(names[1], names[2], json.loads(body), params)
        return _json(found.resource(), params)

    def compose(self, names: list[str], params: dict[str, str], body: bytes) -> Answer:
        made = self.gcs.objects.compose(names[0], names[1], json.loads(body), params)
        return _json(made.resource(), params)

    def rewrite(self, names: list[str], params: dict[str, str], body: bytes) -> Answer:
        source, target = (names[0], names[1]), (names[2], names[3])
        description = json.loads(body) if body else None
        return _json(self.gcs.objects.rewrite(source, target, params, description), params)

    def copy(self, names: list[str], params: dict[str, str], body: bytes) -> Answer:
        """A rewrite in one call, however long it takes."""
        while (told := self.rewrite(names, params, body)) and b'"done": false' in told.body:
            params = {**params, "rewriteToken": json.loads(told.body)["rewriteToken"]}
        return _json(json.loads(told.body)["resource"])

    def insert(self, names: list[str], params: dict[str, str], body: bytes) -> Answer:
        if params["uploadType"] == "resumable":
            resource = json.loads(body)
            _declare(resource, self.headers["X-Upload-Content-Type"] or "")
            self.gcs.objects.may_put(names[0], resource["name"], params)
            ident = secrets.token_hex(8)
            self.gcs.sessions[ident] = Session(names[0], resource, params)
            return Answer(200, b"", {"Location": f"{self.gcs.endpoint}/session/{ident}"})
        resource, data = _multipart(self.headers["Content-Type"], body)
        return _json(self.gcs.objects.put(names[0], resource, data, params).resource(), params)

    def _session(self, ident: str, body: bytes) -> Answer:
        if ident not in self.gcs.sessions:
            raise Refused(410, "This session is over.")
        if self.command == "DELETE":
            del self.gcs.sessions[ident]
            return Answer(499)
        session = self.gcs.sessions[ident]
        if session.made:
            return _json(session.made.resource(), session.params)
        reach, _, total = self.headers["Content-Range"].removeprefix("bytes ").partition("/")
        if reach != "*":
            first = int(reach.partition("-")[0])
            if first > len(session.data):
                raise Refused(503, "Bytes that are not the next ones")
            # Bytes that it has already are ignored, as documented.
            session.data += body[len(session.data) - first :]
        if total == "*" or len(session.data) < int(total):
            last = len(session.data) - 1
            return Answer(308, b"", {"Range": f"bytes=0-{last}"} if session.data else {})
        put = self.gcs.objects.put
        session.made = put(session.bucket, session.resource, bytes(session.data), session.params)
        return _json(session.made.resource(), session.params)

    def _media(self, found: Stored) -> Answer:
        headers = {
            "Content-Type": found.content_type or "application/octet-stream",
            "X-Goog-Generation": str(found.generation),
            "X-Goog-Stored-Content-Length": str(len(found.data)),
            "X-Goog-Hash": f"crc32c={found.crc32c}",
        }
        if found.content_encoding:
            headers["Content-Encoding"] = found.content_encoding
        reach = self.headers.get("Range")
        if reach is None:
            return Answer(200, found.data, headers)
        first, _, last = reach.removeprefix("bytes=").partition("-")
        data = found.data[int(first) : int(last) + 1 if last else None]
        if not data:
            raise Refused(416, "The requested range cannot be satisfied.")
        end, total = int(first) + len(data) - 1, len(found.data)
        return Answer(206, data, {**headers, "Content-Range": f"bytes {first}-{end}/{total}"})

    # The XML interface, as far as signed URLs need it

    def _signed(self, path: str, params: dict[str, str]) -> Answer:
        bucket, _, key = path.removeprefix("/").partition("/")
        found = self.gcs.objects.get(bucket, unquote(key), {})
        answer = self._media(found)
        wished = params.get("response-content-type")
        if wished and not found.content_type:
            answer.headers["Content-Type"] = wished
        if "response-content-disposition" in params:
            answer.headers["Content-Disposition"] = params["response-content-disposition"]
        return answer

    def _signed_put(self, path: str, body: bytes) -> Answer:
        bucket, _, key = path.removeprefix("/").partition("/")
        least, _, most = self.headers.get("x-goog-content-length-range", "0,0").partition(",")
        if not int(least) <= len(body) <= int(most):
            raise Refused(400, "EntityTooLarge")
        resource = {"name": unquote(key), "contentType": self.headers["Content-Type"]}
        declared = self.headers.get("x-goog-hash", "")
        if declared:
            resource["crc32c"] = declared.removeprefix("crc32c=")
        self.gcs.objects.put(bucket, resource, body, {})
        return Answer(200)


Serve = Callable[[Handler, list[str], dict[str, str], bytes], Answer]
ROUTES: list[tuple[str, re.Pattern[str], Serve]] = [
    ("GET", _OBJECT, Handler.get),
    ("GET", _OBJECTS, Handler.listing),
    ("GET", _BUCKET, Handler.bucket),
    ("DELETE", _OBJECT, Handler.delete),
    ("PATCH", _OBJECT, Handler.patch),
    ("POST", _COMPOSE, Handler.compose),
    ("POST", _REWRITE, Handler.rewrite),
    ("POST", _COPY, Handler.copy),
    ("POST", _INSERT, Handler.insert),
]


def _json(told: dict[str, Any], params: dict[str, str] | None = None) -> Answer:
    """Only the outermost of the wanted fields are picked."""
    wanted = re.sub(r"\([^)]*\)", "", (params or {}).get("fields", ""))
    if wanted:
        told = {name: value for name, value in told.items() if name in wanted.split(",")}
    return Answer(200, json.dumps(told).encode(), {"Content-Type": "application/json"})


def _multipart(kind: str, body: bytes) -> tuple[dict[str, Any], bytes]:
    """The description and the bytes; the content type of their part is the object's if the
    description has none."""
    boundary = kind.partition("boundary=")[2].strip('"').encode()
    _, words, rest = body.split(b"--" + boundary, 2)
    headers, _, data = rest.partition(b"\r\n\r\n")
    resource = json.loads(words.partition(b"\r\n\r\n")[2])
    declared = re.search(rb"(?i)content-type:([^\r]*)", headers)
    _declare(resource, declared[1].decode() if declared else "")
    return resource, data[: data.rindex(b"\r\n--" + boundary + b"--")]


def _declare(resource: dict[str, Any], content_type: str) -> None:
    """The bytes' content type is the object's if the description has none; an empty one is none."""
    if content_type.strip() and "contentType" not in resource:
        resource["contentType"] = content_type.strip()


@contextmanager
def gcs_server() -> Iterator[Gcs]:
    """A running one, with nothing in it."""
    gcs = Gcs()

    class Bound(Handler):
        pass

    Bound.gcs = gcs
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
    server.daemon_threads = True
    gcs.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield gcs
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
