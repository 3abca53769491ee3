"""What the authorization service says of itself, as schemas."""

from marshmallow import fields, validate

from api.schemas.common import Shown


class Discovery(Shown):
    """OpenID Connect Discovery 1.0, section 3: only what this service does."""

    issuer = fields.Url(required=True, require_tld=False)
    jwks_uri = fields.Url(required=True, require_tld=False)
    subject_types_supported = fields.List(fields.String(), required=True)
    id_token_signing_alg_values_supported = fields.List(fields.String(), required=True)
    claims_supported = fields.List(fields.String(), required=True)


class PublicKey(Shown):
    """RFC 7517: one public key; `n` and `e` of an RSA key, `crv`, `x` and `y` of a curve's."""

    kty = fields.String(required=True)
    kid = fields.String(required=True)
    use = fields.String(required=True)
    alg = fields.String(required=True)
    n = fields.String()
    e = fields.String()
    crv = fields.String()
    x = fields.String()
    y = fields.String()


class KeySet(Shown):
    """RFC 7517, section 5."""

    keys = fields.List(fields.Nested(PublicKey), required=True)


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
