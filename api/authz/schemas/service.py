"""Schemas of health, definition and echo."""

from marshmallow import fields, validate

from api.schemas.common import ResponseSchema


class AuthHealthPart(ResponseSchema):
    """One part of the service: its state and the reason for it."""

    status = fields.String(required=True, validate=validate.OneOf(["ok", "failed"]))
    reason = fields.String(required=True)


class Health(ResponseSchema):
    """Whether every part of the service works, in the store's format."""

    status = fields.String(required=True, validate=validate.OneOf(["ok", "failed"]))
    parts = fields.Dict(keys=fields.String(), values=fields.Nested(AuthHealthPart), required=True)


class DefinitionAnswer(ResponseSchema):
    """An OpenAPI document."""


class Echo(ResponseSchema):
    """The request as received; secrets are `***`."""

    method = fields.String(required=True)
    path = fields.String(required=True)
    query = fields.Dict(keys=fields.String(), values=fields.List(fields.String()), required=True)
    headers = fields.Dict(keys=fields.String(), values=fields.String(), required=True)
