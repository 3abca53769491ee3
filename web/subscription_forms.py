"""The form of a new subscription: its fields, and errors beside the field that they are about."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, NoReturn

from api.schemas.fields import TextField, UuidField, one_of, optional_text, replica_field
from api.schemas.subscriptions import MAX_FIELDS
from pipelines.subscriptions import NewSubscription
from storage.errors import Invalid
from storage.model import Replica
from web.pages import FormErrors

QUERY_KINDS = (
    ("all", "Every bundle"),
    ("jmespath", "Bundles that match a JMESPath expression"),
    ("search", "New bundles that match a search query (JSON)"),
)
SIGNING = (
    ("generated", "With a secret that the store makes"),
    ("own", "With my own secret"),
    ("none", "Not signed"),
)
METHODS = (("POST", "POST"), ("PUT", "PUT"))
ENCODINGS = (
    ("application/json", "JSON (application/json)"),
    ("multipart/form-data", "Form (multipart/form-data)"),
)
MAX_TEXT = 100_000
"""Characters of a text area."""


def _choice_field(options: tuple[tuple[str, str], ...]) -> TextField:
    keys = [key for key, _ in options]
    return TextField(load_default=keys[0], validate=one_of(*keys))


@dataclass(frozen=True)
class SubscriptionForm:
    """Fields of a new subscription as a browser sends them; `bundle_uuid` is the one to show."""

    callback_url: Annotated[str, TextField(required=True)]
    replica: Annotated[Replica, replica_field()]
    kind: Annotated[str, _choice_field(QUERY_KINDS)]
    query: Annotated[str, optional_text(MAX_TEXT)]
    attachments: Annotated[str, optional_text(MAX_TEXT)]
    method: Annotated[str, _choice_field(METHODS)]
    encoding: Annotated[str, _choice_field(ENCODINGS)]
    payload_form_field: Annotated[str, optional_text(256, "payload")]
    form_fields: Annotated[str, optional_text(MAX_TEXT)]
    signing: Annotated[str, _choice_field(SIGNING)]
    hmac_key_id: Annotated[str | None, optional_text(256, None)]
    bundle_uuid: Annotated[str | None, UuidField(load_default=None)]
    hmac_secret_key: Annotated[str | None, optional_text(1024, None)] = field(repr=False)


def build_subscription(form: SubscriptionForm, secret: str | None) -> NewSubscription:
    """Return the subscription of a form; raise FormErrors where a field cannot be read."""
    query = form.query.replace("\r\n", "\n").strip()
    if form.kind != "all" and not query:
        _refuse("query", "Enter a query, or choose every bundle.")
    lines = {
        name: _parse_lines(name, getattr(form, name)) for name in ("attachments", "form_fields")
    }
    attachments = {
        name: {"type": "jmespath", "expression": expression}
        for name, expression in lines["attachments"].items()
    }
    return NewSubscription(
        callback_url=form.callback_url.strip(),
        replica=form.replica,
        es_query=_parse_search(query) if form.kind == "search" else None,
        jmespath_query=query if form.kind == "jmespath" else None,
        method=form.method,
        encoding=form.encoding,
        form_fields=lines["form_fields"],
        payload_form_field=form.payload_form_field,
        hmac_key_id=form.hmac_key_id,
        hmac_secret_key=secret,
        attachments=attachments or None,
    )


def _parse_search(text: str) -> Mapping[str, Any]:
    try:
        query = json.loads(text)
    except json.JSONDecodeError as error:
        _refuse("query", f"Not JSON: {error.msg} (line {error.lineno}, column {error.colno}).")
    except (ValueError, RecursionError):
        _refuse("query", "Nested too deeply, or with a number of too many digits.")
    if not isinstance(query, dict):
        _refuse(
            "query", 'Must be a JSON object, like {"match": {"files.sample_json.organ": "eye"}}.'
        )
    return query


def _parse_lines(name: str, text: str) -> dict[str, str]:
    """Return the values of lines like `name: value`."""
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not (key and colon and value):
            _refuse(name, f"Line {number} must be a name, a colon and a value.")
        if key in values:
            _refuse(name, f"Line {number} has the name of an earlier line.")
        values[key] = value
    if len(values) > MAX_FIELDS:
        _refuse(name, f"Must have at most {MAX_FIELDS} lines.")
    return values


def _refuse(name: str, message: str) -> NoReturn:
    raise FormErrors("Some fields need a change.", errors={name: [message]})


def parse_time(name: str, text: str) -> str | None:
    """Return a browser's date and time, in UTC, in the format of versions; None if it is empty."""
    if not text:
        return None
    try:
        when = datetime.fromisoformat(text.removesuffix("Z"))
        if when.year < 1970:
            raise ValueError("before the first event")
    except ValueError:
        _refuse(name, "Must be a date and time, like 2026-01-31T23:59.")
    return when.replace(tzinfo=None).strftime("%Y-%m-%dT%H%M%S.%fZ")


_FIELD_OF_MEMBER = {"es_query": "query", "jmespath_query": "query"}


def list_field_errors(error: Invalid) -> dict[str, list[str]]:
    """Return the messages of an error by the field of the form that they are about."""
    found: dict[str, list[str]] = {}
    for pointer, messages in error.errors.items():
        member, _, below = pointer.strip("/").partition("/")
        name = _FIELD_OF_MEMBER.get(member, member)
        found.setdefault(name, []).extend(
            f"{below}: {message}" if below else str(message) for message in messages
        )
    return found or {"callback_url": [error.detail]}
