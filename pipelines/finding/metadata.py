"""Reading one metadata file: JSON as the standard has it, bounded, with its faults named."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from storage.errors import TooLarge
from storage.json_codec import TooDeep, decode_exactly
from storage.json_size import MAX_PARSED_BYTES, check_size, parsed_size

MAX_DEPTH = 100
REPORTED_DUPLICATES = 10


class Unreadable(ValueError):
    """What is wrong with a file that cannot be made part of a document."""


def parse(content: bytes, *, room: int = MAX_PARSED_BYTES) -> tuple[Any, tuple[str, ...]]:
    """The value, and remarks on what was read though it is doubtful: duplicate names, of which the
    last counts. Unreadable for what has no place in a document, or takes more memory than `room`
    once it is parsed."""
    try:
        check_size(parsed_size(content), room)
    except TooLarge as error:
        raise Unreadable(error.detail) from error
    duplicates: list[str] = []
    value = _loaded(content, duplicates)
    _check_depth(value)
    shown = list(dict.fromkeys(duplicates))[:REPORTED_DUPLICATES]
    return value, tuple(f"duplicate name {json.dumps(name)}, the last counts" for name in shown)


def _loaded(content: bytes, duplicates: list[str]) -> Any:
    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            duplicates.extend(name for name, count in counts.items() if count > 1)
        return found

    try:
        return decode_exactly(content.decode("utf-8-sig"), members=members)
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        problem = f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise Unreadable(problem) from error
    except TooDeep as error:
        raise Unreadable(f"nested deeper than {MAX_DEPTH}") from error
    except ValueError as error:
        raise Unreadable(str(error)) from error


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for each in level for child in _children(each)]
        if not level:
            return
    raise Unreadable(f"nested deeper than {MAX_DEPTH}")


def _children(value: Any) -> Iterator[Any]:
    """The lists and objects directly inside of one."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (child for child in inside if isinstance(child, dict | list))
