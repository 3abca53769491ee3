"""Text of others on its way to a terminal or a log: nothing in it moves the cursor.

What is escaped: control characters but line feed and tab, marks that turn the direction of
writing, separators of lines that only some programs know, and halves of characters.
"""

import re

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_UNSAFE_IN_LINE = re.compile(f"{_UNSAFE.pattern[:-1]}\n\t]")


def plain(text: str) -> str:
    """The text with each of those written as an escape, as Python writes it."""
    return _UNSAFE.sub(_escape, text)


def line(text: str) -> str:
    """The same for text that is to stay on one line."""
    return _UNSAFE_IN_LINE.sub(_escape, text)


def json_text(text: str) -> str:
    """A JSON document with each of those written as JSON writes it: the value stays the same."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
