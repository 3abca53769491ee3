"""Files that are put to a signed URL of a folder bucket: what the URL allows, where the area that
they go to takes files at this moment.
"""

from flask import Flask, Response, g, request

from api.bodies import blocks
from api.dispatch import READ_ONLY_RETRY_S
from api.services import Services
from api.throttle import throttle
from pipelines.depositing import areas
from pipelines.depositing.areas import Incoming
from storage import keys
from storage.blobs.local import LocalBlobs
from storage.blobs.signing import UploadGrant
from storage.errors import Forbidden, Unavailable
from storage.protocols import DEFAULT_TYPE


def register_uploads(app: Flask, services: Services) -> None:
    """Take what is put to the signed URLs of upload areas, if those are a folder."""

    @app.put("/v1/objects/<bucket>/<path:key>", endpoint="put_object")
    def put_object(bucket: str, key: str) -> Response:
        g.operation = "put_object"
        # Whoever has the URL may put, and is known by nothing but an address.
        throttle(services.stores.rates, services.settings, request, None)
        blobs = services.stores.areas
        if not isinstance(blobs, LocalBlobs) or blobs.signer.bucket != bucket:
            raise Forbidden("Nothing is put into this bucket.")
        grant = blobs.signer.verify_upload(key, request.args)
        if reason := services.read_only.reason():
            raise Unavailable(reason, code="read_only", retry_after_s=READ_ONLY_RETRY_S)
        return _kept(services, grant)


def _kept(services: Services, grant: UploadGrant) -> Response:
    """The file, as if the area's owner had put it: from them the URL came."""
    place = keys.parse_area_file(grant.key)
    if place is None:
        raise Forbidden("This is no place for a file of an upload area.")
    area, name = place
    limit = min(grant.max_bytes, services.settings.max_upload_bytes)
    # One more than allowed: the stream is cut off at this length, silently.
    request.max_content_length = limit + 1
    incoming = Incoming(
        area=area,
        name=name,
        content_type=request.content_type or DEFAULT_TYPE,
        blocks=blocks(request.stream),
        length=request.content_length,
        limit=limit,
    )
    owner = areas.find(services.stores, area).owner
    services.access.require_enabled(owner)
    kept = areas.receive(services.stores, incoming, owner, request_id=g.request_id)
    services.chains.send(kept.todo, g.request_id)
    return Response(b"", mimetype="text/plain")
