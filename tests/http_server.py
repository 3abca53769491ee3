"""A local HTTP server for the length of a block."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from flask import Flask
from werkzeug.serving import make_server


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Its base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serving_app(app: Flask) -> Iterator[str]:
    """The base URL of an application, on real connections."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serving_late() -> Iterator[tuple[str, Callable[[Flask], None]]]:
    """A base URL, and what puts an application there that has to know it before it is made."""
    server = make_server("127.0.0.1", 0, Flask("nothing yet"), threaded=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})

    def put(app: Flask) -> None:
        server.app = app
        thread.start()

    try:
        yield f"http://127.0.0.1:{server.server_port}", put
    finally:
        if thread.ident is not None:
            server.shutdown()
            thread.join()
        server.server_close()
