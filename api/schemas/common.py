"""Schemas that several operations share."""

from dataclasses import dataclass

from marshmallow import EXCLUDE, Schema, fields

from api.schemas.fields import JsonObject, replica_field, version_field
from api.schemas.loading import QuerySchema
from storage.model import Replica


@dataclass(frozen=True)
class ReplicaParameters:
    """The replica of a request."""

    replica: Replica


class ReplicaQuery(QuerySchema):
    """Parameters of operations that take only a replica."""

    model = ReplicaParameters
    replica = replica_field()


@dataclass(frozen=True)
class VersionParameters:
    """The replica and the version of a read; None is the latest version."""

    replica: Replica
    version: str | None


class VersionQuery(QuerySchema):
    """Parameters of reads, by default of the latest version."""

    model = VersionParameters
    replica = replica_field()
    version = version_field(load_default=None)


@dataclass(frozen=True)
class WriteParameters:
    """The version to write or to patch, and the replica to write to."""

    version: str
    replica: Replica


class WriteQuery(QuerySchema):
    """Parameters of writes."""

    model = WriteParameters
    version = version_field(required=True)
    replica = replica_field()


class PatchQuery(WriteQuery):
    """Parameters of patches."""

    version = version_field(
        required=True, metadata={"description": "The version to patch; any live version."}
    )


@dataclass(frozen=True)
class NoParameters:
    """No parameters."""


class NoQuery(QuerySchema):
    """The query of an operation without parameters."""

    model = NoParameters


class ResponseSchema(Schema):
    """A response schema: clients ignore unknown members."""

    class Meta:
        unknown = EXCLUDE


class Problem(ResponseSchema):
    """An error (RFC 9457)."""

    type = fields.String(required=True, metadata={"example": "about:blank"})
    title = fields.String(required=True, metadata={"example": "Not Found"})
    status = fields.Integer(required=True, metadata={"example": 404})
    code = fields.String(required=True, metadata={"example": "not_found"})
    detail = fields.String(required=True, metadata={"example": "There is no such bundle."})
    request_id = fields.String(required=True)
    errors = JsonObject(metadata={"description": "Messages by JSON pointer or parameter."})


class Empty(ResponseSchema):
    """An empty object."""
