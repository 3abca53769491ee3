"""Read bodies, and load paths, queries and JSON bodies into dataclasses; report all errors at once.

Bodies are bounded: JSON in bytes, depth and memory, streams in blocks.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from typing import IO, Any

from flask import Request
from marshmallow import Schema, ValidationError, fields, validate
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import HTTPException, RequestTimeout

from api.schemas.fields import CodedMessage
from auth.accounts import check_account_id
from pipelines.formats import parse_uuid
from storage import json_codec
from storage.errors import Invalid, TooLarge, UnsupportedMediaType
from storage.json_codec import MB, check_parsed_size, estimate_roughly
from storage.model import normalize_identity
from storage.protocols import BLOCK

MAX_REPEATED_REPORTED = 20
"""Maximum number of repeated members in an error."""
TOO_SLOW = "The body arrived too slowly."
PARSED_BYTES, PARSED_TIMES = 64 * MB, 10
"""Memory that a parsed body may take: the larger of these bytes and this multiple of its length. A
manifest takes up to nine times its length, a malicious body of small values forty times."""
TYPED_TIMES = 9
"""The same for a body that is decoded in one typed pass, including what is built from it."""
MAX_POINTER_CHARS = 1_000
"""Maximum length of a JSON pointer in an error."""
_JSON = frozenset({"application/json", "text/json"})
_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii"})
MAX_REPORTED = 100
MAX_MAP_MEMBERS = 1_000
"""Maximum members of an object with names of the client's choice, each of which is validated."""
USER_PARAMETER = "user_id"
TEXT_PARAMETERS = frozenset({"filename", "object_id", "access_id"})
"""Path parameters that the view checks."""
ACCOUNT_PARAMETERS = frozenset({USER_PARAMETER, "group_id", "role_id"})
"""Path parameters that are ids of accounts."""
MISSING_FIELD, UNKNOWN_FIELD = "Missing data for required field.", "Unknown field."
"""Messages of marshmallow."""


def read_json(
    request: Request,
    *,
    max_bytes: int,
    max_depth: int,
    once: bool = False,
    decode: Callable[[bytes], Any] | None = None,
    reserve: Callable[[int], None] = lambda _size: None,
) -> Any:
    """Return the JSON value of the body, with exact integers; an empty body is an empty object.

    `once` refuses repeated members. `decode` is tried first. `reserve` is called with the bytes of
    memory that the value may take, before it is parsed.
    """
    request.max_content_length = max_bytes
    _check_type(request)
    with translate_body_errors():
        text = request.get_data(cache=True)
    if request.content_length is None and len(text) >= max_bytes:
        # Without Content-Length, Werkzeug silently cuts the body off at the limit.
        raise TooLarge(f"The body has more than {max_bytes} bytes")
    if not text:
        return {}
    if decode is not None:
        # Types bound depth and memory, so no estimate or depth check is needed.
        reserve(TYPED_TIMES * len(text))
        if (typed := decode(text)) is not None:
            return typed
    value = _parse(text, reserve)
    _check_depth(value, max_depth)
    if once:
        _check_unique_members(text)
    return value


def _parse(text: bytes, reserve: Callable[[int], None]) -> Any:
    size = estimate_roughly(text)
    check_parsed_size(size, max(PARSED_BYTES, PARSED_TIMES * len(text)))
    reserve(size)
    try:
        return json_codec.decode(text)
    except json.JSONDecodeError as error:
        position = f"line {error.lineno}, column {error.colno}"
        raise _malformed_body(f"Malformed JSON: {error.msg} at {position}") from error
    except ValueError as error:
        raise _malformed_body(f"Malformed JSON: {str(error)[:200]}") from error


def read_blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the blocks of a body as they arrive."""
    while True:
        with translate_body_errors():
            block = stream.read(BLOCK)
        if not block:
            return
        yield block


@contextmanager
def translate_body_errors() -> Iterator[None]:
    """Report a slow or badly framed body as the client's error, whatever the server raises."""
    try:
        yield
    except TimeoutError as error:
        raise RequestTimeout(TOO_SLOW) from error
    except HTTPException as error:
        if isinstance(error.__context__, TimeoutError):
            raise RequestTimeout(TOO_SLOW) from error
        raise
    except Exception as error:
        message = "The body is incomplete, or does not match Content-Length or chunked framing."
        raise Invalid(message, errors={"": [message]}) from error


def _check_type(request: Request) -> None:
    """Refuse other types than JSON; a body without a type is read as JSON."""
    media_type = request.mimetype
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    if media_type and media_type not in _JSON and not media_type.endswith("+json"):
        raise UnsupportedMediaType(
            f"Content-Type: must be application/json (got {media_type[:100]})"
        )
    if charset not in _CHARSETS:
        raise UnsupportedMediaType(f"Content-Type: charset must be utf-8 (got {charset[:100]})")


def _malformed_body(detail: str) -> Invalid:
    return Invalid(detail, errors={"": [detail]})


def _check_depth(value: Any, max_depth: int) -> None:
    """Refuse deep nesting; goes level by level, so that depth costs no stack."""
    objects, lists = _select_containers([[value]])
    depth = 0
    while objects or lists:
        depth += 1
        if depth > max_depth:
            raise _malformed_body(f"The body is nested deeper than {max_depth} levels")
        objects, lists = _select_containers([*map(dict.values, objects), *lists])


def _select_containers(
    holders: list[Iterable[Any]],
) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """Return the objects and the lists among the values of some containers."""
    values = chain.from_iterable
    # Most levels have no containers, which this check finds out fastest.
    types = {*map(type, values(holders))}
    objects = [value for value in values(holders) if type(value) is dict] if dict in types else []
    lists = [value for value in values(holders) if type(value) is list] if list in types else []
    return objects, lists


REPEATED_MEMBER = "Must not be given more than once."


class _RepeatedMember:
    """Marks a member that an object has several times."""


_MemberPath = tuple[Any, str | int]
"""The path of a value: its parent's path or None, and its name. It is formatted only for an error,
because thousands of values may lie below one long name."""


def _check_unique_members(text: bytes) -> None:
    """Refuse repeated members, of which the normal parser silently takes the last."""
    value = json.loads(text, object_pairs_hook=_mark_repeated, parse_int=str, parse_float=str)
    _refuse_repeated(list(_iterate_members(None, value)))


def _mark_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        members |= {name: _RepeatedMember() for name, count in counts.items() if count > 1}
    return members


def _refuse_repeated(level: list[tuple[_MemberPath, Any]]) -> None:
    """Raise Invalid with the pointers of repeated members, if there are any."""
    errors: dict[str, list[str]] = {}
    while level:
        paths = (path for path, value in level if isinstance(value, _RepeatedMember))
        errors |= {
            _format_pointer(path): [REPEATED_MEMBER]
            for path in islice(paths, MAX_REPEATED_REPORTED)
        }
        level = [member for path, value in level for member in _iterate_members(path, value)]
    if errors:
        first = next(iter(errors))
        reported = dict(list(errors.items())[:MAX_REPEATED_REPORTED])
        raise Invalid(f"Bad body member '{first[:200]}': {REPEATED_MEMBER}", errors=reported)


def _iterate_members(path: _MemberPath | None, value: Any) -> Iterable[tuple[_MemberPath, Any]]:
    if isinstance(value, dict):
        return (((path, name), member) for name, member in value.items())
    if isinstance(value, list):
        return (((path, index), item) for index, item in enumerate(value))
    return ()


def _format_pointer(path: _MemberPath) -> str:
    """Return a JSON Pointer, cut off at MAX_POINTER_CHARS."""
    steps: list[str] = []
    rest: _MemberPath | None = path
    while rest is not None:
        rest, name = rest
        steps.append(json_codec.pointer_step(name))
    return "".join(reversed(steps))[:MAX_POINTER_CHARS]


def load_query(schema: Schema, args: MultiDict[str, str]) -> Any:
    """Load a query; of a repeated key the first value counts. Missing keys are reported first."""
    first = args.to_dict(flat=True)
    required = [item.data_key or name for name, item in schema.load_fields.items() if item.required]
    missing = [name for name in required if name not in first]
    if missing:
        errors = {name: [MISSING_FIELD] for name in missing}
        raise Invalid(f"Missing query parameter '{missing[0]}'", errors=errors)
    try:
        return schema.load(first)
    except ValidationError as error:
        messages = dict(_flatten_messages(error.messages_dict, pointed=False))
        raise _build_error(messages, "query parameter") from error


def load_form(schema: Schema, form: Mapping[str, str]) -> Any:
    """Load a form; empty fields count as absent. Invalid maps fields to messages."""
    try:
        return schema.load({name: value for name, value in form.items() if value != ""})
    except ValidationError as error:
        errors = {name: [str(m) for m in found] for name, found in error.messages_dict.items()}
        raise Invalid("Some fields need a change.", errors=errors) from error


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


_MAP_LENGTH = validate.Length(
    max=MAX_MAP_MEMBERS, error=f"Must have at most {MAX_MAP_MEMBERS} members."
)


def _check_lengths(schema: Schema, body: Mapping[str, Any]) -> None:
    """Refuse overlong lists before their items: errors of a million items would exhaust memory."""
    for name, item in schema.load_fields.items():
        value: Any = body.get(item.data_key or name)
        limits: list[validate.Length] = []
        if isinstance(item, fields.List) and isinstance(value, list):
            limits = [rule for rule in item.validators if isinstance(rule, validate.Length)]
        # Only a plain Dict: its subclasses do not validate members.
        elif type(item) is fields.Dict and isinstance(value, Mapping):
            limits = [_MAP_LENGTH]
        try:
            for limit in limits:
                limit(value)
        except ValidationError as error:
            raise ValidationError({name: error.messages}) from error


def load_path(parameters: Mapping[str, str]) -> dict[str, str]:
    """Load path parameters: uuids, except for TEXT_PARAMETERS and ids of accounts."""
    if "\ufffd" in parameters.get("filename", ""):
        # The server's replacement character for invalid UTF-8.
        raise Invalid("filename: must be UTF-8", errors={"filename": ["Must be UTF-8."]})
    loaded = dict(parameters)
    for name, text in parameters.items():
        if name in ACCOUNT_PARAMETERS:
            account_id = check_account_id(text, where=name)
            loaded[name] = normalize_identity(account_id) if name == USER_PARAMETER else account_id
        elif name not in TEXT_PARAMETERS:
            loaded[name] = parse_uuid(text, where=name)
    return loaded


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
