"""What our requests to other services are held to: an end in time, however an answer drips in, and
in size.
"""

import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import httpcore

Left = Callable[[float | None], float]
"""The seconds that a caller has who would wait so long; httpcore.ReadTimeout when none are left."""

FAILURES = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    httpcore.UnsupportedProtocol,
    OSError,
    ValueError,
)
"""What a request may end in, instead of an answer."""


def left(deadline: float, timeout: float | None) -> float:
    """See `Left`; the deadline is one of `time.monotonic`."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise httpcore.ReadTimeout("too slow")
    return left_s if timeout is None else min(left_s, timeout)


class Timely(httpcore.NetworkStream):
    """A connection whose every read and write ends by the deadline."""

    def __init__(self, stream: httpcore.NetworkStream, left: Left) -> None:
        self._stream = stream
        self._left = left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        made = self._stream.start_tls(ssl_context, server_hostname, self._left(timeout))
        return Timely(made, self._left)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def asking(headers: Mapping[str, str]) -> list[tuple[bytes | str, bytes | str]]:
    """Headers as httpcore wants them, for an answer that is JSON and not compressed: what is
    unpacked has no bound."""
    return [*{"Accept": "application/json", "Accept-Encoding": "identity", **headers}.items()]


def whole(chunks: Iterable[bytes], most: int) -> bytes:
    """All of a body; ValueError when it has more than so many bytes."""
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > most:
            raise ValueError("too large")
    return bytes(body)
