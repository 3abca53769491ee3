"""Schemas of the audit log."""

from dataclasses import dataclass

from marshmallow import fields, validate

from api.authz.schemas.accounts import ListParameters, ListQuery
from api.schemas.common import ResponseSchema
from api.schemas.fields import EmailField, JsonObject, TextField, version_field


def _filter_field(about: str, kind: type[TextField] = TextField) -> TextField:
    short = validate.Length(1, 254, error="Must have 1 to 254 characters.")
    return kind(load_default=None, validate=short, metadata={"description": about})


@dataclass(frozen=True)
class AuditParameters(ListParameters):
    """Page and filter of changes."""

    who: str | None
    what: str | None
    since: str | None


class AuditQuery(ListQuery):
    """Parameters of the audit log."""

    model = AuditParameters
    who = _filter_field("Only changes by this principal.", EmailField)
    what = _filter_field("Only changes by this operation, for example put_v1_user.")
    since = version_field(
        load_default=None, metadata={"description": "Only changes at or after this moment."}
    )


class AuditEntry(ResponseSchema):
    """One change."""

    at = TextField(required=True)
    who = TextField(required=True, metadata={"example": "admin@local"})
    what = TextField(required=True, metadata={"example": "put_v1_user"})
    target = TextField(required=True, metadata={"example": "user/ada@example.org"})
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
    request_id = TextField(required=True)


class AuditLog(ResponseSchema):
    """Changes, the newest first."""

    audit = fields.List(fields.Nested(AuditEntry), required=True)
