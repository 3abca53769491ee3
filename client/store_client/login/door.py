"""A port of this machine where the browser brings the answer of the authorization service.

It takes one answer, to `/callback` and with the state that was asked with; whatever else comes is
not found, or refused, and changes nothing. The browser is kept waiting until it is known how the
login went, so that the page says what is true.
"""

import hmac
import html
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Full, Queue
from threading import Event, Lock, Thread
from urllib.parse import parse_qsl, urlsplit

from store_client.errors import TimedOut

HOST, PATH = "127.0.0.1", "/callback"
SILENT_S = 10.0
"""A browser that connects ahead of time and says nothing is not waited for."""
TOLD_S = 60.0
"""How long a browser is kept waiting for how it went."""
WRITTEN_S = 2.0
"""How long the last page may take to get to the browser."""
MAX_TARGET = 16 * 1024
POLL_S = 0.1
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Connection": "close",
}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>body {{ font: 1.1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 15vh auto;
padding: 0 1rem; }} @media (prefers-color-scheme: dark) {{ body {{ background: #161616;
color: #eee; }} }}</style></head>
<body><main><h1>{title}</h1><p>{text}</p></main></body></html>
"""
NOT_OURS = ("Not this login", "This is not the answer to the login that waits. Begin again.")
LATER = ("Go back to the terminal", "It says how the login went.")

Answer = Mapping[str, str]


class Door:
    """Where the answer is waited for."""

    def __init__(self, server: "_Server") -> None:
        self._server = server

    @property
    def redirect_uri(self) -> str:
        """The address to have the browser brought to."""
        return f"http://{HOST}:{self._server.server_port}{PATH}"

    def expect(self, state: str) -> None:
        """Take the answer that has this state."""
        self._server.state = state

    def wait(self, seconds: float) -> Answer:
        """The parameters of the answer; TimedOut when none comes."""
        try:
            return self._server.came.get(timeout=seconds)
        except Empty:
            raise TimedOut(
                f"nobody logged in within {seconds:.0f} s",
                hint="again: store login; where there is no browser: store login --remote",
            ) from None

    def tell(self, title: str, text: str) -> None:
        """What the browser shows now."""
        with suppress(Full):
            self._server.told.put_nowait((title, text))


@contextmanager
def opened() -> Iterator[Door]:
    """A door, on a port that is free."""
    with _Server((HOST, 0), _Knock) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": POLL_S}, daemon=True)
        thread.start()
        door = Door(server)
        try:
            yield door
        finally:
            door.tell(*LATER)
            if server.taken:
                server.shown.wait(WRITTEN_S)
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.state = ""
        self.came: Queue[Answer] = Queue(maxsize=1)
        self.told: Queue[tuple[str, str]] = Queue(maxsize=1)
        self.taken = False
        self._taking = Lock()
        self.shown = Event()

    def takes(self, said: Answer) -> bool:
        """Whether this is the answer that is waited for: the first with the right state."""
        if not self.state or not _same(said.get("state", ""), self.state):
            return False
        with self._taking:
            if self.taken:
                return False
            self.taken = True
        self.came.put_nowait(said)
        return True

    def handle_error(self, *_: object) -> None:
        """A browser that hangs up is no error of ours."""


class _Knock(BaseHTTPRequestHandler):
    server: _Server
    timeout = SILENT_S

    def do_GET(self) -> None:
        """The answer, or something else."""
        target = urlsplit(self.path) if len(self.path) <= MAX_TARGET else None
        if target is None or target.path != PATH or not self._is_for_us():
            self._show(404, "Not found", "There is nothing here.")
            return
        said = _read(target.query)
        if not self.server.takes(said):
            self._show(400, *NOT_OURS)
            return
        try:
            self._show(200, *self._outcome())
        finally:
            self.server.shown.set()

    def _is_for_us(self) -> bool:
        """Not a page of somebody's whose name leads here."""
        return self.headers.get("Host", "") == f"{HOST}:{self.server.server_port}"

    def _outcome(self) -> tuple[str, str]:
        try:
            return self.server.told.get(timeout=TOLD_S)
        except Empty:
            return LATER

    def _show(self, status: int, title: str, text: str) -> None:
        page = PAGE.format(title=html.escape(title), text=html.escape(text)).encode()
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def version_string(self) -> str:
        """Nobody needs to know."""
        return "store"

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Other methods, and what is no HTTP, are not found either."""
        self._show(404 if code == 501 else code, "Not found", "There is nothing here.")

    def log_message(self, *_: object) -> None:
        """What is asked for holds secrets."""


def _read(query: str) -> Answer:
    """The parameters; empty when one is given twice, or there are too many."""
    try:
        given = parse_qsl(query, keep_blank_values=True, max_num_fields=50)
    except ValueError:
        return {}
    said = dict(given)
    return said if len(said) == len(given) else {}


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(errors="replace"), other.encode())
