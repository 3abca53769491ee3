"""The audit log: what its operation takes and answers."""

from dataclasses import dataclass

from marshmallow import fields, validate

from api.authservice.schemas.accounts import Listed, ListQuery
from api.schemas.common import Shown
from api.schemas.fields import Identity, JsonObject, Text, at_version


def _filter(about: str, kind: type[Text] = Text) -> Text:
    short = validate.Length(1, 254, error="Must have 1 to 254 characters.")
    return kind(load_default=None, validate=short, metadata={"description": about})


@dataclass(frozen=True)
class AuditAsked(Listed):
    """Which page of which changes."""

    who: str | None
    what: str | None
    since: str | None


class AuditQuery(ListQuery):
    """Parameters of the audit log."""

    model = AuditAsked
    who = _filter("Only changes by this principal.", Identity)
    what = _filter("Only changes by this operation, for example put_v1_user.")
    since = at_version(
        load_default=None, metadata={"description": "Only changes at or after this moment."}
    )


class AuditEntry(Shown):
    """One change."""

    at = Text(required=True)
    who = Text(required=True, metadata={"example": "admin@local"})
    what = Text(required=True, metadata={"example": "put_v1_user"})
    target = Text(required=True, metadata={"example": "user/ada@example.org"})
    before = JsonObject(
        required=True,
        allow_none=True,
        metadata={
            "description": "What it was, as far as it changed; null: it was not there.",
            "example": {"status": "enabled"},
        },
    )
    after = JsonObject(
        required=True,
        allow_none=True,
        metadata={
            "description": "What it is since; null: it is there no more.",
            "example": {"status": "disabled"},
        },
    )
    request_id = Text(required=True)


class AuditLog(Shown):
    """Changes, the newest first."""

    audit = fields.List(fields.Nested(AuditEntry), required=True)
