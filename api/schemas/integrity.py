"""Integrity: what its read answers."""

from marshmallow import fields

from api.schemas.common import Shown
from api.schemas.fields import Version
from pipelines.replicating.fixity import LISTED


class ReplicaIntegrity(Shown):
    """The objects of one replica: blobs and records."""

    objects = fields.Integer(required=True, metadata={"description": "How many it should hold."})
    verified = fields.Integer(
        required=True, metadata={"description": "How many were verified within the period."}
    )
    damaged = fields.Integer(required=True, metadata={"description": "How many are damaged now."})
    repaired = fields.Integer(
        required=True, metadata={"description": "How many repairs were made so far."}
    )
    oldest_unverified_s = fields.Float(
        metadata={
            "description": "Longest time since an object was last verified, seconds; absent"
            " without objects."
        }
    )


class IntegrityReplicas(Shown):
    """Every replica."""

    aws = fields.Nested(ReplicaIntegrity, required=True)
    gcp = fields.Nested(ReplicaIntegrity, required=True)


class DamagedObject(Shown):
    """An object whose bytes are wrong or missing in a replica, and that is not repaired."""

    replica = fields.String(required=True)
    key = fields.String(required=True)
    reason = fields.String(required=True)
    found = Version(required=True)


class Integrity(Shown):
    """The answer of get_integrity."""

    at = Version(required=True)
    period_s = fields.Float(
        required=True, metadata={"description": "Each object is to be verified within this time."}
    )
    replicas = fields.Nested(IntegrityReplicas, required=True)
    damaged = fields.List(
        fields.Nested(DamagedObject),
        metadata={"description": f"The first {LISTED} damaged objects; only for operators."},
    )
