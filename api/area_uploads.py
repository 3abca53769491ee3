"""Uploads into areas over HTTP: multipart uploads, credentials and presigned URLs.

An upload id is sealed with the area, the file's name and the owner's e-mail address.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from flask import Flask, Response, g, request
from marshmallow import fields, validate

from api.areas import TAG, open_incoming_file, source_url
from api.bundles import absolute_url
from api.http.limits import check_rate_limit
from api.http.loading import read_blocks
from api.http.operation import ResponseDoc, Services, StoreContext, json_response, operation
from api.schemas.areas import (
    content_type_field,
    declared_checksums_field,
    file_size_field,
    part_checksum_field,
)
from api.schemas.fields import (
    Empty,
    IntegerField,
    JsonObject,
    NoParameters,
    QueryInteger,
    ResponseSchema,
    TextField,
    describe_field,
    text_length,
)
from auth.secret_values import decode_base64url, encode_base64url
from pipelines import area_uploads, areas
from pipelines.area_uploads import (
    AreaUploadProgress,
    AreaUploadRef,
    AreaWriteGrant,
    AreaWriteRequest,
    IncomingPart,
)
from pipelines.formats import version_from_us
from pipelines.limits import AREA_URLS_MAX
from storage import keys
from storage.blobs.folder import FolderBlobs
from storage.blobs.signed_urls import UploadGrant
from storage.catalog import areas as catalog_areas
from storage.encryption import SecretBox, derive_keys
from storage.errors import Forbidden, Invalid, Unavailable
from storage.protocols import DEFAULT_CONTENT_TYPE

MAX_UPLOAD_ID = 400
_UPLOAD_ID_EXAMPLE = {"example": "AZLp7m0Y3uGv5m4mXW0k0Yb6r2l1bY8n3zq5x0aQmJ1x4u9wR2s7d5hQ"}
_UPLOAD_ID_LENGTH = text_length(MAX_UPLOAD_ID)


def _upload_id_field() -> TextField:
    return TextField(required=True, validate=_UPLOAD_ID_LENGTH, metadata=_UPLOAD_ID_EXAMPLE)


@dataclass(frozen=True)
class BeginUploadBody:
    """The body of post_area_upload."""

    size: Annotated[int, file_size_field(required=True)]
    content_type: Annotated[str | None, content_type_field()]
    upload_id: Annotated[
        str | None,
        TextField(
            load_default=None,
            validate=_UPLOAD_ID_LENGTH,
            metadata=describe_field("The id of the upload to resume."),
        ),
    ]


@dataclass(frozen=True)
class UploadParameters:
    """Parameters of get_area_upload and delete_area_upload."""

    upload_id: Annotated[str, _upload_id_field()]


@dataclass(frozen=True)
class PartParameters:
    """Parameters of put_area_part."""

    upload_id: Annotated[str, _upload_id_field()]
    part: Annotated[
        int,
        QueryInteger(
            required=True, metadata=describe_field("The part's number, from 1.", example=1)
        ),
    ]


@dataclass(frozen=True)
class SignPartBody:
    """The body of post_area_part."""

    upload_id: Annotated[str, _upload_id_field()]
    part: Annotated[
        int,
        IntegerField(
            required=True, metadata=describe_field("The part's number, from 1.", example=1)
        ),
    ]
    crc32c: Annotated[str, part_checksum_field()]


@dataclass(frozen=True)
class CompleteUploadBody:
    """The body of post_area_upload_complete."""

    upload_id: Annotated[str, _upload_id_field()]
    checksums: Annotated[Mapping[str, str] | None, declared_checksums_field()]


@dataclass(frozen=True)
class CredentialsBody:
    """The body of post_area_credentials."""

    filenames: Annotated[
        list[str],
        fields.List(
            TextField(),
            load_default=list,
            validate=validate.Length(
                max=AREA_URLS_MAX, error=f"Must have at most {AREA_URLS_MAX} names."
            ),
            metadata=describe_field("Names of files to sign URLs for; only used with `urls`."),
        ),
    ]


class AreaUploadAnswer(ResponseSchema):
    """The state of an upload; `parts` are the numbers of the stored parts."""

    upload_id = fields.String(required=True, metadata=_UPLOAD_ID_EXAMPLE)
    size = fields.Integer(required=True)
    part_size = fields.Integer(required=True, metadata={"example": 64 * 1024**2})
    part_count = fields.Integer(required=True, metadata={"example": 1})
    parts = fields.List(fields.Integer(), required=True, metadata={"example": [1]})


class AreaPart(ResponseSchema):
    """A stored part."""

    part = fields.Integer(required=True, metadata={"example": 1})
    size = fields.Integer(required=True)
    md5 = fields.String(required=True, metadata={"example": "b3ae3fe9abcd78a9edf55a4c782c3f2f"})


class AreaPartAddress(ResponseSchema):
    """Where to put a part."""

    part = fields.Integer(required=True, metadata={"example": 1})
    size = fields.Integer(required=True, metadata=describe_field("Bytes of the part."))
    direct = fields.Boolean(
        required=True,
        metadata=describe_field(
            "Whether the URL is the bucket's: send no token there, and sign again after `expires`."
            " Otherwise it is put_area_part's, which needs your token.",
            example=True,
        ),
    )
    method = fields.String(required=True, metadata={"example": "PUT"})
    url = fields.String(required=True)
    headers = JsonObject(
        required=True,
        metadata=describe_field(
            "Send them unchanged.", example={"x-amz-checksum-crc32c": "Tx2rYQ=="}
        ),
    )
    expires = fields.String(metadata=describe_field("If direct: the part must begin before it."))


class AreaUploadDone(ResponseSchema):
    """A completed upload; `status` is the state of the file's verification."""

    url = fields.String(required=True)
    size = fields.Integer(required=True)
    status = fields.String(required=True, metadata={"example": "SCHEDULED"})


_CREDENTIAL_KINDS = ("s3", "gs", "urls")


class AreaCredentials(ResponseSchema):
    """Temporary upload credentials; the members depend on `kind`."""

    kind = fields.String(
        required=True, validate=validate.OneOf(_CREDENTIAL_KINDS), metadata={"example": "urls"}
    )
    expires = fields.String(required=True, metadata={"example": "2026-01-31T235959.000000Z"})
    bucket = fields.String(metadata=describe_field("For s3 and gs."))
    prefix = fields.String(metadata=describe_field("For s3 and gs: the prefix of all keys."))
    region = fields.String(metadata=describe_field("For s3."))
    endpoint = fields.String(
        allow_none=True, metadata=describe_field("For s3; null means Amazon's endpoint.")
    )
    access_key_id = fields.String(metadata=describe_field("For s3."))
    secret_access_key = fields.String(metadata=describe_field("For s3."))
    session_token = fields.String(metadata=describe_field("For s3."))
    access_token = fields.String(metadata=describe_field("For gs: a bearer token."))
    method = fields.String(metadata=describe_field("For urls.", example="PUT"))
    urls = JsonObject(metadata=describe_field("For urls: a URL by name."))
    headers = JsonObject(metadata=describe_field("For urls: headers to send with each request."))
    max_bytes = fields.Integer(metadata=describe_field("For urls: the maximum size of a body."))


UPLOAD_ID_PURPOSE = b"area uploads"
"""Purpose of the key that seals upload ids."""
ID_BYTES = 16
UPLOAD_ID_POINTER = "/upload_id"


@operation(
    "POST",
    "/area/{uuid}/uploads/{filename}",
    tag=TAG,
    body=BeginUploadBody,
    responses={
        201: ResponseDoc("Started.", AreaUploadAnswer),
        200: ResponseDoc("Resumed.", AreaUploadAnswer),
    },
    errors=(404, 409),
    description="For large files, and for slow or unstable connections. All parts but"
    " the last have `part_size` bytes. With the `upload_id` of an earlier"
    " upload, it is resumed: `parts` lists the stored parts. An upload"
    " without a new part for a day is removed.",
)
def post_area_upload(context: StoreContext[NoParameters, BeginUploadBody]) -> Response:
    """Begin or resume a multipart upload into an upload area."""
    body = context.body
    if body.upload_id is not None:
        upload_ref = _decode_upload_id(context, body.upload_id, UPLOAD_ID_POINTER)
        progress = area_uploads.resume(context.stores, upload_ref, context.caller.email)
        _check_size(progress, body.size)
        return json_response(_format_upload(progress, body.upload_id))
    ident = secrets.token_bytes(ID_BYTES)
    progress = area_uploads.begin(
        context.stores,
        _new_upload(context, ident.hex()),
        context.caller.email,
        limit=context.services.settings.max_upload_bytes,
    )
    return json_response(_format_upload(progress, _encode_upload_id(context, ident)), 201)


def _new_upload(
    context: StoreContext[NoParameters, BeginUploadBody], ident: str
) -> catalog_areas.AreaUploadRow:
    return catalog_areas.AreaUploadRow(
        id=ident,
        area=context.uuid,
        name=context.path["filename"],
        token="",
        size=context.body.size,
        content_type=context.body.content_type or DEFAULT_CONTENT_TYPE,
        part_size=0,
    )


def _check_size(progress: AreaUploadProgress, size: int) -> None:
    if progress.upload.size != size:
        message = f"This upload is of {progress.upload.size} bytes."
        raise Invalid(message, code="illegal_token", errors={"/size": [message]})


def _format_upload(progress: AreaUploadProgress, upload_id: str) -> dict[str, Any]:
    return {
        "upload_id": upload_id,
        "size": progress.upload.size,
        "part_size": progress.upload.part_size,
        "part_count": area_uploads.count_parts(progress.upload),
        "parts": list(progress.stored),
    }


@operation(
    "GET",
    "/area/{uuid}/uploads/{filename}",
    tag=TAG,
    query=UploadParameters,
    responses={200: ResponseDoc("The upload.", AreaUploadAnswer)},
    errors=(404, 409),
)
def get_area_upload(context: StoreContext[UploadParameters, None]) -> Response:
    """Show the stored parts of an upload."""
    upload_ref = _decode_upload_id(context, context.query.upload_id)
    progress = area_uploads.resume(context.stores, upload_ref, context.caller.email)
    return json_response(_format_upload(progress, context.query.upload_id))


@operation(
    "PUT",
    "/area/{uuid}/uploads/{filename}",
    tag=TAG,
    query=PartParameters,
    responses={200: ResponseDoc("Stored.", AreaPart)},
    errors=(404, 409, 413),
    upload=True,
    description="The body is the part; `Content-Length` must give its size. Parts may"
    " be sent in any order, concurrently and repeatedly. `md5` is the digest"
    " of the received bytes.",
)
def put_area_part(context: StoreContext[PartParameters, None]) -> Response:
    """Put one part of an upload."""
    upload_ref, number = _decode_upload_id(context, context.query.upload_id), context.query.part
    upload = area_uploads.find(context.stores, upload_ref, context.caller.email)
    size = area_uploads.require_part_length(upload, number)
    # One byte more than expected: the stream is truncated silently at this length.
    context.request.max_content_length = size + 1
    length = context.request.content_length
    # A part of another length is rejected before its body is read.
    part = IncomingPart(
        number, length, read_blocks(context.request.stream) if length == size else ()
    )
    digest = area_uploads.receive_part(context.stores, upload, part)
    return json_response({"part": number, "size": size, "md5": digest})


@operation(
    "POST",
    "/area/{uuid}/parts/{filename}",
    tag=TAG,
    body=SignPartBody,
    responses={200: ResponseDoc("Where to put the part.", AreaPartAddress)},
    errors=(404, 409),
    description="The URL is the bucket's own, presigned one if the bucket is in a"
    " cloud: valid for a few minutes, for one part of one upload with"
    " exactly these bytes. Otherwise it is that of `put_area_part`. A part"
    " counts once the upload is completed, and is verified then.",
)
def post_area_part(context: StoreContext[NoParameters, SignPartBody]) -> Response:
    """Get the URL to put one part of an upload to."""
    context.services.guard.require("put_area_part", context)
    body = context.body
    upload_ref = _decode_upload_id(context, body.upload_id, UPLOAD_ID_POINTER)
    signed = area_uploads.sign_part(
        context.stores, upload_ref, body.part, body.crc32c, context.caller.email
    )
    answer: dict[str, Any] = {"part": body.part, "size": signed.size, "method": "PUT"}
    if signed.upload is None:
        query = urlencode({"upload_id": body.upload_id, "part": body.part})
        path = f"/v1/area/{context.uuid}/uploads/{quote(context.path['filename'])}?{query}"
        answer |= {"direct": False, "url": context.base + path, "headers": {}}
    else:
        expires = version_from_us(signed.expires_us)
        answer |= {"direct": True, "url": signed.upload.url, "expires": expires}
        answer["headers"] = dict(signed.upload.headers)
    return json_response(answer, 200, {"Cache-Control": "no-store"})


@operation(
    "POST",
    "/area/{uuid}/complete/{filename}",
    tag=TAG,
    body=CompleteUploadBody,
    responses={202: ResponseDoc("The file is stored, and is being verified.", AreaUploadDone)},
    errors=(404, 409),
    description="The file replaces an earlier one of the same name. As with"
    " `post_area_file`, it is compared with the given `checksums`. A"
    " repeated request gets the same response.",
)
def post_area_upload_complete(context: StoreContext[NoParameters, CompleteUploadBody]) -> Response:
    """Complete a multipart upload."""
    upload_ref = _decode_upload_id(context, context.body.upload_id, UPLOAD_ID_POINTER)
    result = area_uploads.complete(
        context.stores,
        upload_ref,
        context.caller.email,
        {"checksums": dict(context.body.checksums)} if context.body.checksums else {},
        request_id=context.request_id,
    )
    context.send(result.jobs)
    url = source_url(context, keys.area_file_key(upload_ref.area, upload_ref.name), upload_ref.name)
    return json_response({"url": url, "size": result.size, "status": result.status}, 202)


@operation(
    "DELETE",
    "/area/{uuid}/uploads/{filename}",
    tag=TAG,
    query=UploadParameters,
    responses={200: ResponseDoc("The parts are deleted.", Empty)},
    errors=(404,),
    description="Succeeds also if the upload is gone already, and in a locked area.",
)
def delete_area_upload(context: StoreContext[UploadParameters, None]) -> Response:
    """Abort an upload."""
    area_uploads.abort(
        context.stores, _decode_upload_id(context, context.query.upload_id), context.caller.email
    )
    return json_response({})


def _make_sealer(context: StoreContext[Any, Any]) -> SecretBox:
    return SecretBox(*derive_keys(context.services.settings.secret_keys, UPLOAD_ID_PURPOSE))


def _seal_context(context: StoreContext[Any, Any]) -> bytes:
    """Return owner, area and file name; the first two have no line feed."""
    return f"{context.caller.email}\n{context.uuid}\n{context.path['filename']}".encode()


def _encode_upload_id(context: StoreContext[Any, Any], ident: bytes) -> str:
    return encode_base64url(_make_sealer(context).seal(ident, _seal_context(context)))


def _decode_upload_id(
    context: StoreContext[Any, Any], upload_id: str, field: str = "upload_id"
) -> AreaUploadRef:
    """Decode an id after checking the area's owner; Invalid (`illegal_token`)."""
    areas.find_owned(context.stores, context.uuid, context.caller.email)
    try:
        sealed = decode_base64url(upload_id)
        ident = _make_sealer(context).open(sealed, _seal_context(context))
    except (ValueError, Unavailable) as error:
        message = "This is no upload of yours of this file."
        raise Invalid(message, code="illegal_token", errors={field: [message]}) from error
    return AreaUploadRef(context.uuid, context.path["filename"], ident.hex())


@operation(
    "POST",
    "/area/{uuid}/credentials",
    tag=TAG,
    body=CredentialsBody,
    body_optional=True,
    responses={201: ResponseDoc("Valid until `expires`.", AreaCredentials)},
    errors=(404, 409, 503),
    description="Temporary, and confined to this area. `s3`: credentials to put and get"
    " objects below `prefix`. `gs`: a token for the same. `urls`: a signed"
    " URL for each of `filenames`, to PUT one file with `headers` and any"
    " content type. Register each uploaded file with `post_area_file`."
    " Credentials and URLs of a bucket outlive a lock of the area; URLs of"
    " this API do not.",
)
def post_area_credentials(context: StoreContext[NoParameters, CredentialsBody]) -> Response:
    """Get credentials or URLs to write to an upload area."""
    settings = context.services.settings
    request = AreaWriteRequest(
        area=context.uuid,
        caller=context.caller.email,
        filenames=context.body.filenames,
        seconds=settings.areas_credentials_s,
        max_bytes=settings.max_upload_bytes,
    )
    grant = area_uploads.grant_write_access(context.stores, request)
    content = (
        _format_signed_urls(context, grant)
        if grant.credentials is None
        else {"kind": grant.credentials.kind, **grant.credentials.parameters}
    )
    expires = {"expires": version_from_us(grant.expires_us)}
    return json_response({**content, **expires}, 201, {"Cache-Control": "no-store"})


def _format_signed_urls(
    context: StoreContext[NoParameters, CredentialsBody], grant: AreaWriteGrant
) -> dict[str, Any]:
    """Format URLs; all have the same headers and limit."""
    example = next(iter(grant.urls.values()), None)
    return {
        "kind": "urls",
        "method": "PUT",
        "urls": {name: absolute_url(context, upload.url) for name, upload in grant.urls.items()},
        "headers": dict(example.headers) if example else {},
        "max_bytes": example.max_bytes if example else context.services.settings.max_upload_bytes,
    }


def register_signed_uploads(app: Flask, services: Services) -> None:
    """Serve presigned upload URLs, if the upload areas are a folder."""

    @app.put("/v1/objects/<bucket>/<path:key>", endpoint="put_object")
    def put_object(bucket: str, key: str) -> Response:
        g.operation = "put_object"
        # The URL is the credential: clients are anonymous.
        check_rate_limit(services.stores.rate_limiter, services.settings, request, None)
        blobs = services.stores.areas
        if not isinstance(blobs, FolderBlobs) or blobs.signer.bucket != bucket:
            raise Forbidden("Nothing is put into this bucket.")
        grant = blobs.signer.verify_upload(key, request.args)
        services.read_only.require_writable()
        return _store_upload(services, grant)


def _store_upload(services: Services, grant: UploadGrant) -> Response:
    """Store the file for the area's owner, who issued the URL."""
    target = keys.parse_area_file(grant.key)
    if target is None:
        raise Forbidden("This is no place for a file of an upload area.")
    area, name = target
    limit = min(grant.max_bytes, services.settings.max_upload_bytes)
    incoming = open_incoming_file(request, area, name, limit)
    owner = areas.find(services.stores, area).owner
    services.access.require_enabled(owner)
    stored_file = areas.receive_file(services.stores, incoming, owner, request_id=g.request_id)
    services.job_queue.send(stored_file.jobs, g.request_id)
    return Response(b"", mimetype="text/plain")
