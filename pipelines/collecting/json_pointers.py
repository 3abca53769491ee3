"""JSON Pointers (RFC 6901): what one names inside of a JSON value."""

import re
from typing import Any

_POINTER = re.compile(r"(?:/(?:[^/~]|~[01])*)*", re.DOTALL)
_INDEX = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)


def is_pointer(text: str) -> bool:
    """Whether it is spelled as a pointer; the empty one names the whole value."""
    return _POINTER.fullmatch(text) is not None


def resolves(value: Any, pointer: str) -> bool:
    """Whether a good pointer names something in a value."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and _INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return False
    return True
