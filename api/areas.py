"""Upload areas over HTTP: open one, put a file into it."""

from flask import Response

from api.bodies import blocks
from api.operation import Answer, Call, Operation, operation, reply
from api.schemas.areas import AreaCreated, AreaFile
from api.schemas.common import NoQuery, Nothing
from pipelines.depositing import areas
from pipelines.depositing.areas import Incoming
from storage import keys
from storage.model import CHECKSUMS
from storage.protocols import DEFAULT_TYPE

TAG = "areas"


@operation(
    "POST",
    "/area/{uuid}",
    tag=TAG,
    query=NoQuery,
    answers={
        201: Answer("Opened.", AreaCreated),
        200: Answer("Opened by you before.", AreaCreated),
    },
    errors=(409,),
)
def post_area(call: Call[Nothing, None]) -> Response:
    """Open an upload area."""
    fresh = areas.create(call.stores, call.uuid, call.who.email)
    return reply({"uri": f"{call.base}/v1/area/{call.uuid}/"}, 201 if fresh else 200)


@operation(
    "PUT",
    "/area/{uuid}/files/{filename}",
    tag=TAG,
    query=NoQuery,
    answers={201: Answer("Kept, with its checksums.", AreaFile)},
    errors=(404, 409, 413),
    upload=True,
    about="The body is the file. `filename` may hold slashes; the same name again replaces it.",
)
def put_area_file(call: Call[Nothing, None]) -> Response:
    """Put a file into an upload area."""
    limit = call.services.settings.max_upload_bytes
    # One more than allowed: the stream is cut off at this length, silently.
    call.request.max_content_length = limit + 1
    incoming = Incoming(
        area=call.uuid,
        name=call.path["filename"],
        content_type=call.request.content_type or DEFAULT_TYPE,
        blocks=blocks(call.request.stream),
        length=call.request.content_length,
        limit=limit,
    )
    kept = areas.receive(call.stores, incoming, call.who.email)
    sums = {name: getattr(kept.checksums, name) for name in CHECKSUMS}
    answer = {"url": _source_url(call, kept.key), "size": kept.size, "checksums": sums}
    return reply(answer, 201)


def _source_url(call: Call[Nothing, None], key: str) -> str:
    """What put_file takes: the cloud's own address, or ours where the areas are a folder."""
    direct = call.stores.areas.direct_url(key)
    ours = keys.area_url(call.base, call.uuid, call.path["filename"])
    is_folder = direct.startswith("file:")
    return ours if is_folder and call.stores.sources.area_key(ours) is not None else direct


OPERATIONS: tuple[Operation, ...] = (post_area, put_area_file)
