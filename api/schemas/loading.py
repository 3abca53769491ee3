"""Load queries, bodies and paths into dataclasses, and report all errors at once."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, get_type_hints

from marshmallow import Schema, ValidationError, post_load, validate
from marshmallow import fields as kinds
from werkzeug.datastructures import MultiDict

from api.schemas.fields import CodedMessage
from auth.accounts import check_account_id
from pipelines.formats import parse_uuid
from storage import json_codec
from storage.errors import Invalid
from storage.model import normalize_identity

MAX_REPORTED = 100
MAX_MAP_MEMBERS = 1_000
"""Maximum members of an object with names of the client's choice, each of which is validated."""
USER_PARAMETER = "user_id"
ACCOUNT_PARAMETERS = frozenset({USER_PARAMETER, "group_id", "role_id"})
"""Path parameters that are ids of accounts."""
MISSING_FIELD, UNKNOWN_FIELD = "Missing data for required field.", "Unknown field."
"""Messages of marshmallow."""


class RequestSchema(Schema):
    """A schema whose `load` returns the `model`."""

    model: ClassVar[type[Any]]

    @post_load
    def build(self, data: dict[str, Any], **_: Any) -> Any:
        """Build the model."""
        return self.model(**data)


_SCHEMAS: dict[type[object], type[Schema]] = {}


def request_schema(model: type[object]) -> type[Schema]:
    """Return the schema of a dataclass, whose annotations hold a marshmallow field each."""
    if model not in _SCHEMAS:
        hints = get_type_hints(model, include_extras=True)
        members = {name: hint.__metadata__[0] for name, hint in hints.items()}
        _SCHEMAS[model] = type(model.__name__, (RequestSchema,), {**members, "model": model})
    return _SCHEMAS[model]


def load_query(schema: Schema, args: MultiDict[str, str]) -> Any:
    """Load a query; of a repeated key the first value counts. Missing keys are reported first."""
    first = args.to_dict(flat=True)
    missing = [name for name, item in schema.load_fields.items() if item.required]
    missing = [name for name in missing if name not in first]
    if missing:
        errors = {name: [MISSING_FIELD] for name in missing}
        raise Invalid(f"Missing query parameter '{missing[0]}'", errors=errors)
    try:
        return schema.load(first)
    except ValidationError as error:
        messages = dict(_flatten_messages(error.messages_dict, pointed=False))
        raise _build_error(messages, "query parameter") from error


def load_body(schema: Schema, value: Any) -> Any:
    """Load a body; errors are named by JSON pointers."""
    if not isinstance(value, Mapping):
        raise Invalid("The body must be a JSON object", errors={"": ["Must be an object."]})
    try:
        _check_lengths(schema, value)
        return schema.load(value)
    except ValidationError as error:
        messages = dict(_flatten_messages(error.messages_dict, pointed=True))
        raise _build_error(messages, "body member") from error


def _check_lengths(schema: Schema, body: Mapping[str, Any]) -> None:
    """Refuse overlong lists before their items: errors of a million items would exhaust memory."""
    for name, item in schema.load_fields.items():
        value = body.get(item.data_key or name)
        if isinstance(item, kinds.List) and isinstance(value, list):
            limits = [v for v in item.validators if isinstance(v, validate.Length)]
            _check_length(name, value, limits)
        # Only a plain Dict: its subclasses do not validate members.
        elif type(item) is kinds.Dict and isinstance(value, Mapping):
            _check_length(name, value, [_MAP_LENGTH])


def _check_length(name: str, value: Any, validators: Iterable[Any]) -> None:
    try:
        for validator in validators:
            validator(value)
    except ValidationError as error:
        raise ValidationError({name: error.messages}) from error


_MAP_LENGTH = validate.Length(
    max=MAX_MAP_MEMBERS, error=f"Must have at most {MAX_MAP_MEMBERS} members."
)


def load_path(parameters: Mapping[str, str]) -> dict[str, str]:
    """Load path parameters: all are uuids except for file names and ids of accounts."""
    if "\ufffd" in parameters.get("filename", ""):
        # The server's replacement character for invalid UTF-8.
        raise Invalid("filename: must be UTF-8", errors={"filename": ["Must be UTF-8."]})
    return {name: _load_path_parameter(name, text) for name, text in parameters.items()}


def _load_path_parameter(name: str, text: str) -> str:
    if name == "filename":
        return text
    if name not in ACCOUNT_PARAMETERS:
        return parse_uuid(text, where=name)
    account_id = check_account_id(text, where=name)
    return normalize_identity(account_id) if name == USER_PARAMETER else account_id


def _build_error(messages: dict[str, list[str]], what: str) -> Invalid:
    """Build one error for all messages, with the detail and code of the first."""
    where = next(iter(messages))
    first = messages[where][0]
    name = where.removeprefix("/") if where.count("/") == 1 else where
    code = first.code if isinstance(first, CodedMessage) else None
    reported = dict(list(messages.items())[:MAX_REPORTED])
    if first in (MISSING_FIELD, UNKNOWN_FIELD):
        return Invalid(f"{first.split()[0]} {what} '{name[:100]}'", errors=reported)
    return Invalid(f"Bad {what} '{name[:100]}': {first}", code=code, errors=reported)


def _flatten_messages(
    messages: Any, *, pointed: bool, path: str = ""
) -> Iterator[tuple[str, list[str]]]:
    """Yield nested messages by parameter name, or by JSON pointer if `pointed`."""
    if isinstance(messages, Mapping):
        for key, inner in messages.items():
            step = json_codec.pointer_step(key) if pointed else str(key)
            # marshmallow reports a mapping's keys and values under these names.
            below = path if key in ("value", "_schema") and path else f"{path}{step}"
            yield from _flatten_messages(inner, pointed=pointed, path=below)
    else:
        yield path, list(messages)
