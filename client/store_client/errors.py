"""Everything that can go wrong, as a tree, and the exit code that a shell sees of each.

The text of an error is one line that says what happened; `hint` says what to do about it.

StoreError                  1   something failed
├── Misused                 2   arguments that cannot be used
├── Refused                 3   the server said no (4xx)
│   ├── NotAllowed          4   not logged in, or not permitted (401, 403)
│   ├── NotFound            5   nothing of that name (404)
│   └── Conflict            6   something else is there already, or not ready yet (409)
├── Unreachable             7   no answer, or a server's fault that lasted through the retries
├── Damaged                 8   bytes are not what they should be, or not all of them came
└── TimedOut                9   waited as long as was allowed
"""

from collections.abc import Mapping
from typing import Any

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
UNREAD = 141
"""Exit code when whoever read the output stopped before its end: that of programs which the system
ends then. It is none of success, for not all was written."""


class StoreError(Exception):
    """Something failed; `hint` says what to do about it."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Misused(StoreError):
    """Arguments that cannot be used."""

    exit_code = 2


class Refused(StoreError):
    """The server said no: `status`, its `code` and the whole problem document."""

    exit_code = 3

    def __init__(
        self, message: str, *, hint: str = "", status: int = 0, problem: Mapping[str, Any] = {}
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.problem = dict(problem)

    @property
    def code(self) -> str:
        """The server's word for the reason, "" when it gave none."""
        return str(self.problem.get("code", ""))


class NotAllowed(Refused):
    """Not logged in, or not permitted."""

    exit_code = 4


class NotFound(Refused):
    """Nothing of that name."""

    exit_code = 5


class Conflict(Refused):
    """Something else is there already, or it is not ready yet."""

    exit_code = 6


class Unreachable(StoreError):
    """No answer, or a server's fault that lasted through the retries."""

    exit_code = 7


class Damaged(StoreError):
    """Bytes are not what they should be, or not all of them came."""

    exit_code = 8


class TimedOut(StoreError):
    """Waited as long as was allowed."""

    exit_code = 9
