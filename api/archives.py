"""Archives of bundles over HTTP, as streams."""

import errno
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from flask import Response

from api.http.operation import ResponseDoc, StoreContext, operation
from api.http.permits import suspend_permit
from api.replication import SERVED_BY_DOC, served_by_header
from api.schemas.fields import TextField, VersionParameters, describe_field, one_of
from pipelines import archives
from pipelines.archives import ARCHIVE_FORMATS, CONTENT_TYPES, ArchiveFormat
from pipelines.linked_data import Publisher
from storage.errors import DomainError

TAG = "bundles"
log = logging.getLogger(__name__)


def format_field() -> TextField:
    """Return the parameter of an archive's format."""
    return TextField(
        load_default=ARCHIVE_FORMATS[0],
        validate=one_of(*ARCHIVE_FORMATS),
        metadata=describe_field("The kind of archive; `bagit` and `ro-crate` are ZIP archives."),
    )


@dataclass(frozen=True)
class ReadArchive(VersionParameters):
    """Parameters of get_bundle_archive."""

    format: Annotated[ArchiveFormat, format_field()]


@operation(
    "GET",
    "/bundles/{uuid}/archive",
    tag=TAG,
    query=ReadArchive,
    responses={
        200: ResponseDoc(
            "The archive.",
            headers={
                "Content-Disposition": "The archive's file name.",
                "Content-Length": "Its size; a stream that ends earlier has failed.",
                **SERVED_BY_DOC,
            },
            media_types=tuple(dict.fromkeys(CONTENT_TYPES.values())),
        )
    },
    errors=(404, 422, 503),
    description="Streams all files of a version, by default of the latest, below one folder"
    " `<uuid>.<version>/`. Names are changed where a file system could not take them. Each file is"
    " verified on its way: if one is damaged in both replicas, the stream breaks off.",
)
def get_bundle_archive(context: StoreContext[ReadArchive, None]) -> Response:
    """Download a bundle as an archive."""
    return stream_archive(context)


def find_publisher(context: StoreContext[Any, None]) -> Publisher:
    """Return the store as documents about its bundles name it."""
    settings = context.services.settings
    return Publisher(settings.web_name, context.base, settings.data_license)


def stream_archive(context: StoreContext[Any, None]) -> Response:
    """Return the archive of a bundle for a caller who may read the bundle, too."""
    query, services = context.query, context.services
    services.guard.require("get_bundle", context)
    release = services.archives.acquire(context.client)
    try:
        archive = archives.prepare_archive(
            context.stores,
            query.replica,
            context.uuid,
            query.version,
            query.format,
            find_publisher(context),
        )
        blocks = archives.stream_archive(context.stores, archive)
        # An archive whose first file cannot be read is an error, not a broken stream.
        first = b"" if context.is_head else next(blocks)
    except BaseException:
        release()
        raise
    headers = {
        "Content-Type": CONTENT_TYPES[query.format],
        "Content-Disposition": f'attachment; filename="{archive.name}"',
        "Content-Length": str(archive.measure()),
        "Cache-Control": "no-store",
        **served_by_header(query.replica, archive.replica),
    }
    body = None if context.is_head else _send_blocks(first, blocks, archive.name)
    response = Response(body, 200, headers=headers)
    # Runs even if the server never takes the first byte of the body.
    response.call_on_close(release)
    return response


def _send_blocks(first: bytes, blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield all blocks; end with ConnectionResetError where a file cannot be read intact.

    The semaphore limits archives, so they need no permit, which other requests wait for.
    """
    yield first
    while True:
        try:
            with suspend_permit():
                block = next(blocks, None)
        except DomainError as error:
            log.warning("the archive %s broke off: %s", name, error.detail)
            # The server closes the connection, and does not log a failure.
            raise ConnectionResetError(errno.ECONNRESET, "The archive broke off.") from error
        if block is None:
            return
        yield block
