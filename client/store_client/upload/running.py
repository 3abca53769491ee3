"""An upload from its beginning to its end: look, bring what is missing, make the bundle."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from store_client.client import Client
from store_client.errors import Conflict, StoreError
from store_client.leaving import leave
from store_client.telling import SILENCE, Tell
from store_client.upload import attempts, places
from store_client.upload import journal as journals
from store_client.upload.alone import alone
from store_client.upload.bundling import Bundler, Patience
from store_client.upload.depositing import Depositor
from store_client.upload.journal import Attempt, Journal, Kept
from store_client.upload.metadata import check_metadata
from store_client.upload.options import UploadOptions
from store_client.upload.planning import Existing, Wanted, same, settled, wanted
from store_client.upload.reports import Uploaded, planned, unchanged
from store_client.upload.sharing import Shared, Stopped, sharing

AGAIN = "run the same command again: what has arrived is kept"

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Upload:
    """All that one upload works with."""

    options: UploadOptions
    client: Client
    journal: Journal
    shared: Shared
    files: Sequence[Wanted]


def upload(
    client: Client,
    options: UploadOptions,
    tell: Tell = SILENCE,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Uploaded:
    """Bring a directory into the store as a bundle; the same content again is nothing to do.

    Errors and interruptions leave a journal, by which the same call goes on. Memory is bounded:
    512 MiB of files at once, and some hundred bytes for each name.
    """
    files = wanted(options)
    path = journals.path_of(
        client.config.uploads,
        *(options.src_dir.resolve(), client.config.url, options.replica),
        *(options.bundle or "", options.creator_uid),
    )
    with (
        alone(path.with_suffix(".lock")),
        _journal(options, path) as journal,
        sharing(options.jobs, tell) as shared,
        _hinting(),
    ):
        journals.sweep(client.config.uploads, now=time.time())
        one = _Upload(options, client, journal, shared, files)
        return _run(one, Patience(options.timeout_seconds, clock, sleep))


@contextmanager
def _journal(options: UploadOptions, path: Path) -> Iterator[Journal]:
    journal = Journal(path, writing=not options.dry_run)
    try:
        yield journal
    finally:
        journal.close()


@contextmanager
def _hinting() -> Iterator[None]:
    """An error that says nothing of what to do says that it may go on."""
    try:
        yield
    except StoreError as error:
        error.hint = error.hint or AGAIN
        raise


def _run(one: _Upload, patience: Patience) -> Uploaded:
    there = attempts.found(one.options, one.client.session, one.journal)
    known = _known(one, there)
    if there and same(there, one.files, known, one.options.creator_uid):
        _finish(one, Attempt(there.uuid, there.version, "", finished=True))
        return unchanged(there)
    missing = [file for file in one.files if not _is_stored(known, file)]
    if not one.options.allow_invalid_json:
        check_metadata(missing)
    earlier = there.uuid if there and not one.options.bundle else None
    if one.options.dry_run:
        found = planned(one.options, one.files, missing)
    else:
        found = _brought(one, there, known, missing=missing, patience=patience)
    return replace(found, earlier_uuid=earlier)


def _known(one: _Upload, there: Existing | None) -> dict[str, Kept]:
    """What need not be sent, by name; read again where that is not sure."""
    entries = {entry["name"]: entry for entry in there.files} if there else {}
    maybe = [file for file in one.files if file.name in entries or file.name in one.journal.files]

    def look(file: Wanted) -> Kept | None:
        return settled(file, one.journal, entries.get(file.name), shared=one.shared)

    looked = zip(maybe, _each(look, maybe, one), strict=True)
    return {file.name: kept for file, kept in looked if kept is not None}


def _brought(
    one: _Upload,
    there: Existing | None,
    known: Mapping[str, Kept],
    *,
    missing: Sequence[Wanted],
    patience: Patience,
) -> Uploaded:
    attempt = attempts.begun(one.options, one.journal, there)
    depositor = Depositor(one.options, one.client.session, one.journal, one.shared)
    staging = places.chosen(
        one.options, attempt.area, one.client, shared=one.shared, journal=one.journal
    )
    sent = sum(file.file.size for file in missing if file.name not in known)
    one.shared.tell.total(len(missing), sent)
    _each(lambda file: depositor.deposit(file, staging, known.get(file.name)), missing, one)
    depositor.finish()
    known = {**known, **{file.name: one.journal.files[file.name] for file in missing}}
    bundler = Bundler(one.options, one.client.session, depositor)
    attempt, entries = _bundled(one, bundler, attempt, known=known, patience=patience)
    _finish(one, replace(attempt, finished=True))
    staging.clear()
    return Uploaded(
        bundle_uuid=attempt.uuid,
        version=attempt.version,
        creator_uid=one.options.creator_uid,
        files=entries,
        state="uploaded",
        sent_files=len(missing),
        sent_bytes=sent,
    )


def _bundled(
    one: _Upload,
    bundler: Bundler,
    attempt: Attempt,
    *,
    known: Mapping[str, Kept],
    patience: Patience,
) -> tuple[Attempt, list[dict[str, Any]]]:
    try:
        return attempt, bundler.put(attempt, one.files, known, patience=patience)
    except Conflict as error:
        if error.code != "bundle_already_exists":
            raise
    # A run that died had put it, and the directory is another since.
    attempt = replace(attempt, version=attempts.later(attempt.version))
    one.journal.begin(attempt)
    return attempt, bundler.put(attempt, one.files, known, patience=patience)


def _finish(one: _Upload, attempt: Attempt) -> None:
    if one.journal.attempt != attempt:
        one.journal.begin(attempt)


def _is_stored(known: Mapping[str, Kept], file: Wanted) -> bool:
    kept = known.get(file.name)
    return kept is not None and kept.stored


def _each(function: Callable[[T], R], items: Sequence[T], one: _Upload) -> list[R]:
    """One result for each, by several threads; the first error stops all."""
    pool = ThreadPoolExecutor(one.options.jobs, thread_name_prefix="file")
    futures: list[Future[R]] = []
    try:
        futures += (pool.submit(function, item) for item in items)
        wait(futures, return_when=FIRST_EXCEPTION)
        if any(future.done() and future.exception() for future in futures):
            raise Stopped("a file failed")
        pool.shutdown()
    except Exception as error:
        one.shared.stop()
        pool.shutdown(cancel_futures=True)
        raise _first(futures, error) from None
    except BaseException:
        one.shared.stop()
        leave(pool, futures)
        raise
    return [future.result() for future in futures]


def _first(futures: "Sequence[Future[Any]]", raised: BaseException) -> BaseException:
    """What the others were stopped for."""
    ended = (future for future in futures if future.done() and not future.cancelled())
    errors = [error for future in ended if (error := future.exception())]
    causes = [error for error in errors if not isinstance(error, Stopped)]
    return causes[0] if causes and isinstance(raised, Stopped) else raised
