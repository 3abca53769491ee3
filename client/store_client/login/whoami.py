"""Who we are to a store, and for how long."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from store_client.configuration import Configuration
from store_client.errors import NotAllowed
from store_client.login import kept as files
from store_client.login.checking import Checked, checked
from store_client.login.expiry import Standing, standing
from store_client.login.kept import Kept
from store_client.login.tokens import LOG_IN, VARIABLE
from store_client.transport.session import Session
from store_client.transport.tokens import Tokens

NOBODY, LOGIN, TOKEN, PROGRAM = "nobody", "login", "token", "service account"


@dataclass(frozen=True, slots=True)
class Who:
    """What is known of whoever asks; `how` is one of the words above."""

    how: str
    email: str = ""
    issuer: str = ""
    groups: tuple[str, ...] = ()
    expires: float | None = None
    """Of the token; by this machine's clock."""
    renews: bool = False
    """Whether the token is followed by another one when it ends."""
    standing: Standing = Standing.GOOD


def known(
    config: Configuration,
    *,
    environ: Mapping[str, str] = os.environ,
    now: Callable[[], float] = time.time,
) -> Who:
    """What can be said without asking anybody."""
    if environ.get(VARIABLE):
        return Who(PROGRAM, renews=True)
    kept = files.read(config)
    if kept is None:
        return Who(NOBODY)
    return Who(
        LOGIN if kept.refresh_token or kept.over else TOKEN,
        email=kept.email,
        issuer=kept.issuer,
        expires=kept.expires,
        renews=bool(kept.refresh_token),
        standing=_standing(kept, now()),
    )


def whoami(
    session: Session,
    config: Configuration,
    tokens: Tokens,
    *,
    environ: Mapping[str, str] = os.environ,
    now: Callable[[], float] = time.time,
) -> Who:
    """Who the store takes us for; NotAllowed when for nobody."""
    token = tokens.bearer()
    if token is None:
        raise NotAllowed(
            f"nobody is logged in at {config.url}", hint=f"to log in: {LOG_IN}", status=401
        )
    found = _accepted(session, config, tokens, token, now=now)
    before = known(config, environ=environ, now=now)
    return Who(
        before.how,
        email=found.email,
        issuer=found.issuer,
        groups=found.groups,
        expires=found.expires,
        renews=before.renews,
        standing=Standing.GOOD if before.renews else standing(found.expires, now()),
    )


def _accepted(
    session: Session,
    config: Configuration,
    tokens: Tokens,
    token: str,
    *,
    now: Callable[[], float],
) -> Checked:
    try:
        return checked(session, config, token, now=now)
    except NotAllowed:
        another = tokens.renewed(token)
        if another is None:
            raise
        return checked(session, config, another, now=now)


def _standing(kept: Kept, now_s: float) -> Standing:
    if kept.over:
        return Standing.EXPIRED
    return Standing.GOOD if kept.refresh_token else standing(kept.expires, now_s)
