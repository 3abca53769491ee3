"""Format values for people: sizes, counts, dates, links, and trees of metadata."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from storage import json_codec

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


def format_bytes(size: int | None) -> str:
    """Format a size with decimal units and three digits: `1.23 MB`."""
    if size is None:
        return ""
    value, unit = float(size), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    if unit == 0:
        return "1 byte" if size == 1 else f"{size} bytes"
    return f"{value:.3g} {_UNITS[unit]}"


def format_count(number: int, noun: str = "", plural: str = "") -> str:
    """Format a number with thousands separators, and its noun: `1,234 files`."""
    if not noun:
        return f"{number:,}"
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def format_time(us: int | None) -> str:
    """Format microseconds since 1970 as `2026-01-31 23:59:59 UTC`."""
    if not us:
        return ""
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_iso(us: int | None) -> str:
    """Format microseconds since 1970 for the `datetime` attribute of `<time>`."""
    if not us:
        return ""
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_rfc3339(us: int) -> str:
    """Format microseconds since 1970 as RFC 3339, with all digits."""
    moment = datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def format_version(version: str) -> str:
    """Format a version, `2026-01-31T235959.000000Z`, as a date and time."""
    date, _, time = version.partition("T")
    return f"{date} {time[0:2]}:{time[2:4]}:{time[4:6]} UTC"


def format_age(seconds: float | None) -> str:
    """Format a duration in its largest unit: `3 hours`."""
    if seconds is None:
        return ""
    for length, noun in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= length:
            return format_count(int(seconds // length), noun)
    return format_count(max(0, int(seconds)), "second")


def is_web_url(value: Any) -> bool:
    """Return whether a deposited text may become a link: an http or https URL with a host."""
    if not isinstance(value, str) or len(value) > 2000 or not value.isprintable():
        return False
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def shorten(text: str, most: int = 200) -> str:
    """Cut a text off after `most` characters, with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


# Direction and zero-width characters, which can make a name look like another one.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)


def reveal(text: str) -> str:
    """Spell out characters that are invisible or change the direction: `[U+202E]`."""
    return _HIDDEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)


def split_pieces(text: str) -> list[str]:
    """Split a text after each colon and slash, where a line may break."""
    return re.findall(r"[^:/]*[:/]|[^:/]+$", text)


FILTERS: dict[str, Callable[..., Any]] = {
    "bytes": format_bytes,
    "count": format_count,
    "time": format_time,
    "iso": format_iso,
    "rfc3339": format_rfc3339,
    "version": format_version,
    "age": format_age,
    "shorten": shorten,
    "reveal": reveal,
    "pieces": split_pieces,
}
"""Jinja filters."""

MAX_NODES = 2_000
"""Values of one tree; the rest is counted."""
MAX_DEPTH = 12
MAX_CHILDREN = 200
MAX_TEXT = 2_000


@dataclass
class TreeNode:
    """A value with its name: a text, or further values; `left_out` are not shown."""

    name: str
    text: str | None = None
    children: list["TreeNode"] = field(default_factory=list)
    left_out: int = 0
    summary: str = ""


class TreeBuilder:
    """Builds trees until its room for nodes is used up."""

    def __init__(self, room: int = MAX_NODES) -> None:
        """Start with room for this many values."""
        self.room = room

    def build(self, name: str, value: Any, depth: int = 0) -> TreeNode:
        """Return the tree of a JSON value."""
        self.room -= 1
        if not isinstance(value, dict | list) or not value:
            return TreeNode(name, shorten(_format_scalar(value), MAX_TEXT))
        items = list(value.items() if isinstance(value, dict) else enumerate(value, 1))
        node = TreeNode(name, summary=_summarize(value))
        if depth >= MAX_DEPTH:
            node.left_out = len(items)
            return node
        for place, (key, child) in enumerate(items):
            if place == MAX_CHILDREN or self.room <= 0:
                node.left_out = len(items) - place
                break
            node.children.append(self.build(shorten(str(key)), child, depth + 1))
        return node


def _format_scalar(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json_codec.encode(value).decode(errors="replace")


def _summarize(value: Any) -> str:
    noun = "field" if isinstance(value, dict) else "item"
    return f"{len(value):,} {noun}{'' if len(value) == 1 else 's'}"
