"""Bundles: what their operations take and answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marshmallow import Schema, ValidationError, fields, post_load, validate
from msgspec import DecodeError, Struct, to_builtins
from msgspec.json import Decoder

from api.schemas.common import Shown
from api.schemas.fields import (
    INT64,
    LONGEST,
    Count,
    Flag,
    Spelled,
    Text,
    Truth,
    Uuid,
    Version,
    Whole,
    at_version,
    in_replica,
    page_pointer,
    page_size,
    retry_token,
)
from api.schemas.loading import Body, Query
from api.schemas.replication import Standings, with_replication
from pipelines.depositing.manifests import EntryRow, NewEntry
from pipelines.depositing.patching import Removal
from pipelines.formats import fqids_of, uuid_of, version_of
from pipelines.limits import PAGE_BUNDLE, PAGE_BUNDLES_ALL, PATCH_MAX
from storage.errors import Invalid
from storage.model import FQID, Replica

MEMBERS = 4
"""Of each entry: uuid, version, name, indexed."""
REPORTED = 100


@dataclass(frozen=True)
class ReadBundle:
    """Which page of which version, and whether with URLs."""

    replica: Replica
    version: str | None
    directurls: bool
    presignedurls: bool
    per_page: int
    start_at: int
    replication: bool


class ReadBundleQuery(Query):
    """Parameters of get_bundle."""

    model = ReadBundle
    replica = in_replica()
    version = at_version(load_default=None)
    directurls = Flag(load_default=False, metadata={"description": "Add cloud URLs."})
    presignedurls = Flag(
        load_default=False, metadata={"description": "Add URLs that anybody may GET."}
    )
    token = retry_token()
    per_page = page_size(PAGE_BUNDLE)
    start_at = Count(load_default=0, metadata={"description": "Ordinal of the page's first file."})
    replication = with_replication()


@dataclass(frozen=True)
class ListBundles:
    """Which page of which part of the listing."""

    replica: Replica
    prefix: str
    per_page: int
    search_after: str | None


class ListBundlesQuery(Query):
    """Parameters of get_bundles_all."""

    model = ListBundles
    replica = in_replica()
    prefix = Text(
        load_default="",
        validate=Spelled(r"^[0-9A-Za-z-]*$", error="Only letters, digits and dashes are allowed."),
        metadata={"description": "Beginning of the bundles' uuids.", "example": "4c"},
    )
    token = retry_token()
    per_page = page_size(PAGE_BUNDLES_ALL)
    search_after = page_pointer()


@dataclass(frozen=True)
class WriteBundle:
    """Which version is written, and where it begins."""

    replica: Replica
    version: str


class WriteBundleQuery(Query):
    """Parameters of put_bundle."""

    model = WriteBundle
    version = at_version(required=True)
    replica = in_replica()


class NewFileEntry(Schema):
    """A stored file, under the name it has in the bundle."""

    uuid = Uuid(required=True)
    version = at_version(required=True)
    name = Text(required=True, metadata={"example": "sample.json", "maxLength": LONGEST})
    indexed = Truth(required=True, metadata={"description": "True marks a metadata file."})


class FileEntries(fields.List[Any]):
    """Entries of a manifest: shown as a list of `NewFileEntry`, and loaded by hand, because a
    schema's pass over each of 25,000 entries takes seconds."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if not isinstance(value, list):
            raise ValidationError("Must be a list.")
        entries, wrong = _all_right(value) or _entries(to_builtins(value))
        if wrong:
            raise ValidationError(wrong)
        return entries


def _all_right(given: Sequence[Any]) -> tuple[list[EntryRow], dict[int, Any]] | None:
    """All entries when they were decoded and nothing is wrong with any of them."""
    if not given or type(given[0]) is not DecodedEntry:
        return None
    names = [entry.name for entry in given]
    fqids = fqids_of([entry.uuid for entry in given], [entry.version for entry in given])
    if fqids is None or "\x00" in "".join(names):
        return None
    return [*zip(names, fqids, [entry.indexed for entry in given], strict=True)], {}


def _entries(given: Sequence[Any]) -> tuple[list[EntryRow], dict[int, dict[str, list[str]]]]:
    """All entries, and what is wrong by place and member; stops after the first so many."""
    entries: list[EntryRow] = []
    wrong: dict[int, dict[str, list[str]]] = {}
    for place, item in enumerate(given):
        try:
            entry = _entry(item)
        except (Invalid, LookupError, TypeError, AttributeError):
            entry = None
        if entry is not None:
            entries.append(entry)
            continue
        wrong[place] = _faults(item)
        if len(wrong) >= REPORTED:
            break
    return entries, wrong


def _entry(item: Any) -> NewEntry | None:
    """The entry if it is all right; why it is not is asked afterwards."""
    name, indexed = item["name"], item["indexed"]
    if len(item) != MEMBERS or type(name) is not str or type(indexed) is not bool:
        return None
    if "\x00" in name:
        return None
    return NewEntry(name, FQID(uuid_of(item["uuid"]), version_of(item["version"])), indexed)


def _faults(item: Any) -> dict[str, list[str]]:
    """What `NewFileEntry` says is wrong with one entry."""
    found = _ENTRY.validate(item) if isinstance(item, dict) else {}
    faults = {str(member): list(messages) for member, messages in found.items()}
    return faults or {"_schema": ["Must be an object with uuid, version, name and indexed."]}


_ENTRY = NewFileEntry(unknown="raise")


class DecodedEntry(Struct, gc=False, forbid_unknown_fields=True):
    """An entry whose members have the right types."""

    uuid: str
    version: str
    name: str
    indexed: bool


class DecodedBundle(Struct, gc=False, forbid_unknown_fields=True):
    """The body of put_bundle, whose members have the right types."""

    creator_uid: int
    files: list[DecodedEntry]


_DECODER = Decoder(DecodedBundle)


def decode_bundle(text: bytes) -> dict[str, Any] | None:
    """Decode the body of put_bundle; None when anything is wrong with it."""
    try:
        found = _DECODER.decode(text)
    except (DecodeError, UnicodeDecodeError):
        return None
    return {"creator_uid": found.creator_uid, "files": found.files}


@dataclass(frozen=True)
class BundleContent:
    """The body of put_bundle."""

    creator_uid: int
    files: list[EntryRow]


class BundleBody(Body):
    """The content of a new bundle version."""

    model = BundleContent
    creator_uid = Whole(required=True, validate=INT64, metadata={"example": 8008})
    files = FileEntries(
        fields.Nested(NewFileEntry),
        required=True,
        metadata={"description": "At least one stored file.", "minItems": 1},
    )


@dataclass(frozen=True)
class PatchBundle:
    """Which version is patched, where."""

    replica: Replica
    version: str


class PatchBundleQuery(Query):
    """Parameters of patch_bundle."""

    model = PatchBundle
    version = at_version(
        required=True, metadata={"description": "The version to patch; any live one may be."}
    )
    replica = in_replica()


KINDS = {"metadata": True, "data": False}
"""What the specification calls `type`, as `indexed`."""


class PatchEntry(Schema):
    """A stored file under the name that it gets, or has, in the bundle."""

    uuid = Uuid(required=True)
    version = at_version(required=True)
    name = Text(
        metadata={
            "description": "This or `path`.",
            "example": "sample.json",
            "maxLength": LONGEST,
        }
    )
    path = Text(metadata={"description": "Another word for `name`.", "maxLength": LONGEST})
    indexed = Truth(metadata={"description": "True marks a metadata file; false by default."})
    type = Text(
        validate=validate.OneOf(list(KINDS)),
        metadata={"description": "Another word for `indexed`: `metadata` or `data`."},
    )

    @post_load
    def build(self, data: dict[str, Any], **_: Any) -> Removal:
        """Both spellings as one; two that differ are refused."""
        name = _either(data, "name", "path", data.get("path"))
        kind = KINDS.get(data.get("type", ""))
        indexed = _either(data, "indexed", "type", kind)
        if name is None:
            raise ValidationError({"name": ["Missing data for required field."]})
        return Removal(name, FQID(data["uuid"], data["version"]), indexed)


def _either(data: Mapping[str, Any], member: str, other: str, said: Any) -> Any:
    if member in data and other in data and data[member] != said:
        raise ValidationError({other: [f"Says otherwise than {member}."]})
    return data.get(member, said)


@dataclass(frozen=True)
class PatchContent:
    """The body of patch_bundle."""

    add_files: list[Removal]
    remove_files: list[Removal]

    @property
    def added(self) -> list[NewEntry]:
        """What is added, as entries of a manifest."""
        return [NewEntry(one.name, one.file, bool(one.indexed)) for one in self.add_files]


def _entries_to_patch(about: str) -> Any:
    return fields.List(
        fields.Nested(PatchEntry(unknown="raise")),
        load_default=list,
        validate=validate.Length(max=PATCH_MAX, error=f"At most {PATCH_MAX} entries."),
        metadata={"description": about},
    )


class PatchBody(Body):
    """What is to change; nothing at all still writes a version."""

    model = PatchContent
    add_files = _entries_to_patch("Entries to add; their names must be free.")
    remove_files = _entries_to_patch("Entries to leave out where they match in all that is given.")


@dataclass(frozen=True)
class Reason:
    """Why something is deleted."""

    reason: str


class ReasonBody(Body):
    """The body of delete_bundle."""

    model = Reason
    reason = Text(
        required=True,
        validate=validate.Length(1, 4096, error="Must have 1 to 4096 characters."),
        metadata={"example": "consent withdrawn"},
    )


class FileEntry(Shown):
    """A file as a bundle lists it."""

    name = fields.String(required=True, metadata={"example": "sample.json"})
    uuid = Uuid(required=True)
    version = Version(required=True)
    content_type = fields.String(required=True, data_key="content-type")
    crc32c = fields.String(required=True)
    indexed = fields.Boolean(required=True)
    s3_etag = fields.String(required=True)
    sha1 = fields.String(required=True)
    sha256 = fields.String(required=True)
    size = fields.Integer(required=True)
    url = fields.String(metadata={"description": "With directurls or presignedurls."})


class Bundle(Shown):
    """A page of a bundle version."""

    uuid = Uuid(required=True)
    version = Version(required=True)
    creator_uid = fields.Integer(required=True)
    files = fields.List(fields.Nested(FileEntry), required=True)
    replication = fields.Nested(Standings)


class BundleAnswer(Shown):
    """The answer of get_bundle."""

    bundle = fields.Nested(Bundle, required=True)


class BundleName(Shown):
    """A bundle version's name."""

    uuid = Uuid(required=True)
    version = Version(required=True)


class BundleList(Shown):
    """A page of the listing."""

    bundles = fields.List(fields.Nested(BundleName), required=True)
    has_more = fields.Boolean(required=True)
    page_count = fields.Integer(required=True, metadata={"description": "Bundles on this page."})
    per_page = fields.Integer(required=True)


class Manifest(Shown):
    """What was written."""

    creator_uid = fields.Integer(required=True)
    files = fields.List(fields.Nested(FileEntry), required=True)


class BundleWritten(Shown):
    """The answer of put_bundle."""

    version = Version(required=True)
    manifest = fields.Nested(Manifest, required=True)
