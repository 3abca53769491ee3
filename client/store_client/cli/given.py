"""Values that are typed, or come from a file (`@FILE`) or from standard input (`-`)."""

import json
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

_STDIN_USED = f"{__name__}.stdin"


class JsonText(click.ParamType[Any]):
    """JSON; with `text`, whatever cannot be JSON is meant as text."""

    name = "json|@file|-"

    def __init__(self, *, text: bool = False) -> None:
        self._text = text

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value that was meant."""
        if not isinstance(value, str):
            return value
        said = read(value, param, ctx)
        if self._text and not said.lstrip().startswith(("{", "[", '"')):
            return _scalar(said)
        return _json(self, said, param, ctx)


class ListItem(click.ParamType[Any]):
    """One item, or a JSON list of many: always a list."""

    name = "item"

    def __init__(self, *, text: bool = False, numbers: bool = False) -> None:
        self._text = text
        self.name = "text" if text else "number" if numbers else "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The items that were meant."""
        if not isinstance(value, str):
            return value
        said = read(value, param, ctx)
        if self._text and not said.lstrip().startswith("["):
            return [said] if said is value else [part for part in said.splitlines() if part]
        found = _json(self, said, param, ctx)
        return found if isinstance(found, list) else [found]


class Text(click.ParamType[str]):
    """Text as it is; the store judges it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The same."""
        return str(value)


class Secret(click.ParamType[Any]):
    """Text that need not stand on the command line."""

    name = "text|@file|-"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text, without the end of the line that a file ends with."""
        return read(value, param, ctx)


class Bytes(click.ParamType[Any]):
    """A file to be sent as it is."""

    name = "file|-"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Its path, or standard input."""
        if not isinstance(value, str):
            return value
        if value == "-":
            return _standard_input(param, ctx)
        path = Path(value.removeprefix("@"))
        if not path.is_file():
            _bad(f"there is no file {path}", param, ctx)
        return path


class Header(click.ParamType[Any]):
    """A header of a request; not one that says who asks, or how much is sent."""

    name = "name:value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Its name and its value."""
        if not isinstance(value, str):
            return value
        name, colon, said = (part.strip() for part in value.partition(":"))
        if not colon or not _TOKEN.fullmatch(name) or not said.isascii() or not said.isprintable():
            _bad(f"{value!r} is no header, as Prefer:respond-async is one", param, ctx)
        if name.lower() in OURS:
            _bad(f"{name} is set by this client (who asks: store login)", param, ctx)
        return name, said


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
WHO = ("authorization", "proxy-authorization", "cookie", "host", "user-agent")
HOW = ("connection", "content-length", "transfer-encoding", "expect")
OURS = frozenset({*WHO, *HOW})
"""Headers that nobody sets by hand."""


def read(value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
    """The text itself, or of the file or standard input that it names."""
    if value == "-":
        return _stdin(param, ctx).rstrip("\r\n")
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text(encoding="utf-8-sig").rstrip("\r\n")
    except OSError as error:
        _bad(f"cannot read {value[1:]}: {error.strerror or error}", param, ctx)
    except UnicodeError:
        _bad(f"{value[1:]} is no text in UTF-8", param, ctx)


def once(param: click.Parameter | None, ctx: click.Context | None) -> None:
    """Standard input can be read by one option only."""
    if ctx is None:
        return
    if ctx.meta.get(_STDIN_USED):
        _bad("standard input was read already", param, ctx)
    ctx.meta[_STDIN_USED] = True


def _standard_input(param: click.Parameter | None, ctx: click.Context | None) -> Any:
    """The bytes of it; a shell can close it, which is not the same as empty."""
    once(param, ctx)
    stream = getattr(sys.stdin, "buffer", None)
    return stream or _bad("standard input is closed", param, ctx)


def _stdin(param: click.Parameter | None, ctx: click.Context | None) -> str:
    try:
        return str(_standard_input(param, ctx).read().decode("utf-8-sig"))
    except UnicodeError:
        _bad("standard input is no text in UTF-8", param, ctx)


def _json(
    kind: click.ParamType[Any], said: str, param: click.Parameter | None, ctx: click.Context | None
) -> Any:
    try:
        return json.loads(said, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        shown = said if len(said) <= 60 else f"{said[:57]}..."
        _bad(f"{shown!r} is no JSON ({error}); a file is given as @FILE", param, ctx)


def _scalar(said: str) -> Any:
    try:
        return json.loads(said, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return said


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no value of JSON")


def _bad(text: str, param: click.Parameter | None, ctx: click.Context | None) -> NoReturn:
    raise click.BadParameter(text, ctx=ctx, param=param)
