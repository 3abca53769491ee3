"""File versions: each file is staged and then told to the store, which verifies it meanwhile.

The name of a file version is in the journal before the store hears of it, so that a run that
follows says the same again, which is success.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any
from uuid import uuid4

from store_client.checksums import ETAG_CHUNK
from store_client.errors import Damaged, Refused
from store_client.transport.session import Session
from store_client.upload.journal import Journal, Kept, moment
from store_client.upload.options import UploadOptions
from store_client.upload.planning import Wanted
from store_client.upload.sharing import Shared
from store_client.upload.staging import Item, Staged, Staging
from store_client.versions import create_version

ABSENT = ("source_not_found", "source_not_readable")
"""Answers to a staged object that is gone: S3 says 403 to those who may not list its bucket."""
DEPOSITED = {"Prefer": "respond-async"}
"""Verification is waited for once, at the end, not for each file."""


TOGETHER = 64
"""Files that the store is told of in one request."""


@dataclass(frozen=True, slots=True)
class _Arrived:
    """A file that the store is still to be told of; `before` says that an earlier run staged it."""

    one: Wanted
    staging: Staging
    kept: Kept
    before: bool


class Depositor:
    """Makes file versions of files; threads share it. `tasks` are verifications to be heard of."""

    def __init__(
        self, options: UploadOptions, session: Session, journal: Journal, shared: Shared
    ) -> None:
        self.tasks: dict[str, str] = {}
        self._options, self._session = options, session
        self._journal, self._shared = journal, shared
        self._lock = Lock()
        self._arrived: list[_Arrived] = []
        self._together = True

    def deposit(self, one: Wanted, staging: Staging, before: Kept | None) -> None:
        """Stage this file, and tell the store of it, or leave that to a later call, or `finish`;
        `before` is what is known of the same content."""
        self._shared.check()
        kept = before or self._staged(one, staging, self._item(one, staging))
        if kept.stored:
            self._shared.tell.file()
            return
        with self._lock:
            self._arrived.append(_Arrived(one, staging, kept, before is not None))
            # The verification of a large file takes its time, so it begins at once.
            full = len(self._arrived) >= TOGETHER or one.file.size >= ETAG_CHUNK
        if full:
            self.finish()

    def finish(self) -> None:
        """Tell the store of all that arrived."""
        while arrived := self._taken():
            together = self._told_together(arrived)
            for each in arrived:
                if each.one.name not in together:
                    # By itself, what was wrong with it is mended, or told.
                    self._put_alone(each)
                else:
                    self._stored(each.one, each.kept)

    def _taken(self) -> list[_Arrived]:
        with self._lock:
            taken, self._arrived = self._arrived[:TOGETHER], self._arrived[TOGETHER:]
        return taken

    def _told_together(self, arrived: Sequence[_Arrived]) -> set[str]:
        """The names of the files that the store took from one request."""
        if len(arrived) < 2 or not self._together:
            return set()
        files = [
            {
                "uuid": each.kept.uuid,
                "version": each.kept.version,
                "source_url": each.kept.url,
                "creator_uid": self._options.creator_uid,
            }
            for each in arrived
        ]
        try:
            answer = self._session.ask(
                "PUT",
                "/v1/files",
                params={"replica": self._options.replica},
                json={"files": files},
            )
        except Refused as error:
            if error.status not in (404, 405):
                raise
            # A store of an earlier release.
            self._together = False
            return set()
        items = answer.json()["files"]
        taken = {told["uuid"]: told for told in items if "code" not in told}
        # What is busy now is busy for each of them: one wait serves all that are put alone.
        wait_s = max(float(told.get("retry_after_s", 0)) for told in items)
        if 0 < wait_s <= self._session.policy.retry_after_cap_s:
            self._shared.pause(wait_s)
        tasks = {
            each.one.name: str(task)
            for each in arrived
            if (task := taken.get(each.kept.uuid, {}).get("task_id"))
        }
        with self._lock:
            self.tasks.update(tasks)
        return {each.one.name for each in arrived if each.kept.uuid in taken}

    def _put_alone(self, each: _Arrived) -> None:
        self._shared.check()
        one, staging, kept = each.one, each.staging, each.kept
        try:
            self._put(one, staging, kept)
        except Refused as error:
            if error.code not in ABSENT or not each.before:
                raise
            # What an earlier run had staged is gone.
            item = Item(one.file, one.content_type, kept.uuid, kept.version)
            kept = self._staged(one, staging, item)
            self._put(one, staging, kept)
        self._stored(one, kept)

    def _stored(self, one: Wanted, kept: Kept) -> None:
        self._journal.keep(one.name, replace(kept, stored=True))
        self._shared.tell.file()

    def again(self, one: Wanted, kept: Kept) -> None:
        """Tell the store once more of what an earlier run had told it."""
        self._told(one.name, kept)

    def forget(self, name: str) -> None:
        """What was known of this file does not hold."""
        self._journal.forget(name)

    def failure(self, task: str) -> str | None:
        """Why a verification failed; "" when it did not, None while it goes on."""
        told = self._session.ask("GET", f"/v1/tasks/{task}").json()
        if told["status"] == "FAILED":
            return str((told.get("cause") or {}).get("detail", "no reason was given"))
        return "" if told["status"] == "SUCCEEDED" else None

    def harmed(self, name: str, detail: str) -> Damaged:
        """A file that came to the store as another; it is forgotten, so that it is sent anew."""
        self._journal.forget(name)
        return Damaged(
            f"{name}: the store refused it: {detail}",
            hint="run the same command again: this file is sent anew, others are kept",
        )

    def _item(self, one: Wanted, staging: Staging) -> Item:
        under_way = self._journal.unfinished.get(one.name)
        if under_way and under_way.stamp == one.file.stamp:
            return Item(one.file, one.content_type, under_way.uuid, under_way.version)
        if under_way:
            staging.abandon(under_way)
        return Item(one.file, one.content_type, str(uuid4()), create_version())

    def _staged(self, one: Wanted, staging: Staging, item: Item) -> Kept:
        at = moment()
        staged = staging.stage(item)
        kept = Kept(
            stamp=one.file.stamp,
            at=at,
            content_type=one.content_type,
            checksums=staged.checksums,
            uuid=item.uuid,
            version=item.version,
            url=staged.url,
        )
        self._journal.keep(one.name, kept)
        return kept

    def _put(self, one: Wanted, staging: Staging, kept: Kept) -> None:
        try:
            self._told(one.name, kept)
        except Refused as error:
            item = Item(one.file, one.content_type, kept.uuid, kept.version)
            staged = Staged(kept.url, kept.checksums)
            if error.code != "missing_checksum" or not staging.restate(item, staged):
                raise
            self._told(one.name, kept)

    def _told(self, name: str, kept: Kept) -> None:
        answer: Any = self._session.ask(
            "PUT",
            f"/v1/files/{kept.uuid}",
            params={"version": kept.version, "replica": self._options.replica},
            json={"source_url": kept.url, "creator_uid": self._options.creator_uid},
            headers=DEPOSITED,
        ).json()
        if task := answer.get("task_id"):
            with self._lock:
                self.tasks[name] = str(task)
