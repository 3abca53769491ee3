"""What the views of the OpenID provider have in common: bodies as forms or JSON, errors as
OAuth's.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import parse_qsl

from flask import Request, Response
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from api.authservice.limits import limit_tokens
from api.authservice.services import Call
from api.bodies import arriving, read_json
from api.errors import status_of, with_retry_after
from api.operation import reply
from auth.openid.authorizing import MAX_TEXT
from auth.openid.errors import OAuthError, invalid_request
from storage.errors import StoreError

MAX_BODY = 64 * 1024
MAX_DEPTH = 10
FORM = "application/x-www-form-urlencoded"
MEMBERS = frozenset(
    {
        *("grant_type", "code", "redirect_uri", "code_verifier", "refresh_token", "scope"),
        *("client_id", "client_secret", "device_code", "token", "token_type_hint", "access_token"),
    }
)
"""Members of bodies that mean something here; all others are ignored."""
NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
REALM = "authorization service"

OAuthView = Callable[[Call[Any, Any]], Response]


def oauth(*, challenge: str = "Basic") -> Callable[[OAuthView], OAuthView]:
    """Count a view's requests, and have its refusals answered as RFC 6749, 5.2 has them;
    `challenge` is what a 401 asks for."""

    def answered(view: OAuthView) -> OAuthView:
        @wraps(view)
        def refusing(call: Call[Any, Any]) -> Response:
            services = call.services
            try:
                limit_tokens(services.catalog, services.settings, call.request, services.clock())
                return view(call)
            except OAuthError as error:
                return _refused(error, challenge)
            except StoreError as error:
                return _failed(error)

        return refusing

    return answered


def told(value: object, status: int = 200) -> Response:
    """An answer that nobody keeps."""
    return reply(value, status, NO_STORE)


def form_of(request: Request) -> dict[str, str]:
    """The members of the body that mean something and are not empty (RFC 6749, 3.2)."""
    given = _form(request) if request.mimetype == FORM else _json(request)
    known = [(name, value) for name, value in given if name in MEMBERS]
    if len({name for name, _ in known}) < len(known):
        raise invalid_request("A member is given more than once.")
    if not all(isinstance(value, str) for _, value in known):
        raise invalid_request("A member is not a string.")
    if any(len(value) > MAX_TEXT for name, value in known if name != "token"):
        raise invalid_request(f"A member has more than {MAX_TEXT} characters.")
    return {name: value for name, value in known if value}


def _form(request: Request) -> list[tuple[str, Any]]:
    request.max_content_length = MAX_BODY
    try:
        with arriving():
            text = request.get_data().decode()
        return list(parse_qsl(text, keep_blank_values=True, max_num_fields=100, errors="strict"))
    except HTTPException as error:
        raise _unread(error) from error
    except ValueError as error:
        raise invalid_request("The body is not a form.") from error


def _json(request: Request) -> list[tuple[str, Any]]:
    try:
        value = read_json(request, max_bytes=MAX_BODY, max_depth=MAX_DEPTH, once=True)
    except HTTPException as error:
        raise _unread(error) from error
    if not isinstance(value, dict):
        raise invalid_request("The body is not an object.")
    return [(name, item) for name, item in value.items() if item is not None]


def _unread(error: HTTPException) -> OAuthError:
    if isinstance(error, RequestEntityTooLarge):
        return OAuthError("invalid_request", "The body is too large.", status=413)
    return OAuthError("invalid_request", error.description or "", status=error.code or 400)


def _refused(error: OAuthError, challenge: str) -> Response:
    body = {"error": error.error, "error_description": error.description}
    response = told(body, error.status)
    if error.status in (401, 403):
        said = f'{challenge} realm="{REALM}"'
        if challenge == "Bearer":
            said += f', error="{error.error}", error_description="{error.description}"'
        response.headers["WWW-Authenticate"] = said
    return response


def _failed(error: StoreError) -> Response:
    """What is no fault of OAuth's, in its words."""
    status = status_of(error)
    word = "invalid_request" if status in (400, 413, 415) else "temporarily_unavailable"
    body = {"error": word, "error_description": error.detail}
    return with_retry_after(told(body, status), error.code, error.retry_after_s)
