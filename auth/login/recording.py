"""What logins tell the audit log: who, by what and from where; never a password.

Failures are what anybody may cause, so they are told a number of times in an hour only, and then
counted.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from auth.accounts.changing import By, record_audit
from storage.catalog import tries
from storage.catalog.engine import Tx

SPAN_S = 3_600
MOST = 20
"""Rows of one kind that an account, or an address, causes in that time."""


def record_login(
    tx: Tx, who: str, what: str, email: str, request_id: str, **after: str | int
) -> None:
    """Somebody did this to the login of a user; `who` is empty while that is not known."""
    record_audit(tx, By(who, what, request_id), f"user/{email}", before=None, after=after)


@dataclass(frozen=True, slots=True)
class Failed:
    """A try that failed: whose it was, as far as that is known."""

    email: str
    at: float
    request_id: str


def record_failure(
    tx: Tx, what: str, failed: Failed, *, of: Iterable[str], **after: str | int
) -> None:
    """It failed, of these, by their keys of lock-outs; how many were left out before is told as
    `untold`."""
    now_us, span_us = int(failed.at * 1e6), SPAN_S * 1_000_000
    # In one order, so that no two wait for each other.
    untold = [
        tries.one_more(tx, f"{what} {who}", most=MOST, now_us=now_us, span_us=span_us)
        for who in sorted(set(of))
    ]
    told = [few for few in untold if few is not None]
    if len(told) == len(untold):
        more = {"untold": max(told)} if any(told) else {}
        record_login(tx, "", what, failed.email, failed.request_id, **after, **more)
