"""What headers of answers mean: links to the next page, how long to wait."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_LINK = re.compile(r'<([^>]*)>((?:\s*;\s*[^\s=;,]+\s*(?:=\s*(?:"[^"]*"|[^\s",;]*))?)*)')
_REL = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s",;]*))', re.IGNORECASE)


def next_link(headers: Mapping[str, str]) -> str | None:
    """The URL of the next page; None after the last."""
    for url, parameters in _LINK.findall(headers.get("Link", "")):
        rel = _REL.search(parameters)
        if rel and "next" in (rel[1] or rel[2] or "").lower().split():
            return str(url)
    return None


def retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Seconds to wait, from a number or a date; None when nothing is said that has a meaning."""
    said = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", said):
        return float(said)
    until = _date(said)
    # The server's clock tells how far away that is; ours may be wrong.
    since = _date(headers.get("Date", "")) or now or datetime.now(UTC)
    return None if until is None else max(0.0, (until - since).total_seconds())


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
