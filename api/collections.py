"""Collection operations over HTTP: list, read, write, patch and delete; with their schemas."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from flask import Response
from marshmallow import Schema, ValidationError, fields, post_load, validate

from api.http.operation import ResponseDoc, StoreContext, json_response, operation, page_responses
from api.schemas.fields import (
    Empty,
    JsonObject,
    PatchParameters,
    ReplicaParameters,
    ResponseSchema,
    TextField,
    UuidField,
    VersionField,
    VersionParameters,
    WriteParameters,
    describe_field,
    max_length,
    page_size_field,
    page_token_field,
    replica_field,
    text_length,
    version_field,
)
from pipelines import collections, records
from pipelines.collections import CollectionDraft, CollectionPatch
from pipelines.limits import (
    COLLECTION_DESCRIPTION_MAX,
    COLLECTION_DETAILS_MAX_BYTES,
    COLLECTION_ITEMS_MAX,
    COLLECTION_NAME_MAX,
    LINK_PATH_MAX,
    LINK_TYPE_MAX,
    PAGE_COLLECTIONS,
)
from storage import json_codec
from storage.model import FQID, CollectionLink, Replica


@dataclass(frozen=True)
class ListCollections:
    """Parameters of get_collections."""

    per_page: Annotated[int, page_size_field(PAGE_COLLECTIONS)]
    start_at: Annotated[str | None, page_token_field()]


@dataclass(frozen=True)
class WriteCollection:
    """Parameters of put_collection."""

    uuid: Annotated[
        str, UuidField(required=True, metadata={"example": "6ba7b810-9dad-11d1-80b4-00c04fd430c8"})
    ]
    version: Annotated[str, version_field(required=True)]
    replica: Annotated[Replica, replica_field()]


class CollectionItem(Schema):
    """A link to a version of a file, bundle or collection."""

    type = TextField(
        required=True,
        validate=text_length(LINK_TYPE_MAX),
        metadata=describe_field(
            "`file`, `bundle` or `collection`; any other value links to a fragment of a JSON file.",
            example="bundle",
        ),
    )
    uuid = UuidField(required=True)
    version = version_field(required=True)
    path = TextField(
        validate=max_length(LINK_PATH_MAX),
        metadata=describe_field(
            "For a fragment, a JSON Pointer (RFC 6901) into the file; not"
            " interpreted for the other types."
        ),
    )
    fragment = TextField(
        validate=max_length(LINK_PATH_MAX), metadata=describe_field("Alias of `path`.")
    )

    @post_load
    def build(self, data: dict[str, Any], **_: Any) -> CollectionLink:
        """Merge the aliases; refuse them if they differ."""
        path = data.get("path", data.get("fragment"))
        if data.get("fragment", path) != path:
            raise ValidationError({"fragment": ["Must not differ from path."]})
        return CollectionLink(data["type"], FQID(data["uuid"], data["version"]), path)


def _items_field(about: str, **given: Any) -> Any:
    return fields.List(
        fields.Nested(CollectionItem(unknown="raise")),
        validate=validate.Length(
            max=COLLECTION_ITEMS_MAX, error=f"Must have at most {COLLECTION_ITEMS_MAX} items."
        ),
        metadata=describe_field(about),
        **given,
    )


def _name_field(**given: Any) -> TextField:
    about = {"description": "A short name.", "example": "Kidney, first release"}
    return TextField(validate=max_length(COLLECTION_NAME_MAX), metadata=about, **given)


def _description_field(**given: Any) -> TextField:
    about = {"description": "Markdown.", "example": "What the *first* release is made of."}
    return TextField(validate=max_length(COLLECTION_DESCRIPTION_MAX), metadata=about, **given)


def _details_field(**given: Any) -> JsonObject:
    about = {"description": "Supplementary metadata.", "example": {"release": 1}}
    return JsonObject(validate=_check_details_size, metadata=about, **given)


def _check_details_size(value: Mapping[str, Any]) -> None:
    if len(json_codec.encode(value)) > COLLECTION_DETAILS_MAX_BYTES:
        raise ValidationError(f"Must have at most {COLLECTION_DETAILS_MAX_BYTES} bytes as JSON.")


@dataclass(frozen=True)
class CollectionBody:
    """The content of a new collection version."""

    name: Annotated[str, _name_field(required=True)]
    description: Annotated[str, _description_field(required=True)]
    details: Annotated[Mapping[str, Any], _details_field(required=True)]
    contents: Annotated[
        list[CollectionLink], _items_field("Links; duplicates are stored once.", required=True)
    ]


@dataclass(frozen=True)
class PatchCollectionBody:
    """Changes to a collection; an empty patch still writes a version."""

    add_contents: Annotated[
        list[CollectionLink], _items_field("Links to add, unless they exist.", load_default=list)
    ]
    remove_contents: Annotated[
        list[CollectionLink],
        _items_field("Links to remove; each must match in all members.", load_default=list),
    ]
    name: Annotated[str | None, _name_field(load_default=None, allow_none=False)]
    description: Annotated[str | None, _description_field(load_default=None, allow_none=False)]
    details: Annotated[
        Mapping[str, Any] | None, _details_field(load_default=None, allow_none=False)
    ]


class CollectionName(ResponseSchema):
    """A collection version's name."""

    uuid = UuidField(required=True)
    version = VersionField(required=True)


class CollectionList(ResponseSchema):
    """A page of the caller's collections."""

    collections = fields.List(fields.Nested(CollectionName), required=True)


class CollectionItemAnswer(ResponseSchema):
    """A link of a collection."""

    type = fields.String(required=True)
    uuid = UuidField(required=True)
    version = VersionField(required=True)
    path = fields.String()


class CollectionAnswer(ResponseSchema):
    """The response of get_collection."""

    uuid = UuidField(required=True)
    version = VersionField(required=True)
    name = fields.String(required=True)
    description = fields.String(required=True)
    details = JsonObject(required=True)
    contents = fields.List(fields.Nested(CollectionItemAnswer), required=True)
    owner = fields.String(required=True, metadata={"example": "curator@example.org"})


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
