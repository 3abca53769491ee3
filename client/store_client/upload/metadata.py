"""Check that metadata files are JSON before they are uploaded."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from store_client.checksums import MB
from store_client.errors import Misused
from store_client.upload.planning import Wanted

LARGEST = 32 * MB
"""Bytes of a metadata file that the store looks into; it names larger ones in a bundle's errors."""
_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|(NaN|-?Infinity)')
_NAME = re.compile(r'("(?:[^"\\]|\\.)*")\s*:|"(?:[^"\\]|\\.)*"|[{}]')


class DuplicateName(Exception):
    """An object gives a name twice, of which readers keep different values."""


def check_metadata(files: Iterable[Wanted]) -> None:
    """Misused with file, line and column of the first metadata file that is not JSON."""
    faults = [found for one in files if one.indexed and (found := fault_of(one)) is not None]
    if faults:
        more = f" (and {len(faults) - 1} more files)" if len(faults) > 1 else ""
        raise Misused(
            f"{faults[0]}{more}",
            hint="correct it, or upload it as it is: --allow-invalid-json",
        )


def fault_of(one: Wanted) -> str | None:
    """What is wrong with a metadata file, and where; None for JSON, and beyond the largest size."""
    if one.file.size > LARGEST:
        return None
    try:
        data = Path(one.file.path).read_bytes()
    except OSError as error:
        raise Misused(f"cannot read {one.file.path}: {error.strerror or error}") from error
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return f"{one.name}{_place(data[: error.start].decode())}: not UTF-8"
    fault = _fault_in(text)
    return fault and f"{one.name}{fault}"


def _fault_in(text: str) -> str | None:
    try:
        # Numbers are not looked at: the store takes them of any length.
        json.loads(
            text,
            parse_int=len,
            parse_float=len,
            parse_constant=_refuse,
            object_pairs_hook=_require_unique,
        )
    except json.JSONDecodeError as error:
        at = f", line {error.lineno}, column {error.colno}"
        return f"{at}: {error.msg.removesuffix(' at')}"
    except RecursionError:
        return ": nested too deeply"
    except DuplicateName:
        start, name = _first_duplicate(text)
        return f"{_place(text[:start])}: the name {name} is given twice in one object"
    except ValueError as error:
        return f"{_place(text[: _first_constant(text)])}: {error}"
    return None


def _require_unique(pairs: list[tuple[str, object]]) -> None:
    """Keeps nothing, so that a large file takes little memory."""
    if len(dict(pairs)) < len(pairs):
        raise DuplicateName


def _first_duplicate(text: str) -> tuple[int, str]:
    """Where an object of a JSON text gives a name for the second time, and the name in quotes."""
    seen: list[set[str]] = []
    for found in _NAME.finditer(text):
        if found[0] == "{":
            seen.append(set())
        elif found[0] == "}":
            seen.pop()
        elif found[1]:
            name = json.loads(found[1])
            if name in seen[-1]:
                return found.start(), found[1]
            seen[-1].add(name)
    return 0, ""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _first_constant(text: str) -> int:
    return next((found.start() for found in _CONSTANT.finditer(text) if found[1]), 0)


def _place(before: str) -> str:
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return f", line {line}, column {column}"
