"""Files that come into an upload area by parts, over HTTP: each part is a request of its own, and
what a broken line costs is one of them.

The id that a client is given is sealed with the area, the name and the person that it belongs to.
"""

import base64
import binascii
import secrets
from typing import Any

from flask import Response

from api.areas import TAG, source_url
from api.bodies import blocks
from api.operation import Answer, Call, Operation, operation, reply
from api.schemas.area_uploads import (
    AreaPart,
    AreaUpload,
    AreaUploadDone,
    BegunUpload,
    BegunUploadBody,
    CompletedUpload,
    CompletedUploadBody,
    NamedPart,
    NamedPartQuery,
    NamedUpload,
    NamedUploadQuery,
)
from api.schemas.common import Empty, NoQuery, Nothing
from pipelines.depositing import area_completing, area_parts, areas
from pipelines.depositing.area_parts import Begun, Named, Part
from storage import keys
from storage.catalog import area_uploads
from storage.errors import Invalid, Unavailable
from storage.protocols import DEFAULT_TYPE
from storage.sealing import Sealer, derive

SEALING = b"area uploads"
"""What the key is for that ids of uploads are sealed with."""
ID_BYTES = 16
IN_BODY = "/upload_id"


@operation(
    "POST",
    "/area/{uuid}/uploads/{filename}",
    tag=TAG,
    query=NoQuery,
    body=BegunUploadBody,
    answers={201: Answer("Begun.", AreaUpload), 200: Answer("Taken up again.", AreaUpload)},
    errors=(404, 409),
    about="For large files and bad lines. All parts but the last have `part_size` bytes. With the"
    " `upload_id` of an upload that was begun before, `parts` says what came of it. What nobody"
    " goes on with for a day is forgotten.",
)
def post_area_upload(call: Call[Nothing, BegunUpload]) -> Response:
    """Begin, or take up again, an upload by parts into an upload area."""
    body = call.body
    if body.upload_id is not None:
        named = _named(call, body.upload_id, IN_BODY)
        begun = area_parts.take_up(call.stores, named, call.who.email)
        _check_size(begun, body.size)
        return reply(_shown(begun, body.upload_id))
    ident = secrets.token_bytes(ID_BYTES)
    begun = area_parts.begin(
        call.stores,
        _wanted(call, ident.hex()),
        call.who.email,
        limit=call.services.settings.max_upload_bytes,
    )
    return reply(_shown(begun, _sealed(call, ident)), 201)


def _wanted(call: Call[Nothing, BegunUpload], ident: str) -> area_uploads.AreaUpload:
    return area_uploads.AreaUpload(
        id=ident,
        area=call.uuid,
        name=call.path["filename"],
        token="",
        size=call.body.size,
        content_type=call.body.content_type or DEFAULT_TYPE,
        part_size=0,
    )


def _check_size(begun: Begun, size: int) -> None:
    if begun.upload.size != size:
        said = f"This upload is of {begun.upload.size} bytes."
        raise Invalid(said, code="illegal_token", errors={"/size": [said]})


def _shown(begun: Begun, upload_id: str) -> dict[str, Any]:
    return {
        "upload_id": upload_id,
        "size": begun.upload.size,
        "part_size": begun.upload.part_size,
        "part_count": area_parts.count(begun.upload),
        "parts": list(begun.stored),
    }


@operation(
    "GET",
    "/area/{uuid}/uploads/{filename}",
    tag=TAG,
    query=NamedUploadQuery,
    answers={200: Answer("As it stands.", AreaUpload)},
    errors=(404, 409),
)
def get_area_upload(call: Call[NamedUpload, None]) -> Response:
    """Ask which parts of an upload are stored."""
    named = _named(call, call.query.upload_id)
    begun = area_parts.take_up(call.stores, named, call.who.email)
    return reply(_shown(begun, call.query.upload_id))


@operation(
    "PUT",
    "/area/{uuid}/uploads/{filename}",
    tag=TAG,
    query=NamedPartQuery,
    answers={200: Answer("Stored.", AreaPart)},
    errors=(404, 409, 413),
    upload=True,
    about="The body is the part; `Content-Length` must say its size. In any order, several at once,"
    " and again: `md5` is that of what arrived.",
)
def put_area_part(call: Call[NamedPart, None]) -> Response:
    """Put one part of an upload."""
    named, number = _named(call, call.query.upload_id), call.query.part
    upload = area_parts.find(call.stores, named, call.who.email)
    size = area_parts.expected(upload, number)
    # One more than there is: the stream is cut off at this length, silently.
    call.request.max_content_length = size + 1
    announced = call.request.content_length
    # Any other is refused for what it says, before the stream is for its length.
    part = Part(number, announced, blocks(call.request.stream) if announced == size else ())
    digest = area_parts.receive(call.stores, upload, part)
    return reply({"part": number, "size": size, "md5": digest})


@operation(
    "POST",
    "/area/{uuid}/complete/{filename}",
    tag=TAG,
    query=NoQuery,
    body=CompletedUploadBody,
    answers={202: Answer("The file is there, and is looked at.", AreaUploadDone)},
    errors=(404, 409),
    about="The file takes the place of what the name stood for. As with `post_area_file` it is held"
    " to the `checksums` that are said. The same upload again is answered the same.",
)
def post_area_upload_complete(call: Call[Nothing, CompletedUpload]) -> Response:
    """Make the parts of an upload a file."""
    named = _named(call, call.body.upload_id, IN_BODY)
    done = area_completing.complete(
        call.stores, named, call.who.email, _said(call.body), request_id=call.request_id
    )
    call.send(done.todo)
    url = source_url(call, keys.area_file(named.area, named.name), named.name)
    return reply({"url": url, "size": done.size, "status": done.status}, 202)


def _said(body: CompletedUpload) -> dict[str, Any]:
    return {"checksums": dict(body.checksums)} if body.checksums else {}


@operation(
    "DELETE",
    "/area/{uuid}/uploads/{filename}",
    tag=TAG,
    query=NamedUploadQuery,
    answers={200: Answer("Its parts are gone.", Empty)},
    errors=(404,),
    about="Also of what is gone already, and in an area that is locked.",
)
def delete_area_upload(call: Call[NamedUpload, None]) -> Response:
    """Abort an upload."""
    area_parts.abort(call.stores, _named(call, call.query.upload_id), call.who.email)
    return reply({})


def _sealer(call: Call[Any, Any]) -> Sealer:
    return Sealer(derive(call.services.settings.secret_key.encode(), SEALING))


def _context(call: Call[Any, Any]) -> bytes:
    """Whom and what an id belongs to; neither of the first two has a line feed."""
    return f"{call.who.email}\n{call.uuid}\n{call.path['filename']}".encode()


def _sealed(call: Call[Any, Any], ident: bytes) -> str:
    sealed = _sealer(call).seal(ident, _context(call))
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def _named(call: Call[Any, Any], upload_id: str, where: str = "upload_id") -> Named:
    """What an id names; whose area it is comes first. Invalid (`illegal_token`)."""
    areas.owned(call.stores, call.uuid, call.who.email)
    try:
        padded = upload_id.encode("ascii") + b"=" * (-len(upload_id) % 4)
        sealed = base64.b64decode(padded, altchars=b"-_", validate=True)
        ident = _sealer(call).open(sealed, _context(call))
    except (binascii.Error, UnicodeEncodeError, Unavailable) as error:
        said = "This is no upload of yours of this file."
        raise Invalid(said, code="illegal_token", errors={where: [said]}) from error
    return Named(call.uuid, call.path["filename"], ident.hex())


OPERATIONS: tuple[Operation, ...] = (
    post_area_upload,
    get_area_upload,
    put_area_part,
    post_area_upload_complete,
    delete_area_upload,
)
