"""Lockout after failed logins, and rate limits by address.

Failures are counted for the account at one address, for the address, and for the account at all
addresses. So an attacker locks an account out at the attacker's own address only. The count at all
addresses bounds distributed guessing: it allows many failures, and then slows down by seconds.
A browser that logged in to the account before is counted by itself alone.

An attempt is counted before the password is checked, and uncounted if it was right, so that
concurrent attempts are all counted. Rejected attempts do not prolong a lockout.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from storage.catalog import Catalog, Tx, login
from storage.errors import TooManyRequests
from storage.rate_limits import Rate

FORGET_AFTER_S = 86_400
ACCOUNT_CAP_S = 60
"""Longest wait of an account at all addresses: a slow-down, not a lockout."""
MAX_KEY_LENGTH = 300


@dataclass(frozen=True)
class LockoutPolicy:
    """Failures after which each next try waits: 1 s, then twice as long each time, up to a cap."""

    pair: int = 5
    """Of an account at one address; of a known browser; of a person who enters device codes."""
    address: int = 50
    account: int = 100
    """Of an account at all addresses together."""
    cap_s: int = 900


CountedAttempt = Mapping[str, int]
"""The failures of each lockout key, including this attempt."""


def account_key(email: str) -> str:
    """Return the lockout key of an account at all addresses."""
    return f"account:{email}"[:MAX_KEY_LENGTH]


def pair_key(email: str, seen: str) -> str:
    """Return the lockout key of an account at one address."""
    return f"{pair_key_prefix(email)}{seen}"[:MAX_KEY_LENGTH]


def pair_key_prefix(email: str) -> str:
    """Return the prefix of an account's pair keys; the space cannot be in an e-mail address."""
    return f"pair:{email} "


def address_key(seen: str) -> str:
    """Return the lockout key of an address."""
    return f"address:{seen}"[:MAX_KEY_LENGTH]


def browser_key(name: str) -> str:
    """Return the lockout key of a known browser."""
    return f"browser:{name}"[:MAX_KEY_LENGTH]


def device_key(email: str) -> str:
    """Return the lockout key of a user who enters device codes."""
    return f"device:{email}"[:MAX_KEY_LENGTH]


def count_attempt(
    catalog: Catalog, whose: Iterable[str], patience: LockoutPolicy, now: float
) -> CountedAttempt:
    """Count an attempt as a failure of these keys; TooManyRequests while one is locked out."""
    now_us = int(now * 1e6)
    with catalog.write(durable=False) as tx:
        forget_old_failures(tx, now)
        # Sorted, so that transactions cannot deadlock.
        return {who: _count_failure(tx, who, patience, now_us) for who in sorted(set(whose))}


def forget_old_failures(tx: Tx, now: float) -> None:
    """Delete a batch of expired failure counts."""
    login.expire_failures(tx, int((now - FORGET_AFTER_S) * 1e6))


def forgive_attempt(tx: Tx, counted: CountedAttempt) -> None:
    """Uncount a successful attempt.

    Addresses, and accounts at all addresses, keep their other failures: an attacker may log in to
    an account of their own.
    """
    for who, failures in sorted(counted.items()):
        if who.startswith(("address:", "account:")):
            login.uncount_failure(tx, who, counted=failures)
        else:
            login.clear_failures(tx, who)


def required_waits(counted: CountedAttempt, patience: LockoutPolicy) -> dict[str, int]:
    """Return the keys that are locked out if the attempt fails, with the seconds."""
    found = {who: _required_wait_s(who, failures, patience) for who, failures in counted.items()}
    return {who: wait_s for who, wait_s in found.items() if wait_s}


def lockout_delay_s(failures: int, after: int, cap_s: int) -> int:
    """Return the lockout in seconds after so many consecutive failures."""
    if failures < after:
        return 0
    return min(cap_s, 1 << min(failures - after, 30))


def _count_failure(tx: Tx, who: str, patience: LockoutPolicy, now_us: int) -> int:
    before = now_us - FORGET_AFTER_S * 1_000_000
    failures = login.count_failure(tx, who, now_us=now_us, forgotten_us=before)
    if failures is None:
        held = login.find_failures(tx, who)
        left_us = held.until_us - now_us if held else 0
        raise TooManyRequests(
            "Too many failed logins.", retry_after_s=max(1, math.ceil(left_us / 1e6))
        )
    wait_s = _required_wait_s(who, failures, patience)
    login.lock_out(tx, who, now_us + wait_s * 1_000_000 if wait_s else 0)
    return failures


def _required_wait_s(who: str, failures: int, patience: LockoutPolicy) -> int:
    if who.startswith("address:"):
        return lockout_delay_s(failures, patience.address, patience.cap_s)
    if who.startswith("account:"):
        return lockout_delay_s(failures, patience.account, min(patience.cap_s, ACCOUNT_CAP_S))
    return lockout_delay_s(failures, patience.pair, patience.cap_s)


def check_rate_limit(catalog: Catalog, who: str, rate: Rate, now: float) -> None:
    """Count a request; TooManyRequests beyond the rate limit. A rate of 0 is no limit."""
    if rate.per_minute <= 0:
        return
    now_us, step_us = int(now * 1e6), 60_000_000 // rate.per_minute
    with catalog.write(durable=False) as tx:
        login.expire_rates(tx, now_us)
        wait_us = login.take_permit(
            tx, who, now_us=now_us, step_us=step_us, burst=max(1, rate.burst)
        )
    if wait_us:
        text = f"Rate limit: {rate.per_minute} requests per minute, bursts of {rate.burst}."
        raise TooManyRequests(text, retry_after_s=math.ceil(wait_us / 1e6))
