"""Upload areas: what their operations take and answer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marshmallow import ValidationError, fields, validate

from api.schemas.common import Shown
from api.schemas.fields import JsonObject, Spelled, Text, Uuid, Whole, page_pointer, page_size
from api.schemas.loading import Body, Query
from pipelines.depositing.area_files import STATUSES, VALIDATIONS
from pipelines.depositing.areas import GOING, GONE, LOCKED, OPEN
from pipelines.limits import PAGE_AREA
from storage.model import CHECKSUMS

STATES = (OPEN, LOCKED, GOING, GONE)
HEADERS = {
    "X-STORE-STATE": f"{', '.join(STATES[:-2])} or {GOING}.",
    "X-STORE-OWNER": "Whose it is; what is not ASCII in it is percent-encoded UTF-8.",
}
"""What the answer of head_area carries."""

_TYPE = r"^[\x20-\x7e]{1,1024}$"
_FORMS = {
    "sha1": "[0-9a-fA-F]{40}",
    "sha256": "[0-9a-fA-F]{64}",
    "crc32c": "[0-9a-fA-F]{8}",
    "s3_etag": "[0-9a-fA-F]{32}(-[1-9][0-9]{0,4})?",
}


@dataclass(frozen=True)
class ListArea:
    """Which page of an area's files."""

    per_page: int
    start_at: str | None


class ListAreaQuery(Query):
    """Parameters of get_area."""

    model = ListArea
    per_page = page_size(PAGE_AREA)
    start_at = page_pointer()


@dataclass(frozen=True)
class NamedFile:
    """Which file of an area."""

    filename: str


class NamedFileQuery(Query):
    """Parameters of what asks about one file."""

    model = NamedFile
    filename = Text(required=True, metadata={"description": "Its name.", "example": "sample.json"})


@dataclass(frozen=True)
class AreaState:
    """What an area is to be."""

    state: str


class AreaStateBody(Body):
    """The body of patch_area."""

    model = AreaState
    state = Text(
        required=True,
        validate=validate.OneOf((OPEN, LOCKED), error=f"Must be one of: {OPEN}, {LOCKED}."),
        metadata={"description": f"A {LOCKED} area takes no files.", "example": LOCKED},
    )


class SaidSums(JsonObject):
    """Checksums that an uploader knows, as many as they are, by name; in small letters from here
    on. No schema of its own: beside a reference nothing could say that it may be left out."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        given: Mapping[str, Any] = super()._deserialize(value, attr, data, **kwargs)
        wrong = {name: _fault(name, said) for name, said in given.items()}
        if faults := {name: [fault] for name, fault in wrong.items() if fault}:
            raise ValidationError(faults)
        return {name: said.lower() for name, said in given.items()}


def _fault(name: str, said: Any) -> str | None:
    if name not in _FORMS:
        return "Unknown field."
    good = isinstance(said, str) and re.fullmatch(_FORMS[name], said, re.ASCII)
    return None if good else f"Not a {name}."


def said_sums() -> SaidSums:
    """Checksums that may be left out."""
    about = f"As many as are known of {', '.join(CHECKSUMS)}."
    example = {"crc32c": "4f1dab61"}
    return SaidSums(load_default=None, metadata={"description": about, "example": example})


def said_type() -> Text:
    """A content type that may be left out."""
    spelled = Spelled(_TYPE, error="Not printable ASCII of at most 1024 characters.")
    return Text(load_default=None, validate=spelled)


@dataclass(frozen=True)
class SaidFile:
    """What an uploader says of a file that came past the store."""

    content_type: str | None
    size: int | None
    checksums: Mapping[str, str] | None

    @property
    def said(self) -> Mapping[str, Any]:
        """Only what is said."""
        sums = self.checksums or None
        every = {"content_type": self.content_type, "size": self.size, "checksums": sums}
        return {name: value for name, value in every.items() if value is not None}


class SaidFileBody(Body):
    """The body of post_area_file: what the file is held to, as far as it is said."""

    model = SaidFile
    content_type = said_type()
    size = Whole(
        load_default=None, validate=validate.Range(min=0, max=2**63 - 1, error="Not a size.")
    )
    checksums = said_sums()


class AreaCreated(Shown):
    """The answer of post_area."""

    uri = fields.String(required=True)


class AreaChecksums(Shown):
    """What the bytes came to."""

    sha1 = fields.String(required=True)
    sha256 = fields.String(required=True)
    crc32c = fields.String(required=True)
    s3_etag = fields.String(required=True)


class AreaFile(Shown):
    """The answer of put_area_file; `url` may be a `source_url` at once."""

    url = fields.String(required=True)
    size = fields.Integer(required=True)
    checksums = fields.Nested(AreaChecksums, required=True)


def _of(states: tuple[str, ...], example: str) -> fields.String:
    one_of = validate.OneOf(states)
    return fields.String(required=True, validate=one_of, metadata={"example": example})


def _status() -> fields.String:
    return _of(STATUSES, "CHECKSUMMED")


def _validation() -> fields.String:
    return _of(VALIDATIONS, "VALIDATED")


def _cause() -> fields.String:
    about = {"description": "Why it FAILED, or is INVALID."}
    return fields.String(required=True, allow_none=True, metadata={**about, "example": None})


def _sums() -> fields.Dict:
    """No reference to a schema: beside one nothing could say that it may be null."""
    about = {"description": f"{', '.join(CHECKSUMS)}; null until they are known."}
    return fields.Dict(
        keys=fields.String(),
        values=fields.String(),
        required=True,
        allow_none=True,
        metadata=about,
    )


class ListedFile(Shown):
    """A file of an area; once its checksums are there, `url` may be a `source_url`."""

    name = fields.String(required=True)
    url = fields.String(required=True)
    size = fields.Integer(required=True)
    content_type = fields.String(
        required=True, allow_none=True, metadata={"example": "application/json"}
    )
    checksums = _sums()
    status = _status()
    validation = _validation()
    cause = _cause()


class AreaListing(Shown):
    """The answer of get_area."""

    uuid = Uuid(required=True)
    uri = fields.String(required=True)
    state = _of(STATES[:-1], OPEN)
    files = fields.List(fields.Nested(ListedFile), required=True)


class AreaStateAnswer(Shown):
    """The answer of patch_area and delete_area."""

    state = _of(STATES, OPEN)


class FileStatus(Shown):
    """The answer of post_area_file."""

    status = _of(STATUSES, "SCHEDULED")


class ChecksumStatus(Shown):
    """The answer of get_area_checksum."""

    status = _status()
    checksums = _sums()
    cause = _cause()


class ValidationStatus(Shown):
    """The answer of get_area_validate."""

    status = _validation()
    cause = _cause()


class ChecksumCounts(Shown):
    """Files in each state of their checksums."""

    UNSCHEDULED = fields.Integer(required=True, metadata={"example": 0})
    SCHEDULED = fields.Integer(required=True, metadata={"example": 0})
    CHECKSUMMING = fields.Integer(required=True, metadata={"example": 0})
    CHECKSUMMED = fields.Integer(required=True, metadata={"example": 1})
    FAILED = fields.Integer(required=True, metadata={"example": 0})


class ValidationCounts(Shown):
    """Files in each state of their validation."""

    UNSCHEDULED = fields.Integer(required=True, metadata={"example": 0})
    VALIDATING = fields.Integer(required=True, metadata={"example": 0})
    VALIDATED = fields.Integer(required=True, metadata={"example": 1})
    INVALID = fields.Integer(required=True, metadata={"example": 0})


class AreaChecksumCounts(Shown):
    """The answer of get_area_checksums."""

    total = fields.Integer(required=True, metadata={"example": 1})
    states = fields.Nested(ChecksumCounts, required=True)


class AreaValidationCounts(Shown):
    """The answer of get_area_validations."""

    total = fields.Integer(required=True, metadata={"example": 1})
    states = fields.Nested(ValidationCounts, required=True)
