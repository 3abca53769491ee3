"""OAuth errors."""


class OAuthError(Exception):
    """An error response to the client."""

    def __init__(self, error: str, description: str, *, status: int = 400) -> None:
        super().__init__(f"{error}: {description}")
        self.error = error
        self.description = description
        self.status = status


class UserFacingError(OAuthError):
    """An error for the user only, because the client or its redirect URI is not valid.

    Redirecting to an unregistered URI would make this service an open redirector.
    """


class RedirectedError(OAuthError):
    """An error that the browser is redirected to the client with."""

    def __init__(self, error: OAuthError, redirect_uri: str, state: str | None) -> None:
        super().__init__(error.error, error.description)
        self.redirect_uri = redirect_uri
        self.state = state


def invalid_request(description: str) -> OAuthError:
    """Return the error for a malformed request."""
    return OAuthError("invalid_request", description)


def invalid_grant(description: str) -> OAuthError:
    """Return the error for a code or refresh token that is not valid."""
    return OAuthError("invalid_grant", description)
