"""Fields with the interface's own spelling rules, each with the code that its refusal carries."""

import re
from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, fields, validate

from pipelines.formats import uuid_of, version_of
from storage.errors import Invalid
from storage.model import REPLICAS, one_spelling

INT64 = validate.Range(min=-(2**63), max=2**63 - 1, error="Must fit into 64 bits.")
_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


LONGEST = 4096
"""Characters of a text whose field says nothing else."""


def at_most(characters: int) -> validate.Length:
    """A text is not longer than so many characters."""
    return validate.Length(max=characters, error=f"Must have at most {characters} characters.")


class Spelled(validate.Regexp):
    """The whole text must match; in a form that OpenAPI's dialect of patterns understands."""

    def __call__(self, value: Any) -> Any:
        if not self.regex.fullmatch(value):
            raise ValidationError(self.error or "Not in the expected form.")
        return value


class Text(fields.String):
    """A string that can be stored: no NUL, no lone surrogates, at most LONGEST characters.

    Another `validate.Length` takes the place of that limit. A `maxLength` in the metadata says that
    the limit is checked elsewhere, by a rule with its own error code.
    """

    bounded = False
    """Whether reading the value bounds it."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        own = any(isinstance(one, validate.Length | validate.OneOf) for one in self.validators)
        if not (own or self.bounded or "maxLength" in self.metadata):
            self.validators = [*self.validators, at_most(LONGEST)]

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        text: str = super()._deserialize(value, attr, data, **kwargs)
        if not isinstance(value, str) or "\x00" in text:
            raise ValidationError("Not a valid string.")
        return text


class Identity(Text):
    """An e-mail address in any case, in small letters from here on; other text as it is."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        return one_spelling(super()._deserialize(value, attr, data, **kwargs))


class Uuid(Text):
    """An RFC 4122 string in any case, lower case from here on."""

    bounded = True

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        text = super()._deserialize(value, attr, data, **kwargs)
        try:
            return uuid_of(text)
        except Invalid as error:
            raise ValidationError("Not a valid UUID.") from error


class Complaint(str):
    """A message that brings its own code."""

    code = "illegal_version"


class Version(Text):
    """A STORE_VERSION."""

    bounded = True

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        text = super()._deserialize(value, attr, data, **kwargs)
        try:
            return version_of(text)
        except Invalid as error:
            raise ValidationError(Complaint(error.detail)) from error


class Flag(fields.Boolean):
    """A boolean of the query: `true false 1 0` in any case."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> bool:
        flag = _FLAGS.get(value.lower()) if isinstance(value, str) else None
        if flag is None:
            raise ValidationError("Must be true, false, 1 or 0.")
        return flag


class Truth(fields.Boolean):
    """A boolean of a JSON body: nothing but true and false."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> bool:
        if not isinstance(value, bool):
            raise ValidationError("Must be true or false.")
        return value


class Count(fields.Integer):
    """A whole number of the query, decimal digits only."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> int:
        if not isinstance(value, str) or not _DIGITS.fullmatch(value):
            raise ValidationError("Must be a whole number.")
        return int(value)


class Whole(fields.Integer):
    """An integer of a JSON body: no number with a point, no text, no boolean."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValidationError("Must be an integer.")
        return value


class JsonObject(fields.Dict):
    """Any JSON object, taken as it is."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValidationError("Must be an object.")
        return value


def in_replica(**given: Any) -> Text:
    """The replica that the operation is about; required unless said otherwise."""
    about = {"description": "The replica to use.", "example": "aws"}
    one_of = validate.OneOf(REPLICAS, error="Must be one of: aws, gcp.")
    metadata = about | given.get("metadata", {})
    return Text(**{"required": True, "validate": one_of, **given, "metadata": metadata})


def at_version(**given: Any) -> Version:
    """A version; what its absence means is said where it is used."""
    about = {
        "description": "A version, spelled <YYYY>-<MM>-<DD>T<HHMMSS>.<6 digits>Z.",
        "example": "2026-01-31T235959.000000Z",
    }
    return Version(**{**given, "metadata": about | given.get("metadata", {})})


def page_size(default: int, least: int = 1, most: int = 500) -> Count:
    """How many items a page has."""
    span = validate.Range(min=least, max=most, error=f"Must be from {least} to {most}.")
    about = {"description": "Items on one page."}
    return Count(load_default=default, validate=span, metadata=about)


def retry_token() -> Text:
    """Declared because the interface has it; clients manage their retries with it, we need none."""
    return Text(load_default=None, metadata={"description": "Not set by end users."})


def page_pointer(what: str = "page") -> Text:
    """The opaque pointer that a `Link` carries; clients do not make it themselves."""
    about = {"description": f"Where the next {what} begins; taken from a Link header only."}
    return Text(load_default=None, metadata=about)
