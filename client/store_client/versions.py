"""STORE_VERSION: `<YYYY>-<MM>-<DD>T<HHMMSS>.<6 digits>Z`, a moment in UTC."""

import re
from datetime import UTC, datetime

from store_client.errors import Misused

_FORM = re.compile(r"\d{4}-\d{2}-\d{2}T\d{6}\.\d{6}Z", re.ASCII)
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
            f"{text!r} is not a version", hint="it looks like 2026-01-31T235959.000000Z"
        ) from None
