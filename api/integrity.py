"""Integrity report over HTTP and as Prometheus metrics."""

from typing import Any

from flask import Response
from marshmallow import fields

from api.http.operation import ResponseDoc, StoreContext, json_response, operation
from api.schemas.fields import (
    NoParameters,
    ResponseSchema,
    VersionField,
    describe_field,
    replica_field,
)
from pipelines.fixity import MAX_LISTED
from pipelines.formats import version_from_us
from storage.catalog.integrity import DAY_US, IntegrityCounts


class ReplicaIntegrity(ResponseSchema):
    """The objects of one replica: blobs and records."""

    objects = fields.Integer(
        required=True,
        metadata=describe_field(
            "How many it should hold; beyond a million estimated from a sample."
        ),
    )
    verified = fields.Integer(
        required=True, metadata=describe_field("How many of them were verified within the period.")
    )
    damaged = fields.Integer(required=True, metadata=describe_field("How many are damaged now."))
    repaired = fields.Integer(
        required=True, metadata=describe_field("How many repairs were made so far.")
    )
    oldest_unverified_s = fields.Float(
        metadata=describe_field(
            "Longest time since an object was last verified, seconds; absent without objects."
        )
    )


class IntegrityReplicas(ResponseSchema):
    """Every replica."""

    aws = fields.Nested(ReplicaIntegrity, required=True)
    gcp = fields.Nested(ReplicaIntegrity, required=True)


class DamagedObject(ResponseSchema):
    """An object whose bytes are wrong or missing in a replica, and that is not repaired."""

    replica = replica_field()
    key = fields.String(required=True)
    reason = fields.String(required=True)
    found = VersionField(required=True)


class Integrity(ResponseSchema):
    """The response of get_integrity."""

    at = VersionField(required=True)
    period_s = fields.Float(
        required=True, metadata=describe_field("Each object is to be verified within this time.")
    )
    replicas = fields.Nested(IntegrityReplicas, required=True)
    damaged = fields.List(
        fields.Nested(DamagedObject),
        metadata=describe_field(f"The first {MAX_LISTED} damaged objects; only for operators."),
    )


_DAY_S = DAY_US / 1_000_000
DETAILS_OPERATION = "get_metrics"
"""Operation that callers need to see the keys of damaged objects."""


@operation(
    "GET",
    "/integrity",
    tag="integrity",
    responses={200: ResponseDoc("The counts of each replica.", Integrity)},
    description="Objects are blobs and the records of files, bundles, collections and tombstones."
    " `damaged` names damaged objects to callers who may do `store:GetMetrics`.",
)
def get_integrity(context: StoreContext[NoParameters, None]) -> Response:
    """Show how many objects are verified, and which are damaged."""
    days = context.services.settings.scrub_period_days
    report = context.services.integrity.read()
    is_operator = context.services.access.may(context.principal, DETAILS_OPERATION)
    answer: dict[str, Any] = {
        "at": version_from_us(report.at_us),
        "period_s": days * _DAY_S,
        "replicas": {name: _format_counts(counts) for name, counts in report.replicas.items()},
    }
    if is_operator:
        answer["damaged"] = [
            {
                "replica": row.replica,
                "key": row.key,
                "reason": row.reason,
                "found": version_from_us(row.found_us),
            }
            for row in report.damaged
        ]
    return json_response(answer)


def _format_counts(counts: IntegrityCounts) -> dict[str, float]:
    answer: dict[str, float] = {
        "objects": counts.objects,
        "verified": counts.verified,
        "damaged": counts.damaged,
        "repaired": counts.repaired,
    }
    if counts.oldest_us is not None:
        answer["oldest_unverified_s"] = counts.oldest_us / 1_000_000
    return answer
