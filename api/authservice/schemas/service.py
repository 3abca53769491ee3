"""What the authorization service says of itself, as schemas."""

from marshmallow import fields, validate

from api.schemas.common import Shown


class Part(Shown):
    """One part of the service: its state and the reason for it."""

    status = fields.String(required=True, validate=validate.OneOf(["ok", "failed"]))
    reason = fields.String(required=True)


class Health(Shown):
    """Whether every part of the service works, as the store says it of its own."""

    status = fields.String(required=True, validate=validate.OneOf(["ok", "failed"]))
    parts = fields.Dict(keys=fields.String(), values=fields.Nested(Part), required=True)


class Definition(Shown):
    """OpenAPI's own schema says what is in it."""


class Echo(Shown):
    """A request as it arrived; what is masked reads `***`."""

    method = fields.String(required=True)
    path = fields.String(required=True)
    query = fields.Dict(keys=fields.String(), values=fields.List(fields.String()), required=True)
    headers = fields.Dict(keys=fields.String(), values=fields.String(), required=True)
