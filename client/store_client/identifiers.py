"""Versions, uuids, replicas and SHA-256 digests as text.

STORE_VERSION: `<YYYY>-<MM>-<DD>T<HHMMSS>.<6 digits>Z`, a moment in UTC.
"""

import re
from datetime import UTC, datetime

from store_client.errors import Misused

REPLICAS = ("aws", "gcp")
_FORM = re.compile(r"\d{4}-\d{2}-\d{2}T\d{6}\.\d{6}Z", re.ASCII)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FORMAT = "%Y-%m-%dT%H%M%S.%fZ"


def create_version(now: datetime | None = None) -> str:
    """The version of a moment, by default of this one."""
    moment = (now or datetime.now(UTC)).astimezone(UTC)
    # strftime leaves leading zeros of a year away on some systems.
    return f"{moment.year:04}-{moment:%m-%dT%H%M%S}.{moment.microsecond:06}Z"


def parse_version(text: str) -> datetime:
    """The moment that a version names; Misused when it is none."""
    try:
        if not _FORM.fullmatch(text):
            raise ValueError
        return datetime.strptime(text, _FORMAT).replace(tzinfo=UTC)
    except ValueError:
        raise Misused(
            f"{quote_text(text)} is not a version", hint="it looks like 2026-01-31T235959.000000Z"
        ) from None


def is_version(text: str) -> bool:
    try:
        parse_version(text)
    except Misused:
        return False
    return True


def is_uuid(text: str) -> bool:
    """Whether a text is a uuid, in upper or lower case."""
    return _UUID.fullmatch(text) is not None


def check_uuid(text: str, what: str) -> str:
    """A uuid in lower case; Misused if it is invalid."""
    if not is_uuid(text):
        raise Misused(
            f"{quote_text(text)} is not a uuid", hint=f"give the {what} as 8-4-4-4-12 hex digits"
        )
    return text.lower()


def is_sha256(text: str) -> bool:
    """Whether a text is a SHA-256 in lower case."""
    return _SHA256.fullmatch(text) is not None


def quote_text(text: str) -> str:
    """A text in quotes for an error; the beginning of a long one."""
    return repr(text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}...")


LONGEST_QUOTE = 120
