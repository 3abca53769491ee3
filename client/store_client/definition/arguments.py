"""Check arguments against an operation's schema before a request is sent.

The server validates again. This reports obvious errors at once; what a schema does not say is
accepted.
"""

import difflib
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from store_client.definition.openapi import ApiOperation, OperationParameter
from store_client.errors import Misused
from store_client.identifiers import is_uuid

Schema = Mapping[str, Any]

LONGEST_NAME, MOST_NAMES = 100, 1_000
"""Characters and names that are looked at for one that may have been meant."""

TYPE_NAMES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}

PYTHON_TYPES: Mapping[Any, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": Mapping,
}


def check_arguments(operation: ApiOperation, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check arguments, and return them as they are sent; None means not given. Misused."""
    known = {one.name: one for one in operation.parameters}
    given = {
        name: value
        for name, value in arguments.items()
        if value is not None or _is_nullable(known.get(name))
    }
    for name in given.keys() - known.keys():
        raise Misused(
            f"{operation.name} takes no {name!r}{suggest_names(name, known)}",
            hint=f"it takes {', '.join(known) or 'nothing'}",
        )
    required = (one.name for one in operation.parameters if one.required)
    if missing := [name for name in required if name not in given]:
        raise Misused(f"{operation.name} needs {', '.join(missing)}")
    return {name: _check_argument(known[name], value) for name, value in given.items()}


def suggest_names(name: str, known: Iterable[str]) -> str:
    """Similar names, as the end of an error message."""
    likely = islice((one for one in known if len(one) <= LONGEST_NAME), MOST_NAMES)
    found = difflib.get_close_matches(name[:LONGEST_NAME], list(likely), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _is_nullable(parameter: OperationParameter | None) -> bool:
    """Whether null is a value."""
    return (
        parameter is not None
        and parameter.place == "body"
        and parameter.required
        and bool(parameter.schema.get("nullable"))
    )


def _check_argument(parameter: OperationParameter, value: Any) -> Any:
    if parameter.schema.get("format") == "binary":
        return value
    plain = _to_json_value(value, parameter)
    for where, why in _find_faults(plain, parameter.schema):
        raise Misused(f"{parameter.name}{where}: {why}")
    return plain


def _to_json_value(value: Any, parameter: OperationParameter) -> Any:
    """Convert to JSON types; query numbers may be strings."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _to_json_value(one, _INNER) for name, one in value.items()}
    if isinstance(value, list | tuple | Iterator):
        return [_to_json_value(one, _INNER) for one in value]
    kind = parameter.schema.get("type")
    if parameter.place == "body" or not isinstance(value, str):
        return value
    if kind == "integer" and re.fullmatch(r"-?[0-9]{1,18}", value, re.ASCII):
        return int(value)
    if kind == "boolean" and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    return value


_INNER = OperationParameter("", "body", False, {})


def _find_faults(value: Any, schema: Schema, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield the place and reason of each error."""
    kind = schema.get("type")
    if value is None:
        if kind is not None and not schema.get("nullable"):
            yield where, f"must be {TYPE_NAMES.get(kind, kind)} (got null)"
        return
    # A boolean is an integer to Python, and not to JSON.
    right = isinstance(value, PYTHON_TYPES.get(kind, object))
    if not right or (isinstance(value, bool) and kind not in ("boolean", None)):
        yield where, f"must be {TYPE_NAMES.get(str(kind), kind)} (got {_shorten(value)})"
        return
    yield from _check_enum(value, schema, where)
    if isinstance(value, str):
        yield from _check_string(value, schema, where)
    elif isinstance(value, list):
        yield from _check_list(value, schema, where)
    elif isinstance(value, Mapping):
        yield from _check_object(value, schema, where)
    elif kind in ("integer", "number"):
        yield from _check_number(value, schema, where)


def _check_enum(value: Any, schema: Schema, where: str) -> Iterator[tuple[str, str]]:
    allowed = schema.get("enum")
    if isinstance(allowed, list) and value not in allowed:
        choices = ", ".join(str(one) for one in allowed)
        yield where, f"must be one of {choices} (got {_shorten(value)})"


def _check_string(value: str, schema: Schema, where: str) -> Iterator[tuple[str, str]]:
    if schema.get("format") == "uuid" and not is_uuid(value):
        yield where, f"must be a uuid (got {_shorten(value)})"
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _matches_pattern(pattern, value):
        like = f", like {schema['example']}" if "example" in schema else ""
        yield where, f"must match {pattern}{like} (got {_shorten(value)})"
    yield from _check_size(len(value), schema, "Length", where)


def _matches_pattern(pattern: str, value: str) -> bool:
    library = importlib.import_module("re2")  # linear in the text, whatever the pattern
    options = library.Options()
    options.log_errors = False
    try:
        return library.compile(pattern, options).search(value) is not None
    except library.error:
        return True


def _check_list(value: Sequence[Any], schema: Schema, where: str) -> Iterator[tuple[str, str]]:
    yield from _check_size(len(value), schema, "Items", where)
    inner = schema.get("items")
    if isinstance(inner, Mapping) and inner:
        for at, one in enumerate(value):
            yield from _find_faults(one, inner, f"{where}[{at}]")


def _check_object(value: Schema, schema: Schema, where: str) -> Iterator[tuple[str, str]]:
    members = schema.get("properties", {})
    rest = schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield where, f"{name!r} is missing"
    for name, one in value.items():
        if name in members:
            yield from _find_faults(one, members[name], f"{where}.{name}")
        elif rest is False:
            yield where, f"takes no {name!r}{suggest_names(str(name), members)}"
        elif isinstance(rest, Mapping):
            yield from _find_faults(one, rest, f"{where}.{name}")


def _check_number(value: float, schema: Schema, where: str) -> Iterator[tuple[str, str]]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if (least is not None and value < least) or (most is not None and value > most):
        bounds = " to ".join(str(one) for one in (least, most) if one is not None)
        word = "" if None not in (least, most) else "at least " if most is None else "at most "
        yield where, f"must be {word}{bounds} (got {value})"


def _check_size(size: int, schema: Schema, what: str, where: str) -> Iterator[tuple[str, str]]:
    least, most = schema.get(f"min{what}"), schema.get(f"max{what}")
    unit = "characters" if what == "Length" else "entries"
    if most is not None and size > most:
        yield where, f"must have at most {most} {unit} (got {size})"
    if least is not None and size < least:
        yield where, f"must have at least {least} {unit} (got {size})"


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
