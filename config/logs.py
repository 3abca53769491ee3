"""Logs of every process on standard output: text on a terminal, otherwise one JSON object per line.

`bind_log_fields` adds the ids of the current request or job; the fields are context variables, so
threads and tasks do not mix. Callers must not log secrets or presigned URLs: nothing here can
detect them.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

_NO_FIELDS: Mapping[str, Any] = {}
_bound_fields: ContextVar[Mapping[str, Any]] = ContextVar("bound", default=_NO_FIELDS)

_NON_PRINTABLE = re.compile(r"[\x00-\x1f\x7f-\U0010ffff]")
_RECORD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every record; all others come from `extra=`."""


_LEAKING_LOGGERS = ("botocore.parsers",)
"""Third-party loggers that log whole responses with credentials at level DEBUG."""


class JsonLines(logging.Formatter):
    """One record as one line of JSON."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _format_utc(record.created),
            "level": record.levelname,
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
            **_collect_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return escape_unprintable(json.dumps(line, default=str, ensure_ascii=False))


LEVEL_COLOURS = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}
"""ANSI codes of levels; INFO has none."""
_PLAIN_VALUE = re.compile(r"[^\s\"=]+")


class TextLines(logging.Formatter):
    """One record as a line to read: time, level, logger, message and fields; then the traceback."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        level = self._paint(record.levelname.ljust(7), LEVEL_COLOURS.get(record.levelname, ""))
        fields = "".join(
            f" {key}={_format_field(value)}" for key, value in _collect_fields(record).items()
        )
        message = f"{record.name}: {record.getMessage()}"
        head = f"{_format_utc(record.created)} {level} {escape_unprintable(message)}"
        line = head + self._paint(escape_unprintable(fields), "2")
        if not record.exc_info:
            return line
        traceback = self.formatException(record.exc_info).split("\n")
        return "\n".join([line, *map(escape_unprintable, traceback)])

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colours and code and text else text


def _format_field(value: Any) -> str:
    text = str(value)
    return text if _PLAIN_VALUE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _collect_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields that are bound here, and those of `extra=`."""
    given = {key: value for key, value in vars(record).items() if key not in _RECORD_ATTRIBUTES}
    return {**_bound_fields.get(), **given}


def escape_unprintable(line: str) -> str:
    """Escape characters that are not printable, as JSON does.

    Log lines contain client input, which could hide text or break lines."""
    return line if line.isprintable() else _NON_PRINTABLE.sub(_escape_character, line)


def _escape_character(match: re.Match[str]) -> str:
    if match[0].isprintable():
        return match[0]
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _format_utc(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def wants_text(log_format: str, stream: TextIO) -> bool:
    """Return whether logs are text: as set, by default on a terminal."""
    return log_format == "text" or (log_format == "auto" and stream.isatty())


def wants_colours(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether text has colours: on a terminal, unless NO_COLOR is set.

    FORCE_COLOR is how the supervisor tells its processes that their output goes to a terminal.
    """
    if environ.get("NO_COLOR"):
        return False
    return stream.isatty() or bool(environ.get("FORCE_COLOR"))


def configure_logging(
    level: str, process: str, log_format: str, environ: Mapping[str, str]
) -> None:
    """Send every logger of this process to standard output; colours follow the environment."""
    handler = logging.StreamHandler(sys.stdout)
    if wants_text(log_format, sys.stdout):
        handler.setFormatter(TextLines(colours=wants_colours(sys.stdout, environ)))
    else:
        handler.setFormatter(JsonLines(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _LEAKING_LOGGERS:
        logging.getLogger(name).setLevel(max(root.level, logging.INFO))


@contextmanager
def bind_log_fields(**fields: Any) -> Iterator[None]:
    """Add fields to every line that is logged inside the block."""
    token = _bound_fields.set({**_bound_fields.get(), **fields})
    try:
        yield
    finally:
        _bound_fields.reset(token)
