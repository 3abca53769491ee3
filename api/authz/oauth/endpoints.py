"""OAuth endpoints: discovery, keys, token, revocation, device authorization and userinfo."""

from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import parse_qsl

from flask import Request, Response
from marshmallow import Schema
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from api.authz.context import AuthRequestContext, AuthServices
from api.authz.pages import limit_tokens
from api.authz.schemas.oauth import (
    DeviceAnswer,
    DeviceForm,
    Discovery,
    KeySet,
    OAuthErrorAnswer,
    RevokeForm,
    TokenAnswer,
    TokenForm,
    UserInfo,
)
from api.http.errors import add_retry_after, http_status
from api.http.loading import read_json, translate_body_errors
from api.http.operation import Operation, ResponseDoc, json_response, operation
from auth.oauth import device, tokens
from auth.oauth.authorize import MAX_PARAMETER_LENGTH
from auth.oauth.provider import (
    SCOPES,
    OAuthError,
    OAuthProvider,
    authenticate_client,
    invalid_request,
)
from storage.catalog.oauth import OAuthClient
from storage.errors import DomainError

MAX_BODY_BYTES = 64 * 1024
MAX_BODY_DEPTH = 10
FORM_TYPE = "application/x-www-form-urlencoded"
BODY_FIELDS = frozenset(
    {
        *("grant_type", "code", "redirect_uri", "code_verifier", "refresh_token", "scope"),
        *("client_id", "client_secret", "device_code", "token", "token_type_hint", "access_token"),
    }
)
"""Supported members of bodies; others are ignored."""
NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
REALM = "authorization service"

OAuthView = Callable[[AuthRequestContext[Any, Any]], Response]


def oauth_view(*, challenge: str = "Basic") -> Callable[[OAuthView], OAuthView]:
    """Rate-limit a view, and format its errors by RFC 6749, 5.2.

    `challenge` is the authentication scheme of a 401."""

    def decorate(view: OAuthView) -> OAuthView:
        @wraps(view)
        def reply(context: AuthRequestContext[Any, Any]) -> Response:
            services = context.services
            try:
                limit_tokens(services.catalog, services.settings, context.request, services.clock())
                return view(context)
            except OAuthError as error:
                return _reply_oauth_error(error, challenge)
            except DomainError as error:
                return _reply_domain_error(error)

        return reply

    return decorate


def reply_uncached(value: object, status: int = 200) -> Response:
    """Respond with `no-store`."""
    return json_response(value, status, NO_STORE)


def read_form(request: Request) -> dict[str, str]:
    """Read the supported, non-empty members of a body (RFC 6749, 3.2)."""
    members = (
        _read_form_body(request) if request.mimetype == FORM_TYPE else _read_json_body(request)
    )
    supported = [(name, value) for name, value in members if name in BODY_FIELDS]
    if len({name for name, _ in supported}) < len(supported):
        raise invalid_request("A member is given more than once.")
    if not all(isinstance(value, str) for _, value in supported):
        raise invalid_request("A member is not a string.")
    if any(len(value) > MAX_PARAMETER_LENGTH for name, value in supported if name != "token"):
        raise invalid_request(f"A member has more than {MAX_PARAMETER_LENGTH} characters.")
    return {name: value for name, value in supported if value}


def _read_form_body(request: Request) -> list[tuple[str, Any]]:
    request.max_content_length = MAX_BODY_BYTES
    try:
        with translate_body_errors():
            text = request.get_data().decode()
        return list(parse_qsl(text, keep_blank_values=True, max_num_fields=100, errors="strict"))
    except HTTPException as error:
        raise _body_error(error) from error
    except ValueError as error:
        raise invalid_request("The body is not a form.") from error


def _read_json_body(request: Request) -> list[tuple[str, Any]]:
    try:
        value = read_json(request, max_bytes=MAX_BODY_BYTES, max_depth=MAX_BODY_DEPTH, once=True)
    except HTTPException as error:
        raise _body_error(error) from error
    if not isinstance(value, dict):
        raise invalid_request("The body is not an object.")
    return [(name, item) for name, item in value.items() if item is not None]


def _body_error(error: HTTPException) -> OAuthError:
    if isinstance(error, RequestEntityTooLarge):
        return OAuthError("invalid_request", "The body is too large.", status=413)
    return OAuthError("invalid_request", error.description or "", status=error.code or 400)


def _reply_oauth_error(error: OAuthError, challenge: str) -> Response:
    body = {"error": error.error, "error_description": error.description}
    response = reply_uncached(body, error.status)
    if error.status in (401, 403):
        header = f'{challenge} realm="{REALM}"'
        if challenge == "Bearer":
            header += f', error="{error.error}", error_description="{error.description}"'
        response.headers["WWW-Authenticate"] = header
    return response


def _reply_domain_error(error: DomainError) -> Response:
    """Format other errors as OAuth errors."""
    status = http_status(error)
    error_code = "invalid_request" if status in (400, 413, 415) else "temporarily_unavailable"
    body = {"error": error_code, "error_description": error.detail}
    return add_retry_after(reply_uncached(body, status), error.code, error.retry_after_s)


CONFIGURATION_PATH = "/.well-known/openid-configuration"
KEYS_PATH = "/.well-known/jwks.json"
CLIENT_AUTH_METHODS = ("client_secret_basic", "client_secret_post", "none")
SUPPORTED_CLAIMS = (
    *("iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "at_hash", "azp"),
    *("email", "email_verified", "name", "preferred_username", "groups"),
)


def build_discovery_document(provider: OAuthProvider) -> dict[str, Any]:
    """Build the discovery document."""
    base = provider.issuer.rstrip("/")
    return {
        "issuer": provider.issuer,
        "authorization_endpoint": f"{base}/oauth/authorize",
        "token_endpoint": f"{base}/oauth/token",
        "userinfo_endpoint": f"{base}/oauth/userinfo",
        "jwks_uri": base + KEYS_PATH,
        "revocation_endpoint": f"{base}/oauth/revoke",
        "device_authorization_endpoint": f"{base}/oauth/device_authorization",
        "end_session_endpoint": f"{base}/logout",
        "scopes_supported": list(SCOPES),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": list(tokens.GRANT_TYPES),
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": list(provider.keys.read().algorithms),
        "token_endpoint_auth_methods_supported": list(CLIENT_AUTH_METHODS),
        "revocation_endpoint_auth_methods_supported": list(CLIENT_AUTH_METHODS),
        "code_challenge_methods_supported": ["S256"],
        "prompt_values_supported": ["none", "login", "consent", "select_account"],
        "claim_types_supported": ["normal"],
        "claims_supported": list(SUPPORTED_CLAIMS),
        "authorization_response_iss_parameter_supported": True,
        "claims_parameter_supported": False,
        "request_parameter_supported": False,
        "request_uri_parameter_supported": False,
    }


TAG = "openid"
BODY_TYPES = (FORM_TYPE, "application/json")
KEYS_AGE_S = 300
"""Cache lifetime of the keys; verifiers fetch again for an unknown key id."""
BODY_HELP = (
    "The body is a form (`application/x-www-form-urlencoded`) or JSON;"
    " unknown members are ignored. The client authenticates by HTTP Basic or"
    " by `client_id` and `client_secret`; a public client sends its"
    " `client_id`."
)
OPERATION_OPTIONS: dict[str, Any] = {"tag": TAG, "identified": False, "counted": False}
"""Verifiers fetch keys without a token; token requests have their own rate limit."""
RETRY_ANSWERS = {
    429: ResponseDoc("Too many requests from one address.", OAuthErrorAnswer),
    503: ResponseDoc("Temporarily unavailable.", OAuthErrorAnswer),
}
UNREADABLE_ANSWERS = {
    413: ResponseDoc("The body is too large.", OAuthErrorAnswer),
    415: ResponseDoc("The body is neither a form nor JSON.", OAuthErrorAnswer),
}
TOKEN_ERROR_ANSWERS = {
    400: ResponseDoc("Refused; `error` says why.", OAuthErrorAnswer),
    401: ResponseDoc("The client is unknown, or its authentication failed.", OAuthErrorAnswer),
    **UNREADABLE_ANSWERS,
    **RETRY_ANSWERS,
}
USERINFO_ERROR_ANSWERS = {
    400: ResponseDoc("The request is malformed.", OAuthErrorAnswer),
    401: ResponseDoc("The token is missing or invalid.", OAuthErrorAnswer),
    403: ResponseDoc("The token lacks a scope.", OAuthErrorAnswer),
    **RETRY_ANSWERS,
}


@operation(
    "GET",
    CONFIGURATION_PATH,
    responses={200: ResponseDoc("OK", Discovery)},
    errors=(503,),
    aliases=("/.well-known/oauth-authorization-server",),
    **OPERATION_OPTIONS,
)
def get_openid_configuration(context: AuthRequestContext[None, None]) -> Response:
    """What this service is and does."""
    return _reply_cacheable(Discovery().dump(build_discovery_document(context.services.provider)))


@operation(
    "GET",
    KEYS_PATH,
    name="get_jwks.json",
    responses={200: ResponseDoc("OK", KeySet)},
    errors=(503,),
    **OPERATION_OPTIONS,
)
def get_keys(context: AuthRequestContext[None, None]) -> Response:
    """The public keys that verify its tokens."""
    return _reply_cacheable(KeySet().dump(context.services.keys.read().jwks()))


ClientView = Callable[[AuthServices, OAuthClient, dict[str, str]], dict[str, Any]]


def client_operation(
    path: str, answer: ResponseDoc, form: type[Schema], note: str = ""
) -> Callable[[ClientView], Operation]:
    """Declare an operation of applications, which gets the authenticated client and its form."""

    def declare(view: ClientView) -> Operation:
        @oauth_view()
        @wraps(view)
        def reply(context: AuthRequestContext[None, None]) -> Response:
            services, fields = context.services, read_form(context.request)
            authorization = context.request.headers.get("Authorization")
            client = authenticate_client(services.provider, authorization, fields)
            return reply_uncached(view(services, client, fields))

        return operation(
            "POST",
            path,
            description=BODY_HELP + note,
            responses={200: answer, **TOKEN_ERROR_ANSWERS},
            form=form,
            while_read_only=True,
            **OPERATION_OPTIONS,
        )(reply)

    return declare


@client_operation("/oauth/token", ResponseDoc("The tokens.", TokenAnswer), TokenForm)
def post_oauth_token(
    services: AuthServices, client: OAuthClient, form: dict[str, str]
) -> dict[str, Any]:
    """Tokens for a code, a refresh token or a device's code."""
    return tokens.exchange_tokens(services.provider, client, form)


@client_operation(
    "/oauth/revoke",
    ResponseDoc("Revoked; an unknown token is no error."),
    RevokeForm,
    note=" `token` is an access or a refresh token: all tokens of the same login end.",
)
def post_oauth_revoke(
    services: AuthServices, client: OAuthClient, form: dict[str, str]
) -> dict[str, Any]:
    """Give a token back."""
    tokens.revoke_token(services.provider, services.own_tokens, client, form)
    return {}


@operation(
    "GET",
    "/oauth/userinfo",
    responses={200: ResponseDoc("OK", UserInfo), **USERINFO_ERROR_ANSWERS},
    **OPERATION_OPTIONS,
)
@oauth_view(challenge="Bearer")
def get_oauth_userinfo(context: AuthRequestContext[None, None]) -> Response:
    """Whom the access token is of, as far as its scopes let it be known."""
    return _reply_userinfo(context, _read_bearer(context.request))


@operation(
    "POST",
    "/oauth/userinfo",
    responses={200: ResponseDoc("OK", UserInfo), **USERINFO_ERROR_ANSWERS, **UNREADABLE_ANSWERS},
    while_read_only=True,
    **OPERATION_OPTIONS,
)
@oauth_view(challenge="Bearer")
def post_oauth_userinfo(context: AuthRequestContext[None, None]) -> Response:
    """The same; the token may be `access_token` of a body instead of in the header."""
    token = _read_bearer(context.request)
    if context.request.mimetype in BODY_TYPES and (
        body_token := read_form(context.request).get("access_token")
    ):
        if token is not None:
            raise invalid_request("The token is given in two places.")
        token = body_token
    return _reply_userinfo(context, token)


@client_operation(
    "/oauth/device_authorization",
    ResponseDoc("The codes: one to show to the user, one to request tokens with.", DeviceAnswer),
    DeviceForm,
)
def post_oauth_device(
    services: AuthServices, client: OAuthClient, form: dict[str, str]
) -> dict[str, Any]:
    """A code for a device without a browser, which a person enters at /device."""
    return device.start_device_login(services.provider, client, form)


def _reply_userinfo(context: AuthRequestContext[None, None], token: str | None) -> Response:
    if token is None:
        return _reply_missing_token()
    userinfo = tokens.read_userinfo(context.services.provider, context.services.own_tokens, token)
    return reply_uncached(UserInfo().dump(userinfo))


def _reply_missing_token() -> Response:
    """Respond with a challenge only, without an error code (RFC 6750, 3.1)."""
    body = {"error": "invalid_request", "error_description": "An access token is wanted."}
    response = reply_uncached(body, 401)
    response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _read_bearer(request: Request) -> str | None:
    header = request.headers.get("Authorization")
    if header is None:
        return None
    scheme, _, token = header.strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise OAuthError("invalid_token", "The header holds no bearer token.", status=401)
    return token.strip()


def _reply_cacheable(value: object) -> Response:
    return json_response(value, headers={"Cache-Control": f"public, max-age={KEYS_AGE_S}"})
