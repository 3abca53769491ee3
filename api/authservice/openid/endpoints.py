"""The end points of the OpenID provider that applications call: discovery, keys, tokens, what a
token tells, devices. Pages for people are in `authorize.py` and `device.py`.
"""

from typing import Any

from flask import Request, Response

from api.authservice.openid.oauth import FORM, form_of, oauth, told
from api.authservice.schemas.openid import (
    Device,
    DeviceForm,
    Discovery,
    KeySet,
    Refusal,
    RevokeForm,
    TokenForm,
    Tokens,
    UserInfo,
)
from api.authservice.services import Call
from api.operation import Answer, operation, reply
from auth.openid import devices, discovery, revoking
from auth.openid.errors import OAuthError, invalid_request
from auth.openid.exchanging import exchange
from auth.openid.presenting import userinfo
from auth.openid.proving import proven

TAG = "openid"
READ = (FORM, "application/json")
KEYS_AGE_S = 300
"""How long others may keep our keys; a key they do not know makes them ask again anyway."""
BODIES = (
    "The body is a form (`application/x-www-form-urlencoded`) or JSON; members that are not known"
    " are ignored. The client proves itself by HTTP Basic or `client_id` and `client_secret`, a"
    " public one by `client_id`."
)
QUIET: dict[str, Any] = {"tag": TAG, "identified": False, "counted": False}
"""Keys are read by whoever verifies a token; what tokens cost is limited in its own way."""
LATER = {
    429: Answer("Too many requests of one address.", Refusal),
    503: Answer("Not now.", Refusal),
}
UNREADABLE = {
    413: Answer("The body is too large.", Refusal),
    415: Answer("The body is neither a form nor JSON.", Refusal),
}
REFUSALS = {
    400: Answer("Refused, for this reason.", Refusal),
    401: Answer("The client is not known, or not proven.", Refusal),
    **UNREADABLE,
    **LATER,
}
WANTED = {
    400: Answer("The request is wrong.", Refusal),
    401: Answer("There is no token, or none that is good.", Refusal),
    403: Answer("The token is for something else.", Refusal),
    **LATER,
}


@operation(
    "GET",
    discovery.CONFIGURATION,
    answers={200: Answer("OK", Discovery)},
    errors=(503,),
    aliases=("/.well-known/oauth-authorization-server",),
    **QUIET,
)
def get_openid_configuration(call: Call[None, None]) -> Response:
    """What this service is and does."""
    return _cached(Discovery().dump(discovery.document(call.services.provider)))


@operation(
    "GET",
    discovery.KEYS,
    name="get_jwks.json",
    answers={200: Answer("OK", KeySet)},
    errors=(503,),
    **QUIET,
)
def get_keys(call: Call[None, None]) -> Response:
    """The public keys that verify its tokens."""
    return _cached(KeySet().dump(call.services.keys.read().jwks()))


@operation(
    "POST",
    "/oauth/token",
    about=BODIES,
    answers={200: Answer("The tokens.", Tokens), **REFUSALS},
    form=TokenForm,
    while_read_only=True,
    **QUIET,
)
@oauth()
def post_oauth_token(call: Call[None, None]) -> Response:
    """Tokens for a code, a refresh token or a device's code."""
    provider, form = call.services.provider, form_of(call.request)
    client = proven(provider, call.request.headers.get("Authorization"), form)
    return told(exchange(provider, client, form))


@operation(
    "POST",
    "/oauth/revoke",
    about=BODIES + " `token` is an access or a refresh token: all tokens of the same login end.",
    answers={200: Answer("The token is good for nothing, whatever it was."), **REFUSALS},
    form=RevokeForm,
    while_read_only=True,
    **QUIET,
)
@oauth()
def post_oauth_revoke(call: Call[None, None]) -> Response:
    """Give a token back."""
    provider, form = call.services.provider, form_of(call.request)
    client = proven(provider, call.request.headers.get("Authorization"), form)
    revoking.revoke(provider, call.services.verified, client, form)
    return told({})


@operation(
    "POST",
    "/oauth/device_authorization",
    about=BODIES,
    answers={
        200: Answer("What the device shows, and what it asks for tokens with.", Device),
        **REFUSALS,
    },
    form=DeviceForm,
    while_read_only=True,
    **QUIET,
)
@oauth()
def post_oauth_device(call: Call[None, None]) -> Response:
    """A code for a device without a browser, which a person enters at /device."""
    provider, form = call.services.provider, form_of(call.request)
    client = proven(provider, call.request.headers.get("Authorization"), form)
    return told(devices.begin(provider, client, form))


@operation("GET", "/oauth/userinfo", answers={200: Answer("OK", UserInfo), **WANTED}, **QUIET)
@oauth(challenge="Bearer")
def get_oauth_userinfo(call: Call[None, None]) -> Response:
    """Whom the access token is of, as far as its scopes let it be known."""
    return _told_of(call, _bearer(call.request))


@operation(
    "POST",
    "/oauth/userinfo",
    answers={200: Answer("OK", UserInfo), **WANTED, **UNREADABLE},
    while_read_only=True,
    **QUIET,
)
@oauth(challenge="Bearer")
def post_oauth_userinfo(call: Call[None, None]) -> Response:
    """The same; the token may be `access_token` of a body instead of in the header."""
    token = _bearer(call.request)
    if call.request.mimetype in READ and (given := form_of(call.request).get("access_token")):
        if token is not None:
            raise invalid_request("The token is given in two places.")
        token = given
    return _told_of(call, token)


def _told_of(call: Call[None, None], token: str | None) -> Response:
    if token is None:
        return _unasked()
    known = userinfo(call.services.provider, call.services.verified, token)
    return told(UserInfo().dump(known))


def _unasked() -> Response:
    """Who brings no token at all is told of no error, only what to bring (RFC 6750, 3.1)."""
    body = {"error": "invalid_request", "error_description": "An access token is wanted."}
    response = told(body, 401)
    response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _bearer(request: Request) -> str | None:
    header = request.headers.get("Authorization")
    if header is None:
        return None
    scheme, _, token = header.strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise OAuthError("invalid_token", "The header holds no bearer token.", status=401)
    return token.strip()


def _cached(value: object) -> Response:
    return reply(value, headers={"Cache-Control": f"public, max-age={KEYS_AGE_S}"})


OPERATIONS = (
    get_openid_configuration,
    get_keys,
    post_oauth_token,
    post_oauth_revoke,
    get_oauth_userinfo,
    post_oauth_userinfo,
    post_oauth_device,
)
