"""What the steps of the tour share: the store, what is known of it, and where they report.

Each step adds what it expected to the report, and says whether it held.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ops.demo.board import Board
from ops.demo.bundles import SampleBundle
from ops.demo.depositing import Deposited
from ops.demo.questions import Question, questions
from ops.demo.receiver import Inbox
from ops.demo.report import Report
from ops.demo.service import Service
from ops.demo.stage import Stage

EVENT_S = 60.0
"""What a step waits for comes within so long."""


@dataclass
class Story:
    """What the steps share."""

    store: Stage
    service: Service
    inbox: Inbox
    callbacks: str
    key: str
    bundles: tuple[SampleBundle, ...]
    board: Board
    report: Report
    asked: tuple[Question, Question]
    deposited: dict[str, Deposited] = field(default_factory=dict)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """One step: shown while it runs; what it could not do is a failed expectation."""
        self.board.say(title)
        began = time.monotonic()
        try:
            yield
        except Exception as error:
            self.report.expect(f"{title}: {type(error).__name__}: {error}", False)
        self.report.took(title, time.monotonic() - began)

    def fqids(self, labels: frozenset[str]) -> set[str]:
        """The deposited versions of some bundles."""
        return {self.deposited[label].fqid for label in labels if label in self.deposited}


def begin(
    store: Stage,
    service: Service,
    receiver: tuple[str, Inbox],
    bundles: tuple[SampleBundle, ...],
    board: Board,
    report: Report,
) -> Story:
    """A story that has not begun."""
    url, inbox = receiver
    key = inbox.key.decode()
    asked = questions(bundles)
    return Story(store, service, inbox, url, key, bundles, board, report, asked)


def within(limit_s: float, holds: Callable[[], bool]) -> bool:
    """Whether it holds within so many seconds."""
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
