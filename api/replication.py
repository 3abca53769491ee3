"""Replication over HTTP: how the store stands, how one version stands, who served a read."""

from collections.abc import Mapping
from typing import Any

from flask import Response

from api.operation import Answer, Call, Operation, operation, reply
from api.schemas.common import NoQuery, Nothing
from api.schemas.replication import Replication
from pipelines.formats import version_at
from pipelines.replicating import replication
from pipelines.replicating.replication import Lag, Report, Standing
from storage.catalog.replication import Backlog, Diverged, Waiting
from storage.model import FQID, Replica
from storage.stores import Stores

SERVED_BY = "X-STORE-SERVED-BY"
STANDING = "X-STORE-REPLICATION"
SERVED = {SERVED_BY: "The replica that serves the bytes, when it is not the one asked for."}
SHOWN = SERVED | {STANDING: "With `replication`: how the version stands in each replica."}
"""What answers may carry besides."""
KINDS = {"file": "file", "bund": "bundle", "coll": "collection", "tomb": "tombstone"}
"""By the beginning of a reference."""
OF_STEP = {"bury": "tombstone", "index": "document"}
"""Kinds of what is worked on without one in its reference."""
_S = 1_000_000


@operation(
    "GET",
    "/replication",
    tag="replication",
    query=NoQuery,
    answers={200: Answer("How it stands.", Replication)},
    about="Lags are those of what came of late; of what waits, each list has the first.",
)
def get_replication(call: Call[Nothing, None]) -> Response:
    """Ask how replication stands."""
    return reply(shown(replication.report(call.stores)))


def shown(report: Report) -> dict[str, Any]:
    """The report as JSON."""
    now = report.now_us
    return {
        "at": version_at(now),
        "window_s": replication.WINDOW_S,
        "lag": [_lag(lag) for lag in report.lag],
        "oldest": [_awaited(row, now) for row in report.oldest],
        "backlog": [_backlog(row, now) for row in report.backlog],
        "failures": [_awaited(row, now) for row in report.failures],
        "diverged": [_diverged(row) for row in report.diverged],
        "diverged_total": report.counts["diverged"],
        "unindexed": [
            {"replica": replica, "bundle": str(fqid), "reason": reason}
            for replica, fqid, reason in report.unindexed
        ],
        "unindexed_total": report.counts["unindexed"],
    }


def _lag(lag: Lag) -> dict[str, Any]:
    found = {"p50_s": lag.p50_us, "p99_s": lag.p99_us}
    known = {name: us / _S for name, us in found.items() if us is not None}
    return {"kind": lag.kind, "replica": lag.replica, "versions": lag.versions, **known}


def _backlog(row: Backlog, now: int) -> dict[str, Any]:
    return {
        "kind": KINDS.get(row.prefix) or OF_STEP.get(row.step, "other"),
        "step": row.step,
        "replica": row.replica,
        "parked": row.parked,
        "rows": row.rows,
        "oldest_s": max(0, now - row.oldest_us) / _S,
    }


def _awaited(row: Waiting, now: int) -> dict[str, Any]:
    kind, colon, name = row.todo.ref.partition(":")
    told = {
        "kind": kind if colon else OF_STEP.get(row.todo.step, "other"),
        "name": name if colon else row.todo.ref,
        "step": row.todo.step,
        "replica": row.todo.replica,
        "since": version_at(row.born_us),
        "age_s": max(0, now - row.born_us) / _S,
        "attempts": row.attempts,
        "parked": row.parked,
    }
    return told | ({"reason": row.reason} if row.reason else {})


def _diverged(row: Diverged) -> dict[str, Any]:
    seen = version_at(row.at_us)
    return {"kind": row.kind, "name": row.name, "replica": row.replica, "seen": seen}


def standings(stores: Stores, kind: str, ident: int, fqid: FQID) -> dict[str, dict[str, str]]:
    """How one version stands in each replica, as a bundle's answer shows it."""
    found = replication.standing(stores, kind, ident, fqid)
    return {replica: _standing(one) for replica, one in found.items()}


def _standing(standing: Standing) -> dict[str, str]:
    at = None if standing.at_us is None else version_at(standing.at_us)
    told = {"state": standing.state, "at": at, "reason": standing.reason}
    return {name: text for name, text in told.items() if text}


def standing_header(stores: Stores, ident: int, fqid: FQID) -> dict[str, str]:
    """The same of a file: a dictionary of RFC 9651, without reasons."""
    found = standings(stores, "file", ident, fqid)
    told = [f"{replica}={_item(one)}" for replica, one in found.items()]
    return {STANDING: ", ".join(told)}


def _item(standing: Mapping[str, str]) -> str:
    at = standing.get("at")
    return standing["state"] + (f';at="{at}"' if at else "")


def served_by(asked: Replica, served: Replica) -> dict[str, str]:
    """Said whenever it was not the replica that was asked for."""
    return {} if served == asked else {SERVED_BY: served}


OPERATIONS: tuple[Operation, ...] = (get_replication,)
