"""Lists of the authorization service: pages by the last item of the page before, so that a walk
stays whole while others insert.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from flask import Response
from marshmallow import Schema

from api.authservice.schemas.accounts import Listed
from api.authservice.services import Call
from api.operation import Answer, reply
from api.paging import next_url, paged
from auth.accounts import reading
from storage.catalog.accounts import Kind, Name

T = TypeVar("T")
PARAMETER = "next_token"


def pages(schema: type[Schema]) -> dict[int, Answer]:
    """What a list answers."""
    return {200: Answer("The last page.", schema), 206: Answer("A page.", schema)}


def position(call: Call[Any, None], *scope: str) -> list[str] | None:
    """Where the page begins, None for the first. A pointer is of one operation, and of one scope
    there."""
    query: Listed = call.query
    if query.next_token is None:
        return None
    scopes = (call.operation, *scope)
    return call.services.cursors.open(scopes, query.next_token, parameter=PARAMETER)


def page(
    call: Call[Any, None],
    *scope: str,
    key: str,
    found: Sequence[T],
    place: Callable[[T], list[str]],
    shown: Callable[[T], Any],
) -> Response:
    """The answer with one page of what was found, which is one more if there is another page."""
    size = call.query.per_page
    items = found[:size]
    response = reply({key: [shown(one) for one in items]})
    if len(found) <= size:
        return paged(response, key, None)
    pointer = call.services.cursors.seal((call.operation, *scope), place(items[-1]))
    return paged(response, key, next_url(call.request, call.base, {PARAMETER: pointer}))


def every(call: Call[Listed, None], kind: Kind) -> Response:
    """A page of the ids of all records of a kind."""
    return _ids(call, kind, read=partial(reading.ids, call.catalog, kind))


def held(call: Call[Listed, None], name: Name, kind: Kind) -> Response:
    """A page of what a record is a member of."""
    return _ids(call, kind, name.id, read=partial(reading.held, call.catalog, name, kind))


def members(call: Call[Listed, None], name: Name, kind: Kind) -> Response:
    """A page of who is a member of a record."""
    return _ids(call, kind, name.id, read=partial(reading.members, call.catalog, name, kind))


class _Read(Protocol):
    def __call__(self, *, after: str, limit: int) -> Sequence[str]:
        """So many ids after one."""


def _ids(call: Call[Listed, None], kind: Kind, *scope: str, read: _Read) -> Response:
    after = position(call, *scope)
    found = read(after=after[0] if after else "", limit=call.query.per_page + 1)
    return page(call, *scope, key=f"{kind}s", found=found, place=lambda one: [one], shown=str)
