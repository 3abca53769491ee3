"""A browser on its way to a provider and back: what it was sent with, and what it must bring again.

Its state is good once, at one provider, from one browser. Nonce and verifier are made of the
secret in the state, so that neither is kept anywhere.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from auth.digests import digest
from auth.login.upstream import Login
from auth.seals import Seals
from storage.catalog import Catalog
from storage.catalog import logins as rows

SECRET_BYTES = 24


@dataclass(frozen=True)
class Departure:
    """A login that begins; the secret is nowhere but in its state."""

    login: Login
    secret: str = field(repr=False)
    ends: float


@dataclass(frozen=True)
class Travels:
    """Sends browsers to providers, and takes them back within `life_s`; `clock` tells seconds."""

    catalog: Catalog
    seals: Seals
    clock: Callable[[], float]
    life_s: int

    def begin(self, callback: str) -> Departure:
        """What a provider is to be asked with."""
        secret, ends = secrets.token_urlsafe(SECRET_BYTES), self.clock() + self.life_s
        state = self.seals.seal("state", [secret], ends=ends)
        return Departure(self._login(callback, state, secret), secret, ends)

    def send(self, departure: Departure, provider: str, browser: str, target: str) -> None:
        """Remember which browser left for which provider, and where it goes afterwards."""
        away = rows.Away(digest(departure.secret), provider, digest(browser), target)
        with self.catalog.write(durable=False) as tx:
            rows.send_away(
                tx, away, now_us=int(self.clock() * 1e6), ends_us=int(departure.ends * 1e6)
            )

    def take_back(
        self, provider: str, state: str | None, browser: str, callback: str
    ) -> tuple[Login, str] | None:
        """The login that the state is of, and its target; None unless this browser was sent there,
        for the first time and lately."""
        now = self.clock()
        opened = self.seals.open("state", state, now=now)
        if opened is None:
            return None
        (secret,) = opened
        with self.catalog.write(durable=False) as tx:
            target = rows.take_back(
                tx, digest(secret), provider, digest(browser), now_us=int(now * 1e6)
            )
        return None if target is None else (self._login(callback, "", secret), target)

    def _login(self, callback: str, state: str, secret: str) -> Login:
        nonce, verifier = (self.seals.derived(what, secret) for what in ("nonce", "verifier"))
        return Login(callback=callback, state=state, nonce=nonce, verifier=verifier)
