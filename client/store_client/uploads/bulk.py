"""Upload many bundles at once: each folder of a directory, or each row of a table.

All files go through one upload area and one journal, so that the upload is resumed as a whole. Each
bundle succeeds or fails by itself.
"""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Literal, TypeVar
from uuid import uuid4

from store_client.atomic_files import HOME_HINT, hold_lock, replace_atomically
from store_client.client import Client
from store_client.errors import (
    Conflict,
    Damaged,
    Misused,
    NotAllowed,
    NotFound,
    Refused,
    StoreError,
    name_os_errors,
)
from store_client.identifiers import create_version
from store_client.local_files import (
    LocalFile,
    describe_stray,
    file_stamp,
    group_by_folder,
    list_files,
    stat_file,
)
from store_client.progress import NO_PROGRESS, TransferProgress
from store_client.transfer import journal as journals
from store_client.transfer.engine import TransferContext, open_transfer, run_each
from store_client.transfer.journal import KnownFile, UploadAttempt, UploadJournal
from store_client.uploads.deposit import BundlePutter, FileDepositor, WaitPolicy
from store_client.uploads.job import add_hint, tell_kept
from store_client.uploads.options import UploadOptions
from store_client.uploads.plan import PlannedFile, find_known, later_version, plan_file
from store_client.uploads.staging import open_staging
from store_client.uploads.table import RenderedBundle, find_name_faults
from store_client.uploads.validation import validate_planned

TOGETHER = 64
"""Bundles whose files are sent before the bundles are made."""
MOST_FAILURES = 100
"""Bundles that may fail before the upload stops: so many have one cause."""

T = TypeVar("T")
R = TypeVar("R")

BulkState = Literal["uploaded", "unchanged", "planned", "failed"]


@dataclass(frozen=True, slots=True)
class BundleSource:
    """A bundle to be: its name in reports, and its files by their names in it."""

    label: str
    files: Sequence[PlannedFile]

    @property
    def size(self) -> int:
        return sum(one.file.size for one in self.files)


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What became of one bundle."""

    label: str
    state: BulkState
    files: int
    bytes: int
    uuid: str = ""
    version: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class BulkReport:
    """What became of all bundles, in the order of their sources."""

    results: Sequence[BulkResult]

    @property
    def states(self) -> Mapping[str, int]:
        """How many bundles have each state."""
        return Counter(one.state for one in self.results)


def plan_folders(options: UploadOptions) -> list[BundleSource]:
    """Plan a bundle for each folder, with everything below it; Misused for files in none."""
    found = {one.name: one for one in list_files(options.src_dir)}
    grouped, stray = group_by_folder(found)
    if stray:
        raise Misused(describe_stray(stray), hint="move them into a folder of a bundle, or away")
    return [
        BundleSource(
            label or options.src_dir.resolve().name,
            [plan_file(found[name], options, f"{label}/" if label else "") for name in names],
        )
        for label, names in sorted(grouped.items())
    ]


def plan_rows(
    bundles: Sequence[RenderedBundle], options: UploadOptions, workspace: Path
) -> list[BundleSource]:
    """Plan the bundles of rows; their documents are written to the workspace. Misused."""
    lines: dict[str, int] = {}
    sources = []
    for one in bundles:
        before = lines.setdefault(one.label, one.line)
        if before != one.line:
            raise Misused(
                f"lines {before} and {one.line} are both bundle {one.label!r}",
                hint='the member "bundle" of a template names a column that differs',
            )
        prefix = f"{hashlib.sha256(one.label.encode()).hexdigest()[:24]}/"
        local = {name: _keep_document(workspace, data) for name, data in one.documents.items()}
        local |= one.files
        if fault := next(find_name_faults(tuple(local)), None):
            raise Misused(f"line {one.line}: {fault}")
        files = []
        for name, path in sorted(local.items()):
            try:
                stamp = file_stamp(stat_file(str(path)))
            except Misused as error:
                raise Misused(f"line {one.line}: {error}") from error
            files.append(plan_file(LocalFile(prefix + name, str(path), stamp), options, prefix))
        sources.append(BundleSource(one.label, files))
    return sources


def _keep_document(workspace: Path, data: bytes) -> Path:
    """A file with that content, by its digest; an earlier run may have made it."""
    path = workspace / hashlib.sha256(data).hexdigest()
    with name_os_errors(f"write {path}", hint=HOME_HINT):
        # Not synced, which takes milliseconds for each of many rows: a file that a power cut
        # left empty is written again.
        if not path.is_file() or path.read_bytes() != data:
            workspace.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_atomically(path, lambda temporary: temporary.write_bytes(data))
    return path


def bulk_journal(client: Client, options: UploadOptions, origin: Path) -> Path:
    """The journal of a directory or table that becomes many bundles."""
    identity = ("bulk", origin.resolve(), client.config.url, options.replica, options.creator_uid)
    return journals.journal_path(client.config.uploads, *identity)


def hold_journal(journal_path: Path) -> AbstractContextManager[None]:
    """Hold a journal; StoreError if another process uploads the same directory or table."""
    return hold_lock(journal_path.with_suffix(".lock"), "this is being uploaded already")


def upload_bundles(
    client: Client,
    options: UploadOptions,
    sources: Sequence[BundleSource],
    journal_path: Path,
    tell: TransferProgress = NO_PROGRESS,
) -> BulkReport:
    """Upload all bundles; those that an earlier run made are not sent again.

    The caller holds the journal, from before the bundles are planned.

    A bundle that changed since is a new version of the same bundle. Errors of one bundle are in its
    result; StoreError where nothing can go on. An interrupted upload resumes when it is called
    again.
    """
    with (
        closing(UploadJournal(journal_path, writing=not options.dry_run)) as journal,
        tell_kept(journal),
        open_transfer(options.jobs, tell) as shared,
        add_hint(),
    ):
        journals.remove_finished(client.config.uploads, now=time.time())
        run = _BulkRun(client, options, journal, shared)
        return BulkReport(run.upload(sources))


@dataclass(slots=True)
class _BulkRun:
    """One run of an upload of many bundles."""

    client: Client
    options: UploadOptions
    journal: UploadJournal
    shared: TransferContext
    failures: dict[str, StoreError] = field(default_factory=dict)
    results: dict[str, BulkResult] = field(default_factory=dict)

    def upload(self, sources: Sequence[BundleSource]) -> list[BulkResult]:
        """Upload what is missing, some bundles at a time."""
        self.shared.tell.phase("hashing")
        finished = [(source, self._find_finished(source)) for source in sources]
        for index, is_there in self._map(lambda item: self._is_there(item[1]), finished):
            source, made = finished[index]
            if made and is_there:
                self.results[source.label] = _result(source, "unchanged", made)
            elif made:
                # It was deleted, and its name cannot be used again.
                another = replace(made, uuid=str(uuid4()), finished=False)
                self.journal.record_bundle(source.label, another)
        missing = [source for source in sources if source.label not in self.results]
        files = [
            (f"{source.label}/{one.entry_name}", one) for source in missing for one in source.files
        ]
        validate_planned(self.client, self.options, files)
        if self.options.dry_run:
            self.results |= {source.label: _result(source, "planned") for source in missing}
        elif missing:
            self._send(missing)
        return [self.results[source.label] for source in sources]

    def _map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
        return run_each(function, items, jobs=self.options.jobs, stop=self.shared.stop)

    def _is_there(self, made: UploadAttempt | None) -> bool:
        """Whether the store still has a bundle version."""
        if made is None:
            return False
        params = {"replica": self.options.replica, "version": made.version, "per_page": 10}
        try:
            self.client.session.request("GET", f"/v1/bundles/{made.uuid}", params=params)
        except NotFound:
            return False
        return True

    def _find_finished(self, source: BundleSource) -> UploadAttempt | None:
        """The version that an earlier run made of just these files."""
        made = self.journal.bundles.get(source.label)
        if made is None or not made.finished:
            return None
        known = {}
        for one in source.files:
            kept = find_known(one, self.journal, None, shared=self.shared)
            if kept is None or not kept.stored:
                return None
            known[one.name] = kept
        return made if made.content == _content(source, known) else None

    def _send(self, sources: Sequence[BundleSource]) -> None:
        before = self.journal.attempt
        area = before.area if before and not before.finished else str(uuid4())
        attempt = UploadAttempt("", "", area)
        self.journal.record_attempt(attempt)
        staging = open_staging(
            self.options, area, self.client, context=self.shared, journal=self.journal
        )
        depositor = FileDepositor(
            self.options,
            self.client.session,
            self.journal,
            self.shared,
            staging,
            failures=self.failures,
        )
        files = [one for source in sources for one in source.files]
        unsent = sum(one.file.size for one in files if one.name not in self.journal.files)
        self.shared.tell.total(len(files), unsent)
        waiting = iter(sources)
        while chunk := list(islice(waiting, TOGETHER)):
            self._send_chunk(chunk, depositor)
            failed = [one for one in self.results.values() if one.state == "failed"]
            if len(failed) >= MOST_FAILURES:
                raise StoreError(
                    f"{len(failed)} bundles failed, the last so: {failed[-1].error}",
                    hint="mend the cause, then run the same command again to resume",
                )
        if not any(one.state == "failed" for one in self.results.values()):
            self.journal.record_attempt(replace(attempt, finished=True))
            staging.clear()

    def _send_chunk(self, chunk: Sequence[BundleSource], depositor: FileDepositor) -> None:
        self.shared.tell.phase("sending")
        files = [one for source in chunk for one in source.files]

        def deposit(one: PlannedFile) -> None:
            self._deposit(one, depositor)

        groups = list(depositor.group(files, self.journal.files))
        for _ in self._map(lambda group: depositor.deposit_group(group, deposit), groups):
            pass
        depositor.flush()
        self.shared.tell.phase("verifying")
        for _ in self._map(lambda source: self._make_bundle(source, depositor), chunk):
            pass

    def _deposit(self, one: PlannedFile, depositor: FileDepositor) -> None:
        try:
            depositor.deposit(one, find_known(one, self.journal, None, shared=self.shared))
        except (Damaged, Misused) as error:
            self.failures[one.name] = error

    def _make_bundle(self, source: BundleSource, depositor: FileDepositor) -> None:
        """Make one bundle; its errors become its result."""
        failed = next((one for one in source.files if one.name in self.failures), None)
        try:
            if failed:
                raise self.failures.pop(failed.name)
            attempt = self._put(source, depositor)
        except NotAllowed:
            raise
        except (Refused, Damaged, Misused) as error:
            self.results[source.label] = _result(source, "failed", error=str(error))
            return
        self.results[source.label] = _result(source, "uploaded", attempt)

    def _put(self, source: BundleSource, depositor: FileDepositor) -> UploadAttempt:
        known = {one.name: self.journal.files[one.name] for one in source.files}
        content = _content(source, known)
        before = self.journal.bundles.get(source.label)
        if before and before.content == content and not before.finished:
            attempt = before
        elif before and before.finished:
            version = later_version(before.version)
            attempt = UploadAttempt(before.uuid, version, "", content=content)
        else:
            # A version that was asked for, with other files, may exist or not.
            uuid = before.uuid if before else str(uuid4())
            version = later_version(before.version) if before else create_version()
            attempt = UploadAttempt(uuid, version, "", content=content)
        if attempt is not before:
            self.journal.record_bundle(source.label, attempt)
        putter = BundlePutter(self.options, self.client.session, depositor)
        patience = WaitPolicy(self.options.timeout_seconds, sleep=self.shared.stop.pause)
        try:
            putter.put(attempt, source.files, known, patience=patience)
        except Conflict as error:
            if error.code != "bundle_already_exists":
                raise
            attempt = replace(attempt, version=later_version(attempt.version))
            self.journal.record_bundle(source.label, attempt)
            putter.put(attempt, source.files, known, patience=patience)
        made = replace(attempt, finished=True)
        self.journal.record_bundle(source.label, made)
        return made


def _result(
    source: BundleSource, state: BulkState, made: UploadAttempt | None = None, error: str = ""
) -> BulkResult:
    uuid, version = (made.uuid, made.version) if made else ("", "")
    return BulkResult(source.label, state, len(source.files), source.size, uuid, version, error)


def _content(source: BundleSource, known: Mapping[str, KnownFile]) -> str:
    """The digest of what the bundle has: names, contents, types, and what is indexed."""
    entries = [
        [one.entry_name, known[one.name].checksums.sha256, one.content_type, one.indexed]
        for one in source.files
    ]
    return hashlib.sha256(json.dumps(sorted(entries)).encode()).hexdigest()
