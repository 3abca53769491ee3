"""From strings and JSON to our dataclasses, and from a schema's complaints to one error."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, ClassVar

from marshmallow import EXCLUDE, RAISE, Schema, ValidationError, post_load, validate
from marshmallow import fields as kinds
from werkzeug.datastructures import MultiDict

from api.schemas.fields import Complaint
from auth.accounts.names import id_of
from pipelines.formats import uuid_of
from storage import pointers
from storage.errors import Invalid
from storage.model import one_spelling

REPORTED = 100
MAPPED = 1_000
"""Members of an object whose names are the client's, where each is looked at."""
USER = "user_id"
ACCOUNTS = frozenset({USER, "group_id", "role_id"})
"""Parameters of the path that are ids of accounts."""
MISSING, UNKNOWN = "Missing data for required field.", "Unknown field."
"""marshmallow's own words."""


class Loaded(Schema):
    """A schema whose `load` gives the dataclass `model`."""

    model: ClassVar[type[Any]]

    @post_load
    def build(self, data: dict[str, Any], **_: Any) -> Any:
        """The dataclass of what was loaded; what is declared and has no use is left out."""
        model = type(self).model
        names = {item.name for item in fields(model)}
        return model(**{name: value for name, value in data.items() if name in names})


class Query(Loaded):
    """Query parameters; those that we do not know are ignored."""

    class Meta:
        unknown = EXCLUDE


class Body(Loaded):
    """A JSON body; members that we do not know are refused."""

    class Meta:
        unknown = RAISE


def load_query(schema: Schema, given: MultiDict[str, str]) -> Any:
    """The query's dataclass; of a repeated key the first counts, and missing ones come first."""
    first = given.to_dict(flat=True)
    missing = [name for name, item in schema.load_fields.items() if item.required]
    missing = [name for name in missing if name not in first]
    if missing:
        errors = {name: [MISSING] for name in missing}
        raise Invalid(f"Missing query parameter '{missing[0]}'", errors=errors)
    try:
        return schema.load(first)
    except ValidationError as error:
        messages = dict(_flat(error.messages_dict, pointed=False))
        raise _refusal(messages, "query parameter") from error


def load_body(schema: Schema, given: Any) -> Any:
    """The body's dataclass; complaints are named by JSON pointer."""
    if not isinstance(given, Mapping):
        raise Invalid("The body must be a JSON object", errors={"": ["Must be an object."]})
    try:
        _check_lengths(schema, given)
        return schema.load(given)
    except ValidationError as error:
        messages = dict(_flat(error.messages_dict, pointed=True))
        raise _refusal(messages, "body member") from error


def _check_lengths(schema: Schema, given: Mapping[str, Any]) -> None:
    """What has too many items is refused before any of them is looked at: a complaint about each
    of a million would cost more than the service has."""
    for name, item in schema.load_fields.items():
        value = given.get(item.data_key or name)
        if isinstance(item, kinds.List) and isinstance(value, list):
            _check_length(name, value, [one for one in item.validators if _counts(one)])
        # A plain Dict; its heirs take any object as it is.
        elif type(item) is kinds.Dict and isinstance(value, Mapping):
            _check_length(name, value, [_MAPPED])


def _counts(validator: Any) -> bool:
    return isinstance(validator, validate.Length)


def _check_length(name: str, value: Any, validators: Iterable[Any]) -> None:
    try:
        for one in validators:
            one(value)
    except ValidationError as error:
        raise ValidationError({name: error.messages}) from error


_MAPPED = validate.Length(max=MAPPED, error=f"At most {MAPPED} members.")


def load_path(given: Mapping[str, str]) -> dict[str, str]:
    """The parameters of the path: all but a file's name and the ids of accounts are uuids, in any
    case."""
    if "\ufffd" in given.get("filename", ""):
        # What the server puts in the place of bytes that are no UTF-8.
        raise Invalid("The file's name is not UTF-8", errors={"filename": ["Not UTF-8."]})
    return {name: _of_path(name, text) for name, text in given.items()}


def _of_path(name: str, text: str) -> str:
    if name == "filename":
        return text
    if name not in ACCOUNTS:
        return uuid_of(text, where=name)
    found = id_of(text, where=name)
    return one_spelling(found) if name == USER else found


def _refusal(messages: dict[str, list[str]], what: str) -> Invalid:
    """One error for all complaints; its detail and code are those of the first."""
    where = next(iter(messages))
    said = messages[where][0]
    name = where.removeprefix("/") if where.count("/") == 1 else where
    code = said.code if isinstance(said, Complaint) else None
    shown = dict(list(messages.items())[:REPORTED])
    if said in (MISSING, UNKNOWN):
        return Invalid(f"{said.split()[0]} {what} '{name[:100]}'", errors=shown)
    return Invalid(f"Bad {what} '{name[:100]}': {said}", code=code, errors=shown)


def _flat(messages: Any, *, pointed: bool, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Nested complaints as pairs of a name, or a JSON pointer, and its messages."""
    if isinstance(messages, Mapping):
        for key, inner in messages.items():
            step = pointers.step(key) if pointed else str(key)
            # marshmallow reports a mapping's keys and values under these names.
            below = path if key in ("value", "_schema") and path else f"{path}{step}"
            yield from _flat(inner, pointed=pointed, path=below)
    else:
        yield path, list(messages)
