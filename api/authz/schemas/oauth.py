"""Schemas of OAuth requests and answers.

They only document requests: `auth.oauth` validates them, and responds with OAuth errors.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from marshmallow import Schema, fields

from api.schemas.fields import ResponseSchema
from auth.oauth.authorize import MAX_PARAMETER_LENGTH

MAX_FORM_BYTES = 64 * 1024
"""Largest form, in bytes."""


class Discovery(ResponseSchema):
    """OpenID Connect Discovery 1.0, section 3: supported features."""

    issuer = fields.Url(required=True, require_tld=False)
    authorization_endpoint = fields.Url(required=True, require_tld=False)
    token_endpoint = fields.Url(required=True, require_tld=False)
    userinfo_endpoint = fields.Url(required=True, require_tld=False)
    jwks_uri = fields.Url(required=True, require_tld=False)
    revocation_endpoint = fields.Url(required=True, require_tld=False)
    device_authorization_endpoint = fields.Url(required=True, require_tld=False)
    end_session_endpoint = fields.Url(required=True, require_tld=False)
    scopes_supported = fields.List(fields.String(), required=True)
    response_types_supported = fields.List(fields.String(), required=True)
    response_modes_supported = fields.List(fields.String(), required=True)
    grant_types_supported = fields.List(fields.String(), required=True)
    subject_types_supported = fields.List(fields.String(), required=True)
    id_token_signing_alg_values_supported = fields.List(fields.String(), required=True)
    token_endpoint_auth_methods_supported = fields.List(fields.String(), required=True)
    revocation_endpoint_auth_methods_supported = fields.List(fields.String(), required=True)
    code_challenge_methods_supported = fields.List(fields.String(), required=True)
    prompt_values_supported = fields.List(fields.String(), required=True)
    claim_types_supported = fields.List(fields.String(), required=True)
    claims_supported = fields.List(fields.String(), required=True)
    authorization_response_iss_parameter_supported = fields.Boolean(required=True)
    claims_parameter_supported = fields.Boolean(required=True)
    request_parameter_supported = fields.Boolean(required=True)
    request_uri_parameter_supported = fields.Boolean(required=True)


class PublicKey(ResponseSchema):
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


class KeySet(ResponseSchema):
    """RFC 7517, section 5."""

    keys = fields.List(fields.Nested(PublicKey), required=True)


def unvalidated_text(
    about: str = "", *, required: bool = False, most: int = MAX_PARAMETER_LENGTH, **metadata: Any
) -> fields.String:
    """Build a documented string that `auth.oauth` validates."""
    described = {"description": about} if about else {}
    return fields.String(required=required, metadata={**described, "maxLength": most, **metadata})


@dataclass(frozen=True)
class AuthorizeQuery:
    """RFC 6749, 4.1.1; OpenID Connect Core, 3.1.2.1; RFC 7636, 4.3."""

    response_type: Annotated[str | None, unvalidated_text("`code`")] = None
    client_id: Annotated[str | None, unvalidated_text("Empty: the store's web pages.")] = None
    redirect_uri: Annotated[
        str | None, unvalidated_text("One that the client registered; empty: its only one.")
    ] = None
    scope: Annotated[str | None, unvalidated_text("Words with a space between them.")] = None
    state: Annotated[str | None, unvalidated_text("Is given back with the answer.")] = None
    nonce: Annotated[str | None, unvalidated_text("Is given back in the id token.")] = None
    code_challenge: Annotated[str | None, unvalidated_text("Of a client without a secret.")] = None
    code_challenge_method: Annotated[str | None, unvalidated_text("`S256`")] = None
    prompt: Annotated[str | None, unvalidated_text("`none`, `login`, `consent`")] = None
    max_age: Annotated[str | None, unvalidated_text("Seconds since the person logged in.")] = None


class ClientCredentialsForm(Schema):
    """Client authentication without HTTP Basic (RFC 6749, 2.3.1)."""

    # Unknown parameters are ignored.
    Meta = ResponseSchema.Meta  # type: ignore[assignment]

    client_id = unvalidated_text("Of a client without a secret, too.")
    client_secret = unvalidated_text()


class TokenForm(ClientCredentialsForm):
    """RFC 6749, 4.1.3 and 6; RFC 7636, 4.5; RFC 8628, 3.4."""

    grant_type = unvalidated_text(required=True, example="refresh_token")
    code = unvalidated_text()
    redirect_uri = unvalidated_text("The one that the code was asked with.")
    code_verifier = unvalidated_text()
    refresh_token = unvalidated_text()
    device_code = unvalidated_text()
    scope = unvalidated_text("Less than was granted.")


class RevokeForm(ClientCredentialsForm):
    """RFC 7009, 2.1."""

    token = unvalidated_text(required=True, example="x8Hn0sJ2", most=MAX_FORM_BYTES)
    token_type_hint = unvalidated_text()


class DeviceForm(ClientCredentialsForm):
    """RFC 8628, 3.1."""

    scope = unvalidated_text("Words with a space between them.")


class TokenAnswer(ResponseSchema):
    """RFC 6749, 5.1."""

    access_token = fields.String(required=True)
    token_type = fields.String(required=True)
    expires_in = fields.Integer(required=True)
    refresh_token = fields.String(required=True)
    scope = fields.String(required=True)
    id_token = fields.String()


class DeviceAnswer(ResponseSchema):
    """RFC 8628, 3.2."""

    device_code = fields.String(required=True)
    user_code = fields.String(required=True)
    verification_uri = fields.String(required=True)
    verification_uri_complete = fields.String(required=True)
    expires_in = fields.Integer(required=True)
    interval = fields.Integer(required=True)


class UserInfo(ResponseSchema):
    """OpenID Connect Core, 5.3.2."""

    sub = fields.String(required=True)
    email = fields.String()
    email_verified = fields.Boolean()
    name = fields.String()
    preferred_username = fields.String()
    groups = fields.List(fields.String())


class OAuthErrorAnswer(ResponseSchema):
    """RFC 6749, 5.2."""

    error = fields.String(required=True)
    error_description = fields.String(required=True)
