"""Safe terminal text, the log on standard error, and how commands end on errors.

Unsafe characters are control characters except line feed and tab, bidirectional marks, rare line
separators, and lone surrogates.
"""

import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click
from click.exceptions import Exit

from store_client.errors import INTERRUPTED, UNREAD, Misused, StoreError

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_UNSAFE_IN_LINE = re.compile(f"{_UNSAFE.pattern[:-1]}\n\t]")


def escape_text(text: str) -> str:
    """Escape unsafe characters as Python does."""
    return _UNSAFE.sub(_escape_match, text)


def escape_line(text: str) -> str:
    """Escape unsafe characters, line feeds and tabs."""
    return _UNSAFE_IN_LINE.sub(_escape_match, text)


def format_cell(value: Any) -> str:
    """Format a value as a table cell."""
    if value is None or isinstance(value, str):
        return escape_line(value or "")
    return escape_line(json.dumps(value, ensure_ascii=False, default=str))


def style_text(text: str, **style: Any) -> str:
    """The text in a style of click, unless NO_COLOR is set."""
    return text if os.environ.get("NO_COLOR") else click.style(text, **style)


def escape_json(text: str) -> str:
    """Escape unsafe characters in a JSON document; its value stays the same."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape_match(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


LEVELS = ("WARNING", "INFO", "DEBUG", "CRITICAL", "ERROR")
DEFAULT_LEVEL = "INFO"
_LOG = "store_client"
_LIBRARIES = ("boto3", "botocore", "google", "httpcore", "httpx", "s3transfer", "urllib3")
"""They tell whole URLs and headers: signatures and tokens."""


class _StderrHandler(logging.Handler):
    """Logs to the current standard error, which a progress bar may replace."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(escape_text(self.format(record)) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):  # standard error was closed; the work continues
            return


def configure_logging(level: str) -> None:
    """Log to standard error from this level; another call changes the level."""
    log = logging.getLogger(_LOG)
    log.setLevel(level.upper())
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
    if not any(isinstance(handler, _StderrHandler) for handler in log.handlers):
        log.addHandler(_StderrHandler())
    for handler in log.handlers:
        handler.setFormatter(logging.Formatter(_log_format(level)))


def silence_warnings() -> None:
    """Log errors only, except for debugging: threads of an interrupted command still end."""
    log = logging.getLogger(_LOG)
    if log.level > logging.DEBUG:
        log.setLevel(logging.ERROR)


def reset_logging() -> None:
    """Stop logging: the program may be part of another one, as in tests."""
    log = logging.getLogger(_LOG)
    log.setLevel(logging.NOTSET)
    for handler in [one for one in log.handlers if isinstance(one, _StderrHandler)]:
        log.removeHandler(handler)


def reopen_closed_streams() -> None:
    """Discard output if the shell closed standard output or error."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # Open as long as the program runs.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def redirect_unread_streams() -> None:
    """Discard further output of closed pipes, also at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _log_format(level: str) -> str:
    if level.upper() == "DEBUG":
        return "%(asctime)s %(levelname)s %(name)s: %(message)s"
    return "store: %(message)s"


def exit_immediately(code: int) -> None:
    """Exit without waiting for threads."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code)


def run_with_exit_code(work: Callable[[], Any]) -> int:
    """Run the program; report errors, and return the exit code."""
    try:
        code = work()
    except Exception as error:
        if logging.getLogger(_LOG).isEnabledFor(logging.DEBUG):
            sys.stderr.write(escape_text(traceback.format_exc()))
        return _report_error(error)
    except KeyboardInterrupt:
        return _report_error(click.Abort())
    return code if isinstance(code, int) else 0


@contextmanager
def exit_on_broken_pipe() -> Iterator[None]:
    """Exit quietly if the reader of the output closed the pipe."""
    try:
        yield
    except (BrokenPipeError, SystemExit) as error:
        # rich ends the program by itself.
        if not any(isinstance(one, BrokenPipeError) for one in (error, error.__context__)):
            raise
        redirect_unread_streams()
        raise Exit(UNREAD) from error


def _report_error(error: BaseException) -> int:
    text, hint, code = _describe_error(error)
    print_error(text, hint, getattr(error, "details", ()))
    return code


_DETAILS = 50
"""Details of an error that are printed."""


def print_error(text: str, hint: str = "", details: Sequence[str] = ()) -> None:
    click.echo(f"store: {escape_line(text)}", err=True)
    for line in details[:_DETAILS]:
        click.echo(f"  {escape_line(line)}", err=True)
    if len(details) > _DETAILS:
        click.echo(f"  … and {len(details) - _DETAILS} more", err=True)
    if hint:
        click.echo(f"  {escape_line(hint)}", err=True)


def _describe_error(error: BaseException) -> tuple[str, str, int]:
    if isinstance(error, StoreError):
        return str(error) or type(error).__name__, error.hint, error.exit_code
    if isinstance(error, click.Abort):
        return "interrupted", "", INTERRUPTED
    if isinstance(error, click.ClickException):
        return _describe_click_error(error)
    if isinstance(error, OSError):
        return _describe_os_error(error), "", StoreError.exit_code
    where = "an error in this client"
    if isinstance(error, (LookupError, TypeError, ValueError, AttributeError)):
        where += ", or an answer that it does not understand"
    return (
        f"{where}: {type(error).__name__}: {error}",
        "run it with --log-level DEBUG to see where; please report it",
        StoreError.exit_code,
    )


def _describe_click_error(error: click.ClickException) -> tuple[str, str, int]:
    # What is missing, and what it may be, come on lines of their own.
    text = " ".join(error.format_message().split())
    if not isinstance(error, click.UsageError):
        return text, "", StoreError.exit_code
    context = error.ctx
    path = context.command_path if context else "store"
    return text.rstrip("."), f"see: {path} --help", Misused.exit_code


def _describe_os_error(error: OSError) -> str:
    names: Sequence[str] = [str(name) for name in (error.filename, error.filename2) if name]
    return ": ".join([*names, error.strerror or str(error)])
