"""Schemas of collection operations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from marshmallow import Schema, ValidationError, fields, post_load, validate

from api.schemas.fields import (
    JsonObject,
    ResponseSchema,
    TextField,
    UuidField,
    VersionField,
    max_length,
    page_size_field,
    page_token_field,
    replica_field,
    text_length,
    version_field,
)
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
        metadata={
            "description": "`file`, `bundle` or `collection`; any other value links to a fragment"
            " of a JSON file.",
            "example": "bundle",
        },
    )
    uuid = UuidField(required=True)
    version = version_field(required=True)
    path = TextField(
        validate=max_length(LINK_PATH_MAX),
        metadata={
            "description": "For a fragment, a JSON Pointer (RFC 6901) into the file; not"
            " interpreted for the other types.",
        },
    )
    fragment = TextField(
        validate=max_length(LINK_PATH_MAX), metadata={"description": "Alias of `path`."}
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
        metadata={"description": about},
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
