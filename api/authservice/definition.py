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

EXAMPLES = Examples(
    members={
        "status": "ok",
        "reason": "works",
        "code": "not_found",
        "request_id": "3f0d2c1b9a8e4f57b6c5d4e3f2a1b0c9",
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
