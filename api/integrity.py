"""Integrity over HTTP: how much of what is stored was verified, and what is damaged."""

from collections.abc import Iterable
from typing import Any

from flask import Response

from api.metrics import Sample
from api.operation import Answer, Call, Operation, operation, reply
from api.schemas.common import NoQuery, Nothing
from api.schemas.integrity import Integrity
from pipelines.formats import version_at
from pipelines.replicating.fixity import Report
from storage.catalog.integrity import DAY_US, Counts

_DAY_S = DAY_US / 1_000_000
WHO_MAY_NAME = "get_metrics"
"""Only callers who may do this are shown the keys of damaged objects."""


@operation(
    "GET",
    "/integrity",
    tag="integrity",
    query=NoQuery,
    answers={200: Answer("The counts of each replica.", Integrity)},
    about="Objects are blobs and the records of files, bundles, collections and tombstones."
    " `damaged` names damaged objects to callers who may do `store:GetMetrics`.",
)
def get_integrity(call: Call[Nothing, None]) -> Response:
    """Show how much of what is stored was verified, and what is damaged."""
    days = call.services.settings.scrub_period_days
    found = call.services.integrity.report()
    is_operator = call.services.access.may(call.principal, WHO_MAY_NAME)
    return reply(_report(found, days) | (_damaged(found) if is_operator else {}))


def _report(found: Report, period_days: float) -> dict[str, Any]:
    return {
        "at": version_at(found.at_us),
        "period_s": period_days * _DAY_S,
        "replicas": {name: _counts(counts) for name, counts in found.replicas.items()},
    }


def _damaged(found: Report) -> dict[str, Any]:
    return {
        "damaged": [
            {
                "replica": one.replica,
                "key": one.key,
                "reason": one.reason,
                "found": version_at(one.found_us),
            }
            for one in found.damaged
        ]
    }


def _counts(counts: Counts) -> dict[str, float]:
    shown: dict[str, float] = {
        "objects": counts.objects,
        "verified": counts.verified,
        "damaged": counts.damaged,
        "repaired": counts.repaired,
    }
    if counts.oldest_us is not None:
        shown["oldest_unverified_s"] = counts.oldest_us / 1_000_000
    return shown


def samples(report: Report) -> Iterable[Sample]:
    """The same for Prometheus."""
    for replica, counts in report.replicas.items():
        labels: dict[str, str] = {"replica": replica}
        for name, about, value in (
            ("store_objects", "Blobs and records that a replica should hold", counts.objects),
            ("store_objects_damaged", "Objects that are damaged now", counts.damaged),
            (
                "store_oldest_unverified_seconds",
                "Longest time since an object was last verified",
                (counts.oldest_us or 0) / 1_000_000,
            ),
        ):
            yield Sample(name, about, labels, value)
        for name, about, value in (
            ("store_verified_bytes", "Bytes that were read again", counts.verified_bytes),
            ("store_damage_found", "Objects that were found damaged", counts.found),
            ("store_repairs", "Damaged objects that were repaired", counts.repaired),
        ):
            yield Sample(name, about, labels, value, counter=True)


OPERATIONS: tuple[Operation, ...] = (get_integrity,)
