"""Logging in: by a token that somebody brings, at a browser, or with a code that is entered
elsewhere. A login is kept only once the store took its token.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from store_client.configuration import Configuration
from store_client.login import kept as files
from store_client.login.browser import WAIT_S, Show, consent
from store_client.login.checking import Checked, checked, jwt_of
from store_client.login.discovery import Service, in_the_clear, service_of
from store_client.login.granting import Granted
from store_client.login.kept import Kept
from store_client.login.logout import revoke
from store_client.login.remote import remote
from store_client.transport.session import Session

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Around:
    """What a login needs of the world around it."""

    say: Say
    show: Show | None = None
    """Opens a browser; None: the system's."""
    wait_s: float = WAIT_S
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time


def with_token(session: Session, config: Configuration, given: str, *, around: Around) -> Checked:
    """Keep a token that somebody brought, if the store takes it."""
    _warn(config.url, around.say)
    token = jwt_of(given)
    found = checked(session, config, token, now=around.now)
    _keep(session, config, Kept(token, expires=found.expires, email=found.email))
    return found


def with_consent(
    session: Session, config: Configuration, *, around: Around, elsewhere: bool = False
) -> Checked:
    """Have somebody log in, here or `elsewhere`, and keep the login."""
    service = service_of(session, config, fresh=True)
    for url in (config.url, service.issuer):
        _warn(url, around.say)
    if elsewhere:
        granted = remote(session, service, say=around.say, sleep=around.sleep)
    else:
        granted = consent(session, service, say=around.say, show=around.show, wait_s=around.wait_s)
    at = around.now()
    found = checked(session, config, granted.access_token, now=around.now)
    _keep(session, config, _kept(granted, service, found, at))
    return found


def _kept(granted: Granted, service: Service, found: Checked, at: float) -> Kept:
    return Kept(
        access_token=granted.access_token,
        refresh_token=granted.refresh_token,
        expires=granted.expires(at),
        email=found.email or granted.email,
        issuer=service.issuer,
        token_endpoint=service.token_endpoint,
        revocation_endpoint=service.revocation_endpoint,
    )


def _keep(session: Session, config: Configuration, kept: Kept) -> None:
    """Keep it instead of the one before, which nobody has any more and so should be no good."""
    with files.holding(config):
        before = files.read(config)
        files.write(config, kept)
    if before is not None and before.refresh_token:
        revoke(session, before)


def _warn(url: str, say: Say) -> None:
    if in_the_clear(url):
        say(f"Beware: {url} is not encrypted, whoever is on the way can read your token.")
