"""Parts of pages that renew themselves while their readers look.

The URL of such a page also answers a stream of server-sent events: the part, and the part again
whenever it has changed. Each look is authorized like a request for the page. Browsers that get no
stream ask for the page from time to time instead (`static/live.js`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import Request

from api.http.waiting import EVENT_STREAM_TYPE, ReadSince, StreamEnded, StreamMessage
from storage.errors import Forbidden, NotFoundError, Unauthorized

PAUSE_S = 0.5
"""Least time between two looks of a stream."""
START = StreamMessage(0, "0", None)


@dataclass(frozen=True)
class LivePage:
    """A page with a part that changes, which is a template that the page's includes."""

    template: str
    title: str
    part: str
    version: Any
    """Cheap to read, and different whenever the part is."""
    read: Callable[[], Mapping[str, Any]]
    """Returns the values of both templates."""
    is_over: bool
    """Whether nothing will change any more."""
    topics: Sequence[str] = ()
    """Pubsub topics of changes; without them a stream looks every two seconds."""


Look = Callable[[Any], tuple[LivePage, str] | None]
"""Returns a page with its rendered part; None if its version is still this one."""


def wants_stream(request: Request) -> bool:
    """Return whether the client prefers server-sent events to the page."""
    kinds = ("text/html", EVENT_STREAM_TYPE)
    found = request.accept_mimetypes.best_match(kinds)
    return request.method == "GET" and found == EVENT_STREAM_TYPE


def read_changes(look: Look) -> ReadSince:
    """Return the messages of a stream; it ends when the caller may not see the page any more."""
    sent: Any = None

    def read_since(position: int) -> Iterator[StreamMessage]:
        nonlocal sent
        try:
            found = look(sent)
        except (Unauthorized, Forbidden, NotFoundError) as error:
            raise StreamEnded from error
        if found is None:
            return
        page, part = found
        sent = page.version
        yield StreamMessage(position + 1, str(position + 1), {"part": part})
        if page.is_over:
            raise StreamEnded

    return read_since
