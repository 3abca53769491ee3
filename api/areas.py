"""Upload area operations over HTTP: areas and the files in them."""

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from flask import Request, Response

from api.http.form_files import UploadedFiles
from api.http.limits import reserve_memory
from api.http.loading import read_blocks
from api.http.operation import ResponseDoc, StoreContext, json_response, operation, page_responses
from api.schemas.areas import (
    AREA_HEADERS,
    AreaChecksumCounts,
    AreaCreated,
    AreaFileAnswer,
    AreaFileName,
    AreaFilesAnswer,
    AreaListing,
    AreaStateAnswer,
    AreaStateBody,
    AreaValidationCounts,
    ChecksumStatus,
    DeclaredFileBody,
    FileStatus,
    ListArea,
    ValidationStatus,
)
from api.schemas.fields import NoParameters
from pipelines import area_files, areas
from pipelines.area_files import CHECKSUM_STATUSES, VALIDATION_STATUSES, AreaFileInfo
from pipelines.areas import DELETING, IncomingFile, ReceivedFile
from pipelines.copies import INLINE_BYTES
from pipelines.limits import AREA_NAME_MAX_BYTES, FILES_MAX, MB
from storage import keys
from storage.errors import Invalid, TooLarge, UnsupportedMediaType
from storage.model import CHECKSUM_NAMES, Checksums
from storage.protocols import DEFAULT_CONTENT_TYPE

TAG = "areas"
_UNQUOTED = "!#$&'*+-/=?^_`{|}~.@"
"""Characters of an e-mail address that need no quoting in a header, which is Latin-1."""


@operation(
    "POST",
    "/area/{uuid}",
    tag=TAG,
    responses={
        201: ResponseDoc("Created.", AreaCreated),
        200: ResponseDoc("You have created it before.", AreaCreated),
    },
    errors=(409,),
    description="A deleted area cannot be created again.",
)
def post_area(context: StoreContext[NoParameters, None]) -> Response:
    """Open an upload area."""
    fresh = areas.create(context.stores, context.uuid, context.caller.email)
    return json_response({"uri": area_uri(context)}, 201 if fresh else 200)


def area_uri(context: StoreContext[Any, Any]) -> str:
    """Return the prefix of its files: the cloud's URL, or ours if the areas are a folder."""
    direct = context.stores.areas.direct_url(keys.area_prefix(context.uuid))
    is_folder = direct.startswith("file:")
    return f"{context.base}/v1/area/{context.uuid}/" if is_folder else direct


@operation(
    "HEAD",
    "/area/{uuid}",
    tag=TAG,
    responses={200: ResponseDoc("The area exists.", headers=AREA_HEADERS)},
    errors=(404,),
)
def head_area(context: StoreContext[NoParameters, None]) -> Response:
    """Check whether your upload area exists."""
    area = areas.find_owned(context.stores, context.uuid, context.caller.email)
    headers = {"X-STORE-STATE": area.state, "X-STORE-OWNER": quote(area.owner, safe=_UNQUOTED)}
    return Response(b"", headers=headers, mimetype="text/plain")


@operation(
    "GET",
    "/area/{uuid}",
    tag=TAG,
    query=ListArea,
    responses=page_responses(AreaListing),
    errors=(404,),
    paged="files",
    description="Lists files by name. Files that were not registered are UNSCHEDULED.",
)
def get_area(context: StoreContext[ListArea, None]) -> Response:
    """List the files of your upload area."""
    area = areas.find_owned(context.stores, context.uuid, context.caller.email)
    scope, size = ("get_area", context.uuid), context.query.per_page
    position = context.open_cursor(scope, context.query.start_at, "start_at")
    after = position[0] if position else ""
    rows = area_files.list_files(context.stores, context.uuid, after, size + 1)
    page = rows[:size]
    content = {
        "uuid": area.uuid,
        "uri": area_uri(context),
        "state": area.state,
        "files": [_format_file(context, file) for file in page],
    }
    last = [page[-1].name] if len(rows) > size else None
    return context.page_response(content, "files", scope=scope, last=last, parameter="start_at")


def _format_file(context: StoreContext[Any, Any], file: AreaFileInfo) -> dict[str, Any]:
    return {
        "name": file.name,
        "url": source_url(context, file.key, file.name),
        "size": file.size,
        "content_type": file.content_type,
        "checksums": format_checksums(file.checksums),
        "status": file.status,
        "validation": file.validation,
        "cause": file.cause,
    }


def format_checksums(sums: Checksums | None) -> dict[str, str] | None:
    """Format checksums for JSON."""
    return None if sums is None else {name: getattr(sums, name) for name in CHECKSUM_NAMES}


def source_url(context: StoreContext[Any, Any], key: str, name: str) -> str:
    """Return the URL for put_file: the cloud's, or ours if the areas are a folder."""
    direct = context.stores.areas.direct_url(key)
    ours = keys.area_url(context.base, context.uuid, name)
    is_folder = direct.startswith("file:")
    return (
        ours if is_folder and context.stores.sources.resolve_area_key(ours) is not None else direct
    )


@operation(
    "PATCH",
    "/area/{uuid}",
    tag=TAG,
    body=AreaStateBody,
    responses={200: ResponseDoc("The new state.", AreaStateAnswer)},
    errors=(404, 409),
    description="A LOCKED area accepts no files, and none of its files is replaced.",
)
def patch_area(context: StoreContext[NoParameters, AreaStateBody]) -> Response:
    """Lock or unlock your upload area."""
    areas.set_state(context.stores, context.uuid, context.body.state, context.caller.email)
    return json_response({"state": context.body.state})


@operation(
    "DELETE",
    "/area/{uuid}",
    tag=TAG,
    responses={202: ResponseDoc("It is being deleted.", AreaStateAnswer)},
    errors=(404,),
    description="Deletes the area with all of its files and unfinished uploads. It is"
    " 404 once nothing is left.",
)
def delete_area(context: StoreContext[NoParameters, None]) -> Response:
    """Delete your upload area."""
    jobs = areas.delete(
        context.stores, context.uuid, context.caller.email, request_id=context.request_id
    )
    context.send(jobs)
    return json_response({"state": DELETING}, 202)


def open_incoming_file(request: Request, area: str, name: str, limit: int) -> IncomingFile:
    """Return the file in the body of a request, of at most `limit` bytes."""
    # One byte more than allowed: the stream is truncated silently at this length.
    request.max_content_length = limit + 1
    return IncomingFile(
        area=area,
        name=name,
        content_type=request.content_type or DEFAULT_CONTENT_TYPE,
        blocks=read_blocks(request.stream),
        length=request.content_length,
        limit=limit,
    )


@operation(
    "PUT",
    "/area/{uuid}/files/{filename}",
    tag=TAG,
    responses={201: ResponseDoc("Stored, with its checksums.", AreaFileAnswer)},
    errors=(404, 409, 413),
    upload=True,
    description="The body is the file. `filename` may hold slashes and has at most"
    f" {AREA_NAME_MAX_BYTES} bytes of UTF-8; a file of the same name is replaced.",
)
def put_area_file(context: StoreContext[NoParameters, None]) -> Response:
    """Put a file into an upload area."""
    name, limit = context.path["filename"], context.services.settings.max_upload_bytes
    incoming = open_incoming_file(context.request, context.uuid, name, limit)
    stored_file = areas.receive_file(
        context.stores, incoming, context.caller.email, request_id=context.request_id
    )
    context.send(stored_file.jobs)
    return json_response(_format_stored(context, name, stored_file), 201)


def _format_stored(
    context: StoreContext[Any, Any], name: str, stored_file: ReceivedFile
) -> dict[str, Any]:
    return {
        "url": source_url(context, stored_file.key, name),
        "size": stored_file.size,
        "checksums": format_checksums(stored_file.checksums),
    }


@operation(
    "PUT",
    "/area/{uuid}/files",
    tag=TAG,
    responses={201: ResponseDoc("Stored, with their checksums.", AreaFilesAnswer)},
    errors=(404, 409, 413, 415),
    upload_files=True,
    description="For many small files: the body is a multipart form of at most"
    f" {FILES_MAX} files and {INLINE_BYTES // MB} MB. Each part is stored under its file name,"
    " with its content type, as by put_area_file. If a name is invalid, none is stored.",
)
def put_area_files(context: StoreContext[NoParameters, None]) -> Response:
    """Put several small files into an upload area."""
    incoming = list(_read_form_files(context))
    if not incoming:
        raise Invalid("The form has no file.", errors={"file": ["The form has no file."]})
    stored_files = areas.receive_files(
        context.stores, incoming, context.caller.email, request_id=context.request_id
    )
    context.send([job for stored_file in stored_files for job in stored_file.jobs])
    answers = [
        {"name": file.name, **_format_stored(context, file.name, stored_file)}
        for file, stored_file in zip(incoming, stored_files, strict=True)
    ]
    return json_response({"files": answers}, 201)


def _read_form_files(context: StoreContext[NoParameters, None]) -> Iterator[IncomingFile]:
    """Yield the files of a multipart form, each in memory; raise TooLarge above the limits."""
    request = context.request
    if request.mimetype != "multipart/form-data":
        raise UnsupportedMediaType("Content-Type: must be multipart/form-data")
    # The files are counted below; twice as much leaves room for the headers of their parts.
    request.max_content_length = 2 * INLINE_BYTES
    reserve_memory(
        context.services.memory, min(request.content_length or INLINE_BYTES, INLINE_BYTES)
    )
    left = INLINE_BYTES
    for number, file in enumerate(UploadedFiles(request)):
        if number == FILES_MAX:
            raise TooLarge(f"A form has at most {FILES_MAX} files.")
        data = _join_blocks(file.blocks, left)
        left -= len(data)
        yield IncomingFile(
            area=context.uuid,
            name=file.name,
            content_type=file.content_type,
            blocks=(data,),
            length=len(data),
            limit=context.services.settings.max_upload_bytes,
        )


def _join_blocks(blocks: Iterable[bytes], limit: int) -> bytes:
    data = bytearray()
    for block in blocks:
        data += block
        if len(data) > limit:
            raise TooLarge(f"The files of a form have at most {INLINE_BYTES} bytes.")
    return bytes(data)


@operation(
    "POST",
    "/area/{uuid}/files/{filename}",
    tag=TAG,
    body=DeclaredFileBody,
    body_optional=True,
    responses={202: ResponseDoc("It is being verified, or was.", FileStatus)},
    errors=(404, 409, 413),
    description="For files that were uploaded with credentials or by a signed URL. The"
    " file is read, compared with what its uploader declares here or in the"
    " object's own `store-*` metadata, and gets its checksums as metadata."
    " Repeating the request for an unchanged file starts nothing new.",
)
def post_area_file(context: StoreContext[NoParameters, DeclaredFileBody]) -> Response:
    """Register a file uploaded directly to the bucket."""
    name = context.path["filename"]
    areas.check_file_name(name)
    areas.find_writable(context.stores, context.uuid, context.caller.email)
    declared, request_id = context.body.properties, context.request_id
    registration = area_files.register_upload(
        context.stores, context.uuid, name, declared, request_id=request_id
    )
    context.send(registration.jobs)
    return json_response({"status": registration.status}, 202)


def _find_file(context: StoreContext[AreaFileName, None]) -> AreaFileInfo:
    areas.check_file_name(context.query.filename)
    areas.find_owned(context.stores, context.uuid, context.caller.email)
    return area_files.get_file(context.stores, context.uuid, context.query.filename)


@operation(
    "GET",
    "/area/{uuid}/checksum",
    tag=TAG,
    query=AreaFileName,
    responses={200: ResponseDoc("The progress.", ChecksumStatus)},
    errors=(404,),
)
def get_area_checksum(context: StoreContext[AreaFileName, None]) -> Response:
    """Show the checksums of a file of an upload area."""
    file = _find_file(context)
    cause = file.cause if file.status == "FAILED" else None
    sums = format_checksums(file.checksums)
    return json_response({"status": file.status, "checksums": sums, "cause": cause})


@operation(
    "GET",
    "/area/{uuid}/validate",
    tag=TAG,
    query=AreaFileName,
    responses={200: ResponseDoc("The progress.", ValidationStatus)},
    errors=(404,),
    description="VALIDATED: it has the size, the content type and the checksums that were said, and"
    " is well-formed if it is to be JSON (by its name or content type).",
)
def get_area_validate(context: StoreContext[AreaFileName, None]) -> Response:
    """Show the validation of a file of an upload area."""
    file = _find_file(context)
    return json_response({"status": file.validation, "cause": file.cause})


@operation(
    "GET",
    "/area/{uuid}/checksums",
    tag=TAG,
    responses={200: ResponseDoc("The number of files by state.", AreaChecksumCounts)},
    errors=(404,),
    description="Counts the registered files.",
)
def get_area_checksums(context: StoreContext[NoParameters, None]) -> Response:
    """Count the files of an upload area by the states of their checksums."""
    return _count_by_state(context, "status", CHECKSUM_STATUSES)


@operation(
    "GET",
    "/area/{uuid}/validations",
    tag=TAG,
    responses={200: ResponseDoc("The number of files by state.", AreaValidationCounts)},
    errors=(404,),
    description="Counts the registered files.",
)
def get_area_validations(context: StoreContext[NoParameters, None]) -> Response:
    """Count the files of an upload area by the states of their validation."""
    return _count_by_state(context, "validation", VALIDATION_STATUSES)


def _count_by_state(
    context: StoreContext[Any, Any], column: str, states: tuple[str, ...]
) -> Response:
    areas.find_owned(context.stores, context.uuid, context.caller.email)
    by_state = area_files.count_files(context.stores, context.uuid, column)
    counts = {state: by_state.get(state, 0) for state in states}
    return json_response({"total": sum(counts.values()), "states": counts})
