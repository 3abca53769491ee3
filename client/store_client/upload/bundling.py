"""The bundle of the files: put again and again until the store has verified all of them."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from store_client.errors import Conflict, Damaged, Refused, TimedOut
from store_client.transport.session import Session
from store_client.upload.depositing import Depositor
from store_client.upload.journal import Attempt, Kept
from store_client.upload.options import UploadOptions
from store_client.upload.planning import Wanted

WAIT_S = 15.0
"""How long one request asks the store to wait for files."""
PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Between requests; a store that is busy answers without waiting."""
ASKED = 100
"""Verifications that are asked about between two requests."""


@dataclass(frozen=True, slots=True)
class Patience:
    """For how long, and by which clock."""

    timeout_s: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Bundler:
    """Puts one bundle version."""

    def __init__(self, options: UploadOptions, session: Session, depositor: Depositor) -> None:
        self._options, self._session, self._depositor = options, session, depositor

    def put(
        self,
        attempt: Attempt,
        files: Sequence[Wanted],
        known: Mapping[str, Kept],
        *,
        patience: Patience,
    ) -> list[dict[str, Any]]:
        """The bundle's entries, once it is there. Damaged names a file that the store refused,
        TimedOut says that it is still verifying."""
        body = self._body(files, known)
        until = patience.clock() + patience.timeout_s
        tries, told_again = 0, False
        while True:
            left = until - patience.clock()
            try:
                return self._once(attempt, body, left)
            except Conflict as error:
                if error.code != "file_pending":
                    raise
                self._look(ASKED)
            except Refused as error:
                if error.code != "file_missing":
                    raise
                self._look(len(files))
                if told_again:
                    raise Damaged(str(error)) from error
                self._tell_again(files, known)
                told_again = True
            if patience.clock() >= until:
                raise _late(patience.timeout_s)
            pause = PAUSES_S[min(tries, len(PAUSES_S) - 1)]
            patience.sleep(max(0.0, min(pause, until - patience.clock())))
            tries += 1

    def _once(self, attempt: Attempt, body: Any, left: float) -> list[dict[str, Any]]:
        answer = self._session.ask(
            "PUT",
            f"/v1/bundles/{attempt.uuid}",
            params={"version": attempt.version, "replica": self._options.replica},
            json=body,
            headers={"Prefer": f"wait={max(0, min(WAIT_S, left)):.0f}"},
        )
        return list(answer.json()["manifest"]["files"])

    def _body(self, files: Sequence[Wanted], known: Mapping[str, Kept]) -> dict[str, Any]:
        entries = [
            {
                "uuid": known[one.name].uuid,
                "version": known[one.name].version,
                "name": one.name,
                "indexed": one.indexed,
            }
            for one in files
        ]
        return {"creator_uid": self._options.creator_uid, "files": entries}

    def _look(self, many: int) -> None:
        """Ask about some verifications; those that ended well are not asked about again."""
        tasks = self._depositor.tasks
        for name, task in list(islice(tasks.items(), many)):
            found = self._depositor.failure(task)
            if found:
                raise self._depositor.harmed(name, found)
            del tasks[name]
            if found is None:
                # Last in the row: the others come first now.
                tasks[name] = task

    def _tell_again(self, files: Sequence[Wanted], known: Mapping[str, Kept]) -> None:
        """Of files that earlier runs told of, some are not there: verification may have failed."""
        for one in files:
            if known[one.name].url:
                self._depositor.again(one, known[one.name])
            else:
                # The store's own; what it purged is sent anew by the next run.
                self._depositor.forget(one.name)


def _late(timeout_s: float) -> TimedOut:
    return TimedOut(
        f"the store is still verifying after {timeout_s:.0f} s; all files have arrived",
        hint="run the same command again to go on waiting",
    )
