"""Upload areas over HTTP: open one, look into it, lock it, have it removed. Their files are in
`api/area_files.py`."""

from typing import Any
from urllib.parse import quote

from flask import Response

from api.operation import Answer, Call, Operation, operation, reply
from api.paging import next_url, paged
from api.schemas.areas import (
    HEADERS,
    AreaCreated,
    AreaListing,
    AreaState,
    AreaStateAnswer,
    AreaStateBody,
    ListArea,
    ListAreaQuery,
)
from api.schemas.common import NoQuery, Nothing
from pipelines.depositing import area_files, areas
from pipelines.depositing.area_files import Lying
from pipelines.depositing.areas import GOING
from storage import keys
from storage.model import CHECKSUMS, Checksums

TAG = "areas"
_PLAIN = "!#$&'*+-/=?^_`{|}~.@"
"""What stands in a header as it does in an e-mail address. A header is Latin-1 at most."""


@operation(
    "POST",
    "/area/{uuid}",
    tag=TAG,
    query=NoQuery,
    answers={
        201: Answer("Opened.", AreaCreated),
        200: Answer("Opened by you before.", AreaCreated),
    },
    errors=(409,),
    about="A deleted area is never opened again.",
)
def post_area(call: Call[Nothing, None]) -> Response:
    """Open an upload area."""
    fresh = areas.create(call.stores, call.uuid, call.who.email)
    return reply({"uri": _uri(call)}, 201 if fresh else 200)


def _uri(call: Call[Any, Any]) -> str:
    """The prefix of its files: the cloud's own address, or ours where the areas are a folder."""
    direct = call.stores.areas.direct_url(keys.area(call.uuid))
    is_folder = direct.startswith("file:")
    return f"{call.base}/v1/area/{call.uuid}/" if is_folder else direct


@operation(
    "HEAD",
    "/area/{uuid}",
    tag=TAG,
    query=NoQuery,
    answers={200: Answer("It is there.", headers=HEADERS)},
    errors=(404,),
)
def head_area(call: Call[Nothing, None]) -> Response:
    """Look whether an upload area of yours is there."""
    area = areas.owned(call.stores, call.uuid, call.who.email)
    headers = {"X-STORE-STATE": area.state, "X-STORE-OWNER": quote(area.owner, safe=_PLAIN)}
    return Response(b"", headers=headers, mimetype="text/plain")


@operation(
    "GET",
    "/area/{uuid}",
    tag=TAG,
    query=ListAreaQuery,
    answers={200: Answer("The last page.", AreaListing), 206: Answer("A page.", AreaListing)},
    errors=(404,),
    paged="files",
    about="Its files, by name. One that nobody said to have come is UNSCHEDULED.",
)
def get_area(call: Call[ListArea, None]) -> Response:
    """List the files of an upload area of yours."""
    area, size = areas.owned(call.stores, call.uuid, call.who.email), call.query.per_page
    scope = ("get_area", call.uuid)
    found = area_files.listing(call.stores, call.uuid, _after(call, scope), size + 1)
    page, more = found[:size], len(found) > size
    shown = [_listed(call, file) for file in page]
    answer = {"uuid": area.uuid, "uri": _uri(call), "state": area.state, "files": shown}
    following = _next(call, scope, page[-1].name) if more else None
    return paged(reply(answer), "files", following)


def _after(call: Call[ListArea, None], scope: tuple[str, ...]) -> str:
    pointer = call.query.start_at
    if pointer is None:
        return ""
    return call.services.cursors.open(scope, pointer, parameter="start_at")[0]


def _next(call: Call[ListArea, None], scope: tuple[str, ...], last: str) -> str:
    pointer = call.services.cursors.seal(scope, [last])
    return next_url(call.request, call.base, {"start_at": pointer})


def _listed(call: Call[Any, Any], file: Lying) -> dict[str, Any]:
    return {
        "name": file.name,
        "url": source_url(call, file.key, file.name),
        "size": file.size,
        "content_type": file.content_type,
        "checksums": shown_sums(file.checksums),
        "status": file.status,
        "validation": file.validation,
        "cause": file.cause,
    }


def shown_sums(sums: Checksums | None) -> dict[str, str] | None:
    """Checksums as answers have them."""
    return None if sums is None else {name: getattr(sums, name) for name in CHECKSUMS}


def source_url(call: Call[Any, Any], key: str, name: str) -> str:
    """What put_file takes: the cloud's own address, or ours where the areas are a folder."""
    direct = call.stores.areas.direct_url(key)
    ours = keys.area_url(call.base, call.uuid, name)
    is_folder = direct.startswith("file:")
    return ours if is_folder and call.stores.sources.area_key(ours) is not None else direct


@operation(
    "PATCH",
    "/area/{uuid}",
    tag=TAG,
    query=NoQuery,
    body=AreaStateBody,
    answers={200: Answer("So it is.", AreaStateAnswer)},
    errors=(404, 409),
    about="Into a LOCKED one nothing comes, nor is anything in it replaced.",
)
def patch_area(call: Call[Nothing, AreaState]) -> Response:
    """Lock an upload area of yours, or unlock it."""
    areas.change(call.stores, call.uuid, call.body.state, call.who.email)
    return reply({"state": call.body.state})


@operation(
    "DELETE",
    "/area/{uuid}",
    tag=TAG,
    query=NoQuery,
    answers={202: Answer("It is being removed.", AreaStateAnswer)},
    errors=(404,),
    about="With all that it holds, what is on its way, too. It is 404 as soon as nothing is left.",
)
def delete_area(call: Call[Nothing, None]) -> Response:
    """Delete an upload area of yours."""
    todo = areas.delete(call.stores, call.uuid, call.who.email, request_id=call.request_id)
    call.send(todo)
    return reply({"state": GOING}, 202)


OPERATIONS: tuple[Operation, ...] = (post_area, head_area, get_area, patch_area, delete_area)
