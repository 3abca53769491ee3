"""Collection operations over HTTP: list, read, write, patch and delete."""

import orjson
from flask import Response

from api.http.operation import ResponseDoc, StoreContext, json_response, operation, page_responses
from api.schemas.collections import (
    CollectionAnswer,
    CollectionBody,
    CollectionList,
    CollectionName,
    ListCollections,
    PatchCollectionBody,
    WriteCollection,
)
from api.schemas.fields import (
    Empty,
    PatchParameters,
    ReplicaParameters,
    VersionParameters,
    WriteParameters,
)
from pipelines import collections, records
from pipelines.collections import CollectionDraft, CollectionPatch
from storage.model import FQID

TAG = "collections"


@operation(
    "GET",
    "/collections",
    tag=TAG,
    query=ListCollections,
    responses=page_responses(CollectionList),
    paged="collections",
    description="Lists every live version of each of your collections once, whatever its replica,"
    " ordered by uuid, then version.",
)
def get_collections(context: StoreContext[ListCollections, None]) -> Response:
    """List your collections."""
    owner, size = context.caller.email, context.query.per_page
    scope = ("get_collections", owner)
    position = context.open_cursor(scope, context.query.start_at, "start_at")
    after = FQID(*position) if position else None
    rows = collections.list_owned(context.stores, owner, after, size + 1)
    page = rows[:size]
    content = {"collections": [_format_name(fqid) for fqid in page]}
    last = [page[-1].uuid, page[-1].version] if len(rows) > size else None
    return context.page_response(
        content, "collections", scope=scope, last=last, parameter="start_at"
    )


def _format_name(fqid: FQID) -> dict[str, str]:
    return {"uuid": fqid.uuid, "version": fqid.version}


@operation(
    "PUT",
    "/collections",
    tag=TAG,
    query=WriteCollection,
    body=CollectionBody,
    responses={
        201: ResponseDoc("Written.", CollectionName),
        200: ResponseDoc("The same content is already stored.", CollectionName),
    },
    errors=(409, 422),
    max_body_bytes=None,
    description="Everything that it links to must be in the replica. The order of contents does not"
    " matter. Only you can see it.",
)
def put_collection(context: StoreContext[WriteCollection, CollectionBody]) -> Response:
    """Write a collection version."""
    fqid = FQID(context.query.uuid, context.query.version)
    draft = CollectionDraft(fqid=fqid, replica=context.query.replica, **vars(context.body))
    written = collections.put(
        context.stores, draft, context.caller.email, request_id=context.request_id
    )
    context.send(written.jobs)
    return json_response(_format_name(written.fqid), 201 if written.created else 200)


@operation(
    "GET",
    "/collections/{uuid}",
    tag=TAG,
    query=VersionParameters,
    responses={200: ResponseDoc("The collection.", CollectionAnswer)},
    errors=(404,),
    description="Reads the latest version unless `version` is given.",
)
def get_collection(context: StoreContext[VersionParameters, None]) -> Response:
    """Read one of your collections."""
    query = context.query
    collection = collections.find(
        context.stores, query.replica, context.uuid, query.version, context.caller.email
    )
    links = collections.read_links(context.stores, collection)
    return json_response(
        {
            **_format_name(collection.fqid),
            "name": collection.name,
            "description": collection.description,
            "details": orjson.Fragment(collection.details),
            "contents": [records.format_link(link) for link in links],
            "owner": collection.owner,
        }
    )


@operation(
    "PATCH",
    "/collections/{uuid}",
    tag=TAG,
    query=PatchParameters,
    body=PatchCollectionBody,
    body_optional=True,
    responses={200: ResponseDoc("A new version was written.", CollectionName)},
    errors=(404, 409, 422),
    max_body_bytes=None,
    aliases=("/collections",),
    description="Writes a new version; the patched one stays as it is. Links to remove that it does"
    " not have are ignored, and links to add that it already has are stored once. Members that are"
    " absent stay as they are. With an `Idempotency-Key`, a repeated request gets the first"
    " response again.",
)
def patch_collection(context: StoreContext[WriteParameters, PatchCollectionBody]) -> Response:
    """Add and remove links of one of your collections, and change its metadata."""
    body = context.body
    patch = CollectionPatch(
        base=FQID(context.uuid, context.query.version),
        replica=context.query.replica,
        add=body.add_contents,
        remove=body.remove_contents,
        name=body.name,
        description=body.description,
        details=body.details,
    )
    written = collections.patch_collection(
        context.stores,
        patch,
        context.caller.email,
        repeatable=context.parse_idempotency_key(collections.patch_digest(patch)),
        request_id=context.request_id,
    )
    context.send(written.jobs)
    return json_response(_format_name(written.fqid))


@operation(
    "DELETE",
    "/collections/{uuid}",
    tag=TAG,
    query=ReplicaParameters,
    responses={200: ResponseDoc("Deleted.", Empty)},
    errors=(404,),
    description="Permanently hides all versions in all replicas at once.",
)
def delete_collection(context: StoreContext[ReplicaParameters, None]) -> Response:
    """Delete one of your collections."""
    jobs = collections.delete(
        context.stores,
        context.query.replica,
        context.uuid,
        context.caller.email,
        request_id=context.request_id,
    )
    context.send(jobs)
    return json_response({})
