"""What logging in and out takes."""

from dataclasses import dataclass

from marshmallow import validate

from api.schemas.fields import Text
from api.schemas.loading import Query
from auth.login.targets import MAX_STATE
from auth.openid.hints import MAX_HINT

MAX_URL = 4096


@dataclass(frozen=True)
class Login:
    """Parameters of get_login."""

    redirect_uri: str
    state: str | None
    login_hint: str | None


class LoginQuery(Query):
    """Where to go when it is known who is at the browser."""

    model = Login
    redirect_uri = Text(
        required=True,
        validate=validate.Length(min=1, max=MAX_URL),
        metadata={"description": "A redirect URI that some client registered."},
    )
    state = Text(
        load_default=None,
        validate=validate.Length(max=MAX_STATE),
        metadata={"description": "Comes back in the query of redirect_uri, as it is."},
    )
    login_hint = Text(
        load_default=None,
        validate=validate.Length(max=256),
        metadata={"description": "The e-mail address that the person is expected to log in with."},
    )


@dataclass(frozen=True)
class Logout:
    """Parameters of get_logout."""

    id_token_hint: str | None
    client_id: str | None
    post_logout_redirect_uri: str | None
    state: str | None


class LogoutQuery(Query):
    """Where to go afterwards; nowhere without an address."""

    model = Logout
    id_token_hint = Text(
        load_default=None,
        metadata={
            "description": "An ID token of this service; it names the client.",
            "maxLength": MAX_HINT,
        },
    )
    client_id = Text(
        load_default=None,
        metadata={"description": "The application; that of id_token_hint, or the default one."},
    )
    post_logout_redirect_uri = Text(
        load_default=None,
        validate=validate.Length(max=MAX_URL),
        metadata={"description": "A redirect URI of that application; on loopback, on any port."},
    )
    state = Text(
        load_default=None,
        validate=validate.Length(max=MAX_STATE),
        metadata={"description": "Comes back in the query of that address, as it is."},
    )
