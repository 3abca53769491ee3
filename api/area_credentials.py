"""Leave to write into an upload area past the API, over HTTP."""

from collections.abc import Mapping
from typing import Any

from flask import Response

from api.areas import TAG
from api.bundles import absolute
from api.operation import Answer, Call, Operation, operation, reply
from api.schemas.area_uploads import AreaCredentials, NamedFiles, NamedFilesBody
from api.schemas.common import NoQuery, Nothing
from pipelines.depositing import area_credentials
from pipelines.depositing.area_credentials import Leave, Request
from pipelines.formats import version_at


@operation(
    "POST",
    "/area/{uuid}/credentials",
    tag=TAG,
    query=NoQuery,
    body=NamedFilesBody,
    body_optional=True,
    answers={201: Answer("Until `expires`.", AreaCredentials)},
    errors=(404, 409, 503),
    about="Temporary, and confined to this area. `s3`: credentials that may put, and get, objects"
    " below `prefix`; `gs`: a token that may do so; `urls`: a signed URL for each of `filenames`,"
    " to PUT one file to with `headers` and a content type of your own. Say of each file that came"
    " so that it did: `post_area_file`. Leave that was given outlives a lock of the area, unless it"
    " is a URL of this API.",
)
def post_area_credentials(call: Call[Nothing, NamedFiles]) -> Response:
    """Get leave to write into an upload area by other means."""
    settings = call.services.settings
    request = Request(
        area=call.uuid,
        caller=call.who.email,
        filenames=call.body.filenames,
        seconds=settings.areas_credentials_s,
        max_bytes=settings.max_upload_bytes,
    )
    leave = area_credentials.give(call.stores, request)
    shown = _urls(call, leave) if leave.loan is None else _words(leave.loan.kind, leave.loan.words)
    expires = {"expires": version_at(leave.expires_us)}
    return reply({**shown, **expires}, 201, {"Cache-Control": "no-store"})


def _words(kind: str, words: Mapping[str, str | None]) -> dict[str, Any]:
    return {"kind": kind, **words}


def _urls(call: Call[Nothing, NamedFiles], leave: Leave) -> dict[str, Any]:
    """All of one engine: their headers and limits are the same."""
    some = next(iter(leave.urls.values()), None)
    return {
        "kind": "urls",
        "method": "PUT",
        "urls": {name: absolute(call, upload.url) for name, upload in leave.urls.items()},
        "headers": dict(some.headers) if some else {},
        "max_bytes": some.max_bytes if some else call.services.settings.max_upload_bytes,
    }


OPERATIONS: tuple[Operation, ...] = (post_area_credentials,)
