"""Schemas of login and logout requests."""

from dataclasses import dataclass

from marshmallow import validate

from api.schemas.fields import TextField
from api.schemas.loading import QuerySchema
from auth.login.targets import MAX_STATE
from auth.oauth.introspection import MAX_ID_TOKEN_HINT

MAX_URL = 4096


@dataclass(frozen=True)
class LoginParameters:
    """Parameters of get_login."""

    redirect_uri: str
    state: str | None
    login_hint: str | None


class LoginQuery(QuerySchema):
    """Parameters of get_login: redirect after login."""

    model = LoginParameters
    redirect_uri = TextField(
        required=True,
        validate=validate.Length(min=1, max=MAX_URL),
        metadata={"description": "A redirect URI that some client registered."},
    )
    state = TextField(
        load_default=None,
        validate=validate.Length(max=MAX_STATE),
        metadata={"description": "Comes back in the query of redirect_uri, as it is."},
    )
    login_hint = TextField(
        load_default=None,
        validate=validate.Length(max=256),
        metadata={"description": "The e-mail address that the person is expected to log in with."},
    )


@dataclass(frozen=True)
class LogoutParameters:
    """Parameters of get_logout."""

    id_token_hint: str | None
    client_id: str | None
    post_logout_redirect_uri: str | None
    state: str | None


class LogoutQuery(QuerySchema):
    """Parameters of get_logout: optional redirect."""

    model = LogoutParameters
    id_token_hint = TextField(
        load_default=None,
        metadata={
            "description": "An ID token of this service; it names the client.",
            "maxLength": MAX_ID_TOKEN_HINT,
        },
    )
    client_id = TextField(
        load_default=None,
        metadata={"description": "The application; that of id_token_hint, or the default one."},
    )
    post_logout_redirect_uri = TextField(
        load_default=None,
        validate=validate.Length(max=MAX_URL),
        metadata={"description": "A redirect URI of that application; on loopback, on any port."},
    )
    state = TextField(
        load_default=None,
        validate=validate.Length(max=MAX_STATE),
        metadata={"description": "Comes back in the query of that address, as it is."},
    )
