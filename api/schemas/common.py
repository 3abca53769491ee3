"""Schemas that several operations share."""

from dataclasses import dataclass
from typing import Annotated

from marshmallow import fields

from api.schemas.fields import JsonObject, ResponseSchema, replica_field, version_field
from storage.model import Replica


@dataclass(frozen=True)
class ReplicaParameters:
    """Parameters of operations that take only a replica."""

    replica: Annotated[Replica, replica_field()]


@dataclass(frozen=True)
class VersionParameters:
    """Parameters of reads, by default of the latest version."""

    replica: Annotated[Replica, replica_field()]
    version: Annotated[str | None, version_field(load_default=None)]


@dataclass(frozen=True)
class WriteParameters:
    """Parameters of writes."""

    version: Annotated[str, version_field(required=True)]
    replica: Annotated[Replica, replica_field()]


@dataclass(frozen=True)
class PatchParameters(WriteParameters):
    """Parameters of patches."""

    version: Annotated[
        str,
        version_field(
            required=True, metadata={"description": "The version to patch; any live version."}
        ),
    ]


@dataclass(frozen=True)
class NoParameters:
    """The query of an operation without parameters."""


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
