"""What the client tells of its work: its log, on standard error, one safe line a message."""

import logging
import os
import sys

from store_client.cli.plain import plain

LEVELS = ("WARNING", "INFO", "DEBUG", "CRITICAL", "ERROR")
USUAL = "INFO"
_LOG = "store_client"
_LIBRARIES = ("boto3", "botocore", "google", "httpcore", "httpx", "s3transfer", "urllib3")
"""They tell whole URLs and headers: signatures and tokens."""


class _Lines(logging.Handler):
    """Writes to the standard error of the moment: a progress bar may stand in for it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(plain(self.format(record)) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):  # nobody reads any more: no reason to stop working
            return


def listen(level: str) -> None:
    """Tell what is at least as grave; a second call changes the level."""
    log = logging.getLogger(_LOG)
    log.setLevel(level.upper())
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
    if not any(isinstance(handler, _Lines) for handler in log.handlers):
        log.addHandler(_Lines())
    for handler in log.handlers:
        handler.setFormatter(logging.Formatter(_form(level)))


def hush() -> None:
    """Tell nothing any more: the program may be a part of another one, as in tests."""
    log = logging.getLogger(_LOG)
    log.setLevel(logging.NOTSET)
    for handler in [one for one in log.handlers if isinstance(one, _Lines)]:
        log.removeHandler(handler)


def open_closed() -> None:
    """What is written goes nowhere where a shell closed standard output or error."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # Open as long as the program runs.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def close_unread() -> None:
    """Nothing more is written to where nobody reads, neither when the program ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def debugging() -> bool:
    """Whether tracebacks are wanted."""
    return logging.getLogger(_LOG).isEnabledFor(logging.DEBUG)


def _form(level: str) -> str:
    if level.upper() == "DEBUG":
        return "%(asctime)s %(levelname)s %(name)s: %(message)s"
    return "store: %(message)s"
