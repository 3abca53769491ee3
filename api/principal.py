"""Who asks: the bearer token of a request as a principal."""

from collections.abc import Callable

from auth.tokens.verifying import bearer
from storage.model import Principal


def identify(verify: Callable[[str], Principal], authorization: str | None) -> Principal | None:
    """Nobody without a header; a bad token is Unauthorized even where none is wanted."""
    token = bearer(authorization)
    return None if token is None else verify(token)
