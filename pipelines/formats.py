"""Spelling of uuids and versions: what comes in, what is stored, what the server makes."""

import re
import uuid as uuids
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from storage.errors import Invalid

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}T(?!24)\d{6}\.\d{6}Z", re.ASCII)
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_VERSIONS = re.compile(rf"(?:{_VERSION.pattern}\n)*+", re.ASCII)


def uuid_of(text: str, *, where: str = "uuid") -> str:
    """An RFC 4122 string in lower case; Invalid when it is none."""
    lower = text.lower()
    if not _UUID.fullmatch(lower):
        raise Invalid(f"'{text[:100]}' is not a UUID.", errors={where: ["Not a valid UUID."]})
    return lower


def version_of(text: str, *, where: str = "version") -> str:
    """A STORE_VERSION that names a real moment; Invalid(illegal_version) when it is none."""
    if _VERSION.fullmatch(text):
        try:
            datetime.fromisoformat(text)
        except ValueError:
            pass
        else:
            return text
    raise Invalid(
        f"'{text[:100]}' is not a version like 2026-01-31T235959.000000Z.",
        code="illegal_version",
        errors={where: ["Not a valid version."]},
    )


def fqids_of(uuids: Sequence[str], versions: Sequence[str]) -> list[tuple[str, str]] | None:
    """Return (uuid, version) pairs in normal spelling if every one is good, else None.

    One look at all of them costs a fifth of one look at each; an `FQID` each would cost as much.
    """
    lines = "\n".join([*uuids, ""])
    lower = lines.lower()
    # Compared with hexadecimal digits alike: a pattern takes five times as long.
    if not lower.isascii() or lower.encode().translate(_HEX_AS_ZEROS) != _ZEROS * len(uuids):
        return None
    moments = {*versions}
    joined = "\n".join([*moments, ""])
    # A text with a line break in it is not two texts.
    if joined.count("\n") != len(moments) or not _VERSIONS.fullmatch(joined):
        return None
    try:
        for text in moments:
            datetime.fromisoformat(text)
    except ValueError:
        return None
    normal = uuids if lower == lines else lower.splitlines()
    return [*zip(normal, versions, strict=True)]


_HEX_AS_ZEROS = bytes.maketrans(b"123456789abcdef", b"0" * 15)
_ZEROS = f"{uuids.UUID(int=0)}\n".encode()


def version_at(us: int) -> str:
    """The STORE_VERSION of a moment in microseconds since 1970."""
    moment = datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)
    return moment.strftime("%Y-%m-%dT%H%M%S.%fZ")


def us_of(version: str) -> int:
    """The moment of a good version, in microseconds since 1970."""
    return (datetime.fromisoformat(version) - _EPOCH) // _MICROSECOND


LAST_US = us_of("9999-12-31T235959.999999Z")


def later_versions(version: str, *, now_us: int) -> Iterator[str]:
    """Names for what may follow a version: from now on, and after it, ever further apart. Whoever
    wrote the next thousands beforehand has nobody look at each of them while a head is locked."""
    us, step = max(now_us, us_of(version) + 1), 1
    while us <= LAST_US:
        yield version_at(us)
        us, step = us + step, 2 * step


def new_uuid() -> str:
    """A random uuid."""
    return str(uuids.uuid4())
