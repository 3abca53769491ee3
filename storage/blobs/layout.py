"""Where an object of a folder bucket lies: its key spelled as a path, and back.

A segment keeps lower-case letters, digits, `-`, `_` and inner `.`; every other byte becomes `%xx`,
so that no two keys differ by case or Unicode form only and none is a path of its own. Folders end
in `+`, so that the object `a` and the folder of `a/b` are two names. From the first segment on that
would be longer than a file name may be, the rest of the key is one hashed name behind `~`; the true
key stands in the object's head.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from typing import Final

from storage.errors import Invalid

MAX_KEY_BYTES: Final = 900
MAX_NAME: Final = 200
"""Longest escaped segment; file systems stop at 255."""
FOLDER: Final = "+"
HASHED: Final = "~"

_SAFE = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyz-_.")
_ESCAPES = [chr(byte) if byte in _SAFE else f"%{byte:02x}" for byte in range(256)]
_NAME = re.compile(r"(?:[0-9a-z\-_.]|%[0-9a-f]{2})+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Place:
    """A path below the bucket's root: folders, and the object's name in the last of them."""

    folders: tuple[str, ...]
    name: str

    def under(self, root: str) -> str:
        """The whole path."""
        return os.path.join(root, *self.folders, self.name)


def place(key: str) -> Place:
    """Where a key's object lies; Invalid when it can be no key."""
    segments = checked(key).split(b"/")
    folders: list[str] = []
    for index, segment in enumerate(segments):
        name = escape(segment)
        if len(name) > MAX_NAME:
            tail = hashlib.sha256(b"/".join(segments[index:])).hexdigest()
            return Place(tuple(folders), HASHED + tail)
        folders.append(name + FOLDER)
    return Place(tuple(folders[:-1]), name)


def checked(key: str) -> bytes:
    """The key's bytes; Invalid when it is empty, too long or not printable text."""
    try:
        raw = key.encode()
    except UnicodeEncodeError as error:
        raise Invalid("an object key must be Unicode text") from error
    if not 0 < len(raw) <= MAX_KEY_BYTES or _CONTROL.search(key):
        raise Invalid(f"an object key has 1 to {MAX_KEY_BYTES} bytes and no control characters")
    return raw


def escape(segment: bytes) -> str:
    """One segment as a file name; an empty one, which escapes cannot spell, is `%`."""
    name = "".join([_ESCAPES[byte] for byte in segment])
    if name.startswith("."):
        return "%2e" + name[1:]
    return name or "%"


def unescape(name: str) -> bytes | None:
    """The segment that a name spells, None when we would not have written it."""
    if name == "%":
        return b""
    if not _NAME.fullmatch(name):
        return None
    head, *rest = name.split("%")
    segment = head.encode() + b"".join(bytes([int(r[:2], 16)]) + r[2:].encode() for r in rest)
    return segment if escape(segment) == name else None
