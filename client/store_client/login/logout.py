"""Logging out: the login is ended at the service if that can be reached, and forgotten anyway."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from store_client.configuration import Configuration
from store_client.errors import StoreError
from store_client.login import kept as files
from store_client.login.granting import CLIENT_ID, post
from store_client.login.kept import Kept
from store_client.transport.session import Session


@dataclass(frozen=True, slots=True)
class Left:
    """How it went."""

    was_in: bool
    email: str = ""
    revoked: bool = False
    expires: float | None = None
    """Until when the token is good all the same, when it could not be revoked."""
    why_not: str = ""


def logout(session: Session, config: Configuration) -> Left:
    """Forget the login of this store; StoreError only when the file cannot be removed."""
    with _held(config):
        kept = files.read(config)
        was_in = files.forget(config)
    if kept is None:
        return Left(was_in)
    why_not = revoke(session, kept)
    return Left(was_in, kept.email, not why_not, kept.expires, why_not)


def revoke(session: Session, kept: Kept) -> str:
    """End a login at the service that gave it; why it could not be, or empty."""
    if not kept.revocation_endpoint:
        return "the token came from elsewhere"
    token = kept.refresh_token or kept.access_token
    form = {"client_id": CLIENT_ID, "token": token}
    try:
        post(session, kept.revocation_endpoint, form, again=True)
    except StoreError as error:
        return str(error)
    return ""


@contextlib.contextmanager
def _held(config: Configuration) -> Iterator[None]:
    """The lock, if it can be had: who logs out does not want to be told of locks."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(StoreError):
            stack.enter_context(files.holding(config))
        yield
