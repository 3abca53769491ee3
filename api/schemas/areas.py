"""Schemas of upload areas and their files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from marshmallow import Schema, ValidationError, fields, validate

from api.schemas.fields import (
    FullMatch,
    IntegerField,
    JsonObject,
    ResponseSchema,
    TextField,
    UuidField,
    describe_field,
    one_of,
    page_size_field,
    page_token_field,
)
from pipelines.area_files import CHECKSUM_STATUSES, VALIDATION_STATUSES
from pipelines.areas import DELETED, DELETING, LOCKED, UNLOCKED
from pipelines.limits import PAGE_AREA
from storage.model import CHECKSUM_NAMES

AREA_STATES = (UNLOCKED, LOCKED, DELETING, DELETED)
AREA_HEADERS = {
    "X-STORE-STATE": f"{', '.join(AREA_STATES[:-2])} or {DELETING}.",
    "X-STORE-OWNER": "The owner; other characters than ASCII are percent-encoded UTF-8.",
}
"""Headers of the response of head_area."""

_CONTENT_TYPE = r"^[\x20-\x7e]{1,1024}$"
_CHECKSUM_FORMS = {
    "sha1": "[0-9a-fA-F]{40}",
    "sha256": "[0-9a-fA-F]{64}",
    "crc32c": "[0-9a-fA-F]{8}",
    "s3_etag": "[0-9a-fA-F]{32}(-[1-9][0-9]{0,4})?",
}


@dataclass(frozen=True)
class ListArea:
    """Parameters of get_area."""

    per_page: Annotated[int, page_size_field(PAGE_AREA)]
    start_at: Annotated[str | None, page_token_field()]


@dataclass(frozen=True)
class AreaFileName:
    """Parameters of operations on one file."""

    filename: Annotated[
        str,
        TextField(
            required=True, metadata=describe_field("The file's name.", example="sample.json")
        ),
    ]


@dataclass(frozen=True)
class AreaStateBody:
    """The body of patch_area."""

    state: Annotated[
        str,
        TextField(
            required=True,
            validate=one_of(UNLOCKED, LOCKED),
            metadata=describe_field(f"A {LOCKED} area accepts no files.", example=LOCKED),
        ),
    ]


class DeclaredChecksumsField(JsonObject):
    """Checksums by name, in lower case.

    It has no separate schema: a reference to one could not be optional.
    """

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        checksums: Mapping[str, Any] = super()._deserialize(value, attr, data, **kwargs)
        faults = {name: _checksum_fault(name, checksum) for name, checksum in checksums.items()}
        if errors := {name: [fault] for name, fault in faults.items() if fault}:
            raise ValidationError(errors)
        return {name: checksum.lower() for name, checksum in checksums.items()}


def _checksum_fault(name: str, checksum: Any) -> str | None:
    if name not in _CHECKSUM_FORMS:
        return "Unknown field."
    pattern = _CHECKSUM_FORMS[name]
    valid = isinstance(checksum, str) and re.fullmatch(pattern, checksum, re.ASCII)
    return None if valid else f"Must be a {name} checksum: {pattern}."


def declared_checksums_field() -> DeclaredChecksumsField:
    """Return an optional field of checksums."""
    about = f"Any of {', '.join(CHECKSUM_NAMES)}."
    example = {"crc32c": "4f1dab61"}
    return DeclaredChecksumsField(
        load_default=None, metadata=describe_field(about, example=example)
    )


def part_checksum_field() -> TextField:
    """Return the field of the CRC-32C of a part."""
    rule = FullMatch(f"^{_CHECKSUM_FORMS['crc32c']}$", error="Must be 8 hexadecimal digits.")
    about = describe_field("The CRC-32C of its bytes: the bucket takes no others.")
    return TextField(required=True, validate=rule, metadata={**about, "example": "4f1dab61"})


def content_type_field() -> TextField:
    """Return an optional field of a content type."""
    rule = FullMatch(_CONTENT_TYPE, error="Must have 1 to 1024 printable ASCII characters.")
    return TextField(load_default=None, validate=rule)


def file_size_field(**options: Any) -> IntegerField:
    """Return the field of a file's size in bytes."""
    limits = validate.Range(min=0, max=2**63 - 1, error="Must be a size in bytes, at least 0.")
    return IntegerField(validate=limits, **options)


@dataclass(frozen=True)
class DeclaredFileBody:
    """The body of post_area_file: the properties that the file must have."""

    content_type: Annotated[str | None, content_type_field()]
    size: Annotated[int | None, file_size_field(load_default=None)]
    checksums: Annotated[Mapping[str, str] | None, declared_checksums_field()]

    @property
    def properties(self) -> Mapping[str, Any]:
        """The properties that were declared."""
        checksums = self.checksums or None
        values = {"content_type": self.content_type, "size": self.size, "checksums": checksums}
        return {name: value for name, value in values.items() if value is not None}


class AreaCreated(ResponseSchema):
    """The response of post_area."""

    uri = fields.String(required=True)


class AreaChecksums(ResponseSchema):
    """Computed checksums of a file."""

    sha1 = fields.String(required=True)
    sha256 = fields.String(required=True)
    crc32c = fields.String(required=True)
    s3_etag = fields.String(required=True)


class AreaFileAnswer(ResponseSchema):
    """The response of put_area_file; `url` can be used as a `source_url` at once."""

    url = fields.String(required=True)
    size = fields.Integer(required=True)
    checksums = fields.Nested(AreaChecksums, required=True)


class StoredAreaFile(AreaFileAnswer):
    """One file of the response of put_area_files."""

    name = fields.String(required=True, metadata={"example": "reads/sample_1.fastq"})


class AreaFilesAnswer(ResponseSchema):
    """The response of put_area_files, in the order of the request."""

    files = fields.List(fields.Nested(StoredAreaFile), required=True)


def _state_field(states: tuple[str, ...], example: str) -> fields.String:
    return fields.String(
        required=True, validate=validate.OneOf(states), metadata={"example": example}
    )


def _status_field() -> fields.String:
    return _state_field(CHECKSUM_STATUSES, "CHECKSUMMED")


def _validation_field() -> fields.String:
    return _state_field(VALIDATION_STATUSES, "VALIDATED")


def _cause_field() -> fields.String:
    about = {"description": "Why it is FAILED or INVALID."}
    return fields.String(required=True, allow_none=True, metadata={**about, "example": None})


def _checksums_field() -> fields.Dict:
    """Return a nullable field; a reference to a schema could not be nullable."""
    about = {"description": f"{', '.join(CHECKSUM_NAMES)}; null until they are computed."}
    return fields.Dict(
        keys=fields.String(), values=fields.String(), required=True, allow_none=True, metadata=about
    )


class AreaFileEntry(ResponseSchema):
    """A file of an area; once it has checksums, `url` can be used as a `source_url`."""

    name = fields.String(required=True)
    url = fields.String(required=True)
    size = fields.Integer(required=True)
    content_type = fields.String(
        required=True, allow_none=True, metadata={"example": "application/json"}
    )
    checksums = _checksums_field()
    status = _status_field()
    validation = _validation_field()
    cause = _cause_field()


class AreaListing(ResponseSchema):
    """The response of get_area."""

    uuid = UuidField(required=True)
    uri = fields.String(required=True)
    state = _state_field(AREA_STATES[:-1], UNLOCKED)
    files = fields.List(fields.Nested(AreaFileEntry), required=True)


class AreaStateAnswer(ResponseSchema):
    """The response of patch_area and delete_area."""

    state = _state_field(AREA_STATES, UNLOCKED)


class FileStatus(ResponseSchema):
    """The response of post_area_file."""

    status = _state_field(CHECKSUM_STATUSES, "SCHEDULED")


class ChecksumStatus(ResponseSchema):
    """The response of get_area_checksum."""

    status = _status_field()
    checksums = _checksums_field()
    cause = _cause_field()


class ValidationStatus(ResponseSchema):
    """The response of get_area_validate."""

    status = _validation_field()
    cause = _cause_field()


def _count_field(example: int) -> fields.Integer:
    return fields.Integer(required=True, metadata={"example": example})


def _counts_schema(name: str, states: tuple[str, ...], example: str) -> type[Schema]:
    """Return the schema of the number of files by state; the example has one file."""
    counts = {state: _count_field(int(state == example)) for state in states}
    return ResponseSchema.from_dict(dict(counts), name=name)


class AreaChecksumCounts(ResponseSchema):
    """The response of get_area_checksums."""

    total = _count_field(1)
    states = fields.Nested(
        _counts_schema("ChecksumCounts", CHECKSUM_STATUSES, "CHECKSUMMED"), required=True
    )


class AreaValidationCounts(ResponseSchema):
    """The response of get_area_validations."""

    total = _count_field(1)
    states = fields.Nested(
        _counts_schema("ValidationCounts", VALIDATION_STATUSES, "VALIDATED"), required=True
    )
