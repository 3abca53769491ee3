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
from collections.abc import Mapping
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
        if not isinstance(value, str):
            return value
        return _parse_json(read_value(value, param, ctx), param, ctx, text=self._text)


class ListItem(click.ParamType[Any]):
    """One item, or a JSON list of items; always a list."""

    name = "item"

    def __init__(self, *, text: bool = False, numbers: bool = False) -> None:
        self._text = text
        self.name = "text" if text else "number" if numbers else "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        said = read_value(value, param, ctx)
        if self._text and not said.lstrip().startswith("["):
            return [said] if said is value else [part for part in said.splitlines() if part]
        found = _parse_json(said, param, ctx)
        return found if isinstance(found, list) else [found]


class UuidText(click.types.StringParamType):
    """A string that help calls a UUID; the store validates it."""

    name = "uuid"


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
    if value != "-" and not value.startswith("@"):
        return value
    name = "standard input" if value == "-" else value[1:]
    try:
        if value == "-":
            text = str(_open_stdin(param, ctx).read().decode("utf-8-sig"))
        else:
            text = Path(name).read_text(encoding="utf-8-sig")
        return text.rstrip("\r\n")
    except OSError as error:
        _fail(f"cannot read {name}: {error.strerror or error}", param, ctx)
    except UnicodeError:
        _fail(f"{name} is not UTF-8 text", param, ctx)


def _open_stdin(param: click.Parameter | None, ctx: click.Context | None) -> Any:
    """The binary standard input; fails if another option read it, or the shell closed it."""
    if ctx is not None:
        if ctx.meta.get(_STDIN_USED):
            _fail("standard input was read already", param, ctx)
        ctx.meta[_STDIN_USED] = True
    stream = getattr(sys.stdin, "buffer", None)
    return stream or _fail("standard input is closed", param, ctx)


def _parse_json(
    said: str,
    param: click.Parameter | None,
    ctx: click.Context | None,
    *,
    text: bool = False,
) -> Any:
    """Parse JSON; with `text`, anything that does not look like JSON is a string."""
    try:
        return json.loads(said, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        if text and not said.lstrip().startswith(("{", "[", '"')):
            return said
        shown = said if len(said) <= 60 else f"{said[:57]}..."
        _fail(f"{shown!r} is no JSON ({error}); give a file as @FILE", param, ctx)


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
    """Build the option of a parameter: `--per-page` of `per_page`."""
    schema = parameter.schema
    kind = schema.get("type")
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


def option_name(name: str) -> str:
    """The option of a parameter, without dashes: `per-page` of `per_page`."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "value"


def build_header_option() -> click.Option:
    """Build the option --header, which every operation has."""
    return click.Option(
        ["--header", HEADERS],
        type=HeaderValue(),
        multiple=True,
        help="A request header such as Prefer:respond-async; may be repeated.",
    )


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
    match schema.get("type"):
        case "string":
            return _string_type(schema)
        case "integer":
            return _integer_type(schema)
        case "array":
            kind = (schema.get("items") or {}).get("type")
            return ListItem(text=kind == "string", numbers=kind in ("integer", "number"))
        case "object":
            return JsonValue()
        case kind:
            simple = {"number": click.FLOAT, "boolean": click.BOOL}
            return simple.get(str(kind)) or JsonValue(text=True)


def _string_type(schema: Schema) -> click.ParamType[Any]:
    # null is said by leaving the option out.
    values = [value for value in schema.get("enum") or () if value is not None]
    if values:
        return click.Choice([str(value) for value in values])
    return UuidText() if schema.get("format") == "uuid" else click.STRING


def _integer_type(schema: Schema) -> click.ParamType[Any]:
    low, high = schema.get("minimum"), schema.get("maximum")
    narrow = all(end is None or abs(end) < 2**31 for end in (low, high))
    bounded = narrow and (low is not None or high is not None)
    return click.IntRange(low, high) if bounded else click.INT


def _option_help(parameter: "OperationParameter") -> str:
    schema = parameter.schema
    parts = [parameter.about or str(schema.get("description") or "")]
    kind, example = schema.get("type"), schema.get("example")
    if kind == "array":
        parts.append("[repeat, or a JSON list, @FILE, -]")
    if shape := _describe_members(schema):
        parts.append(f"[{shape}]")
    if "default" in schema and schema["default"] not in ("", None, False):
        parts.append(f"[default: {schema['default']}]")
    elif kind == "string" and example and not {"enum", "format"} & schema.keys():
        parts.append(f"[example: {example}]")
    return escape_line("  ".join(part for part in parts if part))


def _describe_members(schema: Schema) -> str:
    """Describe the members of a map or of list items; "" if unknown or too long."""
    if schema.get("type") == "object":
        found, text = schema, ""
    else:
        found, text = schema.get("items") or {}, "each: "
    if found.get("type") != "object" or not (found.get("properties") or _map_values(found)):
        return ""
    shape = _describe_shape(found)
    return text + shape if len(shape) <= LONGEST_SHAPE else ""


LONGEST_SHAPE = 300


def _describe_shape(schema: Schema) -> str:
    kind, allowed = str(schema.get("type")), schema.get("enum")
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
