"""What the authorization service answers, as schemas; its definition is generated from them."""

from marshmallow import EXCLUDE, Schema, fields, validate


class Answer(Schema):
    """A body that may gain members: the definition does not promise that there are no others."""

    class Meta:
        unknown = EXCLUDE


class Discovery(Answer):
    """OpenID Connect Discovery 1.0, section 3: only what this service does."""

    issuer = fields.Url(required=True, require_tld=False)
    jwks_uri = fields.Url(required=True, require_tld=False)
    subject_types_supported = fields.List(fields.String(), required=True)
    id_token_signing_alg_values_supported = fields.List(fields.String(), required=True)
    claims_supported = fields.List(fields.String(), required=True)


class PublicKey(Answer):
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


class KeySet(Answer):
    """RFC 7517, section 5."""

    keys = fields.List(fields.Nested(PublicKey), required=True)


class Part(Answer):
    """One part of the service: its state and the reason for it."""

    status = fields.String(required=True, validate=validate.OneOf(["ok", "failed"]))
    reason = fields.String(required=True)


class Health(Answer):
    """Whether every part of the service works, as the store says it of its own."""

    status = fields.String(required=True, validate=validate.OneOf(["ok", "failed"]))
    parts = fields.Dict(keys=fields.String(), values=fields.Nested(Part), required=True)


class Problem(Answer):
    """RFC 9457."""

    type = fields.String(required=True)
    title = fields.String(required=True)
    status = fields.Integer(required=True)
    code = fields.String(required=True)
    detail = fields.String(required=True)
    request_id = fields.String(required=True)
