"""Bodies of answers in bounded memory: decompression bombs and huge JSON are refused.

A kilobyte of gzip can stand for a megabyte, and a megabyte of JSON for hundreds of them in memory.
So bytes are counted after decoding, and with them what each value of JSON begins or ends with.
"""

import zlib
from collections.abc import Iterator

import httpx

from store_client.errors import Damaged
from store_client.transport.limits import MOST_VALUES, SMALL_ANSWER
from store_client.transport.origins import shown

PIECE = 64 * 1024
"""Bytes that are decoded at once."""


def bound(answer: httpx.Response, limit: int) -> None:
    """Have the body of an answer decoded and counted when it is read.

    Damaged, while it is read, beyond `limit` bytes. The body of an error is cut off instead: its
    status says enough.
    """
    stream = answer.stream
    if isinstance(stream, httpx.SyncByteStream) and not answer.is_stream_consumed:
        answer.stream = _Bounded(stream, answer, limit)
        if "Content-Encoding" in answer.headers:
            del answer.headers["Content-Encoding"]


class _Bounded(httpx.SyncByteStream):
    """The decoded body of one answer."""

    def __init__(self, stream: httpx.SyncByteStream, answer: httpx.Response, limit: int) -> None:
        self._stream = stream
        self._where = shown(str(answer.url))
        self._encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
        self._is_error = answer.status_code >= httpx.codes.BAD_REQUEST
        self._limit = min(limit, SMALL_ANSWER) if self._is_error else limit

    def __iter__(self) -> Iterator[bytes]:
        size = values = 0
        for piece in self._decoded():
            size += len(piece)
            values += piece.count(b",") + piece.count(b"[") + piece.count(b"{")
            if size > self._limit or values > MOST_VALUES:
                if self._is_error:
                    return
                what = f"{self._limit} bytes" if size > self._limit else f"{MOST_VALUES} values"
                raise Damaged(
                    f"the answer of {self._where} has more than {what}",
                    hint="is the URL right? Ask for less at once",
                )
            yield piece

    def close(self) -> None:
        """End the answer, and its connection if it was not read to its end."""
        self._stream.close()

    def _decoded(self) -> Iterator[bytes]:
        if self._encoding in ("identity", ""):
            return iter(self._stream)
        if self._encoding in ("gzip", "x-gzip"):
            return self._inflated()
        if self._is_error:
            return iter(())
        raise Damaged(f"the answer of {self._where} is encoded as something that was not asked for")

    def _inflated(self) -> Iterator[bytes]:
        """A body of one or more members of gzip."""
        decoder = _gzip()
        came = False
        try:
            for piece in self._stream:
                came = came or bool(piece)
                while piece:
                    if decoder.eof:
                        decoder = _gzip()
                    yield decoder.decompress(piece, PIECE)
                    piece = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
        except zlib.error as error:
            raise Damaged(f"the answer of {self._where} is no gzip: {error}") from error
        if came and not decoder.eof:
            raise Damaged(f"the answer of {self._where} breaks off")


def _gzip() -> "zlib._Decompress":
    return zlib.decompressobj(zlib.MAX_WBITS | 16)
