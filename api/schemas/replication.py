"""Schemas of the replication report."""

from marshmallow import fields, validate

from api.schemas.fields import QueryFlag, ResponseSchema, VersionField, replica_field
from storage.catalog.replication import SCAN_LIMIT
from storage.keys import KINDS

LIMIT_NOTE = f"At most {SCAN_LIMIT}, the limit of the scan."
REPLICA_STATES = ("present", "pending", "parked", "diverged")


def replication_field() -> QueryFlag:
    """Return the parameter for including the version's state in every replica."""
    about = {"description": "Include the version's state in each replica."}
    return QueryFlag(load_default=False, metadata=about)


class ReplicaStateAnswer(ResponseSchema):
    """The state of a version in one replica."""

    state = fields.String(required=True, validate=validate.OneOf(REPLICA_STATES))
    at = VersionField(metadata={"description": "When it reached this state; absent if unknown."})
    reason = fields.String(metadata={"description": "Why it is not present yet."})


class ReplicaStatesAnswer(ResponseSchema):
    """The state of a version in every replica."""

    aws = fields.Nested(ReplicaStateAnswer, required=True)
    gcp = fields.Nested(ReplicaStateAnswer, required=True)


class LagAnswer(ResponseSchema):
    """Recent lag from publication in one replica to completion in the other."""

    kind = fields.String(required=True, validate=validate.OneOf(KINDS))
    replica = replica_field(required=True, metadata={"description": "The destination replica."})
    versions = fields.Integer(
        required=True, metadata={"description": "Number of versions that arrived."}
    )
    p50_s = fields.Float(metadata={"description": "50th percentile, seconds."})
    p99_s = fields.Float(metadata={"description": "99th percentile, seconds."})


class BacklogAnswer(ResponseSchema):
    """Waiting jobs of one kind, step and replica."""

    kind = fields.String(required=True, metadata={"example": "bundle"})
    step = fields.String(required=True, metadata={"example": "sync"})
    replica = fields.String(required=True)
    parked = fields.Boolean(
        required=True, metadata={"description": "Dead jobs, which an operator must retry."}
    )
    rows = fields.Integer(required=True, metadata={"description": LIMIT_NOTE})
    oldest_s = fields.Float(required=True, metadata={"description": "Age of the oldest, seconds."})


class PendingItem(ResponseSchema):
    """A version or document that has not reached a replica."""

    kind = fields.String(required=True)
    name = fields.String(required=True, metadata={"example": "<uuid>.<version>"})
    step = fields.String(required=True)
    replica = fields.String(required=True)
    since = VersionField(required=True)
    age_s = fields.Float(required=True)
    attempts = fields.Integer(required=True)
    parked = fields.Boolean(required=True)
    reason = fields.String(metadata={"description": "Why the last attempt failed."})


class DivergedRecord(ResponseSchema):
    """A record that differs from the one in the bucket, which is never overwritten."""

    kind = fields.String(required=True)
    name = fields.String(required=True)
    replica = fields.String(required=True)
    seen = VersionField(required=True)


class UnindexedDocument(ResponseSchema):
    """A document that the search engine rejected."""

    replica = fields.String(required=True)
    bundle = fields.String(required=True)
    reason = fields.String(required=True)


class Replication(ResponseSchema):
    """The response of get_replication."""

    at = VersionField(required=True)
    window_s = fields.Integer(
        required=True, metadata={"description": "Time window of the lags, seconds."}
    )
    lag = fields.List(fields.Nested(LagAnswer), required=True)
    oldest = fields.List(fields.Nested(PendingItem), required=True)
    backlog = fields.List(fields.Nested(BacklogAnswer), required=True)
    failures = fields.List(fields.Nested(PendingItem), required=True)
    diverged = fields.List(fields.Nested(DivergedRecord), required=True)
    diverged_total = fields.Integer(required=True, metadata={"description": LIMIT_NOTE})
    unindexed = fields.List(fields.Nested(UnindexedDocument), required=True)
    unindexed_total = fields.Integer(required=True, metadata={"description": LIMIT_NOTE})
