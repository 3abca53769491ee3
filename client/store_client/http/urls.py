"""Origins of URLs, which of them get a token, and headers for paging and waiting."""

import importlib
import ipaddress
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from urllib.parse import urljoin, urlsplit

USUAL_PORTS = {"http": 80, "https": 443}

Origin = tuple[str, str, int]
"""Scheme, host, port."""


def parse_origin(url: str) -> Origin:
    """The origin of an absolute URL; ValueError if it has none."""
    parts = urlsplit(url)
    if parts.scheme not in USUAL_PORTS or not parts.hostname:
        raise ValueError(f"{strip_query(url)!r} is not an http or https URL")
    return parts.scheme, parts.hostname.lower(), parts.port or USUAL_PORTS[parts.scheme]


def upgrade_origin(found: Origin) -> Origin:
    """The same host over TLS."""
    scheme, host, port = found
    return ("https", host, 443) if (scheme, port) == ("http", 80) else found


def is_trusted(url: str, origins: Iterable[Origin]) -> bool:
    """Whether a token may be sent to a URL: to these origins, also over TLS."""
    try:
        asked = parse_origin(url)
    except ValueError:
        return False
    return any(asked in (one, upgrade_origin(one)) for one in origins)


def is_downgrade(before: str, after: str) -> bool:
    """Whether a redirect leaves TLS, except to this machine."""
    scheme, host, _ = parse_origin(after)
    return scheme == "http" and parse_origin(before)[0] == "https" and not _is_loopback(host)


def resolve_url(base: str, url: str) -> str:
    """Resolve a `Location` or link against its base; "" if invalid."""
    try:
        return urljoin(base, url)
    except ValueError:
        return ""


def strip_query(url: str) -> str:
    """A URL without its query, which may hold a secret."""
    return url.partition("?")[0]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_LINK = re.compile(r'<([^>]*)>((?:\s*;\s*[^\s=;,]+\s*(?:=\s*(?:"[^"]*"|[^\s",;]*))?)*)')
_REL = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s",;]*))', re.IGNORECASE)


def next_link(headers: Mapping[str, str]) -> str | None:
    """The URL of the next page; None on the last one."""
    for url, parameters in _LINK.findall(headers.get("Link", "")):
        rel = _REL.search(parameters)
        if rel and "next" in (rel[1] or rel[2] or "").lower().split():
            return str(url)
    return None


def retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date; None if invalid."""
    said = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", said):
        return float(said)
    until = parse_date(said)
    # The server's clock tells how far away that is; ours may be wrong.
    since = parse_date(headers.get("Date", "")) or now or datetime.now(UTC)
    return None if until is None else max(0.0, (until - since).total_seconds())


def parse_date(text: str) -> datetime | None:
    """The moment of an HTTP date; None if invalid."""
    # Late, as it loads much, and few answers have a date.
    utils = importlib.import_module("email.utils")
    try:
        found: datetime = utils.parsedate_to_datetime(text)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
