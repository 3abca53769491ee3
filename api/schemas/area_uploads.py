"""Uploads into areas by parts, and leave to write past the API: what they take and answer."""

from collections.abc import Mapping
from dataclasses import dataclass

from marshmallow import fields, validate

from api.schemas.areas import said_sums, said_type
from api.schemas.common import Shown
from api.schemas.fields import Count, JsonObject, Text, Whole
from api.schemas.loading import Body, Query
from pipelines.limits import AREA_NAMES

MAX_ID = 400
_ID = {"example": "AZLp7m0Y3uGv5m4mXW0k0Yb6r2l1bY8n3zq5x0aQmJ1x4u9wR2s7d5hQ"}
_LENGTH = validate.Length(min=1, max=MAX_ID, error="No upload's id.")


def _upload_id() -> Text:
    return Text(required=True, validate=_LENGTH, metadata=_ID)


@dataclass(frozen=True)
class BegunUpload:
    """A file that is to come, or to go on coming."""

    size: int
    content_type: str | None
    upload_id: str | None


class BegunUploadBody(Body):
    """The body of post_area_upload."""

    model = BegunUpload
    size = Whole(required=True, validate=validate.Range(min=0, max=2**63 - 1, error="Not a size."))
    content_type = said_type()
    upload_id = Text(
        load_default=None,
        validate=_LENGTH,
        metadata={"description": "That of an upload that was begun, to take it up again."},
    )


@dataclass(frozen=True)
class NamedUpload:
    """An upload that is gone on with."""

    upload_id: str


class NamedUploadQuery(Query):
    """Parameters of get_area_upload and delete_area_upload."""

    model = NamedUpload
    upload_id = _upload_id()


@dataclass(frozen=True)
class NamedPart:
    """One part of it."""

    upload_id: str
    part: int


class NamedPartQuery(Query):
    """Parameters of put_area_part."""

    model = NamedPart
    upload_id = _upload_id()
    part = Count(required=True, metadata={"description": "From 1 on.", "example": 1})


@dataclass(frozen=True)
class CompletedUpload:
    """An upload of which everything came, and what its uploader says of the whole."""

    upload_id: str
    checksums: Mapping[str, str] | None


class CompletedUploadBody(Body):
    """The body of post_area_upload_complete."""

    model = CompletedUpload
    upload_id = _upload_id()
    checksums = said_sums()


@dataclass(frozen=True)
class NamedFiles:
    """Files that leave to write is wanted for."""

    filenames: list[str]


class NamedFilesBody(Body):
    """The body of post_area_credentials."""

    model = NamedFiles
    filenames = fields.List(
        Text(),
        load_default=list,
        validate=validate.Length(max=AREA_NAMES, error=f"At most {AREA_NAMES} names."),
        metadata={"description": "What to sign URLs for, where URLs are signed."},
    )


class AreaUpload(Shown):
    """An upload as it stands; `parts` are those that are stored whole."""

    upload_id = fields.String(required=True, metadata=_ID)
    size = fields.Integer(required=True)
    part_size = fields.Integer(required=True, metadata={"example": 64 * 1024**2})
    part_count = fields.Integer(required=True, metadata={"example": 1})
    parts = fields.List(fields.Integer(), required=True, metadata={"example": [1]})


class AreaPart(Shown):
    """What arrived as a part."""

    part = fields.Integer(required=True, metadata={"example": 1})
    size = fields.Integer(required=True)
    md5 = fields.String(required=True, metadata={"example": "b3ae3fe9abcd78a9edf55a4c782c3f2f"})


class AreaUploadDone(Shown):
    """A file that came by parts; `status` is how far looking at it is."""

    url = fields.String(required=True)
    size = fields.Integer(required=True)
    status = fields.String(required=True, metadata={"example": "SCHEDULED"})


_LEAVES = ("s3", "gs", "urls")


class AreaCredentials(Shown):
    """Leave to write: the members that its `kind` has."""

    kind = fields.String(
        required=True, validate=validate.OneOf(_LEAVES), metadata={"example": "urls"}
    )
    expires = fields.String(required=True, metadata={"example": "2026-01-31T235959.000000Z"})
    bucket = fields.String(metadata={"description": "Of s3 and gs."})
    prefix = fields.String(metadata={"description": "Of s3 and gs: where keys begin."})
    region = fields.String(metadata={"description": "Of s3."})
    endpoint = fields.String(
        allow_none=True, metadata={"description": "Of s3; null: Amazon's own."}
    )
    access_key_id = fields.String(metadata={"description": "Of s3."})
    secret_access_key = fields.String(metadata={"description": "Of s3."})
    session_token = fields.String(metadata={"description": "Of s3."})
    access_token = fields.String(metadata={"description": "Of gs: a bearer token."})
    method = fields.String(metadata={"description": "Of urls.", "example": "PUT"})
    urls = JsonObject(metadata={"description": "Of urls: a URL for each name that was asked for."})
    headers = JsonObject(metadata={"description": "Of urls: to be sent with each, as they are."})
    max_bytes = fields.Integer(metadata={"description": "Of urls: the largest body of one."})
