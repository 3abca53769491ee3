"""Schemas as options: what a person types, turned into what the schema wants.

string     as it is; a secret may be `@FILE` or `-`, to stay out of lists of processes
enum       one of its values
integer, number   within the bounds of the schema
boolean    a flag; `true` or `false` where it is required
array      the option again for each item, or a JSON list, or `@FILE`, or `-`
object     JSON, `@FILE` that holds JSON, or `-` for standard input
bytes      the name of a file, or `-`
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from store_client.cli.given import Bytes, Header, JsonText, ListItem, Secret, Text
from store_client.cli.plain import line

if TYPE_CHECKING:
    from store_client.definition import Parameter

Schema = Mapping[str, Any]

POINTERS = frozenset({"token", "start_at", "search_after", "next_token"})
"""Set by the links between pages; a person does not set them, so help does not show them."""

_SECRET = re.compile(r"secret|password|refresh_token|^token$")
HEADERS = "headers_of_request"
"""What click calls the values of that option."""
_FROM_SERVER = "of_"
"""Keeps names that a server gives apart from those of the common options."""


def option(parameter: "Parameter", *, paged: bool) -> click.Option:
    """The option of one parameter."""
    schema = parameter.schema
    kind = _kind(schema)
    name = option_name(parameter.name)
    more: dict[str, Any] = {"type": _type(parameter), "required": parameter.required}
    declared = f"--{name}"
    if kind == "array":
        more["multiple"] = True
    elif kind == "boolean" and not parameter.required:
        more |= {"default": None, "is_flag": True}
        del more["type"]
        declared = f"--{name}/--no-{name}" if schema.get("default") is True else declared
    return click.Option(
        [declared, destination(parameter.name)],
        help=_help(parameter),
        hidden=paged and parameter.name in POINTERS,
        **more,
    )


def header_option() -> click.Option:
    """Of every operation: descriptions speak of headers, which are no parameters."""
    return click.Option(
        ["--header", HEADERS],
        type=Header(),
        multiple=True,
        help="A header of the request, as Prefer:respond-async; may be given more than once.",
    )


def option_name(name: str) -> str:
    """`per_page` is typed as `--per-page`; `--per_page` is understood, too."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "value"


def destination(name: str) -> str:
    """What click calls the value of a parameter."""
    return _FROM_SERVER + re.sub(r"\W", "_", name, flags=re.ASCII)


def arguments(parameters: tuple["Parameter", ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, by the names of the definition; what was not given is not there."""
    found: dict[str, Any] = {}
    for parameter in parameters:
        value = given.get(destination(parameter.name))
        if isinstance(value, tuple):
            value = [item for part in value for item in part] if value else None
        if value is not None:
            found[parameter.name] = value
    return found


def _type(parameter: "Parameter") -> click.ParamType[Any]:
    schema = parameter.schema
    if schema.get("format") == "binary":
        return Bytes()
    if parameter.place != "path" and _SECRET.search(parameter.name):
        return Secret()
    made = _TYPES.get(_kind(schema), _any)
    return made(schema)


def _kind(schema: Schema) -> str:
    """The one type of a schema; "" for one that says none, or several."""
    kind = schema.get("type", "")
    kinds = [part for part in kind if part != "null"] if isinstance(kind, list) else [kind]
    return str(kinds[0]) if len(kinds) == 1 else ""


def _string(schema: Schema) -> click.ParamType[Any]:
    # null is said by leaving the option out.
    values = [value for value in schema.get("enum") or () if value is not None]
    if values:
        return click.Choice([str(value) for value in values])
    return Text("UUID" if schema.get("format") == "uuid" else "TEXT")


def _integer(schema: Schema) -> click.ParamType[Any]:
    low, high = schema.get("minimum"), schema.get("maximum")
    narrow = all(end is None or abs(end) < 2**31 for end in (low, high))
    bounded = narrow and (low is not None or high is not None)
    return click.IntRange(low, high) if bounded else click.INT


def _array(schema: Schema) -> click.ParamType[Any]:
    items = schema.get("items") or {}
    return ListItem(text=_kind(items) == "string", numbers=_kind(items) in ("integer", "number"))


def _any(schema: Schema) -> click.ParamType[Any]:
    return JsonText(text=_kind(schema) != "object")


_TYPES: Mapping[str, Callable[[Schema], click.ParamType[Any]]] = {
    "string": _string,
    "integer": _integer,
    "number": lambda _: click.FLOAT,
    "boolean": lambda _: click.BOOL,
    "array": _array,
}


def _help(parameter: "Parameter") -> str:
    schema = parameter.schema
    parts = [parameter.about or str(schema.get("description") or "")]
    if _kind(schema) == "array":
        parts.append("[once for each, or a JSON list, @FILE, -]")
    if shape := _shape_of_many(schema):
        parts.append(f"[{shape}]")
    if "default" in schema and schema["default"] not in ("", None, False):
        parts.append(f"[default: {schema['default']}]")
    elif _kind(schema) == "string" and not {"enum", "format"} & schema.keys() and _example(schema):
        parts.append(f"[example: {_example(schema)}]")
    return line("  ".join(part for part in parts if part))


def _shape_of_many(schema: Schema) -> str:
    """What belongs into a map, or into each item of a list of objects; "" where nothing is said, or
    too much."""
    if _kind(schema) == "object":
        found, text = schema, ""
    else:
        found, text = schema.get("items") or {}, "each: "
    if _kind(found) != "object" or not (found.get("properties") or _of_values(found)):
        return ""
    shape = _shape(found)
    return text + shape if len(shape) <= LONGEST_SHAPE else ""


LONGEST_SHAPE = 300


def _shape(schema: Schema) -> str:
    kind, allowed = _kind(schema), schema.get("enum")
    if allowed:
        return "|".join(map(str, allowed))
    if kind == "array":
        return f"[{_shape(schema.get('items') or {})}, ...]"
    if kind == "object" and (members := schema.get("properties")):
        wanted = schema.get("required", ())
        said = (f"{n}{'' if n in wanted else '?'}: {_shape(one)}" for n, one in members.items())
        return f"{{{', '.join(said)}}}"
    if kind == "object" and (values := _of_values(schema)):
        return f"{{NAME: {_shape(values)}, ...}}"
    return "UUID" if schema.get("format") == "uuid" else SHAPES.get(kind, "JSON")


SHAPES = {"string": "TEXT", "integer": "NUMBER", "number": "NUMBER", "boolean": "true|false"}


def _of_values(schema: Schema) -> Schema:
    """The schema of what names lead to in a map; empty when they may lead to anything."""
    found = schema.get("additionalProperties")
    return found if isinstance(found, Mapping) else {}


def _example(schema: Schema) -> str:
    return str(schema.get("example") or "")
