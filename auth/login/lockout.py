"""Login throttling: failed logins make the next one wait.

Failures are counted for the account at one address, for the address, and for the account at all
addresses. So an attacker locks an account out at the attacker's own address only. The count at all
addresses bounds distributed guessing: it allows many failures, and then slows down by seconds.
A browser that logged in to the account before is counted by itself alone.

A try is counted before the password is checked, and taken back when it was right, so that a
thousand tries at once are a thousand. No wait is longer than the longest, and refused tries do not
prolong it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from storage.catalog import Catalog, Tx, tries
from storage.errors import TooMany

FORGOTTEN_S = 86_400
ACCOUNT_CAP_S = 60
"""Longest wait of an account at all addresses: a slow-down, no lock-out."""
MAX_WHO = 300


@dataclass(frozen=True)
class Patience:
    """Failures after which each next try waits: 1 s, then twice as long each time, up to a cap."""

    pair: int = 5
    """Of an account at one address; of a known browser; of a person who enters device codes."""
    address: int = 50
    account: int = 100
    """Of an account at all addresses together."""
    cap_s: int = 900


class PatienceSettings(Protocol):
    """The part of Settings that says who has to wait."""

    @property
    def lockout_after(self) -> int: ...
    @property
    def lockout_address_after(self) -> int: ...
    @property
    def lockout_account_after(self) -> int: ...
    @property
    def lockout_cap_s(self) -> int: ...


def patience(settings: PatienceSettings) -> Patience:
    """As the settings have it."""
    return Patience(
        pair=settings.lockout_after,
        address=settings.lockout_address_after,
        account=settings.lockout_account_after,
        cap_s=settings.lockout_cap_s,
    )


@dataclass(frozen=True)
class Counted:
    """A try that was let in: whose it is, and how many each of them has failed with it."""

    failures: Mapping[str, int]


def account(email: str) -> str:
    """The key that an account's failures at all addresses are counted under."""
    return f"account:{email}"[:MAX_WHO]


def pair(email: str, seen: str) -> str:
    """The same of an account at one address."""
    return f"{pair_prefix(email)}{seen}"[:MAX_WHO]


def pair_prefix(email: str) -> str:
    """What the keys of an account at each address begin with; no e-mail address has a space."""
    return f"pair:{email} "


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
    """Take back a try that was no failure. An address, and an account at all addresses, keep their
    other failures: they may be an attacker's, who may have an account of their own."""
    for who, failures in sorted(counted.failures.items()):
        if who.startswith(("address:", "account:")):
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
    if who.startswith("address:"):
        return delay_s(failures, patience.address, patience.cap_s)
    if who.startswith("account:"):
        return delay_s(failures, patience.account, min(patience.cap_s, ACCOUNT_CAP_S))
    return delay_s(failures, patience.pair, patience.cap_s)
