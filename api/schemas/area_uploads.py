"""Schemas of multipart uploads into areas and temporary upload credentials."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from marshmallow import fields, validate

from api.schemas.areas import content_type_field, declared_checksums_field, file_size_field
from api.schemas.fields import JsonObject, QueryInteger, ResponseSchema, TextField, text_length
from pipelines.limits import AREA_URLS_MAX

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
            metadata={"description": "The id of the upload to resume."},
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
            required=True, metadata={"description": "The part's number, from 1.", "example": 1}
        ),
    ]


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
            metadata={"description": "Names of files to sign URLs for; only used with `urls`."},
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
    bucket = fields.String(metadata={"description": "For s3 and gs."})
    prefix = fields.String(metadata={"description": "For s3 and gs: the prefix of all keys."})
    region = fields.String(metadata={"description": "For s3."})
    endpoint = fields.String(
        allow_none=True, metadata={"description": "For s3; null means Amazon's endpoint."}
    )
    access_key_id = fields.String(metadata={"description": "For s3."})
    secret_access_key = fields.String(metadata={"description": "For s3."})
    session_token = fields.String(metadata={"description": "For s3."})
    access_token = fields.String(metadata={"description": "For gs: a bearer token."})
    method = fields.String(metadata={"description": "For urls.", "example": "PUT"})
    urls = JsonObject(metadata={"description": "For urls: a URL by name."})
    headers = JsonObject(metadata={"description": "For urls: headers to send with each request."})
    max_bytes = fields.Integer(metadata={"description": "For urls: the maximum size of a body."})
