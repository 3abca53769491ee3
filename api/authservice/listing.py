"""Lists of the authorization service: pages by the last item of the page before, so that a walk
stays whole while others insert.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from flask import Response

from api.authservice.schemas.accounts import Listed
from api.authservice.services import Call
from api.operation import reply
from api.paging import next_url, paged
from auth.accounts import reading
from storage.catalog.accounts import Kind, Name

T = TypeVar("T")
PARAMETER = "next_token"


def position(call: Call[Any, None], scope: Sequence[str]) -> list[str] | None:
    """Where the page begins, None for the first."""
    query: Listed = call.query
    if query.next_token is None:
        return None
    return call.services.cursors.open(scope, query.next_token, parameter=PARAMETER)


def page(
    call: Call[Any, None],
    scope: Sequence[str],
    *,
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
    pointer = call.services.cursors.seal(scope, place(items[-1]))
    return paged(response, key, next_url(call.request, call.base, {PARAMETER: pointer}))


def ids(
    call: Call[Any, None],
    scope: Sequence[str],
    *,
    key: str,
    read: Callable[[str, int], Sequence[str]],
) -> Response:
    """A page of ids; `read` gives so many after one."""
    after = position(call, scope)
    found = read(after[0] if after else "", call.query.per_page + 1)
    return page(call, scope, key=key, found=found, place=lambda one: [one], shown=str)


def held(call: Call[Listed, None], operation: str, name: Name, kind: Kind) -> Response:
    """A page of what a record is a member of."""

    def read(after: str, limit: int) -> list[str]:
        return reading.held(call.catalog, name, kind, after=after, limit=limit)

    return ids(call, (operation, name.id), key=f"{kind}s", read=read)


def members(call: Call[Listed, None], operation: str, name: Name, kind: Kind) -> Response:
    """A page of who is a member of a record."""

    def read(after: str, limit: int) -> list[str]:
        return reading.members(call.catalog, name, kind, after=after, limit=limit)

    return ids(call, (operation, name.id), key=f"{kind}s", read=read)
