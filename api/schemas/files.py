"""Schemas of file operations and ingest tasks."""

from dataclasses import dataclass
from typing import Any

from marshmallow import ValidationError, fields, validate, validates_schema

from api.http.responses import encode_disposition
from api.schemas.common import ResponseSchema
from api.schemas.fields import (
    INT64,
    MAX_TEXT,
    IntegerField,
    JsonObject,
    QueryFlag,
    TextField,
    UuidField,
    VersionField,
    replica_field,
    retry_token_field,
    text_length,
    version_field,
)
from api.schemas.loading import BodySchema, QuerySchema
from api.schemas.replication import replication_field
from pipelines.limits import FILES_MAX
from storage.model import Replica

FILE_HEADERS = {
    "X-STORE-SHA1": "SHA-1 checksum",
    "X-STORE-SHA256": "SHA-256 checksum",
    "X-STORE-S3-ETAG": "object-storage entity tag",
    "X-STORE-CRC32C": "CRC-32C checksum",
    "X-STORE-CONTENT-TYPE": "media type",
    "X-STORE-CREATOR-UID": "creator id",
    "X-STORE-VERSION": "version",
    "X-STORE-SIZE": "size in bytes",
}
"""Headers of a file's responses."""


@dataclass(frozen=True)
class WriteFile:
    """The version to write; replica None means the default of the source's scheme."""

    version: str
    replica: Replica | None


class WriteFileQuery(QuerySchema):
    """Parameters of put_file."""

    model = WriteFile
    version = version_field(required=True)
    replica = replica_field(required=False, load_default=None)


@dataclass(frozen=True)
class FileContent:
    """The body of put_file."""

    source_url: str
    creator_uid: int


class _SourceBody(BodySchema):
    source_url = TextField(
        required=True,
        validate=text_length(MAX_TEXT),
        metadata={
            "description": "The URL of a staged object with its four checksums as metadata.",
            "example": "s3://staging/sample.json",
        },
    )
    creator_uid = IntegerField(required=True, validate=INT64, metadata={"example": 8008})


class FileBody(_SourceBody):
    """The source of a new file version."""

    model = FileContent


@dataclass(frozen=True)
class NewFileContent:
    """One of several new file versions."""

    uuid: str
    version: str
    source_url: str
    creator_uid: int


class NewFileBody(_SourceBody):
    """A new file version with its source."""

    model = NewFileContent
    uuid = UuidField(required=True)
    version = version_field(required=True)


@dataclass(frozen=True)
class NewFilesContent:
    """The body of put_files."""

    files: list[NewFileContent]


class NewFilesBody(BodySchema):
    """Several file versions."""

    model = NewFilesContent
    files = fields.List(
        fields.Nested(NewFileBody),
        required=True,
        validate=validate.Length(1, FILES_MAX, error=f"Must have 1 to {FILES_MAX} items."),
    )

    @validates_schema
    def check(self, data: dict[str, Any], **_: Any) -> None:
        """Refuse repeated versions."""
        if len({(file.uuid, file.version) for file in data["files"]}) < len(data["files"]):
            raise ValidationError("Must not name a version twice.", "files")


class FileWritten(ResponseSchema):
    """The response of put_file."""

    version = VersionField(required=True)
    task_id = fields.String(metadata={"description": "Only while the file is being verified."})


class FileResult(FileWritten):
    """Result of one of several files: refused if it has a `code`, else stored or with a task."""

    uuid = fields.String(required=True)
    status = fields.Integer(metadata={"description": "HTTP status that put_file would answer."})
    code = fields.String(metadata={"description": "Error code, if it was refused."})
    detail = fields.String(metadata={"description": "Reason, if it was refused."})
    errors = JsonObject(
        metadata={"description": "JSON pointer in the item, or name of a checksum, to messages."}
    )
    retry_after_s = fields.Integer(
        metadata={"description": "Seconds to wait before a retry, where put_file has Retry-After."}
    )


class FilesWritten(ResponseSchema):
    """The response of put_files, in the order of the request."""

    files = fields.List(fields.Nested(FileResult), required=True)


class DispositionField(TextField):
    """A Content-Disposition, encoded for a header."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        text = super()._deserialize(value, attr, data, **kwargs)
        try:
            return encode_disposition(text)
        except ValueError as error:
            raise ValidationError(str(error)) from error


@dataclass(frozen=True)
class ReadFile:
    """Parameters of a read of a file."""

    replica: Replica
    version: str | None
    directurl: bool
    content_disposition: str | None
    replication: bool


class ReadFileQuery(QuerySchema):
    """Parameters of get_file."""

    model = ReadFile
    replica = replica_field()
    version = version_field(load_default=None)
    token = retry_token_field()
    directurl = QueryFlag(
        load_default=False, metadata={"description": "Redirect to the cloud's URL."}
    )
    content_disposition = DispositionField(
        load_default=None,
        metadata={
            "description": "Content-Disposition of the redirect's target. File names may have"
            " non-ASCII characters. `inline` is supported only if the replica is a cloud bucket."
        },
    )
    replication = replication_field()


@dataclass(frozen=True)
class HeadFile:
    """Parameters of a read of a file's metadata."""

    replica: Replica
    version: str | None
    replication: bool


class HeadFileQuery(QuerySchema):
    """Parameters of head_file."""

    model = HeadFile
    replica = replica_field()
    version = version_field(load_default=None)
    replication = replication_field()


class TaskCause(ResponseSchema):
    """Why a task failed."""

    code = fields.String(required=True)
    detail = fields.String(required=True)
    field = fields.String(metadata={"example": "sha256"})
    declared = fields.String()
    computed = fields.String()


class TaskAnswer(ResponseSchema):
    """The progress of a file's verification."""

    task_id = fields.String(required=True)
    status = fields.String(
        required=True, validate=validate.OneOf(["PENDING", "RUNNING", "SUCCEEDED", "FAILED"])
    )
    uuid = fields.String(required=True)
    version = VersionField(required=True)
    replica = replica_field(required=True)
    bytes_done = fields.Integer(required=True)
    bytes_total = fields.Integer(required=True)
    cause = fields.Nested(TaskCause)
