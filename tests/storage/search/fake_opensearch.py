"""A scriptable fake OpenSearch server."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson

Reply = tuple[int, Any]
"""A status and what is answered as JSON; a negative status: nothing for so many seconds."""


@dataclass
class FakeEngine:
    """Has one generation; `bulk` and `search` answer, given the lines of the request."""

    generation: str
    bulk: Callable[[list[dict[str, Any]]], Reply] = lambda lines: (200, stored(lines))
    search: Callable[[list[dict[str, Any]]], Reply] = lambda lines: (200, {})
    requests: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    """What stood behind the path of each of them."""
    sizes: list[int] = field(default_factory=list)
    url: str = ""

    def answer(self, method: str, path: str, body: bytes) -> Reply:
        self.requests.append(f"{method} {path.partition('?')[0]}")
        self.options.append(path.partition("?")[2])
        if "/_alias" in path:
            base = self.generation.partition("-words")[0]
            return 200, {self.generation: {"aliases": {base: {}}}}
        lines = [orjson.loads(line) for line in body.splitlines()]
        if "/_bulk" in path:
            self.sizes.append(len(lines) // 2)
            return self.bulk(lines)
        return self.search(lines)


def stored(lines: list[dict[str, Any]], status: int = 201, **more: Any) -> dict[str, Any]:
    """Every document of a bulk request came to the same."""
    return {"items": [{"index": {"status": status, **more}} for _ in lines[::2]]}


@contextmanager
def serving(engine: FakeEngine) -> Iterator[FakeEngine]:
    """On a port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            status, said = engine.answer(self.command, self.path, self.rfile.read(length))
            if status < 0:
                time.sleep(-status)
                self.close_connection = True
                return
            body = orjson.dumps(said)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = respond  # noqa: N815

        def log_message(self, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    engine.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield engine
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
