"""What the authorization service's own definition says besides its operations."""

from api.authservice.guard import wants
from api.definition import About
from api.examples import Examples

ABOUT = """\
Knows who uses the data store: users, their groups, roles and policies; logs them in, and signs the
bearer tokens that the store takes.

Errors are `application/problem+json` (RFC 9457), but those of the OAuth end points, which are as
RFC 6749 has them. Lists come in pages: while more follow, the status is 206 and a `Link` header
with `rel="next"` holds the URL of the next page. Every answer has an `X-Request-Id`."""

TAGS = {
    "service": "What this service is, and whether it works.",
    "openid": "Logging in, and tokens for applications.",
    "users": "People, by their e-mail addresses.",
    "groups": "People taken together.",
    "roles": "Policies with a name, for users and groups.",
    "policies": "What somebody may do, and why.",
    "audit": "Who changed what.",
}

_ID = {"type": "string", "pattern": "^[0-9a-zA-Z.@_$,=-]{1,128}$"}

_BASE = "https://auth.example"
_MOMENT = "2026-01-31T235959.000000Z"
_THING = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"

EXAMPLES = Examples(
    members={
        "access_token": "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.e30.c2lnbmF0dXJl",
        "alg": "RS256",
        "arn": f"arn:store:local:*:collections/{_THING}",
        "at": _MOMENT,
        "authorization_endpoint": f"{_BASE}/oauth/authorize",
        "authorization_response_iss_parameter_supported": True,
        "claims_parameter_supported": False,
        "code": "not_found",
        "created": _MOMENT,
        "detail": "There is no user grace@example.org.",
        "device_authorization_endpoint": f"{_BASE}/oauth/device_authorization",
        "device_code": "GmRhmhcxhwAzkoEqiMEg_DnyEysNkuNhszIySk9eS",
        "end_session_endpoint": f"{_BASE}/logout",
        "error": "invalid_grant",
        "error_description": "The code is not valid any more.",
        "expires_in": 3600,
        "group_id": "curators",
        "headers": {"Host": "auth.example", "Authorization": "***"},
        "interval": 5,
        "issuer": _BASE,
        "jwks_uri": f"{_BASE}/.well-known/jwks.json",
        "kid": "1",
        "kty": "RSA",
        "method": "GET",
        "parts": {"keys": {"status": "ok", "reason": "1 can verify, the newest signs"}},
        "path": "/echo",
        "query": {"colour": ["green"]},
        "reason": "works",
        "refresh_token": "tGzv3JOkF0XG5Qx2TlKWIA",
        "request_id": "3f0d2c1b9a8e4f57b6c5d4e3f2a1b0c9",
        "request_parameter_supported": False,
        "request_uri_parameter_supported": False,
        "revocation_endpoint": f"{_BASE}/oauth/revoke",
        "role_id": "reviewer",
        "scope": "openid email",
        "status": "ok",
        "sub": "ada@example.org",
        "token_endpoint": f"{_BASE}/oauth/token",
        "token_type": "Bearer",
        "updated": _MOMENT,
        "use": "sig",
        "user_code": "BCDF-GHJK",
        "user_id": "ada@example.org",
        "userinfo_endpoint": f"{_BASE}/oauth/userinfo",
        "uuid": _THING,
        "verification_uri": f"{_BASE}/device",
        "verification_uri_complete": f"{_BASE}/device?user_code=BCDF-GHJK",
    },
    schemas={},
)

SERVICE = About(
    title="Authorization service of the data store",
    about=ABOUT,
    tags=TAGS,
    wants=wants,
    examples=EXAMPLES,
    ids={
        "user_id": {**_ID, "example": "ada@example.org"},
        "group_id": {**_ID, "example": "curators"},
        "role_id": {**_ID, "example": "reviewer"},
    },
)
