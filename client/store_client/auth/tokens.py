"""Choose and refresh the tokens that a session sends.

The order: a token given in code, else the file named by CLOUD_APPLICATION_CREDENTIALS, else the
saved login, else none.

A refresh token can be used once. A process that refreshes holds the lock of the file, and checks
first whether another process has refreshed meanwhile.
"""

import importlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Lock

from store_client.auth import credentials as files
from store_client.auth.claims import NEARLY_S, TokenStatus, format_moment, token_status
from store_client.auth.credentials import CREDENTIALS_VARIABLE, SavedLogin
from store_client.auth.oauth import OAuthRefusal, request_tokens
from store_client.configuration import Configuration
from store_client.errors import NotAllowed, StoreError
from store_client.http.retries import RetryPolicy, StaticToken, TokenSource
from store_client.http.session import HttpSession

log = logging.getLogger(__name__)

LOG_IN = "store login"
REFRESH_POLICY = RetryPolicy(
    waits_s=(1,), unknown_retries=1, retry_after_cap_s=5, connect_s=4, read_s=7, write_s=7
)
"""A refresh holds a lock that others wait for; a lost answer is repeated for ten seconds."""
ENDED_LOGIN_ERRORS = ("invalid_grant", "invalid_client", "unauthorized_client")
"""OAuth errors that end the login."""

Sessions = Callable[[Configuration], HttpSession]


class SavedLoginTokens:
    """The tokens of a saved login, refreshed before they expire; threads share it."""

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
        self._login: SavedLogin | None = None
        self._warned = False

    def bearer(self) -> str | None:
        """A token that stays valid for a while; None if not logged in.

        NotAllowed if the login has ended. An expired token that cannot be refreshed is sent as it
        is: the store's clock decides.
        """
        with self._lock:
            kept = self._login
            if kept is None or kept.over:
                kept = self._login = files.read_login(self._config)
            if kept is None:
                return None
            self._check_not_ended(kept)
            if self._status(kept, NEARLY_S) is TokenStatus.GOOD:
                self._warn_of_expiry(kept)
                return kept.access_token
            return self._next_token(kept)

    def renew(self, refused: str) -> str | None:
        """Another token than the rejected one; None if there is none."""
        with self._lock:
            kept = self._login = files.read_login(self._config)
            if kept is None or kept.over:
                return None
            if kept.access_token != refused:
                return kept.access_token
            if not kept.refresh_token:
                return None
            self._login = self._refresh(kept)
            return self._login.access_token if self._login else None

    def _next_token(self, kept: SavedLogin) -> str | None:
        """The refreshed token, or the current one while it lasts if that fails."""
        if not kept.refresh_token:
            self._warn_of_expiry(kept)
            return kept.access_token
        try:
            self._login = self._refresh(kept)
        except StoreError as error:
            final = isinstance(error, NotAllowed) and not isinstance(error, OAuthRefusal)
            if final or self._status(kept, 0.0) is TokenStatus.EXPIRED:
                raise
            log.debug("the token for %s was not refreshed: %s", self._config.url, error)
            return kept.access_token
        return self._login.access_token if self._login else None

    def _refresh(self, before: SavedLogin) -> SavedLogin | None:
        """The login with new tokens, which another process may have requested."""
        with files.lock_login(self._config):
            now = files.read_login(self._config)
            if now is None:
                return None
            self._check_not_ended(now)
            if now.access_token != before.access_token:
                return now
            following = self._request_refresh(now)
            try:
                files.write_login(self._config, following)
            except StoreError as error:
                # Good as long as this process runs.
                log.warning("you will have to log in again: %s", error)
        log.debug("the token for %s was refreshed", self._config.url)
        return following

    def _request_refresh(self, kept: SavedLogin) -> SavedLogin:
        form = {"grant_type": "refresh_token", "refresh_token": kept.refresh_token}
        try:
            with self._session_of(self._config) as session:
                # The service gives the same successor again for some seconds.
                found = request_tokens(session, kept.token_endpoint, form, again=True)
        except OAuthRefusal as error:
            if error.error in ENDED_LOGIN_ERRORS:
                over = replace(kept, refresh_token="", over=str(error))
                files.write_login(self._config, over)
                self._check_not_ended(over)
            raise
        return replace(
            kept,
            access_token=found.access_token,
            refresh_token=found.refresh_token or kept.refresh_token,
            expires=found.expires_at(self._now()),
        )

    def _check_not_ended(self, kept: SavedLogin) -> None:
        if kept.over:
            raise NotAllowed(
                f"the login at {self._config.url} is over: {kept.over}",
                hint=f"{LOG_IN}; or, to continue without a login: store logout",
                status=401,
            )

    def _status(self, kept: SavedLogin, soon_s: float) -> TokenStatus:
        return token_status(kept.expires, self._now(), soon_s=soon_s)

    def _warn_of_expiry(self, kept: SavedLogin) -> None:
        """Warn once that a token without refresh token expires."""
        found = token_status(kept.expires, self._now())
        if self._warned or kept.refresh_token or found is TokenStatus.GOOD or kept.expires is None:
            return
        self._warned = True
        tense = "ended" if found is TokenStatus.EXPIRED else "ends"
        log.warning(
            "your token for %s %s at %s: %s",
            self._config.url,
            tense,
            format_moment(kept.expires),
            LOG_IN,
        )


def open_tokens(
    config: Configuration,
    *,
    given: str | None = None,
    environ: Mapping[str, str] = os.environ,
    now: Callable[[], float] = time.time,
) -> TokenSource:
    """Choose the token source for this store."""
    if given:
        return StaticToken(given)
    if path := environ.get(CREDENTIALS_VARIABLE):
        # What signs is heavy, and most people have no need of it.
        module = importlib.import_module("store_client.auth.signatures")
        made: TokenSource = module.ServiceAccountTokens(Path(path), config.url, now=now)
        return made
    return SavedLoginTokens(config, session_of=anonymous_session, now=now)


def anonymous_session(config: Configuration) -> HttpSession:
    """A session without token and with short time-outs, for requesting tokens."""
    return HttpSession(config.url, policy=REFRESH_POLICY)
