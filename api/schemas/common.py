"""Schemas that several operations share."""

from dataclasses import dataclass

from marshmallow import EXCLUDE, Schema, fields

from api.schemas.fields import JsonObject, at_version, in_replica
from api.schemas.loading import Query
from storage.model import Replica


@dataclass(frozen=True)
class InReplica:
    """Which replica is asked."""

    replica: Replica


class InReplicaQuery(Query):
    """Parameters of operations that name a replica only."""

    model = InReplica
    replica = in_replica()


@dataclass(frozen=True)
class Versioned:
    """Which replica is asked, and for which version; None is the latest."""

    replica: Replica
    version: str | None


class VersionedQuery(Query):
    """Parameters of reads: the latest version when none is named."""

    model = Versioned
    replica = in_replica()
    version = at_version(load_default=None)


@dataclass(frozen=True)
class Nothing:
    """No parameters."""


class NoQuery(Query):
    """An operation without query parameters."""

    model = Nothing


class Shown(Schema):
    """A schema of an answer: clients let members pass that they do not know."""

    class Meta:
        unknown = EXCLUDE


class Problem(Shown):
    """An error, as RFC 9457 has it."""

    type = fields.String(required=True, metadata={"example": "about:blank"})
    title = fields.String(required=True, metadata={"example": "Not Found"})
    status = fields.Integer(required=True, metadata={"example": 404})
    code = fields.String(required=True, metadata={"example": "not_found"})
    detail = fields.String(required=True, metadata={"example": "There is no such bundle."})
    request_id = fields.String(required=True)
    errors = JsonObject(metadata={"description": "JSON pointer or parameter to its messages."})


class Empty(Shown):
    """An empty object."""
