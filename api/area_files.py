"""Files of upload areas over HTTP: put one, say that one came by other means, ask what of it."""

from typing import Any

from flask import Response

from api.areas import TAG, shown_sums, source_url
from api.bodies import blocks
from api.operation import Answer, Call, Operation, operation, reply
from api.schemas.areas import (
    AreaChecksumCounts,
    AreaFile,
    AreaValidationCounts,
    ChecksumStatus,
    FileStatus,
    NamedFile,
    NamedFileQuery,
    SaidFile,
    SaidFileBody,
    ValidationStatus,
)
from api.schemas.common import NoQuery, Nothing
from pipelines.depositing import area_files, areas
from pipelines.depositing.area_files import STATUSES, VALIDATIONS, Lying
from pipelines.depositing.areas import Incoming
from pipelines.limits import AREA_NAME
from storage.protocols import DEFAULT_TYPE


@operation(
    "PUT",
    "/area/{uuid}/files/{filename}",
    tag=TAG,
    query=NoQuery,
    answers={201: Answer("Kept, with its checksums.", AreaFile)},
    errors=(404, 409, 413),
    upload=True,
    about="The body is the file. `filename` may hold slashes and has at most"
    f" {AREA_NAME} bytes of UTF-8; the same name again replaces it.",
)
def put_area_file(call: Call[Nothing, None]) -> Response:
    """Put a file into an upload area."""
    limit = call.services.settings.max_upload_bytes
    # One more than allowed: the stream is cut off at this length, silently.
    call.request.max_content_length = limit + 1
    name = call.path["filename"]
    incoming = Incoming(
        area=call.uuid,
        name=name,
        content_type=call.request.content_type or DEFAULT_TYPE,
        blocks=blocks(call.request.stream),
        length=call.request.content_length,
        limit=limit,
    )
    kept = areas.receive(call.stores, incoming, call.who.email, request_id=call.request_id)
    call.send(kept.todo)
    url, sums = source_url(call, kept.key, name), shown_sums(kept.checksums)
    return reply({"url": url, "size": kept.size, "checksums": sums}, 201)


@operation(
    "POST",
    "/area/{uuid}/files/{filename}",
    tag=TAG,
    query=NoQuery,
    body=SaidFileBody,
    body_optional=True,
    answers={202: Answer("It is looked at, or was.", FileStatus)},
    errors=(404, 409),
    about="For what came by credentials, or by a signed URL. It is read, held to what its uploader"
    " says of it, here or in the object's own `store-*` metadata, and gets its checksums as"
    " metadata. Saying the same again of what did not change begins nothing new.",
)
def post_area_file(call: Call[Nothing, SaidFile]) -> Response:
    """Say that a file came into an upload area by other means."""
    name = call.path["filename"]
    areas.check_name(name)
    areas.writable(call.stores, call.uuid, call.who.email)
    said, request_id = call.body.said, call.request_id
    arrived = area_files.arrived(call.stores, call.uuid, name, said, request_id=request_id)
    call.send(arrived.todo)
    return reply({"status": arrived.status}, 202)


def _file(call: Call[NamedFile, None]) -> Lying:
    areas.check_name(call.query.filename)
    areas.owned(call.stores, call.uuid, call.who.email)
    return area_files.look(call.stores, call.uuid, call.query.filename)


@operation(
    "GET",
    "/area/{uuid}/checksum",
    tag=TAG,
    query=NamedFileQuery,
    answers={200: Answer("How far it is.", ChecksumStatus)},
    errors=(404,),
)
def get_area_checksum(call: Call[NamedFile, None]) -> Response:
    """Ask for the checksums of a file of an upload area."""
    file = _file(call)
    cause = file.cause if file.status == "FAILED" else None
    sums = shown_sums(file.checksums)
    return reply({"status": file.status, "checksums": sums, "cause": cause})


@operation(
    "GET",
    "/area/{uuid}/validate",
    tag=TAG,
    query=NamedFileQuery,
    answers={200: Answer("How far it is.", ValidationStatus)},
    errors=(404,),
    about="VALIDATED: it has the size, the content type and the checksums that were said, and is"
    " well-formed if it is to be JSON (by its name or content type).",
)
def get_area_validate(call: Call[NamedFile, None]) -> Response:
    """Ask whether a file of an upload area is what it is to be."""
    file = _file(call)
    return reply({"status": file.validation, "cause": file.cause})


@operation(
    "GET",
    "/area/{uuid}/checksums",
    tag=TAG,
    query=NoQuery,
    answers={200: Answer("How many files are how far.", AreaChecksumCounts)},
    errors=(404,),
    about="Of the files that were said to have come.",
)
def get_area_checksums(call: Call[Nothing, None]) -> Response:
    """Count the files of an upload area by the states of their checksums."""
    return _counted(call, "status", STATUSES)


@operation(
    "GET",
    "/area/{uuid}/validations",
    tag=TAG,
    query=NoQuery,
    answers={200: Answer("How many files are how far.", AreaValidationCounts)},
    errors=(404,),
    about="Of the files that were said to have come.",
)
def get_area_validations(call: Call[Nothing, None]) -> Response:
    """Count the files of an upload area by the states of their validation."""
    return _counted(call, "validation", VALIDATIONS)


def _counted(call: Call[Any, Any], column: str, states: tuple[str, ...]) -> Response:
    areas.owned(call.stores, call.uuid, call.who.email)
    found = area_files.counted(call.stores, call.uuid, column)
    counts = {state: found.get(state, 0) for state in states}
    return reply({"total": sum(counts.values()), "states": counts})


OPERATIONS: tuple[Operation, ...] = (
    put_area_file,
    post_area_file,
    get_area_checksum,
    get_area_validate,
    get_area_checksums,
    get_area_validations,
)
