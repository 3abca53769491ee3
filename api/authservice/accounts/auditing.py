"""The audit log, for those who may read it."""

from typing import Any

import orjson
from flask import Response

from api.authservice.accounts import listing
from api.authservice.schemas.audit import AuditAsked, AuditLog, AuditQuery
from api.authservice.services import Call
from api.operation import operation
from auth.accounts import reading
from pipelines.formats import us_of, version_at
from storage.catalog.audit import Filter, Recorded

TAG = "audit"


@operation(
    "GET",
    "/v1/audit",
    tag=TAG,
    query=AuditQuery,
    answers=listing.pages(AuditLog),
    paged="audit",
    about="Every change of users, groups, roles, their policies and memberships, and of whatever"
    " else decides who may do what; the newest first.",
)
def get_v1_audit(call: Call[AuditAsked, None]) -> Response:
    """Read who changed what."""
    query = call.query
    scope = (query.who or "", query.what or "", query.since or "")
    before = listing.position(call, *scope)
    since_us = None if query.since is None else us_of(query.since)
    found = reading.changes(
        call.catalog,
        Filter(query.who, query.what, since_us),
        before_id=None if before is None else int(before[0]),
        limit=query.per_page + 1,
    )
    return listing.page(call, *scope, key="audit", found=found, place=_place, shown=_shown)


def _place(one: Recorded) -> list[str]:
    return [str(one.id)]


def _shown(one: Recorded) -> dict[str, Any]:
    return {
        "at": version_at(one.at_us),
        "who": one.who,
        "what": one.what,
        "target": one.target,
        "before": _said(one.before),
        "after": _said(one.after),
        "request_id": one.request_id,
    }


def _said(text: str | None) -> Any:
    return None if text is None else orjson.Fragment(text)


OPERATIONS = (get_v1_audit,)
