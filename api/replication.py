"""Replication report over HTTP, its schemas, and headers about replicas."""

from typing import Any

from flask import Response
from marshmallow import fields, validate

from api.http.operation import ResponseDoc, StoreContext, json_response, operation
from api.schemas.fields import (
    NoParameters,
    QueryFlag,
    ResponseSchema,
    VersionField,
    describe_field,
    query_flag,
    replica_field,
)
from pipelines import replication
from pipelines.formats import version_from_us
from pipelines.replication import ReplicaStatus, ReplicationLag, ReplicationReport
from storage.catalog.replication import SCAN_LIMIT, ReplicationBacklog, WaitingJob
from storage.keys import KINDS
from storage.model import FQID, Replica
from storage.stores import Stores

LIMIT_NOTE = f"At most {SCAN_LIMIT}, the limit of the scan."
REPLICA_STATES = ("present", "pending", "parked", "diverged")


def replication_field() -> QueryFlag:
    """Return the parameter for including the version's state in every replica."""
    return query_flag("Include the version's state in each replica.")


class ReplicaStateAnswer(ResponseSchema):
    """The state of a version in one replica."""

    state = fields.String(required=True, validate=validate.OneOf(REPLICA_STATES))
    at = VersionField(metadata=describe_field("When it reached this state; absent if unknown."))
    reason = fields.String(metadata=describe_field("Why it is not present yet."))


class ReplicaStatesAnswer(ResponseSchema):
    """The state of a version in every replica."""

    aws = fields.Nested(ReplicaStateAnswer, required=True)
    gcp = fields.Nested(ReplicaStateAnswer, required=True)


class LagAnswer(ResponseSchema):
    """Recent lag from publication in one replica to completion in the other."""

    kind = fields.String(required=True, validate=validate.OneOf(KINDS))
    replica = replica_field()
    versions = fields.Integer(
        required=True, metadata=describe_field("Number of versions that arrived.")
    )
    p50_s = fields.Float(metadata=describe_field("50th percentile, seconds."))
    p99_s = fields.Float(metadata=describe_field("99th percentile, seconds."))


class BacklogAnswer(ResponseSchema):
    """Waiting jobs of one kind, step and replica."""

    kind = fields.String(required=True, metadata={"example": "bundle"})
    step = fields.String(required=True, metadata={"example": "sync"})
    replica = replica_field()
    parked = fields.Boolean(
        required=True, metadata=describe_field("Dead jobs, which an operator must retry.")
    )
    rows = fields.Integer(required=True, metadata=describe_field(LIMIT_NOTE))
    oldest_s = fields.Float(required=True, metadata=describe_field("Age of the oldest, seconds."))


class PendingItem(ResponseSchema):
    """A version or document that has not reached a replica."""

    kind = fields.String(required=True)
    name = fields.String(required=True, metadata={"example": "<uuid>.<version>"})
    step = fields.String(required=True)
    replica = replica_field()
    since = VersionField(required=True)
    age_s = fields.Float(required=True)
    attempts = fields.Integer(required=True)
    parked = fields.Boolean(required=True)
    reason = fields.String(metadata=describe_field("Why the last attempt failed."))


class DivergedRecord(ResponseSchema):
    """A record that differs from the one in the bucket, which is never overwritten."""

    kind = fields.String(required=True)
    name = fields.String(required=True)
    replica = replica_field()
    seen = VersionField(required=True)


class UnindexedDocument(ResponseSchema):
    """A document that the search engine rejected."""

    replica = replica_field()
    bundle = fields.String(required=True)
    reason = fields.String(required=True)


class Replication(ResponseSchema):
    """The response of get_replication."""

    at = VersionField(required=True)
    window_s = fields.Integer(
        required=True, metadata=describe_field("Time window of the lags, seconds.")
    )
    lag = fields.List(fields.Nested(LagAnswer), required=True)
    oldest = fields.List(fields.Nested(PendingItem), required=True)
    backlog = fields.List(fields.Nested(BacklogAnswer), required=True)
    failures = fields.List(fields.Nested(PendingItem), required=True)
    diverged = fields.List(fields.Nested(DivergedRecord), required=True)
    diverged_total = fields.Integer(required=True, metadata=describe_field(LIMIT_NOTE))
    unindexed = fields.List(fields.Nested(UnindexedDocument), required=True)
    unindexed_total = fields.Integer(required=True, metadata=describe_field(LIMIT_NOTE))


SERVED_BY_HEADER = "X-STORE-SERVED-BY"
REPLICATION_HEADER = "X-STORE-REPLICATION"
SERVED_BY_DOC = {
    SERVED_BY_HEADER: "The replica that serves the bytes, when it is not the one asked for."
}
REPLICATION_DOCS = SERVED_BY_DOC | {
    REPLICATION_HEADER: "With `replication`: how the version stands in each replica."
}
"""Additional response headers."""
KIND_BY_PREFIX = {"file": "file", "bund": "bundle", "coll": "collection", "tomb": "tombstone"}
"""Kind by a reference's prefix."""
KIND_BY_STEP = {"bury": "tombstone", "index": "document"}
"""Kinds of jobs whose reference has none."""
_US_PER_S = 1_000_000


@operation(
    "GET",
    "/replication",
    tag="replication",
    responses={200: ResponseDoc("The report.", Replication)},
    description="Lags are those of recent arrivals; lists of waiting items have only"
    " the first ones.",
)
def get_replication(context: StoreContext[NoParameters, None]) -> Response:
    """Show replication status."""
    return json_response(format_report(replication.build_report(context.stores)))


def format_report(report: ReplicationReport) -> dict[str, Any]:
    """The report as JSON."""
    now = report.now_us
    return {
        "at": version_from_us(now),
        "window_s": replication.WINDOW_S,
        "lag": [_format_lag(lag) for lag in report.lag],
        "oldest": [_format_waiting(row, now) for row in report.oldest],
        "backlog": [_format_backlog(row, now) for row in report.backlog],
        "failures": [_format_waiting(row, now) for row in report.failures],
        "diverged": [
            {
                "kind": row.kind,
                "name": row.name,
                "replica": row.replica,
                "seen": version_from_us(row.at_us),
            }
            for row in report.diverged
        ],
        "diverged_total": report.counts["diverged"],
        "unindexed": [
            {"replica": replica, "bundle": str(fqid), "reason": reason}
            for replica, fqid, reason in report.unindexed
        ],
        "unindexed_total": report.counts["unindexed"],
    }


def _format_lag(lag: ReplicationLag) -> dict[str, Any]:
    quantiles = {"p50_s": lag.p50_us, "p99_s": lag.p99_us}
    seconds = {name: us / _US_PER_S for name, us in quantiles.items() if us is not None}
    return {"kind": lag.kind, "replica": lag.replica, "versions": lag.versions, **seconds}


def _format_backlog(row: ReplicationBacklog, now: int) -> dict[str, Any]:
    return {
        "kind": KIND_BY_PREFIX.get(row.prefix) or KIND_BY_STEP.get(row.step, "other"),
        "step": row.step,
        "replica": row.replica,
        "parked": row.parked,
        "rows": row.rows,
        "oldest_s": max(0, now - row.oldest_us) / _US_PER_S,
    }


def _format_waiting(row: WaitingJob, now: int) -> dict[str, Any]:
    kind, colon, name = row.todo.ref.partition(":")
    answer = {
        "kind": kind if colon else KIND_BY_STEP.get(row.todo.step, "other"),
        "name": name if colon else row.todo.ref,
        "step": row.todo.step,
        "replica": row.todo.replica,
        "since": version_from_us(row.born_us),
        "age_s": max(0, now - row.born_us) / _US_PER_S,
        "attempts": row.attempts,
        "parked": row.parked,
    }
    return answer | ({"reason": row.reason} if row.reason else {})


def format_replica_states(
    stores: Stores, kind: str, ident: int, fqid: FQID
) -> dict[str, dict[str, str]]:
    """Format a version's status in each replica, as in bundle responses."""
    statuses = replication.find_status(stores, kind, ident, fqid)
    return {replica: _format_replica_state(status) for replica, status in statuses.items()}


def _format_replica_state(status: ReplicaStatus) -> dict[str, str]:
    at = None if status.at_us is None else version_from_us(status.at_us)
    fields = {"state": status.state, "at": at, "reason": status.reason}
    return {name: text for name, text in fields.items() if text}


def format_replication_header(stores: Stores, ident: int, fqid: FQID) -> dict[str, str]:
    """Format a file's status as an RFC 9651 dictionary, no reasons."""
    states = format_replica_states(stores, "file", ident, fqid)
    items = []
    for replica, state in states.items():
        at = f';at="{state["at"]}"' if "at" in state else ""
        items.append(f"{replica}={state['state']}{at}")
    return {REPLICATION_HEADER: ", ".join(items)}


def served_by_header(requested: Replica, served: Replica) -> dict[str, str]:
    """Name the serving replica unless it is the requested one."""
    return {} if served == requested else {SERVED_BY_HEADER: served}
