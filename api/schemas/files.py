"""Schemas of file operations and ingest tasks."""

from dataclasses import dataclass
from typing import Annotated, Any

from marshmallow import ValidationError, fields, validate

from api.http.responses import encode_disposition
from api.replication import replication_field
from api.schemas.fields import (
    INT64,
    MAX_TEXT,
    ExceededQuota,
    IntegerField,
    JsonObject,
    ResponseSchema,
    TextField,
    UuidField,
    VersionField,
    describe_field,
    page_size_field,
    page_token_field,
    query_flag,
    replica_field,
    request_schema,
    retry_token_field,
    text_length,
    version_field,
)
from pipelines.limits import FILES_MAX, PAGE_BUNDLES_ALL
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
class ListFileBundles:
    """Parameters of get_file_bundles."""

    replica: Annotated[Replica, replica_field()]
    version: Annotated[str | None, version_field(load_default=None)]
    per_page: Annotated[int, page_size_field(PAGE_BUNDLES_ALL)]
    search_after: Annotated[str | None, page_token_field()]


@dataclass(frozen=True)
class WriteFile:
    """Parameters of put_file."""

    version: Annotated[str, version_field(required=True)]
    replica: Annotated[Replica | None, replica_field(required=False, load_default=None)]


@dataclass(frozen=True)
class FileBody:
    """The source of a new file version."""

    source_url: Annotated[
        str,
        TextField(
            required=True,
            validate=text_length(MAX_TEXT),
            metadata=describe_field(
                "The URL of a staged object with its four checksums as metadata.",
                example="s3://staging/sample.json",
            ),
        ),
    ]
    creator_uid: Annotated[
        int, IntegerField(required=True, validate=INT64, metadata={"example": 8008})
    ]


@dataclass(frozen=True)
class NewFileBody(FileBody):
    """A new file version with its source."""

    uuid: Annotated[str, UuidField(required=True)]
    version: Annotated[str, version_field(required=True)]


def _check_repeated(files: list[NewFileBody]) -> None:
    if len({(file.uuid, file.version) for file in files}) < len(files):
        raise ValidationError("Must not name a version twice.")


@dataclass(frozen=True)
class NewFilesBody:
    """Several file versions."""

    files: Annotated[
        list[NewFileBody],
        fields.List(
            fields.Nested(request_schema(NewFileBody)),
            required=True,
            validate=[
                validate.Length(1, FILES_MAX, error=f"Must have 1 to {FILES_MAX} items."),
                _check_repeated,
            ],
        ),
    ]


class FileWritten(ResponseSchema):
    """The response of put_file."""

    version = VersionField(required=True)
    task_id = fields.String(metadata=describe_field("Only while the file is being verified."))


class FileResult(FileWritten):
    """Result of one of several files: refused if it has a `code`, else stored or with a task."""

    uuid = UuidField(required=True)
    status = fields.Integer(metadata=describe_field("HTTP status that put_file would answer."))
    code = fields.String(metadata=describe_field("Error code, if it was refused."))
    detail = fields.String(metadata=describe_field("Reason, if it was refused."))
    errors = JsonObject(
        metadata=describe_field("JSON pointer in the item, or name of a checksum, to messages.")
    )
    quota = fields.Nested(ExceededQuota)
    retry_after_s = fields.Integer(
        metadata=describe_field("Seconds to wait before a retry, where put_file has Retry-After.")
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
    """Parameters of get_file."""

    replica: Annotated[Replica, replica_field()]
    version: Annotated[str | None, version_field(load_default=None)]
    token: Annotated[str | None, retry_token_field()]
    directurl: Annotated[bool, query_flag("Redirect to the cloud's URL.")]
    content_disposition: Annotated[
        str | None,
        DispositionField(
            load_default=None,
            metadata=describe_field(
                "Content-Disposition of the redirect's target. File names may have"
                " non-ASCII characters. `inline` is supported only if the replica is a cloud"
                " bucket."
            ),
        ),
    ]
    replication: Annotated[bool, replication_field()]


@dataclass(frozen=True)
class HeadFile:
    """Parameters of head_file."""

    replica: Annotated[Replica, replica_field()]
    version: Annotated[str | None, version_field(load_default=None)]
    replication: Annotated[bool, replication_field()]


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
    uuid = UuidField(required=True)
    version = VersionField(required=True)
    replica = replica_field()
    bytes_done = fields.Integer(required=True)
    bytes_total = fields.Integer(required=True)
    cause = fields.Nested(TaskCause)
