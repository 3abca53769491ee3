"""Everything that can go wrong, as a tree, and the exit code that a shell sees of each.

The message is one line that says what happened; `hint` says what to do about it.

StoreError                  1   any other failure
├── Misused                 2   invalid arguments
├── Refused                 3   the server refused the request (4xx)
│   ├── NotAllowed          4   not logged in, or not permitted (401, 403)
│   ├── NotFound            5   not found (404)
│   └── Conflict            6   something else exists already, or is not ready yet (409)
├── Unreachable             7   no response, or a server error that persisted through the retries
├── Damaged                 8   bytes are wrong or missing
└── TimedOut                9   the time-out was reached
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
UNREAD = 141
"""Exit code when the output pipe was closed early, as for programs ended by SIGPIPE."""


class StoreError(Exception):
    """An error; `hint` says what to do about it, `details` are lines that list all of it."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "", details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.hint = hint
        self.details = tuple(details)


class Misused(StoreError):
    """Invalid arguments."""

    exit_code = 2


class Refused(StoreError):
    """The server refused the request (4xx): `status`, `code` and the problem document.

    `next_url` is where to continue, if the server says so.
    """

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        details: Sequence[str] = (),
        status: int = 0,
        problem: Mapping[str, Any] = {},
        next_url: str = "",
    ) -> None:
        super().__init__(message, hint=hint, details=details)
        self.status = status
        self.problem = dict(problem)
        self.next_url = next_url

    @property
    def code(self) -> str:
        """The error code of the server, "" if it gave none."""
        return str(self.problem.get("code", ""))


class NotAllowed(Refused):
    """Not logged in, or not permitted."""

    exit_code = 4


class NotFound(Refused):
    """Not found."""

    exit_code = 5


class Conflict(Refused):
    """Something else exists already, or is not ready yet."""

    exit_code = 6


class Unreachable(StoreError):
    """No response, or a server error that persisted through the retries."""

    exit_code = 7


class Damaged(StoreError):
    """Bytes are wrong or missing."""

    exit_code = 8


class TimedOut(StoreError):
    """The time-out was reached."""

    exit_code = 9


class MissingField(Damaged, KeyError):
    """A JSON object of an answer has no field of this name."""

    def __str__(self) -> str:
        return f"an answer of the store has no field {self.args[0]!r}: damaged on its way?"


class AnswerObject(dict[str, Any]):
    """A JSON object of an answer to a command; MissingField for a field that it lacks."""

    def __missing__(self, name: str) -> Any:
        raise MissingField(name)


@contextmanager
def name_answer_errors(asked: str) -> Iterator[None]:
    """Raise Damaged where an answer is not what it has to be: `asked` is the request."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        said = f"{type(error).__name__}: {error}"
        raise Damaged(f"the answer to {asked} cannot be understood ({said})") from error


@contextmanager
def name_os_errors(
    action: str, kind: type[StoreError] = StoreError, *, hint: str = ""
) -> Iterator[None]:
    """Raise OSError as `kind`: `cannot write x: No space left on device`."""
    try:
        yield
    except OSError as error:
        raise kind(f"cannot {action}: {error.strerror or error}", hint=hint) from error
