"""What OAuth says when it refuses (RFC 6749, RFC 6750, RFC 8628, OpenID Connect Core): an error's
word, and a sentence for people. No sentence repeats anything of the request.
"""


class OAuthError(Exception):
    """A refusal that the client is told of."""

    def __init__(self, error: str, description: str, *, status: int = 400) -> None:
        super().__init__(f"{error}: {description}")
        self.error = error
        self.description = description
        self.status = status


class Shown(OAuthError):
    """A refusal that only the person at the browser is told of: who asks, or where the answer would
    go, is not known, and nobody is sent to an address that nobody registered."""


class SentBack(OAuthError):
    """A refusal that the person's browser brings to the client, to `redirect_uri`."""

    def __init__(self, error: OAuthError, redirect_uri: str, state: str | None) -> None:
        super().__init__(error.error, error.description)
        self.redirect_uri = redirect_uri
        self.state = state


def invalid_request(description: str) -> OAuthError:
    """The request itself is wrong."""
    return OAuthError("invalid_request", description)


def invalid_grant(description: str) -> OAuthError:
    """A code or refresh token that gives nothing, or nothing any more."""
    return OAuthError("invalid_grant", description)
