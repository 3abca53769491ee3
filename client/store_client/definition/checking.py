"""Arguments beside what an operation says it takes, before anything is asked.

The server judges again; this is to say at once, and in the caller's own words, what cannot be
right. What is not said in a schema is let through.
"""

import difflib
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from store_client.definition.operation import Operation, Parameter
from store_client.errors import Misused

Schema = Mapping[str, Any]

LONGEST_NAME, MOST_NAMES = 100, 1_000
"""Characters and names that are looked at for one that may have been meant."""

KINDS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


def checked(operation: Operation, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are given, as they are sent; Misused. None counts as not given."""
    known = {one.name: one for one in operation.parameters}
    given = {
        name: value
        for name, value in arguments.items()
        if value is not None or _may_be_null(known.get(name))
    }
    for name in given.keys() - known.keys():
        raise Misused(
            f"{operation.name} takes no {name!r}{near(name, known)}",
            hint=f"it takes {', '.join(known) or 'nothing'}",
        )
    if missing := [one.name for one in operation.parameters if _lacks(one, given)]:
        raise Misused(f"{operation.name} needs {', '.join(missing)}")
    return {name: _argument(known[name], value) for name, value in given.items()}


def near(name: str, known: Iterable[str]) -> str:
    """Names that may have been meant, as the end of a sentence."""
    likely = islice((one for one in known if len(one) <= LONGEST_NAME), MOST_NAMES)
    found = difflib.get_close_matches(name[:LONGEST_NAME], list(likely), n=3, cutoff=0.6)
    return f": is {' or '.join(found)} meant?" if found else ""


def _lacks(parameter: Parameter, given: Mapping[str, Any]) -> bool:
    return parameter.required and parameter.name not in given


def _may_be_null(parameter: Parameter | None) -> bool:
    """A null that is sent means something else than nothing."""
    return (
        parameter is not None
        and parameter.place == "body"
        and parameter.required
        and bool(parameter.schema.get("nullable"))
    )


def _argument(parameter: Parameter, value: Any) -> Any:
    if parameter.schema.get("format") == "binary":
        return value
    plain = _plain(value, parameter)
    for where, why in _faults(plain, parameter.schema):
        raise Misused(f"{parameter.name}{where}: {why}")
    return plain


def _plain(value: Any, parameter: Parameter) -> Any:
    """As JSON has it; numbers of a query may be strings, as a shell gives them."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(one, _INNER) for name, one in value.items()}
    if isinstance(value, list | tuple) or _is_lazy(value):
        return [_plain(one, _INNER) for one in value]
    kind = parameter.schema.get("type")
    if parameter.place == "body" or not isinstance(value, str):
        return value
    if kind == "integer" and re.fullmatch(r"-?[0-9]{1,18}", value, re.ASCII):
        return int(value)
    if kind == "boolean" and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    return value


_INNER = Parameter("", "body", False, {})


def _is_lazy(value: Any) -> bool:
    return isinstance(value, Iterator)


def _faults(value: Any, schema: Schema, where: str = "") -> Iterator[tuple[str, str]]:
    """Where something is wrong, and what."""
    kind = schema.get("type")
    if value is None:
        if kind is not None and not schema.get("nullable"):
            yield where, f"must be {KINDS.get(kind, kind)}, and is nothing"
        return
    if kind in KINDS and not _is(value, kind):
        yield where, f"must be {KINDS[kind]}, and is {_shown(value)}"
        return
    yield from _of_choice(value, schema, where)
    if isinstance(value, str):
        yield from _of_text(value, schema, where)
    elif isinstance(value, list):
        yield from _of_list(value, schema, where)
    elif isinstance(value, Mapping):
        yield from _of_object(value, schema, where)
    elif kind in ("integer", "number"):
        yield from _of_number(value, schema, where)


def _is(value: Any, kind: str) -> bool:
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    types: Mapping[str, type | tuple[type, ...]] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "array": list,
        "object": Mapping,
    }
    return isinstance(value, types[kind])


def _of_choice(value: Any, schema: Schema, where: str) -> Iterator[tuple[str, str]]:
    allowed = schema.get("enum")
    if isinstance(allowed, list) and value not in allowed:
        choices = ", ".join(str(one) for one in allowed)
        yield where, f"must be one of {choices}, and is {_shown(value)}"


def _of_text(value: str, schema: Schema, where: str) -> Iterator[tuple[str, str]]:
    if schema.get("format") == "uuid" and not _UUID.fullmatch(value):
        yield where, f"must be a uuid, and is {_shown(value)}"
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _matches(pattern, value):
        like = f", like {schema['example']}" if "example" in schema else ""
        yield where, f"{_shown(value)} does not look as it must{like}"
    yield from _of_size(len(value), schema, "Length", f"{where}")


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)


def _matches(pattern: str, value: str) -> bool:
    library = importlib.import_module("re2")  # linear in the text, whatever the pattern
    options = library.Options()
    options.log_errors = False
    try:
        return library.compile(pattern, options).search(value) is not None
    except library.error:
        return True


def _of_list(value: Sequence[Any], schema: Schema, where: str) -> Iterator[tuple[str, str]]:
    yield from _of_size(len(value), schema, "Items", where)
    inner = schema.get("items")
    if isinstance(inner, Mapping) and inner:
        for at, one in enumerate(value):
            yield from _faults(one, inner, f"{where}[{at}]")


def _of_object(value: Schema, schema: Schema, where: str) -> Iterator[tuple[str, str]]:
    members = schema.get("properties", {})
    rest = schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield where, f"{name!r} is missing"
    for name, one in value.items():
        if name in members:
            yield from _faults(one, members[name], f"{where}.{name}")
        elif rest is False:
            yield where, f"takes no {name!r}{near(str(name), members)}"
        elif isinstance(rest, Mapping):
            yield from _faults(one, rest, f"{where}.{name}")


def _of_number(value: float, schema: Schema, where: str) -> Iterator[tuple[str, str]]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if (least is not None and value < least) or (most is not None and value > most):
        bounds = " to ".join(str(one) for one in (least, most) if one is not None)
        word = "must be" if None not in (least, most) else "is beyond the bound"
        yield where, f"{word} {bounds}, and is {value}"


def _of_size(size: int, schema: Schema, what: str, where: str) -> Iterator[tuple[str, str]]:
    least, most = schema.get(f"min{what}"), schema.get(f"max{what}")
    unit = "characters" if what == "Length" else "entries"
    if most is not None and size > most:
        yield where, f"has {size} {unit}, and may have {most}"
    if least is not None and size < least:
        yield where, f"has {size} {unit}, and needs {least}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
