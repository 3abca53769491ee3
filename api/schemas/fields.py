"""Marshmallow fields with the API's validation rules, and schemas that operations share."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_type_hints

from marshmallow import EXCLUDE, Schema, ValidationError, fields, post_load, validate

from pipelines.formats import parse_uuid, parse_version
from storage.errors import Invalid
from storage.model import REPLICAS, Replica, normalize_identity

INT64 = validate.Range(min=-(2**63), max=2**63 - 1, error="Must fit into 64 bits.")
_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def describe_field(text: str, **more: Any) -> dict[str, Any]:
    """Return the metadata of a field that OpenAPI describes; `more` may be an example."""
    return {"description": text, **more}


MAX_TEXT = 4096
"""Default maximum length of a text in characters."""


def max_length(characters: int) -> validate.Length:
    """Limit a text to `characters`, and allow an empty one."""
    return validate.Length(max=characters, error=f"Must have at most {characters} characters.")


def text_length(characters: int) -> validate.Length:
    """Require a text of 1 to `characters` characters."""
    return validate.Length(1, characters, error=f"Must have 1 to {characters} characters.")


def one_of(*values: str) -> validate.OneOf:
    """Require one of these values."""
    return validate.OneOf(values, error=f"Must be one of: {', '.join(values)}.")


def in_range(least: int, most: int) -> validate.Range:
    """Require a number from `least` to `most`."""
    return validate.Range(min=least, max=most, error=f"Must be from {least} to {most}.")


class FullMatch(validate.Regexp):
    """Require that the whole text matches; the pattern is also valid in OpenAPI."""

    def __call__(self, value: Any) -> Any:
        if not self.regex.fullmatch(value):
            raise ValidationError(self.error or "Must have the documented format.")
        return value


class TextField(fields.String):
    """A string without NUL and lone surrogates, of at most MAX_TEXT characters.

    Another `validate.Length` replaces that limit. A `maxLength` in the metadata means that business
    logic checks the limit, with its own error code.
    """

    bounded = False
    """Whether parsing limits the length."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        has_limit = any(isinstance(v, validate.Length | validate.OneOf) for v in self.validators)
        if not (has_limit or self.bounded or "maxLength" in self.metadata):
            self.validators = [*self.validators, max_length(MAX_TEXT)]

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        text: str = super()._deserialize(value, attr, data, **kwargs)
        if not isinstance(value, str) or "\x00" in text:
            raise ValidationError("Not a valid string.")
        return text


def optional_text(most: int, default: str | None = "") -> TextField:
    """Return a text field of at most `most` characters that may be absent."""
    return TextField(load_default=default, validate=max_length(most))


class EmailField(TextField):
    """An e-mail address, converted to lower case."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        return normalize_identity(super()._deserialize(value, attr, data, **kwargs))


class UuidField(TextField):
    """A UUID (RFC 4122), converted to lower case."""

    bounded = True

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        text = super()._deserialize(value, attr, data, **kwargs)
        try:
            return parse_uuid(text)
        except Invalid as error:
            raise ValidationError("Not a valid UUID.") from error


class CodedMessage(str):
    """An error message with its own error code."""

    code = "illegal_version"


class VersionField(TextField):
    """A version: <YYYY>-<MM>-<DD>T<HHMMSS>.<6 digits>Z."""

    bounded = True

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        text = super()._deserialize(value, attr, data, **kwargs)
        try:
            return parse_version(text)
        except Invalid as error:
            raise ValidationError(CodedMessage(error.detail)) from error


class QueryFlag(fields.Boolean):
    """A boolean query parameter: `true`, `false`, `1` or `0`, in any case."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> bool:
        flag = _FLAGS.get(value.lower()) if isinstance(value, str) else None
        if flag is None:
            raise ValidationError("Must be true, false, 1 or 0.")
        return flag


def query_flag(about: str) -> QueryFlag:
    """Return a boolean query parameter that is false by default."""
    return QueryFlag(load_default=False, metadata=describe_field(about))


class BooleanField(fields.Boolean):
    """A boolean of a JSON body, without conversions."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> bool:
        if not isinstance(value, bool):
            raise ValidationError("Must be true or false.")
        return value


class QueryInteger(fields.Integer):
    """An unsigned integer query parameter of at most 18 digits."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> int:
        if not isinstance(value, str) or not _DIGITS.fullmatch(value):
            raise ValidationError("Must be a whole number.")
        return int(value)


class IntegerField(fields.Integer):
    """An integer of a JSON body, without conversions."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValidationError("Must be an integer.")
        return value


class JsonObject(fields.Dict):
    """Any JSON object."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValidationError("Must be an object.")
        return value


VERSION_DESCRIPTION = "A version: <YYYY>-<MM>-<DD>T<HHMMSS>.<6 digits>Z."
REPLICA_DESCRIPTION = "The replica to use."


def replica_field(**given: Any) -> TextField:
    """Return a replica field, required by default."""
    metadata = {"description": REPLICA_DESCRIPTION, "example": "aws"} | given.get("metadata", {})
    defaults: dict[str, Any] = {"required": True, "validate": one_of(*REPLICAS)}
    return TextField(**{**defaults, **given, "metadata": metadata})


def version_field(**given: Any) -> VersionField:
    """Return a version field, optional by default."""
    about = {
        "description": VERSION_DESCRIPTION,
        "example": "2026-01-31T235959.000000Z",
    }
    return VersionField(**{**given, "metadata": about | given.get("metadata", {})})


def page_size_field(default: int, least: int = 1, most: int = 500) -> QueryInteger:
    """Return the parameter for the number of items per page."""
    about = {"description": "Items per page."}
    return QueryInteger(load_default=default, validate=in_range(least, most), metadata=about)


def retry_token_field() -> TextField:
    """Return the unused `token` parameter, which the specification requires for retries."""
    return TextField(load_default=None, metadata=describe_field("Not set by end users."))


def page_token_field() -> TextField:
    """Return the page token parameter, whose values come from a `Link` header."""
    about = describe_field("The token of the next page, from a Link header.")
    return TextField(load_default=None, metadata=about)


class RequestSchema(Schema):
    """A schema whose `load` returns the `model`."""

    model: ClassVar[type[Any]]

    @post_load
    def build(self, data: dict[str, Any], **_: Any) -> Any:
        """Build the model, which may check its members together and raise ValidationError."""
        return self.model(**data)


_SCHEMAS: dict[type[object], type[Schema]] = {}


def request_schema(model: type[object]) -> type[Schema]:
    """Return the schema of a dataclass, whose annotations hold a marshmallow field each."""
    if model not in _SCHEMAS:
        hints = get_type_hints(model, include_extras=True)
        members = {name: hint.__metadata__[0] for name, hint in hints.items()}
        _SCHEMAS[model] = type(model.__name__, (RequestSchema,), {**members, "model": model})
    return _SCHEMAS[model]


def lenient_schema(model: type[object]) -> Schema:
    """Return a schema of a dataclass that ignores what the dataclass lacks."""
    return request_schema(model)(unknown=EXCLUDE)


class ResponseSchema(Schema):
    """A response schema: clients ignore unknown members."""

    class Meta:
        unknown = EXCLUDE


class DrsError(ResponseSchema):
    """An error as GA4GH DRS has it."""

    msg = fields.String(required=True, metadata={"example": "There is no such object."})
    status_code = fields.Integer(required=True, metadata={"example": 404})


@dataclass(frozen=True)
class ReplicaParameters:
    """Parameters of operations that take only a replica."""

    replica: Annotated[Replica, replica_field()]


@dataclass(frozen=True)
class VersionParameters:
    """Parameters of reads, by default of the latest version."""

    replica: Annotated[Replica, replica_field()]
    version: Annotated[str | None, version_field(load_default=None)]


@dataclass(frozen=True)
class WriteParameters:
    """Parameters of writes."""

    version: Annotated[str, version_field(required=True)]
    replica: Annotated[Replica, replica_field()]


@dataclass(frozen=True)
class PatchParameters(WriteParameters):
    """Parameters of patches."""

    version: Annotated[
        str,
        version_field(
            required=True, metadata=describe_field("The version to patch; any live version.")
        ),
    ]


@dataclass(frozen=True)
class PageParameters:
    """Parameters of a list in pages."""

    search_after: Annotated[str | None, page_token_field()]


@dataclass(frozen=True)
class NoParameters:
    """The query of an operation without parameters."""


class ExceededQuota(ResponseSchema):
    """The quota that has no room for a request."""

    kind = fields.String(
        required=True, metadata={"description": "user or group.", "example": "group"}
    )
    name = fields.String(required=True, metadata={"example": "lab"})
    unit = fields.String(
        required=True, metadata={"description": "bytes or files.", "example": "bytes"}
    )
    limit = fields.Integer(required=True, metadata={"example": 1000})
    used = fields.Integer(required=True, metadata={"example": 900})
    left = fields.Integer(required=True, metadata={"example": 100})
    requested = fields.Integer(
        required=True, metadata={"description": "What the request adds.", "example": 250}
    )


class Problem(ResponseSchema):
    """An error (RFC 9457)."""

    type = fields.String(required=True, metadata={"example": "about:blank"})
    title = fields.String(required=True, metadata={"example": "Not Found"})
    status = fields.Integer(required=True, metadata={"example": 404})
    code = fields.String(required=True, metadata={"example": "not_found"})
    detail = fields.String(required=True, metadata={"example": "There is no such bundle."})
    request_id = fields.String(required=True)
    errors = JsonObject(metadata=describe_field("Messages by JSON pointer or parameter."))
    quota = fields.Nested(ExceededQuota)


class Empty(ResponseSchema):
    """An empty object."""
