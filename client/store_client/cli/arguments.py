"""Schemas as command-line options, and values from files or standard input.

string     as it is; a secret may be `@FILE` or `-`, to stay out of lists of processes
enum       one of its values
integer, number   within the bounds of the schema
boolean    a flag; `true` or `false` where it is required
array      the option again for each item, or a JSON list, or `@FILE`, or `-`
object     JSON, `@FILE` that holds JSON, or `-` for standard input
bytes      the name of a file, or `-`
"""

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from store_client.cli.terminal import escape_line

if TYPE_CHECKING:
    from store_client.definition import OperationParameter

_STDIN_USED = f"{__name__}.stdin"


class JsonValue(click.ParamType[Any]):
    """A JSON value; with `text`, anything that is not JSON is a string."""

    name = "json|@file|-"

    def __init__(self, *, text: bool = False) -> None:
        self._text = text

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the value."""
        if not isinstance(value, str):
            return value
        said = read_value(value, param, ctx)
        if self._text and not said.lstrip().startswith(("{", "[", '"')):
            return _parse_scalar(said)
        return _parse_json(self, said, param, ctx)


class ListItem(click.ParamType[Any]):
    """One item, or a JSON list of items; always a list."""

    name = "item"

    def __init__(self, *, text: bool = False, numbers: bool = False) -> None:
        self._text = text
        self.name = "text" if text else "number" if numbers else "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the items."""
        if not isinstance(value, str):
            return value
        said = read_value(value, param, ctx)
        if self._text and not said.lstrip().startswith("["):
            return [said] if said is value else [part for part in said.splitlines() if part]
        found = _parse_json(self, said, param, ctx)
        return found if isinstance(found, list) else [found]


class PlainText(click.ParamType[str]):
    """A string as it is."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The string itself."""
        return str(value)


class SecretText(click.ParamType[Any]):
    """A string that may come from a file, to stay out of the process list."""

    name = "text|@file|-"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the string, without its final line end."""
        return read_value(value, param, ctx)


class FileBytes(click.ParamType[Any]):
    """A file to upload."""

    name = "file|-"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, or standard input."""
        if not isinstance(value, str):
            return value
        if value == "-":
            return _open_stdin(param, ctx)
        path = Path(value.removeprefix("@"))
        if not path.is_file():
            _fail(f"there is no file {path}", param, ctx)
        return path


class HeaderValue(click.ParamType[Any]):
    """A request header that a user may set."""

    name = "name:value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse name and value."""
        if not isinstance(value, str):
            return value
        name, colon, said = (part.strip() for part in value.partition(":"))
        if not colon or not _TOKEN.fullmatch(name) or not said.isascii() or not said.isprintable():
            _fail(f"{value!r} is not a header like Prefer:respond-async", param, ctx)
        if name.lower() in OURS:
            _fail(f"{name} is set by this client (to log in: store login)", param, ctx)
        return name, said


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
WHO = ("authorization", "proxy-authorization", "cookie", "host", "user-agent")
HOW = ("connection", "content-length", "transfer-encoding", "expect")
OURS = frozenset({*WHO, *HOW})
"""Headers that the client sets."""


def read_value(value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
    """The text itself, or the content of the file or standard input that it names."""
    if value == "-":
        return _read_stdin(param, ctx).rstrip("\r\n")
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text(encoding="utf-8-sig").rstrip("\r\n")
    except OSError as error:
        _fail(f"cannot read {value[1:]}: {error.strerror or error}", param, ctx)
    except UnicodeError:
        _fail(f"{value[1:]} is not UTF-8 text", param, ctx)


def claim_stdin(param: click.Parameter | None, ctx: click.Context | None) -> None:
    """Let only one option read standard input."""
    if ctx is None:
        return
    if ctx.meta.get(_STDIN_USED):
        _fail("standard input was read already", param, ctx)
    ctx.meta[_STDIN_USED] = True


def _open_stdin(param: click.Parameter | None, ctx: click.Context | None) -> Any:
    """The binary standard input; fails if the shell closed it."""
    claim_stdin(param, ctx)
    stream = getattr(sys.stdin, "buffer", None)
    return stream or _fail("standard input is closed", param, ctx)


def _read_stdin(param: click.Parameter | None, ctx: click.Context | None) -> str:
    try:
        return str(_open_stdin(param, ctx).read().decode("utf-8-sig"))
    except UnicodeError:
        _fail("standard input is not UTF-8 text", param, ctx)


def _parse_json(
    kind: click.ParamType[Any], said: str, param: click.Parameter | None, ctx: click.Context | None
) -> Any:
    try:
        return json.loads(said, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        shown = said if len(said) <= 60 else f"{said[:57]}..."
        _fail(f"{shown!r} is no JSON ({error}); give a file as @FILE", param, ctx)


def _parse_scalar(said: str) -> Any:
    try:
        return json.loads(said, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return said


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not valid JSON")


def _fail(text: str, param: click.Parameter | None, ctx: click.Context | None) -> NoReturn:
    raise click.BadParameter(text, ctx=ctx, param=param)


Schema = Mapping[str, Any]

POINTERS = frozenset({"token", "start_at", "search_after", "next_token"})
"""Set by the links between pages; a person does not set them, so help does not show them."""

_SECRET = re.compile(r"secret|password|refresh_token|^token$")
HEADERS = "headers_of_request"
"""What click calls the values of that option."""
_FROM_SERVER = "of_"
"""Separates the server's parameter names from the common options."""


def build_option(parameter: "OperationParameter", *, paged: bool) -> click.Option:
    """Build the option of a parameter."""
    schema = parameter.schema
    kind = _schema_type(schema)
    name = option_name(parameter.name)
    more: dict[str, Any] = {"type": _click_type(parameter), "required": parameter.required}
    declared = f"--{name}"
    if kind == "array":
        more["multiple"] = True
    elif kind == "boolean" and not parameter.required:
        more |= {"default": None, "is_flag": True}
        del more["type"]
        declared = f"--{name}/--no-{name}" if schema.get("default") is True else declared
    return click.Option(
        [declared, destination(parameter.name)],
        help=_option_help(parameter),
        hidden=paged and parameter.name in POINTERS,
        **more,
    )


def build_header_option() -> click.Option:
    """Build the option --header, which every operation has."""
    return click.Option(
        ["--header", HEADERS],
        type=HeaderValue(),
        multiple=True,
        help="A request header such as Prefer:respond-async; may be repeated.",
    )


def option_name(name: str) -> str:
    """The option of a parameter: `--per-page` for `per_page`."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "value"


def destination(name: str) -> str:
    """The name of an option's value in click."""
    return _FROM_SERVER + re.sub(r"\W", "_", name, flags=re.ASCII)


def collect_arguments(
    parameters: tuple["OperationParameter", ...], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The given arguments by their names in the definition."""
    found: dict[str, Any] = {}
    for parameter in parameters:
        value = given.get(destination(parameter.name))
        if isinstance(value, tuple):
            value = [item for part in value for item in part] if value else None
        if value is not None:
            found[parameter.name] = value
    return found


def _click_type(parameter: "OperationParameter") -> click.ParamType[Any]:
    schema = parameter.schema
    if schema.get("format") == "binary":
        return FileBytes()
    if parameter.place != "path" and _SECRET.search(parameter.name):
        return SecretText()
    made = _TYPES.get(_schema_type(schema), _json_type)
    return made(schema)


def _schema_type(schema: Schema) -> str:
    """The single type of a schema; "" if it has none or several."""
    kind = schema.get("type", "")
    kinds = [part for part in kind if part != "null"] if isinstance(kind, list) else [kind]
    return str(kinds[0]) if len(kinds) == 1 else ""


def _string_type(schema: Schema) -> click.ParamType[Any]:
    # null is said by leaving the option out.
    values = [value for value in schema.get("enum") or () if value is not None]
    if values:
        return click.Choice([str(value) for value in values])
    return PlainText("UUID" if schema.get("format") == "uuid" else "TEXT")


def _integer_type(schema: Schema) -> click.ParamType[Any]:
    low, high = schema.get("minimum"), schema.get("maximum")
    narrow = all(end is None or abs(end) < 2**31 for end in (low, high))
    bounded = narrow and (low is not None or high is not None)
    return click.IntRange(low, high) if bounded else click.INT


def _array_type(schema: Schema) -> click.ParamType[Any]:
    items = schema.get("items") or {}
    return ListItem(
        text=_schema_type(items) == "string", numbers=_schema_type(items) in ("integer", "number")
    )


def _json_type(schema: Schema) -> click.ParamType[Any]:
    return JsonValue(text=_schema_type(schema) != "object")


_TYPES: Mapping[str, Callable[[Schema], click.ParamType[Any]]] = {
    "string": _string_type,
    "integer": _integer_type,
    "number": lambda _: click.FLOAT,
    "boolean": lambda _: click.BOOL,
    "array": _array_type,
}


def _option_help(parameter: "OperationParameter") -> str:
    schema = parameter.schema
    parts = [parameter.about or str(schema.get("description") or "")]
    if _schema_type(schema) == "array":
        parts.append("[repeat, or a JSON list, @FILE, -]")
    if shape := _describe_members(schema):
        parts.append(f"[{shape}]")
    if "default" in schema and schema["default"] not in ("", None, False):
        parts.append(f"[default: {schema['default']}]")
    elif (
        _schema_type(schema) == "string"
        and not {"enum", "format"} & schema.keys()
        and _example(schema)
    ):
        parts.append(f"[example: {_example(schema)}]")
    return escape_line("  ".join(part for part in parts if part))


def _describe_members(schema: Schema) -> str:
    """Describe the members of a map or of list items; "" if unknown or too long."""
    if _schema_type(schema) == "object":
        found, text = schema, ""
    else:
        found, text = schema.get("items") or {}, "each: "
    if _schema_type(found) != "object" or not (found.get("properties") or _map_values(found)):
        return ""
    shape = _describe_shape(found)
    return text + shape if len(shape) <= LONGEST_SHAPE else ""


LONGEST_SHAPE = 300


def _describe_shape(schema: Schema) -> str:
    kind, allowed = _schema_type(schema), schema.get("enum")
    if allowed:
        return "|".join(map(str, allowed))
    if kind == "array":
        return f"[{_describe_shape(schema.get('items') or {})}, ...]"
    if kind == "object" and (members := schema.get("properties")):
        wanted = schema.get("required", ())
        said = (
            f"{n}{'' if n in wanted else '?'}: {_describe_shape(one)}" for n, one in members.items()
        )
        return f"{{{', '.join(said)}}}"
    if kind == "object" and (values := _map_values(schema)):
        return f"{{NAME: {_describe_shape(values)}, ...}}"
    return "UUID" if schema.get("format") == "uuid" else SHAPES.get(kind, "JSON")


SHAPES = {"string": "TEXT", "integer": "NUMBER", "number": "NUMBER", "boolean": "true|false"}


def _map_values(schema: Schema) -> Schema:
    """The schema of the values of a map; empty if any are allowed."""
    found = schema.get("additionalProperties")
    return found if isinstance(found, Mapping) else {}


def _example(schema: Schema) -> str:
    return str(schema.get("example") or "")
