"""Names of files in a bundle: relative, safe in any file system, unique also when normalised."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from itertools import pairwise, repeat
from operator import add

from storage.errors import Invalid
from storage.query.possessive import P

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_PLAIN_LINES = re.compile(rf"(?:\w[\w.+=-]*{P}(?:/\w[\w.+=-]*{P})*{P}\n)*{P}", re.ASCII)
"""Nearly all names there are, and nothing that has a fault but its length."""
_MAX_BYTES = 4096
_REPORTED = 20

Pointer = Callable[[int], str]
"""The JSON pointer of the name in a place."""


def fault(name: str) -> str | None:
    """What is wrong with a name, None when nothing is."""
    if not name:
        return "A name must not be empty."
    if name.startswith(("/", "~/")) or "\\" in name:
        return "A name must be relative, without a leading '/' or '~/' and without a backslash."
    if _CONTROL.search(name):
        return "A name must not hold control characters."
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "A name must not have empty, '.' or '..' as a segment."
    return "A name is too long." if len(name.encode()) > _MAX_BYTES else None


def _in_files(place: int) -> str:
    return f"/files/{place}/name"


def check_names(names: Sequence[str], *, pointer: Pointer = _in_files) -> None:
    """All of them good and unique; Invalid names the first faulty ones by JSON pointer."""
    if _all_plain(names):
        # Of ASCII alone: their normal form is what they are.
        _check_unique(names, pointer)
        _check_nesting(names, pointer)
        return
    faults = _faults(names, pointer)
    if faults:
        shown = dict(list(faults.items())[:_REPORTED])
        raise Invalid(f"{len(faults)} file names cannot be used.", errors=shown)
    # As some file systems see them; what is kept and answered is the name as it was given.
    plain = [unicodedata.normalize("NFC", name) for name in names]
    _check_unique(plain, pointer)
    _check_nesting(plain, pointer)


def _all_plain(names: Sequence[str]) -> bool:
    """Whether one look at all of them finds nothing that would need a second."""
    joined = "\n".join([*names, ""])
    whole = joined.count("\n") == len(names) and max(map(len, names), default=0) <= _MAX_BYTES
    return whole and _PLAIN_LINES.fullmatch(joined) is not None


def _faults(names: Sequence[str], pointer: Pointer) -> dict[str, list[str]]:
    return {
        pointer(place): [wrong]
        for place, name in enumerate(names)
        if (wrong := fault(name)) is not None
    }


def _check_unique(plain: Sequence[str], pointer: Pointer) -> None:
    if len(set(plain)) == len(plain):
        return
    first: dict[str, int] = {}
    twins = {}
    for place, name in enumerate(plain):
        if first.setdefault(name, place) != place:
            twins[pointer(place)] = [f"The same name as that of entry {first[name]}."]
    shown = dict(list(twins.items())[:_REPORTED])
    raise Invalid("File names must be unique.", code="duplicate_filename", errors=shown)


def _check_nesting(plain: Sequence[str], pointer: Pointer) -> None:
    """A name that is another's folder could never be laid out beside it."""
    # In this order a folder is followed by what lies in it: no good name has a NUL.
    ordered = sorted("\n".join(plain).replace("/", "\0").split("\n"))
    as_folders = map(add, ordered, repeat("\0"))
    if not any(map(str.startswith, ordered[1:], as_folders)):
        return
    folders = {
        name.replace("\0", "/")
        for name, after in pairwise(ordered)
        if after.startswith(name + "\0")
    }
    clashes = {
        pointer(place): ["Another entry has this name as its folder."]
        for place, name in enumerate(plain)
        if name in folders
    }
    shown = dict(list(clashes.items())[:_REPORTED])
    raise Invalid("A file has the name of a folder.", code="duplicate_filename", errors=shown)
