"""Validate file names of bundles: relative, portable, unique after NFC normalization."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from itertools import pairwise, repeat
from operator import add

from storage.errors import Invalid
from storage.search.words import POSSESSIVE

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_PLAIN_LINES = re.compile(
    rf"(?:\w[\w.+=-]*{POSSESSIVE}(?:/\w[\w.+=-]*{POSSESSIVE})*{POSSESSIVE}\n)*{POSSESSIVE}",
    re.ASCII,
)
"""Matches nearly all names, and no invalid one except by its length."""
_MAX_BYTES = 4096
_MAX_REPORTED = 20

NamePointer = Callable[[int], str]
"""Returns the JSON Pointer of the name at a place."""


def find_name_fault(name: str) -> str | None:
    """Return what is wrong with a name, or None."""
    if not name:
        return "A name must not be empty."
    if name.startswith(("/", "~/")) or "\\" in name:
        return "A name must be relative, without a leading '/' or '~/' and without a backslash."
    if _CONTROL.search(name):
        return "A name must not contain control characters."
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "A name must not have empty, '.' or '..' as a segment."
    return "A name is too long." if len(name.encode()) > _MAX_BYTES else None


def check_file_names(
    names: Sequence[str], *, pointer: NamePointer = "/files/{}/name".format
) -> None:
    """Raise Invalid if a name is invalid or repeated, or is the folder of another one."""
    plain = names
    if not _are_all_plain(names):
        faults = {
            pointer(place): [fault]
            for place, name in enumerate(names)
            if (fault := find_name_fault(name)) is not None
        }
        if faults:
            raise _make_error(f"{len(faults)} file names are invalid.", faults)
        # Compared as some file systems do; the catalog stores the names unchanged.
        plain = [unicodedata.normalize("NFC", name) for name in names]
    if len(set(plain)) < len(plain):
        raise _find_repeated(plain, pointer)
    _check_nesting(plain, pointer)


def _make_error(message: str, errors: dict[str, list[str]], code: str | None = None) -> Invalid:
    return Invalid(message, code=code, errors=dict(list(errors.items())[:_MAX_REPORTED]))


def _are_all_plain(names: Sequence[str]) -> bool:
    """Return whether one match shows that all names are valid ASCII."""
    joined = "\n".join([*names, ""])
    whole = joined.count("\n") == len(names) and max(map(len, names), default=0) <= _MAX_BYTES
    return whole and _PLAIN_LINES.fullmatch(joined) is not None


def _find_repeated(plain: Sequence[str], pointer: NamePointer) -> Invalid:
    first: dict[str, int] = {}
    repeated = {
        pointer(place): [f"Entry {first[name]} has the same name."]
        for place, name in enumerate(plain)
        if first.setdefault(name, place) != place
    }
    return _make_error("File names must be unique.", repeated, "duplicate_filename")


def _check_nesting(plain: Sequence[str], pointer: NamePointer) -> None:
    """Raise Invalid if a name is the folder of another one: both cannot exist on a file system."""
    # In this order the names in a folder follow it; no valid name contains a NUL.
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
    raise _make_error("A file has the name of a folder.", clashes, "duplicate_filename")
