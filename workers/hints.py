"""Hints between the two processes of an embedded store: which jobs may be due.

The web process has no queue. It tells the worker of the rows that a request added; a hint that is
lost costs the time until the worker looks into the table of jobs by itself.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

import orjson

from pipelines.flow import Step
from pipelines.topics import COMMITTED
from storage.datagrams import Inbox, Office
from storage.errors import Unavailable
from storage.model import Todo
from storage.protocols import Notices

log = logging.getLogger(__name__)

KIND: Final = "jobs"
_ROWS: Final = 50
"""Rows of one hint; their names are 500 bytes at most, a hint has 32 KiB."""

Take = Callable[[list[Todo], str], None]
"""Told the rows and the request that added them."""


class Hints:
    """Tells the worker; shared by the threads of the web process."""

    def __init__(self, office: Office, notices: Notices) -> None:
        self._office, self._notices = office, notices

    def send(self, rows: Iterable[Todo], request_id: str = "") -> None:
        """Hint at these rows; never raises."""
        named = [(row.step, row.replica, row.ref) for row in rows]
        for first in range(0, len(named), _ROWS):
            hint = orjson.dumps([named[first : first + _ROWS], request_id])
            self._office.post(KIND, hint)
        if any(step == Step.MATCH for step, _replica, _ref in named):
            self._notices.publish(COMMITTED)

    def ping(self) -> None:
        """Unavailable while no worker listens."""
        if not self._office.post(KIND, b""):
            raise Unavailable("No worker runs")


def listen(office: Office, take: Take, missed: Callable[[], None]) -> Inbox:
    """Give every hint to `take`; `missed` is called where some may have been lost."""

    def heard(message: bytes) -> None:
        rows, request_id = orjson.loads(message)
        take([Todo(*row) for row in rows], request_id)

    return Inbox(office, KIND, heard, missed)
