"""Logging of every process: one JSON object a line on standard output.

`bound` names the request or the unit of work that the lines of a block belong to; it follows
context variables, so threads and tasks do not mix. Secrets and signed URLs are never logged: that
is the duty of whoever logs, nothing here can tell.
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

_EMPTY: Mapping[str, Any] = {}
_bound: ContextVar[Mapping[str, Any]] = ContextVar("bound", default=_EMPTY)

_BEYOND_ASCII = re.compile(r"[\x7f-\U0010ffff]")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record carries; whatever else it has came by `extra=`."""


_TELLTALES = ("botocore.parsers",)
"""Loggers of others that write down answers whole, credentials too, when they are let."""


class JsonLines(logging.Formatter):
    """One record as one line of JSON."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _utc(record.created),
            "level": record.levelname,
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
            **_bound.get(),
        }
        line.update({key: value for key, value in vars(record).items() if key not in _STANDARD})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return plain(json.dumps(line, default=str, ensure_ascii=False))


def plain(line: str) -> str:
    """JSON of which every character shows: one that only changes how others look, or ends a line
    for some readers, is escaped. What clients send is logged."""
    return line if line.isprintable() else _BEYOND_ASCII.sub(_escaped, line)


def _escaped(found: re.Match[str]) -> str:
    if found[0].isprintable():
        return found[0]
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _utc(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def configure(level: str, process: str) -> None:
    """Send every logger of this process to standard output as JSON lines."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _TELLTALES:
        logging.getLogger(name).setLevel(max(root.level, logging.INFO))


@contextmanager
def bound(**fields: Any) -> Iterator[None]:
    """Put these members on every line that is logged inside the block."""
    token = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(token)
