"""The tokens that a session to a store shows: given, signed by a program, or of a kept login.

The order: what code gives, else what CLOUD_APPLICATION_CREDENTIALS names, else the login kept for
this store, else none: open operations want none.

A refresh token is good once. So whoever refreshes holds the lock of the file, and looks first
whether somebody else has done so meanwhile: of many threads and processes one asks.
"""

import importlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Lock

from store_client.configuration import Configuration
from store_client.errors import NotAllowed, StoreError
from store_client.login import kept as files
from store_client.login.expiry import NEARLY_S, Standing, moment, standing
from store_client.login.granting import OAuthRefusal, granted
from store_client.login.kept import Kept
from store_client.transport.policy import Policy
from store_client.transport.session import Session
from store_client.transport.tokens import GivenToken, Tokens

log = logging.getLogger(__name__)

VARIABLE = "CLOUD_APPLICATION_CREDENTIALS"
"""Names the credentials file of a program."""
LOG_IN = "store login"
IN_TIME = Policy(
    waits_s=(1,), unknown_retries=1, retry_after_cap_s=5, connect_s=4, read_s=7, write_s=7
)
"""Whoever refreshes holds a lock, which others take over after half a minute; and an answer that
got lost is given again for ten seconds."""
OVER = ("invalid_grant", "invalid_client", "unauthorized_client")
"""Refusals after which the refresh token is worth nothing."""

Sessions = Callable[[Configuration], Session]


class KeptTokens:
    """The login kept for one store, for many threads; refreshed before it ends."""

    def __init__(
        self,
        config: Configuration,
        *,
        session_of: Sessions,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._session_of = session_of
        self._now = now
        self._lock = Lock()
        self._kept: Kept | None = None
        self._told = False

    def bearer(self) -> str | None:
        """A token that is good for a while yet, None when nobody is logged in; NotAllowed when the
        login is over. What cannot be refreshed is shown as it is: the store's clock decides."""
        with self._lock:
            kept = self._kept
            if kept is None or kept.over:
                kept = self._kept = files.read(self._config)
            if kept is None:
                return None
            self._refuse_what_is_over(kept)
            if self._standing(kept, NEARLY_S) is Standing.GOOD:
                self._tell_of_the_end(kept)
                return kept.access_token
            return self._followed(kept)

    def renewed(self, refused: str) -> str | None:
        """Another token than the one that was refused; None when there is none."""
        with self._lock:
            kept = self._kept = files.read(self._config)
            if kept is None or kept.over:
                return None
            if kept.access_token != refused:
                return kept.access_token
            if not kept.refresh_token:
                return None
            self._kept = self._refreshed(kept)
            return self._kept.access_token if self._kept else None

    def _followed(self, kept: Kept) -> str | None:
        """The next token, or this one while it lasts if nobody can be asked for another."""
        if not kept.refresh_token:
            self._tell_of_the_end(kept)
            return kept.access_token
        try:
            self._kept = self._refreshed(kept)
        except StoreError as error:
            final = isinstance(error, NotAllowed) and not isinstance(error, OAuthRefusal)
            if final or self._standing(kept, 0.0) is Standing.EXPIRED:
                raise
            log.debug("the token for %s was not refreshed: %s", self._config.url, error)
            return kept.access_token
        return self._kept.access_token if self._kept else None

    def _refreshed(self, before: Kept) -> Kept | None:
        """The login with its next tokens, from whoever was first to ask for them."""
        with files.holding(self._config):
            now = files.read(self._config)
            if now is None:
                return None
            self._refuse_what_is_over(now)
            if now.access_token != before.access_token:
                return now
            following = self._asked(now)
            try:
                files.write(self._config, following)
            except StoreError as error:
                # Good as long as this process runs.
                log.warning("you will have to log in again: %s", error)
        log.debug("the token for %s was refreshed", self._config.url)
        return following

    def _asked(self, kept: Kept) -> Kept:
        form = {"grant_type": "refresh_token", "refresh_token": kept.refresh_token}
        try:
            with self._session_of(self._config) as session:
                # The service gives the same successor again for some seconds.
                found = granted(session, kept.token_endpoint, form, again=True)
        except OAuthRefusal as error:
            if error.error in OVER:
                over = replace(kept, refresh_token="", over=str(error))
                files.write(self._config, over)
                self._refuse_what_is_over(over)
            raise
        return replace(
            kept,
            access_token=found.access_token,
            refresh_token=found.refresh_token or kept.refresh_token,
            expires=found.expires(self._now()),
        )

    def _refuse_what_is_over(self, kept: Kept) -> None:
        if kept.over:
            raise NotAllowed(
                f"the login at {self._config.url} is over: {kept.over}",
                hint=f"{LOG_IN}; or, to go on as nobody: store logout",
                status=401,
            )

    def _standing(self, kept: Kept, soon_s: float) -> Standing:
        return standing(kept.expires, self._now(), soon_s=soon_s)

    def _tell_of_the_end(self, kept: Kept) -> None:
        """Once, to whoever has no next token."""
        found = standing(kept.expires, self._now())
        if self._told or kept.refresh_token or found is Standing.GOOD or kept.expires is None:
            return
        self._told = True
        tense = "ended" if found is Standing.EXPIRED else "ends"
        log.warning(
            "your token for %s %s at %s: %s", self._config.url, tense, moment(kept.expires), LOG_IN
        )


def tokens_of(
    config: Configuration,
    *,
    given: str | None = None,
    environ: Mapping[str, str] = os.environ,
    session_of: Sessions | None = None,
    now: Callable[[], float] = time.time,
) -> Tokens:
    """The tokens for this store."""
    if given:
        return GivenToken(given)
    if path := environ.get(VARIABLE):
        # What signs is heavy, and most people have no need of it.
        module = importlib.import_module("store_client.login.service_account")
        made: Tokens = module.ServiceTokens(Path(path), config.url, now=now)
        return made
    return KeptTokens(config, session_of=session_of or anonymous, now=now)


def anonymous(config: Configuration) -> Session:
    """A session that shows no token, for asking for one, and does not take long."""
    return Session(config.url, policy=IN_TIME)
