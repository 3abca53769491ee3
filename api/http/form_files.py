"""Read the files of a multipart form as a stream: nothing is kept in memory or on disk."""

from collections.abc import Iterator
from dataclasses import dataclass

from flask import Request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.sansio.multipart import (
    Data,
    Epilogue,
    Event,
    Field,
    File,
    MultipartDecoder,
    NeedData,
    Preamble,
)

from api.http.loading import read_blocks
from storage.errors import Invalid
from storage.protocols import DEFAULT_CONTENT_TYPE

MAX_FIELD_BYTES = 4096
MAX_HEADER_BYTES = 64 * 1024
"""Maximum length of the headers of a part, and of its boundary."""


@dataclass(frozen=True)
class UploadedFile:
    """A file of a form; its blocks can be read once, before the next file."""

    name: str
    content_type: str
    blocks: Iterator[bytes]


class UploadedFiles:
    """The parts of a multipart form in the order in which they arrive."""

    def __init__(self, request: Request) -> None:
        boundary = request.mimetype_params.get("boundary", "")
        if not boundary:
            raise Invalid("The form has no boundary between its parts.")
        self._events = _decode(request, boundary.encode())

    def read_first_field(self, name: str) -> str:
        """Return the value of the form's first part; empty if that is not this field."""
        event = next((one for one in self._events if not isinstance(one, Preamble)), None)
        if not isinstance(event, Field) or event.name != name:
            return ""
        value = b""
        for block in self._read_part():
            value += block
            if len(value) > MAX_FIELD_BYTES:
                return ""
        return value.decode(errors="replace")

    def __iter__(self) -> Iterator[UploadedFile]:
        for event in self._events:
            if not isinstance(event, File):
                continue
            kind = event.headers.get("Content-Type") or DEFAULT_CONTENT_TYPE
            blocks = self._read_part()
            # A file input without a choice sends a file without a name.
            if event.filename:
                yield UploadedFile(event.filename, kind, blocks)
            for _ in blocks:
                pass

    def _read_part(self) -> Iterator[bytes]:
        for event in self._events:
            if not isinstance(event, Data):
                break
            if event.data:
                yield event.data
            if not event.more_data:
                return
        raise Invalid("The form ended within a file.")


def _decode(request: Request, boundary: bytes) -> Iterator[Event]:
    decoder = MultipartDecoder(boundary)
    for block in read_blocks(request.stream):
        yield from _next_events(decoder, block)
    yield from _next_events(decoder, None)


def _next_events(decoder: MultipartDecoder, block: bytes | None) -> Iterator[Event]:
    """Yield what a block completes; raise Invalid for a malformed form."""
    try:
        decoder.receive_data(block)
        while not isinstance(event := decoder.next_event(), NeedData):
            yield event
            if isinstance(event, Epilogue):
                return
    except (ValueError, RequestEntityTooLarge) as error:
        raise Invalid("The form is incomplete or malformed.") from error
    if len(decoder.buffer) > MAX_HEADER_BYTES + len(block or b""):
        raise Invalid("The form has a part with too long headers.")
