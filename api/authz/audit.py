"""Read the audit log."""

from typing import Any

import orjson
from flask import Response

from api.authz import responses
from api.authz.context import AuthRequestContext
from api.authz.schemas.audit import AuditLog, AuditParameters, AuditQuery
from api.http.operation import operation, page_responses
from auth import accounts
from pipelines.formats import version_from_us, version_to_us
from storage.catalog.audit import AuditFilter, AuditRecord

TAG = "audit"


@operation(
    "GET",
    "/v1/audit",
    tag=TAG,
    query=AuditQuery,
    responses=page_responses(AuditLog),
    paged="audit",
    description="Every change of users, groups, roles, their policies and memberships, and of"
    " whatever else decides who may do what; the newest first.",
)
def get_v1_audit(context: AuthRequestContext[AuditParameters, None]) -> Response:
    """Read who changed what."""
    query = context.query
    scope = (query.who or "", query.what or "", query.since or "")
    before = responses.read_page_token(context, *scope)
    since_us = None if query.since is None else version_to_us(query.since)
    records = accounts.list_changes(
        context.catalog,
        AuditFilter(query.who, query.what, since_us),
        before_id=None if before is None else int(before[0]),
        limit=query.per_page + 1,
    )
    return responses.reply_page(
        context, *scope, key="audit", found=records, place=_entry_cursor, shown=_format_entry
    )


def _entry_cursor(record: AuditRecord) -> list[str]:
    return [str(record.id)]


def _format_entry(record: AuditRecord) -> dict[str, Any]:
    return {
        "at": version_from_us(record.at_us),
        "who": record.who,
        "what": record.what,
        "target": record.target,
        "before": _raw_json(record.before),
        "after": _raw_json(record.after),
        "request_id": record.request_id,
    }


def _raw_json(text: str | None) -> Any:
    return None if text is None else orjson.Fragment(text)
