"""Run an upload: plan, stage and deposit what is missing, create the bundle."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, TypeVar

from store_client.atomic_files import hold_lock
from store_client.client import Client
from store_client.errors import Conflict, StoreError
from store_client.progress import NO_PROGRESS, TransferProgress
from store_client.transfer import journal as journals
from store_client.transfer.engine import TransferContext, open_transfer, run_each
from store_client.transfer.journal import KnownFile, UploadAttempt, UploadJournal
from store_client.uploads import plan
from store_client.uploads.deposit import BundlePutter, FileDepositor, WaitPolicy
from store_client.uploads.options import UploadOptions
from store_client.uploads.plan import (
    ExistingBundle,
    PlannedFile,
    UploadReport,
    find_known,
    is_same_bundle,
    plan_files,
    planned_report,
    unchanged_report,
)
from store_client.uploads.staging import open_staging
from store_client.uploads.validation import validate_planned

AGAIN = "run the same command again to resume"

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _UploadRun:
    """What one upload works with."""

    options: UploadOptions
    client: Client
    journal: UploadJournal
    shared: TransferContext
    files: Sequence[PlannedFile]


def upload(
    client: Client,
    options: UploadOptions,
    tell: TransferProgress = NO_PROGRESS,
    *,
    stop: Event | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] | None = None,
) -> UploadReport:
    """Upload a directory as a bundle; unchanged content is not uploaded again.

    An interrupted upload resumes by its journal when it is called again; setting `stop` interrupts
    it. Memory is bounded: 512 MiB of file content, and some hundred bytes for each name.
    """
    files = plan_files(options)
    path = journals.journal_path(
        client.config.uploads,
        *(options.src_dir.resolve(), client.config.url, options.replica),
        *(options.bundle or "", options.creator_uid),
    )
    with (
        hold_lock(path.with_suffix(".lock"), "this directory is being uploaded already"),
        closing(UploadJournal(path, writing=not options.dry_run)) as journal,
        tell_kept(journal),
        open_transfer(options.jobs, tell, stop=stop) as shared,
        add_hint(),
    ):
        journals.remove_finished(client.config.uploads, now=time.time())
        one = _UploadRun(options, client, journal, shared, files)
        pause = shared.stop.pause if sleep is None else sleep
        return _run_upload(one, WaitPolicy(options.timeout_seconds, clock, pause))


class UploadInterrupted(KeyboardInterrupt):
    """Ctrl-C: how many files the store has, how many wait in staging, and how many began."""

    def __init__(self, journal: UploadJournal) -> None:
        super().__init__()
        # Threads that were left behind may still record.
        known = list(journal.files.values())
        self.stored = sum(one.stored for one in known)
        self.staged = len(known) - self.stored
        self.begun = len(journal.unfinished)
        self.bundles = sum(one.finished for one in list(journal.bundles.values()))


@contextmanager
def tell_kept(journal: UploadJournal) -> Iterator[None]:
    """Raise UploadInterrupted for Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise UploadInterrupted(journal) from error


@contextmanager
def add_hint() -> Iterator[None]:
    """Add the hint that the upload can be resumed."""
    try:
        yield
    except StoreError as error:
        error.hint = error.hint or AGAIN
        raise


def _run_upload(one: _UploadRun, patience: WaitPolicy) -> UploadReport:
    one.shared.tell.phase("hashing")
    there = plan.find_existing(one.options, one.client.session, one.journal)
    known = _find_known_files(one, there)
    if there and is_same_bundle(there, one.files, known, one.options.creator_uid):
        _record_finished(one, UploadAttempt(there.uuid, there.version, "", finished=True))
        return unchanged_report(there)
    missing = [file for file in one.files if file.name not in known or not known[file.name].stored]
    validate_planned(
        one.client, one.options, [(file.name, file) for file in one.files], missing=missing
    )
    earlier = there.uuid if there and not one.options.bundle else None
    if one.options.dry_run:
        found = planned_report(one.options, one.files, missing)
    else:
        found = _send_missing(one, there, known, missing=missing, patience=patience)
    return replace(found, earlier_uuid=earlier)


def _find_known_files(one: _UploadRun, there: ExistingBundle | None) -> dict[str, KnownFile]:
    """The files that need not be sent, by name; read again if in doubt."""
    entries = {entry["name"]: entry for entry in there.files} if there else {}
    maybe = [file for file in one.files if file.name in entries or file.name in one.journal.files]

    def look(file: PlannedFile) -> KnownFile | None:
        return find_known(file, one.journal, entries.get(file.name), shared=one.shared)

    looked = zip(maybe, _map_files(look, maybe, one), strict=True)
    return {file.name: kept for file, kept in looked if kept is not None}


def _send_missing(
    one: _UploadRun,
    there: ExistingBundle | None,
    known: Mapping[str, KnownFile],
    *,
    missing: Sequence[PlannedFile],
    patience: WaitPolicy,
) -> UploadReport:
    attempt = plan.begin_attempt(one.options, one.journal, there)
    staging = open_staging(
        one.options, attempt.area, one.client, context=one.shared, journal=one.journal
    )
    depositor = FileDepositor(one.options, one.client.session, one.journal, one.shared, staging)
    sent = sum(file.file.size for file in missing if file.name not in known)
    one.shared.tell.phase("sending")
    one.shared.tell.total(len(missing), sent)

    def deposit(file: PlannedFile) -> None:
        depositor.deposit(file, known.get(file.name))

    groups = list(depositor.group(missing, known))
    _map_files(lambda group: depositor.deposit_group(group, deposit), groups, one)
    depositor.flush()
    one.shared.tell.phase("verifying")
    known = {**known, **{file.name: one.journal.files[file.name] for file in missing}}
    bundler = BundlePutter(one.options, one.client.session, depositor)
    attempt, entries = _put_bundle(one, bundler, attempt, known=known, patience=patience)
    _record_finished(one, replace(attempt, finished=True))
    staging.clear()
    return UploadReport(
        bundle_uuid=attempt.uuid,
        version=attempt.version,
        creator_uid=one.options.creator_uid,
        files=entries,
        state="uploaded",
        sent_files=len(missing),
        sent_bytes=sent,
    )


def _put_bundle(
    one: _UploadRun,
    bundler: BundlePutter,
    attempt: UploadAttempt,
    *,
    known: Mapping[str, KnownFile],
    patience: WaitPolicy,
) -> tuple[UploadAttempt, list[dict[str, Any]]]:
    try:
        return attempt, bundler.put(attempt, one.files, known, patience=patience)
    except Conflict as error:
        if error.code != "bundle_already_exists":
            raise
    # A run that died had put it, and the directory is another since.
    attempt = replace(attempt, version=plan.later_version(attempt.version))
    one.journal.record_attempt(attempt)
    return attempt, bundler.put(attempt, one.files, known, patience=patience)


def _record_finished(one: _UploadRun, attempt: UploadAttempt) -> None:
    if one.journal.attempt != attempt:
        one.journal.record_attempt(attempt)


def _map_files(function: Callable[[T], R], items: Sequence[T], one: _UploadRun) -> list[R]:
    """Call the function for each file in threads; results in order, first error raised."""
    results = run_each(function, items, jobs=one.options.jobs, stop=one.shared.stop)
    return [result for _, result in sorted(results, key=lambda found: found[0])]
