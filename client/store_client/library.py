"""The functions of the library: download a bundle, upload a directory, open a file.

Without a client, each makes one for the store of the environment or the profile, and closes it.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from os import PathLike
from pathlib import Path
from threading import Event
from typing import Literal, overload
from uuid import UUID

from store_client.client import Client
from store_client.content_types import METADATA
from store_client.downloads import bundles
from store_client.downloads.options import CACHE, BundleReport, DownloadOptions, Filters
from store_client.downloads.options import JOBS as DOWNLOAD_JOBS
from store_client.errors import Misused
from store_client.progress import NO_PROGRESS, TransferProgress
from store_client.references import (
    BUNDLE,
    SCHEME,
    Reference,
    parse_location,
    parse_reference,
)
from store_client.remote.content import RemoteBufferedFile, RemoteRawFile, RemoteStore
from store_client.uploads import job
from store_client.uploads.options import JOBS as UPLOAD_JOBS
from store_client.uploads.options import TIMEOUT_SECONDS, UploadOptions
from store_client.uploads.plan import UploadReport

AnyPath = str | PathLike[str]


def download(
    bundle: str | UUID,
    directory: AnyPath = ".",
    *,
    client: Client | None = None,
    replica: str | None = None,
    metadata_filter: str | None = None,
    data_filter: str | None = None,
    no_metadata: bool = False,
    no_data: bool = False,
    cache: AnyPath = CACHE,
    jobs: int = DOWNLOAD_JOBS,
    dry_run: bool = False,
    progress: TransferProgress = NO_PROGRESS,
    stop: Event | None = None,
) -> BundleReport:
    """Download a bundle into `directory`/UUID.VERSION, each file verified.

    bundle: `UUID`, `UUID.VERSION`, `store://bundle/UUID.VERSION` or the URL of its page; the latest
        version by default.
    metadata_filter, data_filter: shell patterns of names, case-sensitive.
    cache: the directory that has each content once; files are hard links to it.
    stop: ends the download early when it is set; the next one resumes.

    NotFound if the store has no such bundle; Damaged or Unreachable when retries are used up.
    """
    place = _parse_bundle(str(bundle))
    with open_client(client) as store:
        options = DownloadOptions(
            store.config.choose_replica(replica or place.replica),
            directory=Path(directory),
            cache=Path(cache),
            jobs=jobs,
            dry_run=dry_run,
            tell=progress,
            stop=stop,
        )
        filters = Filters(metadata_filter, data_filter, no_metadata, no_data)
        return bundles.download(
            store, place.uuid, options=options, version=place.version, filters=filters
        )


def upload(
    folder: AnyPath,
    *,
    client: Client | None = None,
    replica: str | None = None,
    bundle_uuid: str | None = None,
    staging_bucket: str = "",
    timeout_seconds: float = TIMEOUT_SECONDS,
    creator_uid: int = 0,
    indexed: Sequence[str] = METADATA,
    allow_invalid_json: bool = False,
    jobs: int = UPLOAD_JOBS,
    dry_run: bool = False,
    progress: TransferProgress = NO_PROGRESS,
    stop: Event | None = None,
) -> UploadReport:
    """Upload a directory as a bundle; content that the store has is not sent again.

    bundle_uuid: the bundle that gets a new version; a new bundle by default.
    staging_bucket: your own bucket, `s3://bucket/prefix` or `gs://bucket/prefix`.
    timeout_seconds: how long to wait until the store has verified the files.
    indexed: shell patterns of the names that are metadata, case-sensitive.
    stop: ends the upload early when it is set; the next one resumes.

    Misused for what cannot be uploaded, before anything is sent.
    """
    with open_client(client) as store:
        options = UploadOptions(
            Path(folder),
            store.config.choose_replica(replica),
            staging_bucket=staging_bucket,
            timeout_seconds=timeout_seconds,
            bundle_uuid=bundle_uuid,
            creator_uid=creator_uid,
            jobs=jobs,
            indexed=tuple(indexed),
            dry_run=dry_run,
            allow_invalid_json=allow_invalid_json,
        )
        return job.upload(store, options, progress, stop=stop)


@overload
def open(  # noqa: A001
    location: str,
    mode: Literal["rb"] = "rb",
    *,
    client: Client | None = None,
    replica: str | None = None,
) -> RemoteBufferedFile: ...
@overload
def open(  # noqa: A001
    location: str,
    mode: Literal["r", "rt"],
    *,
    encoding: str = "utf-8",
    errors: str | None = None,
    newline: str | None = None,
    client: Client | None = None,
    replica: str | None = None,
) -> io.TextIOWrapper: ...
def open(  # noqa: A001
    location: str,
    mode: str = "rb",
    *,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    client: Client | None = None,
    replica: str | None = None,
) -> RemoteBufferedFile | io.TextIOWrapper:
    """Open a file of the store to read it in place, by ranges.

    location: `store://bundle/UUID/NAME`, with `UUID.VERSION` for that version, or
        `store://file/UUID`. The latest version now is read until the file is closed.
    mode: "rb", or "r" for text of this encoding, UTF-8 by default.

    A file that is read from beginning to end is verified: the read that completes it raises Damaged
    if its SHA-256 is wrong. Parts of a file cannot be verified. NotFound if there is no such file.
    """
    if mode not in ("rb", "r", "rt"):
        raise Misused(
            f"mode: must be rb or r (got {mode!r})", hint="files in the store never change"
        )
    if mode == "rb" and any(one is not None for one in (encoding, errors, newline)):
        raise Misused("encoding, errors and newline are for text", hint='open it with mode "r"')
    place = parse_location(location)
    with ExitStack() as stack:
        store = stack.enter_context(open_client(client))
        files = stack.enter_context(
            closing(RemoteStore(store, store.config.choose_replica(replica)))
        )
        content = files.content(files.find(place))
        found = RemoteBufferedFile(RemoteRawFile(content, stack.pop_all().close))
    if mode == "rb":
        return found
    try:
        return io.TextIOWrapper(found, encoding or "utf-8", errors, newline)
    except (LookupError, ValueError) as error:
        found.close()
        raise Misused(f"{location} cannot be opened as text: {error}") from error


@contextmanager
def open_client(client: Client | None) -> Iterator[Client]:
    """The client that was given, else one by the configuration, closed at the end."""
    if client is not None:
        yield client
        return
    with Client() as made:
        yield made


def _parse_bundle(text: str) -> Reference:
    if not text.startswith(SCHEME):
        return parse_reference(text, BUNDLE)
    place = parse_location(text)
    if place.kind != BUNDLE or place.name:
        raise Misused(
            f"{text!r} is not a bundle",
            hint="give UUID or UUID.VERSION; store_client.open opens one file of it",
        )
    return Reference(place.uuid, place.version)
