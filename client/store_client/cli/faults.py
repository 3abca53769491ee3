"""How a command ends that did not go well: one line, one of what to do, and the exit code."""

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from click.exceptions import Exit

from store_client.cli.plain import line, plain
from store_client.cli.said import close_unread, debugging
from store_client.errors import INTERRUPTED, UNREAD, Misused, StoreError


def ending(work: Callable[[], Any]) -> int:
    """Do the work; the exit code, after telling what went wrong."""
    try:
        code = work()
    except Exception as error:
        if debugging():
            sys.stderr.write(plain(traceback.format_exc()))
        return _told(error)
    except KeyboardInterrupt:
        return _told(click.Abort())
    return code if isinstance(code, int) else 0


@contextmanager
def quiet_when_unread() -> Iterator[None]:
    """End with a code, and without a word, once nobody reads what is written."""
    try:
        yield
    except (BrokenPipeError, SystemExit) as error:
        # rich ends the program by itself.
        if not any(isinstance(one, BrokenPipeError) for one in (error, error.__context__)):
            raise
        close_unread()
        raise Exit(UNREAD) from error


def _told(error: BaseException) -> int:
    text, hint, code = _words(error)
    say(text, hint)
    return code


def say(text: str, hint: str = "") -> None:
    """The one line of an error, and the one of what to do about it."""
    click.echo(f"store: {line(text)}", err=True)
    if hint:
        click.echo(f"  {line(hint)}", err=True)


def _words(error: BaseException) -> tuple[str, str, int]:
    if isinstance(error, StoreError):
        return str(error) or type(error).__name__, error.hint, error.exit_code
    if isinstance(error, click.Abort):
        return "interrupted", "", INTERRUPTED
    if isinstance(error, click.ClickException):
        return _of_click(error)
    if isinstance(error, OSError):
        return _of_system(error), "", StoreError.exit_code
    return (
        f"a fault of this client: {type(error).__name__}: {error}",
        "the same command with --log-level DEBUG shows where; please report it",
        StoreError.exit_code,
    )


def _of_click(error: click.ClickException) -> tuple[str, str, int]:
    # What is missing, and what it may be, come on lines of their own.
    text = " ".join(error.format_message().split())
    if not isinstance(error, click.UsageError):
        return text, "", StoreError.exit_code
    context = error.ctx
    path = context.command_path if context else "store"
    return text.rstrip("."), f"see: {path} --help", Misused.exit_code


def _of_system(error: OSError) -> str:
    names: Sequence[str] = [str(name) for name in (error.filename, error.filename2) if name]
    return ": ".join([*names, error.strerror or str(error)])
