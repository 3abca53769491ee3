"""Schemas of bundle operations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from marshmallow import Schema, ValidationError, fields, post_load, validate
from msgspec import DecodeError, Struct, to_builtins
from msgspec.json import Decoder

from api.replication import ReplicaStatesAnswer, replication_field
from api.schemas.fields import (
    INT64,
    MAX_TEXT,
    BooleanField,
    FullMatch,
    IntegerField,
    QueryInteger,
    ResponseSchema,
    TextField,
    UuidField,
    VersionField,
    describe_field,
    page_size_field,
    page_token_field,
    query_flag,
    replica_field,
    retry_token_field,
    text_length,
    version_field,
)
from pipelines.bundles import EntryRemoval, EntryRow, NewEntry
from pipelines.formats import parse_fqids, parse_uuid, parse_version
from pipelines.limits import PAGE_BUNDLE, PAGE_BUNDLES_ALL, PATCH_MAX
from storage.errors import Invalid
from storage.model import FQID, Replica

ENTRY_MEMBERS = 4
"""Members of an entry: uuid, version, name, indexed."""
MAX_REPORTED = 100


@dataclass(frozen=True)
class ReadBundle:
    """Parameters of get_bundle."""

    replica: Annotated[Replica, replica_field()]
    version: Annotated[str | None, version_field(load_default=None)]
    directurls: Annotated[bool, query_flag("Add cloud URLs.")]
    presignedurls: Annotated[bool, query_flag("Add presigned URLs, which need no token.")]
    token: Annotated[str | None, retry_token_field()]
    per_page: Annotated[int, page_size_field(PAGE_BUNDLE)]
    start_at: Annotated[
        int,
        QueryInteger(load_default=0, metadata=describe_field("Index of the page's first file.")),
    ]
    replication: Annotated[bool, replication_field()]


@dataclass(frozen=True)
class ListBundles:
    """Parameters of get_bundles_all."""

    replica: Annotated[Replica, replica_field()]
    prefix: Annotated[
        str,
        TextField(
            load_default="",
            validate=FullMatch(
                r"^[0-9A-Za-z-]*$", error="Must have only letters, digits and dashes."
            ),
            metadata=describe_field("Prefix of the bundles' uuids.", example="4c"),
        ),
    ]
    token: Annotated[str | None, retry_token_field()]
    per_page: Annotated[int, page_size_field(PAGE_BUNDLES_ALL)]
    search_after: Annotated[str | None, page_token_field()]


class NewFileEntry(Schema):
    """A stored file with its name in the bundle."""

    uuid = UuidField(required=True)
    version = version_field(required=True)
    name = TextField(required=True, metadata={"example": "sample.json", "maxLength": MAX_TEXT})
    indexed = BooleanField(required=True, metadata=describe_field("True marks a metadata file."))


class FileEntries(fields.List[Any]):
    """Entries of a manifest, documented as `NewFileEntry` but loaded without marshmallow.

    Marshmallow takes seconds for 25,000 entries.
    """

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if not isinstance(value, list):
            raise ValidationError("Must be a list.")
        entries, faults = _convert_decoded(value) or _load_entries(to_builtins(value))
        if faults:
            raise ValidationError(faults)
        return entries


def _convert_decoded(items: Sequence[Any]) -> tuple[list[EntryRow], dict[int, Any]] | None:
    """Convert typed entries; None if they are not typed or any of them is invalid."""
    if not items or type(items[0]) is not DecodedEntry:
        return None
    names = [entry.name for entry in items]
    fqids = parse_fqids([entry.uuid for entry in items], [entry.version for entry in items])
    if fqids is None or "\x00" in "".join(names):
        return None
    return [*zip(names, fqids, [entry.indexed for entry in items], strict=True)], {}


def _load_entries(items: Sequence[Any]) -> tuple[list[EntryRow], dict[int, dict[str, list[str]]]]:
    """Return the valid entries, and errors by index and member; stops after MAX_REPORTED errors."""
    entries: list[EntryRow] = []
    faults: dict[int, dict[str, list[str]]] = {}
    for index, item in enumerate(items):
        try:
            entry = _load_entry(item)
        except (Invalid, LookupError, TypeError, AttributeError):
            entry = None
        if entry is not None:
            entries.append(entry)
            continue
        faults[index] = _describe_faults(item)
        if len(faults) >= MAX_REPORTED:
            break
    return entries, faults


def _load_entry(item: Any) -> NewEntry | None:
    """Return a valid entry; otherwise None, or an exception."""
    name, indexed = item["name"], item["indexed"]
    if len(item) != ENTRY_MEMBERS or type(name) is not str or type(indexed) is not bool:
        return None
    if "\x00" in name:
        return None
    return NewEntry(name, FQID(parse_uuid(item["uuid"]), parse_version(item["version"])), indexed)


def _describe_faults(item: Any) -> dict[str, list[str]]:
    """Return the errors of `NewFileEntry` for an entry."""
    errors = _ENTRY_SCHEMA.validate(item) if isinstance(item, dict) else {}
    faults = {str(member): list(messages) for member, messages in errors.items()}
    return faults or {"_schema": ["Must be an object with uuid, version, name and indexed."]}


_ENTRY_SCHEMA = NewFileEntry(unknown="raise")


class DecodedEntry(Struct, gc=False, forbid_unknown_fields=True):
    """An entry with members of the right types."""

    uuid: str
    version: str
    name: str
    indexed: bool


class DecodedBundle(Struct, gc=False, forbid_unknown_fields=True):
    """The body of put_bundle with members of the right types."""

    creator_uid: int
    files: list[DecodedEntry]


_DECODER = Decoder(DecodedBundle)


def decode_bundle(text: bytes) -> dict[str, Any] | None:
    """Decode the body of put_bundle; None if it is invalid."""
    try:
        body = _DECODER.decode(text)
    except (DecodeError, UnicodeDecodeError):
        return None
    return {"creator_uid": body.creator_uid, "files": body.files}


@dataclass(frozen=True)
class BundleBody:
    """The content of a new bundle version."""

    creator_uid: Annotated[
        int, IntegerField(required=True, validate=INT64, metadata={"example": 8008})
    ]
    files: Annotated[
        list[EntryRow],
        FileEntries(
            fields.Nested(NewFileEntry),
            required=True,
            metadata=describe_field("At least one stored file.", minItems=1),
        ),
    ]


INDEXED_BY_TYPE = {"metadata": True, "data": False}
"""The specification's `type`, as `indexed`."""


class PatchEntry(Schema):
    """A stored file to add or remove, with its name in the bundle."""

    uuid = UuidField(required=True)
    version = version_field(required=True)
    name = TextField(
        metadata=describe_field(
            "`name` or `path` is required.", example="sample.json", maxLength=MAX_TEXT
        )
    )
    path = TextField(metadata=describe_field("Alias of `name`.", maxLength=MAX_TEXT))
    indexed = BooleanField(metadata=describe_field("True marks a metadata file; false by default."))
    type = TextField(
        validate=validate.OneOf(list(INDEXED_BY_TYPE)),
        metadata=describe_field("Alias of `indexed`: `metadata` or `data`."),
    )

    @post_load
    def build(self, data: dict[str, Any], **_: Any) -> EntryRemoval:
        """Merge the aliases; refuse them if they differ."""
        name = _merge_spellings(data, "name", "path", data.get("path"))
        kind = INDEXED_BY_TYPE.get(data.get("type", ""))
        indexed = _merge_spellings(data, "indexed", "type", kind)
        if name is None:
            raise ValidationError({"name": ["Missing data for required field."]})
        return EntryRemoval(name, FQID(data["uuid"], data["version"]), indexed)


def _merge_spellings(data: Mapping[str, Any], member: str, alias: str, value: Any) -> Any:
    if member in data and alias in data and data[member] != value:
        raise ValidationError({alias: [f"Must not differ from {member}."]})
    return data.get(member, value)


def _patch_entries_field(about: str) -> Any:
    return fields.List(
        fields.Nested(PatchEntry(unknown="raise")),
        load_default=list,
        validate=validate.Length(max=PATCH_MAX, error=f"Must have at most {PATCH_MAX} entries."),
        metadata=describe_field(about),
    )


@dataclass(frozen=True)
class PatchBody:
    """Changes to a bundle; an empty patch still writes a version."""

    add_files: Annotated[
        list[EntryRemoval], _patch_entries_field("Entries to add; their names must be free.")
    ]
    remove_files: Annotated[
        list[EntryRemoval],
        _patch_entries_field("Entries to remove; each must match in all members that it has."),
    ]

    @property
    def new_entries(self) -> list[NewEntry]:
        """The files to add, as entries of a manifest."""
        return [NewEntry(file.name, file.file, bool(file.indexed)) for file in self.add_files]


@dataclass(frozen=True)
class ReasonBody:
    """The body of delete_bundle."""

    reason: Annotated[
        str,
        TextField(
            required=True, validate=text_length(MAX_TEXT), metadata={"example": "consent withdrawn"}
        ),
    ]


class FileEntry(ResponseSchema):
    """A file in a bundle."""

    name = fields.String(required=True, metadata={"example": "sample.json"})
    uuid = UuidField(required=True)
    version = VersionField(required=True)
    content_type = fields.String(required=True, data_key="content-type")
    crc32c = fields.String(required=True)
    indexed = fields.Boolean(required=True)
    s3_etag = fields.String(required=True)
    sha1 = fields.String(required=True)
    sha256 = fields.String(required=True)
    size = fields.Integer(required=True)
    url = fields.String(metadata=describe_field("Only with directurls or presignedurls."))


class Bundle(ResponseSchema):
    """A page of a bundle version."""

    uuid = UuidField(required=True)
    version = VersionField(required=True)
    creator_uid = fields.Integer(required=True)
    files = fields.List(fields.Nested(FileEntry), required=True)
    replication = fields.Nested(ReplicaStatesAnswer)


class BundleAnswer(ResponseSchema):
    """The response of get_bundle."""

    bundle = fields.Nested(Bundle, required=True)


class BundleName(ResponseSchema):
    """A bundle version's name."""

    uuid = UuidField(required=True)
    version = VersionField(required=True)


class BundleList(ResponseSchema):
    """A page of the listing."""

    bundles = fields.List(fields.Nested(BundleName), required=True)
    has_more = fields.Boolean(required=True)
    page_count = fields.Integer(required=True, metadata=describe_field("Bundles on this page."))
    per_page = fields.Integer(required=True)


class Manifest(ResponseSchema):
    """The written manifest."""

    creator_uid = fields.Integer(required=True)
    files = fields.List(fields.Nested(FileEntry), required=True)


class BundleWritten(ResponseSchema):
    """The response of put_bundle."""

    version = VersionField(required=True)
    manifest = fields.Nested(Manifest, required=True)
