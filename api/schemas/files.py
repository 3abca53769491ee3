"""Files and the tasks that take them in: what their operations take and answer."""

from dataclasses import dataclass
from typing import Any

from marshmallow import ValidationError, fields, validate, validates_schema

from api.dispositions import encode_disposition
from api.schemas.common import Shown
from api.schemas.fields import (
    INT64,
    Flag,
    JsonObject,
    Text,
    Uuid,
    Version,
    Whole,
    at_version,
    in_replica,
    retry_token,
)
from api.schemas.loading import Body, Query
from api.schemas.replication import with_replication
from pipelines.limits import FILES_MAX
from storage.model import Replica

HEADERS = {
    "X-STORE-SHA1": "SHA-1 checksum",
    "X-STORE-SHA256": "SHA-256 checksum",
    "X-STORE-S3-ETAG": "object-storage entity tag",
    "X-STORE-CRC32C": "CRC-32C checksum",
    "X-STORE-CONTENT-TYPE": "media type",
    "X-STORE-CREATOR-UID": "creator id",
    "X-STORE-VERSION": "version",
    "X-STORE-SIZE": "size in bytes",
}
"""What a file's answers carry about it."""


@dataclass(frozen=True)
class WriteFile:
    """Which version is written; replica None is that of the source's scheme."""

    version: str
    replica: Replica | None


class WriteFileQuery(Query):
    """Parameters of put_file."""

    model = WriteFile
    version = at_version(required=True)
    replica = in_replica(required=False, load_default=None)


@dataclass(frozen=True)
class FileSource:
    """The body of put_file."""

    source_url: str
    creator_uid: int


class _OfSource(Body):
    source_url = Text(
        required=True,
        validate=validate.Length(1, 4096, error="Must have 1 to 4096 characters."),
        metadata={
            "description": "A staged object with its four checksums as metadata.",
            "example": "s3://staging/sample.json",
        },
    )
    creator_uid = Whole(required=True, validate=INT64, metadata={"example": 8008})


class FileBody(_OfSource):
    """Where the bytes of a new file version are."""

    model = FileSource


@dataclass(frozen=True)
class NewFile:
    """One of several file versions that are written."""

    uuid: str
    version: str
    source_url: str
    creator_uid: int


class NewFileBody(_OfSource):
    """A file version, and where its bytes are."""

    model = NewFile
    uuid = Uuid(required=True)
    version = at_version(required=True)


@dataclass(frozen=True)
class NewFiles:
    """The body of put_files."""

    files: list[NewFile]


class NewFilesBody(Body):
    """Several file versions."""

    model = NewFiles
    files = fields.List(
        fields.Nested(NewFileBody),
        required=True,
        validate=validate.Length(1, FILES_MAX, error=f"Must have 1 to {FILES_MAX} items."),
    )

    @validates_schema
    def check(self, data: dict[str, Any], **_: Any) -> None:
        """Nothing is said of the same version twice."""
        if len({(one.uuid, one.version) for one in data["files"]}) < len(data["files"]):
            raise ValidationError("Must not name a version twice.", "files")


class FileWritten(Shown):
    """The answer of put_file."""

    version = Version(required=True)
    task_id = fields.String(metadata={"description": "While it is still being verified."})


class OneWritten(FileWritten):
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


class FilesWritten(Shown):
    """The answer of put_files, in the order of the request."""

    files = fields.List(fields.Nested(OneWritten), required=True)


class Disposition(Text):
    """A Content-Disposition, in the form that a header carries."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        text = super()._deserialize(value, attr, data, **kwargs)
        try:
            return encode_disposition(text)
        except ValueError as error:
            raise ValidationError(str(error)) from error


@dataclass(frozen=True)
class ReadFile:
    """Which version is read, and how."""

    replica: Replica
    version: str | None
    directurl: bool
    content_disposition: str | None
    replication: bool


class ReadFileQuery(Query):
    """Parameters of get_file."""

    model = ReadFile
    replica = in_replica()
    version = at_version(load_default=None)
    token = retry_token()
    directurl = Flag(load_default=False, metadata={"description": "Redirect to the cloud's URL."})
    content_disposition = Disposition(
        load_default=None,
        metadata={
            "description": "Content-Disposition of the redirect's target. File names may have any"
            " letters. `inline` is possible only where the replica is a cloud bucket."
        },
    )
    replication = with_replication()


@dataclass(frozen=True)
class HeadFile:
    """Which version's metadata is read."""

    replica: Replica
    version: str | None
    replication: bool


class HeadFileQuery(Query):
    """Parameters of head_file."""

    model = HeadFile
    replica = in_replica()
    version = at_version(load_default=None)
    replication = with_replication()


class TaskCause(Shown):
    """Why a task failed."""

    code = fields.String(required=True)
    detail = fields.String(required=True)
    field = fields.String(metadata={"example": "sha256"})
    declared = fields.String()
    computed = fields.String()


class TaskAnswer(Shown):
    """How far the verification of a file is."""

    task_id = fields.String(required=True)
    status = fields.String(
        required=True, validate=validate.OneOf(["PENDING", "RUNNING", "SUCCEEDED", "FAILED"])
    )
    uuid = fields.String(required=True)
    version = Version(required=True)
    replica = in_replica(required=True)
    bytes_done = fields.Integer(required=True)
    bytes_total = fields.Integer(required=True)
    cause = fields.Nested(TaskCause)
