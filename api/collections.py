"""Collections over HTTP: list yours, write, read, patch, delete."""

from typing import Any

import orjson
from flask import Response

from api.operation import Answer, Call, Operation, operation, reply
from api.paging import next_url, paged
from api.schemas.collections import (
    CollectionAnswer,
    CollectionBody,
    CollectionChanges,
    CollectionContent,
    CollectionList,
    CollectionName,
    ListCollections,
    ListCollectionsQuery,
    PatchCollection,
    PatchCollectionBody,
    PatchCollectionQuery,
    WriteCollection,
    WriteCollectionQuery,
)
from api.schemas.common import Empty, InReplica, InReplicaQuery, Versioned, VersionedQuery
from pipelines.collecting import collection_patches, collections
from pipelines.collecting.collection_patches import Patch
from pipelines.collecting.collections import NewCollection
from pipelines.keeping import records
from storage.catalog.collections import Collection
from storage.model import FQID, Link

TAG = "collections"


@operation(
    "GET",
    "/collections",
    tag=TAG,
    query=ListCollectionsQuery,
    answers={200: Answer("The last page.", CollectionList), 206: Answer("A page.", CollectionList)},
    paged="collections",
    about="Every live version of yours, once, in whatever replica; by uuid, then version.",
)
def get_collections(call: Call[ListCollections, None]) -> Response:
    """List your collections."""
    owner, size = call.who.email, call.query.per_page
    scope = ("get_collections", owner)
    after = _after(call, scope)
    found = collections.listing(call.stores, owner, after, size + 1)
    page, more = found[:size], len(found) > size
    response = reply({"collections": [_named(fqid) for fqid in page]})
    return paged(response, "collections", _next(call, scope, page[-1]) if more else None)


def _after(call: Call[ListCollections, None], scope: tuple[str, ...]) -> FQID | None:
    pointer = call.query.start_at
    if pointer is None:
        return None
    return FQID(*call.services.cursors.open(scope, pointer, parameter="start_at"))


def _next(call: Call[ListCollections, None], scope: tuple[str, ...], last: FQID) -> str:
    pointer = call.services.cursors.seal(scope, [last.uuid, last.version])
    return next_url(call.request, call.base, {"start_at": pointer})


def _named(fqid: FQID) -> dict[str, str]:
    return {"uuid": fqid.uuid, "version": fqid.version}


@operation(
    "PUT",
    "/collections",
    tag=TAG,
    query=WriteCollectionQuery,
    body=CollectionBody,
    answers={
        201: Answer("Written.", CollectionName),
        200: Answer("The same content is stored already.", CollectionName),
    },
    errors=(409, 422),
    max_body_bytes=None,
    about="Everything that it links to must be in the replica. The order of contents does not"
    " matter. Nobody but you sees it.",
)
def put_collection(call: Call[WriteCollection, CollectionContent]) -> Response:
    """Write a collection version."""
    fqid = FQID(call.query.uuid, call.query.version)
    new = NewCollection(fqid=fqid, replica=call.query.replica, **vars(call.body))
    written = collections.write(call.stores, new, call.who.email, request_id=call.request_id)
    call.send(written.todo)
    return reply(_named(written.fqid), 201 if written.created else 200)


@operation(
    "GET",
    "/collections/{uuid}",
    tag=TAG,
    query=VersionedQuery,
    answers={200: Answer("The collection.", CollectionAnswer)},
    errors=(404,),
    about="The latest version when none is named.",
)
def get_collection(call: Call[Versioned, None]) -> Response:
    """Read a collection of yours."""
    query = call.query
    found = collections.find(call.stores, query.replica, call.uuid, query.version, call.who.email)
    return reply(_shown(found, collections.contents_of(call.stores, found)))


def _shown(found: Collection, contents: list[Link]) -> dict[str, Any]:
    return {
        **_named(found.fqid),
        "name": found.name,
        "description": found.description,
        "details": orjson.Fragment(found.details),
        "contents": [records.item(link) for link in contents],
        "owner": found.owner,
    }


@operation(
    "PATCH",
    "/collections/{uuid}",
    tag=TAG,
    query=PatchCollectionQuery,
    body=PatchCollectionBody,
    body_optional=True,
    answers={200: Answer("A new version was written.", CollectionName)},
    errors=(404, 409, 422),
    max_body_bytes=None,
    aliases=("/collections",),
    about="Writes the version that follows the patched one, which stays as it is. Links to remove"
    " that it does not have are ignored, links to add that it has are there once. What is not"
    " given stays. A request with the header `Idempotency-Key` that comes again is answered like"
    " the first time.",
)
def patch_collection(call: Call[PatchCollection, CollectionChanges]) -> Response:
    """Add links to a collection of yours, remove some, change what it says of itself."""
    body = call.body
    patch = Patch(
        patched=FQID(call.uuid, call.query.version),
        replica=call.query.replica,
        add=body.add_contents,
        remove=body.remove_contents,
        name=body.name,
        description=body.description,
        details=body.details,
    )
    written = collection_patches.patch(
        call.stores,
        patch,
        call.who.email,
        repeatable=call.repeatable(collection_patches.digest(patch)),
        request_id=call.request_id,
    )
    call.send(written.todo)
    return reply(_named(written.fqid))


@operation(
    "DELETE",
    "/collections/{uuid}",
    tag=TAG,
    query=InReplicaQuery,
    answers={200: Answer("Deleted.", Empty)},
    errors=(404,),
    about="Hides it with all of its versions, in all replicas at once and for good.",
)
def delete_collection(call: Call[InReplica, None]) -> Response:
    """Delete a collection of yours."""
    todo = collections.delete(
        call.stores,
        call.query.replica,
        call.uuid,
        call.who.email,
        request_id=call.request_id,
    )
    call.send(todo)
    return reply({})


OPERATIONS: tuple[Operation, ...] = (
    get_collections,
    put_collection,
    get_collection,
    patch_collection,
    delete_collection,
)
