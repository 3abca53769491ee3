"""Our HTTP servers, where they differ from gunicorn: a request that never reaches an application is
refused as every other one is, and who sends nothing holds no thread for long.
"""

import socket
import struct
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import orjson
from gunicorn.http import errors
from gunicorn.workers.gthread import ThreadWorker

from api.errors import UNEXPECTED
from api.problems import MEDIA_TYPE, REQUEST_ID_HEADER, new_request_id, problem

LONGEST_LINE = 8190
"""Bytes of a request line. Gunicorn knows no larger bound, and proxies take as much: all addresses
that we make ourselves are shorter (pointers of pages, what a browser carries through a login)."""

SILENCE_S = 30
"""How long a client may send nothing of its request, or take nothing of its answer. A thread waits
for it all the while, so that a few dozen silent connections would be the end of the service."""

MALFORMED = "This is no request of HTTP/1.1"
LONG = f"The request line has more than {LONGEST_LINE} bytes; what is long belongs into a body"

REFUSED: dict[type[Exception], tuple[int, str, str]] = {
    errors.LimitRequestLine: (414, "illegal_arguments", LONG),
    errors.LimitRequestHeaders: (431, "illegal_arguments", "The headers are too many or too long"),
    errors.ExpectationFailed: (417, "illegal_arguments", "Only 100-continue may be expected"),
    errors.UnsupportedTransferCoding: (501, "illegal_arguments", "Only chunked is known here"),
    errors.InvalidResponseHeader: (500, "internal_error", UNEXPECTED),
    errors.InvalidResponseHeaderName: (500, "internal_error", UNEXPECTED),
    errors.ConfigurationProblem: (500, "internal_error", UNEXPECTED),
    errors.ParseException: (400, "illegal_arguments", MALFORMED),
    Exception: (500, "internal_error", UNEXPECTED),
}
"""Status, code and detail; of the nearest class to what was raised."""


class Worker(ThreadWorker):  # type: ignore[misc]
    """Gunicorn's threads."""

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: Exception) -> None:
        """Answer what went wrong before or beside the application; the connection ends then."""
        request_id = new_request_id()
        status, answer = refusal(exc, request_id)
        peer, kind = (addr or ("",))[0], type(exc).__name__
        if status == HTTPStatus.INTERNAL_SERVER_ERROR:
            self.log.error("request %s of %s failed", request_id, peer, exc_info=exc)
        else:
            # Not what was sent: a token may be in it.
            self.log.warning("request %s of %s: %s, %s", request_id, peer, status, kind)
        try:
            client.sendall(answer)
        except OSError as error:
            self.log.debug("nobody takes the answer: %s", error)


def refusal(error: Exception, request_id: str) -> tuple[int, bytes]:
    """The status and the whole answer to a request that cannot be read."""
    status, code, detail = next(REFUSED[kind] for kind in type(error).__mro__ if kind in REFUSED)
    body = orjson.dumps(problem(status, code, detail, request_id=request_id))
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"Date: {formatdate(usegmt=True)}",
        "Connection: close",
        f"Content-Type: {MEDIA_TYPE}",
        f"Content-Length: {len(body)}",
        "X-Content-Type-Options: nosniff",
        f"{REQUEST_ID_HEADER}: {request_id}",
    )
    return status, "\r\n".join((*head, "", "")).encode("ascii") + body


def lose_patience(worker: Any) -> None:
    """Let connections time out, which they inherit from the sockets that they are accepted on."""
    for listener in worker.sockets:
        patience = struct.pack("ll", SILENCE_S, 0)
        listener.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        listener.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # What is sent by the kernel knows no time-out but this one.
            listener.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_S * 1000)
