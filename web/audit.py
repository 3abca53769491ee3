"""The audit log, with filters."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from flask import Response

from api.schemas.fields import QueryInteger, TextField, max_length
from auth import accounts
from storage.catalog.audit import AuditFilter, AuditRecord
from web.account import require_accounts
from web.administration import render_admin
from web.pages import PageContext, page

PAGE_SIZE = 50
DATE_RULE = "Must be a date like 2026-01-31."


def _filter_field() -> TextField:
    return TextField(load_default="", validate=max_length(300))


@dataclass(frozen=True)
class AuditLogParameters:
    """Filters of the audit log; days are in UTC, `until` is the last one."""

    who: Annotated[str, _filter_field()]
    what: Annotated[str, _filter_field()]
    target: Annotated[str, _filter_field()]
    since: Annotated[str, _filter_field()]
    until: Annotated[str, _filter_field()]
    before: Annotated[int | None, QueryInteger(load_default=None)]


@page("GET", "/admin/audit", access="get_v1_audit", query=AuditLogParameters)
def show_audit_log(context: PageContext[AuditLogParameters]) -> Response:
    """Show who changed what, the newest first."""
    query, errors = context.query, dict[str, list[str]]()
    since = _parse_day("since", query.since, errors)
    until = _parse_day("until", query.until, errors)
    criteria = AuditFilter(
        who=query.who.strip() or None,
        what=query.what.strip() or None,
        target=query.target.strip() or None,
        since_us=None if since is None else _to_us(since),
        until_us=None if until is None else _to_us(until + timedelta(days=1)),
    )
    records: list[AuditRecord] = []
    if not errors:
        records = accounts.list_changes(
            require_accounts(context).catalog,
            criteria,
            before_id=query.before,
            limit=PAGE_SIZE + 1,
        )
    more = len(records) > PAGE_SIZE
    shown = records[:PAGE_SIZE]
    return render_admin(
        context,
        "admin_audit.html",
        "Audit log",
        status=400 if errors else 200,
        query=query,
        records=[(one, _target_path(one.target)) for one in shown],
        next_url=context.url(before=str(shown[-1].id)) if more else "",
        first_url=context.url(before=None) if query.before is not None else "",
        errors=errors,
    )


def _parse_day(name: str, text: str, errors: dict[str, list[str]]) -> datetime | None:
    """Parse a day in UTC; report a bad one as an error of the field."""
    if not text.strip():
        return None
    try:
        day = datetime.strptime(text.strip(), "%Y-%m-%d").replace(tzinfo=UTC)
        # The day after the last one of the calendar is beyond it.
        return day if day + timedelta(days=1) else None
    except (ValueError, OverflowError):
        errors[name] = [DATE_RULE]
        return None


def _to_us(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000)


def _target_path(target: str) -> Any:
    """Return the page of what was changed; empty if it has none."""
    kind, _, account_id = target.partition("/")
    return f"/admin/{kind}s/{account_id}" if kind in ("user", "group", "role") else ""
