"""Collections: what their operations take and answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marshmallow import Schema, ValidationError, fields, post_load, validate

from api.schemas.common import Shown
from api.schemas.fields import (
    JsonObject,
    Text,
    Uuid,
    Version,
    at_version,
    in_replica,
    page_pointer,
    page_size,
)
from api.schemas.loading import Body, Query
from pipelines.limits import (
    COLLECTION_DESCRIPTION,
    COLLECTION_DETAILS_BYTES,
    COLLECTION_MAX,
    COLLECTION_NAME,
    LINK_PATH,
    LINK_TYPE,
    PAGE_COLLECTIONS,
)
from storage import json_codec
from storage.model import FQID, Link, Replica


@dataclass(frozen=True)
class ListCollections:
    """Which page of the caller's list."""

    per_page: int
    start_at: str | None


class ListCollectionsQuery(Query):
    """Parameters of get_collections."""

    model = ListCollections
    per_page = page_size(PAGE_COLLECTIONS)
    start_at = page_pointer()


@dataclass(frozen=True)
class WriteCollection:
    """Which version is written, and where it begins."""

    uuid: str
    version: str
    replica: Replica


class WriteCollectionQuery(Query):
    """Parameters of put_collection."""

    model = WriteCollection
    uuid = Uuid(required=True, metadata={"example": "6ba7b810-9dad-11d1-80b4-00c04fd430c8"})
    version = at_version(required=True)
    replica = in_replica()


@dataclass(frozen=True)
class PatchCollection:
    """Which version is patched, where."""

    version: str
    replica: Replica


class PatchCollectionQuery(Query):
    """Parameters of patch_collection."""

    model = PatchCollection
    version = at_version(
        required=True, metadata={"description": "The version to patch; any live one may be."}
    )
    replica = in_replica()


def _most(characters: int) -> validate.Length:
    return validate.Length(max=characters, error=f"At most {characters} characters.")


class CollectionItem(Schema):
    """A link."""

    type = Text(
        required=True,
        validate=validate.Length(1, LINK_TYPE, error=f"Must have 1 to {LINK_TYPE} characters."),
        metadata={
            "description": "`file`, `bundle`, `collection`; any other word means a fragment of"
            " the JSON of a file.",
            "example": "bundle",
        },
    )
    uuid = Uuid(required=True)
    version = at_version(required=True)
    path = Text(
        validate=_most(LINK_PATH),
        metadata={
            "description": "Of a fragment a JSON Pointer (RFC 6901) into the file; kept as it is"
            " for the other types.",
        },
    )
    fragment = Text(validate=_most(LINK_PATH), metadata={"description": "Another word for `path`."})

    @post_load
    def build(self, data: dict[str, Any], **_: Any) -> Link:
        """Both spellings as one; two that differ are refused."""
        path = data.get("path", data.get("fragment"))
        if data.get("fragment", path) != path:
            raise ValidationError({"fragment": ["Says otherwise than path."]})
        return Link(data["type"], FQID(data["uuid"], data["version"]), path)


def _items(about: str, **given: Any) -> Any:
    return fields.List(
        fields.Nested(CollectionItem(unknown="raise")),
        validate=validate.Length(max=COLLECTION_MAX, error=f"At most {COLLECTION_MAX} items."),
        metadata={"description": about},
        **given,
    )


def _name(**given: Any) -> Text:
    about = {"description": "A short name.", "example": "Kidney, first release"}
    return Text(validate=_most(COLLECTION_NAME), metadata=about, **given)


def _description(**given: Any) -> Text:
    about = {"description": "Markdown.", "example": "What the *first* release is made of."}
    return Text(validate=_most(COLLECTION_DESCRIPTION), metadata=about, **given)


def _details(**given: Any) -> JsonObject:
    about = {"description": "Supplementary metadata.", "example": {"release": 1}}
    return JsonObject(validate=_small, metadata=about, **given)


def _small(value: Mapping[str, Any]) -> None:
    if len(json_codec.encode(value)) > COLLECTION_DETAILS_BYTES:
        raise ValidationError(f"At most {COLLECTION_DETAILS_BYTES} bytes of JSON.")


@dataclass(frozen=True)
class CollectionContent:
    """The body of put_collection."""

    name: str
    description: str
    details: Mapping[str, Any]
    contents: list[Link]


class CollectionBody(Body):
    """The content of a new collection version."""

    model = CollectionContent
    name = _name(required=True)
    description = _description(required=True)
    details = _details(required=True)
    contents = _items("Links; identical ones count once.", required=True)


@dataclass(frozen=True)
class CollectionChanges:
    """The body of patch_collection; None leaves a member as it is."""

    add_contents: list[Link]
    remove_contents: list[Link]
    name: str | None
    description: str | None
    details: Mapping[str, Any] | None


class PatchCollectionBody(Body):
    """What is to change; nothing at all still writes a version."""

    model = CollectionChanges
    add_contents = _items("Links to add, unless they are there.", load_default=list)
    remove_contents = _items(
        "Links to leave out; each must match in all of its members.", load_default=list
    )
    name = _name(load_default=None, allow_none=False)
    description = _description(load_default=None, allow_none=False)
    details = _details(load_default=None, allow_none=False)


class CollectionName(Shown):
    """A collection version's name."""

    uuid = Uuid(required=True)
    version = Version(required=True)


class CollectionList(Shown):
    """A page of the caller's list."""

    collections = fields.List(fields.Nested(CollectionName), required=True)


class ItemShown(Shown):
    """A link, as it was written."""

    type = fields.String(required=True)
    uuid = Uuid(required=True)
    version = Version(required=True)
    path = fields.String()


class CollectionAnswer(Shown):
    """The answer of get_collection."""

    uuid = Uuid(required=True)
    version = Version(required=True)
    name = fields.String(required=True)
    description = fields.String(required=True)
    details = JsonObject(required=True)
    contents = fields.List(fields.Nested(ItemShown), required=True)
    owner = fields.String(required=True, metadata={"example": "curator@example.org"})
