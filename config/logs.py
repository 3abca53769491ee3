"""JSON logging of every process: one object per line on standard output.

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
from typing import Any

_NO_FIELDS: Mapping[str, Any] = {}
_bound_fields: ContextVar[Mapping[str, Any]] = ContextVar("bound", default=_NO_FIELDS)

_NON_PRINTABLE = re.compile(r"[\x7f-\U0010ffff]")
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
            **_bound_fields.get(),
        }
        line.update(
            {key: value for key, value in vars(record).items() if key not in _RECORD_ATTRIBUTES}
        )
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return escape_unprintable(json.dumps(line, default=str, ensure_ascii=False))


def escape_unprintable(line: str) -> str:
    """Escape characters of JSON that are not printable.

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


def configure_logging(level: str, process: str) -> None:
    """Send every logger of this process to standard output as JSON lines."""
    handler = logging.StreamHandler(sys.stdout)
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
