"""Hints from the web process of an embedded store to its worker: which jobs may be due.

The web process has no queue. It sends the worker hints at jobs that a request added; if one
is lost, the worker finds the jobs in the table at its next poll.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

import orjson

from pipelines.flow import COMMITTED_TOPIC, Step
from storage.datagrams import DatagramInbox, SocketFolder
from storage.errors import Unavailable
from storage.model import Job
from storage.protocols import PubSub

log = logging.getLogger(__name__)

HINT_KIND: Final = "jobs"
_JOBS_PER_HINT: Final = 50
"""Jobs of one hint of at most 32 KiB; each takes up to 500 bytes."""

TakeJobs = Callable[[list[Job], str], None]
"""Called with the jobs and the id of the request that added them."""


class HintSender:
    """Sends hints to the worker; threads may share it."""

    def __init__(self, folder: SocketFolder, notices: PubSub) -> None:
        self._folder, self._notices = folder, notices

    def send(self, rows: Iterable[Job], request_id: str = "") -> None:
        """Hint at these jobs; never raises."""
        refs = [(row.step, row.replica, row.ref) for row in rows]
        for first in range(0, len(refs), _JOBS_PER_HINT):
            hint = orjson.dumps([refs[first : first + _JOBS_PER_HINT], request_id])
            self._folder.post(HINT_KIND, hint)
        if any(step == Step.MATCH for step, _replica, _ref in refs):
            self._notices.publish(COMMITTED_TOPIC)

    def ping(self) -> None:
        """Raise Unavailable while no worker listens."""
        if not self._folder.post(HINT_KIND, b""):
            raise Unavailable("No worker is running")


def listen_for_hints(
    folder: SocketFolder, take: TakeJobs, missed: Callable[[], None]
) -> DatagramInbox:
    """Pass every hint to `take`; call `missed` where some may have been lost."""

    def handle_message(message: bytes) -> None:
        rows, request_id = orjson.loads(message)
        take([Job(*row) for row in rows], request_id)

    return DatagramInbox(folder, HINT_KIND, handle_message, missed)
