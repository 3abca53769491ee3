"""Failed logins make the next one wait: of the account, and of the address they come from.

A try is counted before the password is looked at, and taken back when it was right, so that a
thousand tries at once are a thousand. No wait is longer than the longest, and refused tries do not
prolong it. A browser that logged in before is counted by itself: whoever guesses at an account
from elsewhere does not lock its owner out.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from storage.catalog import Catalog, Tx, tries
from storage.errors import TooMany

FORGOTTEN_S = 86_400
MAX_WHO = 300


@dataclass(frozen=True)
class Patience:
    """Failures after which each next try waits: 1 s, then twice as long each time, up to a cap."""

    account: int = 5
    address: int = 50
    cap_s: int = 900


class PatienceSettings(Protocol):
    """The part of Settings that says who has to wait."""

    @property
    def lockout_after(self) -> int: ...
    @property
    def lockout_address_after(self) -> int: ...
    @property
    def lockout_cap_s(self) -> int: ...


def patience(settings: PatienceSettings) -> Patience:
    """As the settings have it."""
    return Patience(settings.lockout_after, settings.lockout_address_after, settings.lockout_cap_s)


@dataclass(frozen=True)
class Counted:
    """A try that was let in: whose it is, and how many each of them has failed with it."""

    failures: Mapping[str, int]


def account(email: str) -> str:
    """The key that an account's failures are counted under."""
    return f"account:{email}"[:MAX_WHO]


def address(seen: str) -> str:
    """The same of an address."""
    return f"address:{seen}"[:MAX_WHO]


def browser(name: str) -> str:
    """The same of a browser that logged in before."""
    return f"browser:{name}"[:MAX_WHO]


def device(email: str) -> str:
    """The same of somebody who enters the codes of devices."""
    return f"device:{email}"[:MAX_WHO]


def enter(catalog: Catalog, whose: Iterable[str], patience: Patience, now: float) -> Counted:
    """Count a try as a failure of all of these; TooMany while one of them has to wait."""
    now_us = int(now * 1e6)
    with catalog.write(durable=False) as tx:
        forget(tx, now)
        # In one order, so that no two tries wait for each other.
        return Counted({who: _counted(tx, who, patience, now_us) for who in sorted(set(whose))})


def forget(tx: Tx, now: float) -> None:
    """Forget some of those whose last failure is long ago."""
    tries.forget(tx, int((now - FORGOTTEN_S) * 1e6))


def passed(tx: Tx, counted: Counted) -> None:
    """It was no failure. An address keeps its others: its owner may have an account of his own."""
    for who, failures in sorted(counted.failures.items()):
        if who.startswith("address:"):
            tries.uncount(tx, who, counted=failures)
        else:
            tries.forgive(tx, who)


def waits(counted: Counted, patience: Patience) -> dict[str, int]:
    """Who has to wait now, and for how many seconds, should it have been a failure."""
    found = {who: _wait_s(who, failures, patience) for who, failures in counted.failures.items()}
    return {who: wait_s for who, wait_s in found.items() if wait_s}


def delay_s(failures: int, after: int, cap_s: int) -> int:
    """How long the next try waits after so many failures in a row."""
    if failures < after:
        return 0
    return min(cap_s, 1 << min(failures - after, 30))


def _counted(tx: Tx, who: str, patience: Patience, now_us: int) -> int:
    before = now_us - FORGOTTEN_S * 1_000_000
    failures = tries.count(tx, who, now_us=now_us, forgotten_us=before)
    if failures is None:
        held = tries.find(tx, who)
        left_us = held.until_us - now_us if held else 0
        raise TooMany("Too many failed logins.", retry_after_s=max(1, math.ceil(left_us / 1e6)))
    wait_s = _wait_s(who, failures, patience)
    tries.postpone(tx, who, now_us + wait_s * 1_000_000 if wait_s else 0)
    return failures


def _wait_s(who: str, failures: int, patience: Patience) -> int:
    after = patience.address if who.startswith("address:") else patience.account
    return delay_s(failures, after, patience.cap_s)
