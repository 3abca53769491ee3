"""The moment that somebody is known: a user record, a session, a line in the audit log; and the
moment that they leave.
"""

from dataclasses import dataclass

from auth.accounts.admitting import first_login
from auth.login import sessions
from auth.login.recording import record_login
from auth.login.sessions import Lifetimes, Session
from storage.catalog import Catalog


@dataclass(frozen=True)
class Known:
    """Who logged in, by which provider, when; `former` is the cookie that the browser brought."""

    email: str
    provider: str
    at: float
    request_id: str
    former: str | None = None


def enter(catalog: Catalog, known: Known, lifetimes: Lifetimes) -> tuple[str, Session]:
    """A new session and what its cookie holds; Forbidden when the user is disabled.

    Whatever session the browser brought ends: nobody goes on with an id from before the login.
    """
    with catalog.write() as tx:
        first_login(tx, known.email, known.request_id)
        sessions.end(tx, known.former)
        made = sessions.begin(tx, known.email, known.provider, now=known.at, lifetimes=lifetimes)
        record_login(
            tx, known.email, "login", known.email, known.request_id, provider=known.provider
        )
    return made


def leave(catalog: Catalog, session: Session, cookie: str | None, request_id: str) -> None:
    """End the session that a browser brought by this cookie."""
    with catalog.write() as tx:
        sessions.end(tx, cookie)
        record_login(
            tx, session.email, "logout", session.email, request_id, provider=session.provider
        )
