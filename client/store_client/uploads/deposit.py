"""Create file versions of staged files, and the bundle of them.

The journal records the name of a file version before it is sent, so that another run
repeats the same request, which succeeds.
"""

import logging
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from threading import Lock
from typing import Any
from uuid import uuid4

from store_client.checksums import ETAG_CHUNK, MB
from store_client.errors import (
    Conflict,
    Damaged,
    Misused,
    NotAllowed,
    Refused,
    StoreError,
    TimedOut,
    name_answer_errors,
)
from store_client.http.session import HttpSession
from store_client.identifiers import create_version
from store_client.transfer.engine import TransferContext
from store_client.transfer.journal import KnownFile, UploadAttempt, UploadJournal
from store_client.uploads.options import UploadOptions
from store_client.uploads.plan import PlannedFile
from store_client.uploads.staging import StagedFile, Staging, StagingItem

log = logging.getLogger(__name__)

SOURCE_GONE_CODES = ("source_not_found", "source_not_readable")
"""Errors for a staged object that is gone; S3 answers 403 without list permission."""
ASYNC_HEADERS = {"Prefer": "respond-async"}
"""Verification is awaited once, at the end."""


BATCH_SIZE = 64
"""Files deposited in one request."""
SMALL = 64 * 1024
"""Files of at most so many bytes are sent in groups …"""
GROUP_BYTES = MB
"""… of at most so many bytes."""


@dataclass(frozen=True, slots=True)
class _PendingFile:
    """A staged file that is not deposited yet; `before`: an earlier run staged it."""

    one: PlannedFile
    kept: KnownFile
    before: bool


class FileDepositor:
    """Creates file versions; threads share it. `tasks` are pending verifications."""

    def __init__(
        self,
        options: UploadOptions,
        session: HttpSession,
        journal: UploadJournal,
        shared: TransferContext,
        staging: Staging,
        *,
        failures: dict[str, StoreError] | None = None,
    ) -> None:
        self.tasks: dict[str, str] = {}
        self.failures = failures
        """Errors of files by name, if they are to be kept instead of raised."""
        self._options, self._session = options, session
        self._journal, self._shared, self._staging = journal, shared, staging
        self._lock = Lock()
        self._pending: list[_PendingFile] = []
        self._batching = True

    def deposit(self, one: PlannedFile, before: KnownFile | None) -> None:
        """Stage a file and deposit it, by itself or with others later.

        `before` is what an earlier run recorded of the same content.
        """
        self._shared.stop.check()
        kept = before or self._stage(one, self._new_item(one))
        if kept.stored:
            self._shared.tell.file()
            return
        with self._lock:
            self._pending.append(_PendingFile(one, kept, before is not None))
            # The verification of a large file takes its time, so it begins at once.
            full = len(self._pending) >= BATCH_SIZE or one.file.size >= ETAG_CHUNK
        if full:
            self.flush()

    def group(
        self, files: Iterable[PlannedFile], known: Container[str]
    ) -> Iterator[list[PlannedFile]]:
        """Yield groups for `deposit_group` of small files that are not known, others alone."""
        group: list[PlannedFile] = []
        size = 0
        for one in files:
            if one.file.size > SMALL or one.name in known or not self._staging.takes_groups:
                yield [one]
                continue
            if len(group) == BATCH_SIZE or size + one.file.size > GROUP_BYTES:
                yield group
                group, size = [], 0
            group.append(one)
            size += one.file.size
        if group:
            yield group

    def deposit_group(
        self, files: Sequence[PlannedFile], alone: Callable[[PlannedFile], None]
    ) -> None:
        """Stage and deposit a group in two requests, or else each file by `alone`."""
        if not self._deposit_together(files):
            for one in files:
                alone(one)

    def _deposit_together(self, files: Sequence[PlannedFile]) -> bool:
        self._shared.stop.check()
        if len(files) < 2 or not self._staging.takes_groups:
            return False
        items = [self._new_item(one) for one in files]
        try:
            at = time.time_ns()
            staged = self._staging.stage_together(items)
        except (Damaged, Misused):
            # One of them, which is named when it comes alone.
            return False
        if staged is None:
            return False
        arrived = [
            _PendingFile(one, self._record_staged(one, item, each, at), before=False)
            for one, item, each in zip(files, items, staged, strict=True)
        ]
        self._deposit_all(arrived)
        return True

    def flush(self) -> None:
        while True:
            with self._lock:
                arrived, self._pending = self._pending[:BATCH_SIZE], self._pending[BATCH_SIZE:]
            if not arrived:
                return
            self._deposit_all(arrived)

    def _deposit_all(self, arrived: Sequence[_PendingFile]) -> None:
        together = self._put_batch(arrived)
        for each in arrived:
            if each.one.name not in together:
                # Alone, its problem is solved or reported.
                self._put_or_record(each)
            else:
                self._record_stored(each.one, each.kept)

    def _put_batch(self, arrived: Sequence[_PendingFile]) -> set[str]:
        """Deposit files in one request; the names of those that were accepted."""
        if len(arrived) < 2 or not self._batching:
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
            answer = self._session.request(
                "PUT",
                "/v1/files",
                params={"replica": self._options.replica},
                json={"files": files},
            )
        except Refused as error:
            if error.status not in (404, 405):
                raise
            # A store of an earlier release.
            self._batching = False
            return set()
        try:
            with name_answer_errors("PUT /v1/files"):
                items = answer.json()["files"]
                taken = {item["uuid"]: item for item in items if "code" not in item}
                # If one file is busy, all are: one wait serves all files that are registered alone.
                wait_s = max(float(item.get("retry_after_s", 0)) for item in items)
        except Damaged as error:
            log.warning("%s; the files are registered one by one", error)
            return set()
        if 0 < wait_s <= self._session.policy.retry_after_cap_s:
            self._shared.stop.pause(wait_s)
        tasks = {
            each.one.name: str(task)
            for each in arrived
            if (task := taken.get(each.kept.uuid, {}).get("task_id"))
        }
        with self._lock:
            self.tasks.update(tasks)
        return {each.one.name for each in arrived if each.kept.uuid in taken}

    def _put_or_record(self, each: _PendingFile) -> None:
        """Deposit a file; its error is raised, or kept where bundles fail by themselves."""
        try:
            self._put_alone(each)
        except (Damaged, Refused) as error:
            if self.failures is None or isinstance(error, NotAllowed):
                raise
            self.failures[each.one.name] = error

    def _put_alone(self, each: _PendingFile) -> None:
        self._shared.stop.check()
        one, kept = each.one, each.kept
        try:
            self._put_file(one, kept)
        except Refused as error:
            if error.code not in SOURCE_GONE_CODES or not each.before:
                raise
            # What an earlier run had staged is gone.
            item = StagingItem(one.file, one.content_type, kept.uuid, kept.version)
            kept = self._stage(one, item)
            self._put_file(one, kept)
        self._record_stored(one, kept)

    def _record_stored(self, one: PlannedFile, kept: KnownFile) -> None:
        self._journal.record_file(one.name, replace(kept, stored=True))
        self._shared.tell.file()

    def forget(self, name: str) -> None:
        self._journal.forget_file(name)

    def verification_error(self, task: str) -> str | None:
        """Why verification failed; "" on success, None while it runs."""
        with name_answer_errors(f"GET /v1/tasks/{task}"):
            answer = self._session.request("GET", f"/v1/tasks/{task}").json()
            if answer["status"] == "FAILED":
                return str((answer.get("cause") or {}).get("detail", "no reason was given"))
            return "" if answer["status"] == "SUCCEEDED" else None

    def damaged_error(self, name: str, detail: str) -> Damaged:
        """The error for a file that failed verification; it is sent again next time."""
        self._journal.forget_file(name)
        return Damaged(
            f"{name}: the store refused it: {detail}",
            hint="run the same command again: only this file is sent again",
        )

    def _new_item(self, one: PlannedFile) -> StagingItem:
        under_way = self._journal.unfinished.get(one.name)
        if under_way and under_way.stamp == one.file.stamp:
            return StagingItem(one.file, one.content_type, under_way.uuid, under_way.version)
        if under_way:
            self._staging.abandon(under_way)
        return StagingItem(one.file, one.content_type, str(uuid4()), create_version())

    def _stage(self, one: PlannedFile, item: StagingItem) -> KnownFile:
        at = time.time_ns()
        return self._record_staged(one, item, self._staging.stage(item), at)

    def _record_staged(
        self, one: PlannedFile, item: StagingItem, staged: StagedFile, at: int
    ) -> KnownFile:
        kept = KnownFile(
            stamp=one.file.stamp,
            at=at,
            content_type=one.content_type,
            checksums=staged.checksums,
            uuid=item.uuid,
            version=item.version,
            url=staged.url,
        )
        self._journal.record_file(one.name, kept)
        return kept

    def _put_file(self, one: PlannedFile, kept: KnownFile) -> None:
        try:
            self.request_put(one.name, kept)
        except Refused as error:
            item = StagingItem(one.file, one.content_type, kept.uuid, kept.version)
            staged = StagedFile(kept.url, kept.checksums)
            if error.code != "missing_checksum":
                raise
            if not self._staging.rewrite_checksums(item, staged):
                raise
            self.request_put(one.name, kept)

    def request_put(self, name: str, kept: KnownFile) -> None:
        """Ask the store to take in a staged file; nothing happens if it has it."""
        path = f"/v1/files/{kept.uuid}"
        with name_answer_errors(f"PUT {path}"):
            answer: Any = self._session.request(
                "PUT",
                path,
                params={"version": kept.version, "replica": self._options.replica},
                json={"source_url": kept.url, "creator_uid": self._options.creator_uid},
                headers=ASYNC_HEADERS,
            ).json()
            task = answer.get("task_id")
        if task:
            with self._lock:
                self.tasks[name] = str(task)


WAIT_S = 15.0
"""How long one request asks the store to wait for files."""
PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Between requests; a store that is busy answers without waiting."""
MAX_POLLED = 100
"""Verifications that are asked about between two requests."""


@dataclass(frozen=True, slots=True)
class WaitPolicy:
    """The time-out for verification, with its clock."""

    timeout_s: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class BundlePutter:
    """Creates one bundle version."""

    def __init__(
        self, options: UploadOptions, session: HttpSession, depositor: FileDepositor
    ) -> None:
        self._options, self._session, self._depositor = options, session, depositor

    def put(
        self,
        attempt: UploadAttempt,
        files: Sequence[PlannedFile],
        known: Mapping[str, KnownFile],
        *,
        patience: WaitPolicy,
    ) -> list[dict[str, Any]]:
        """Create the bundle once its files are verified; its entries.

        Damaged names a file that the store rejected; TimedOut if verification still runs.
        """
        body = self._body(files, known)
        until = patience.clock() + patience.timeout_s
        tries, told_again = 0, False
        while True:
            left = until - patience.clock()
            try:
                return self._put_once(attempt, body, left)
            except Conflict as error:
                if error.code != "file_pending":
                    raise
                self._check_tasks(files, MAX_POLLED)
            except Refused as error:
                if error.code != "file_missing":
                    raise
                self._check_tasks(files, len(files))
                if told_again:
                    raise Damaged(str(error)) from error
                self._put_missing(files, known)
                told_again = True
            if patience.clock() >= until:
                waited = f"{patience.timeout_s:.0f} s"
                raise TimedOut(
                    f"the store is still verifying after {waited}; all files have arrived",
                    hint="run the same command again to go on waiting",
                )
            pause = PAUSES_S[min(tries, len(PAUSES_S) - 1)]
            patience.sleep(max(0.0, min(pause, until - patience.clock())))
            tries += 1

    def _put_once(self, attempt: UploadAttempt, body: Any, left: float) -> list[dict[str, Any]]:
        answer = self._session.request(
            "PUT",
            f"/v1/bundles/{attempt.uuid}",
            params={"version": attempt.version, "replica": self._options.replica},
            json=body,
            headers={"Prefer": f"wait={max(0, min(WAIT_S, left)):.0f}"},
        )
        with name_answer_errors(f"PUT /v1/bundles/{attempt.uuid}"):
            return list(answer.json()["manifest"]["files"])

    def _body(self, files: Sequence[PlannedFile], known: Mapping[str, KnownFile]) -> dict[str, Any]:
        entries = [
            {
                "uuid": known[one.name].uuid,
                "version": known[one.name].version,
                "name": one.entry_name,
                "indexed": one.indexed,
            }
            for one in files
        ]
        return {"creator_uid": self._options.creator_uid, "files": entries}

    def _check_tasks(self, files: Sequence[PlannedFile], many: int) -> None:
        """Check some verifications of the bundle; finished ones are not checked again."""
        tasks = self._depositor.tasks
        names = {one.name for one in files}
        own = ((name, task) for name, task in list(tasks.items()) if name in names)
        for name, task in islice(own, many):
            found = self._depositor.verification_error(task)
            if found:
                raise self._depositor.damaged_error(name, found)
            del tasks[name]
            if found is None:
                # Last in the row: the others come first now.
                tasks[name] = task

    def _put_missing(self, files: Sequence[PlannedFile], known: Mapping[str, KnownFile]) -> None:
        """Deposit files again that the store lacks: their verification may have failed."""
        for one in files:
            if known[one.name].url:
                self._depositor.request_put(one.name, known[one.name])
            else:
                # The store's own; what it purged is sent anew by the next run.
                self._depositor.forget(one.name)
