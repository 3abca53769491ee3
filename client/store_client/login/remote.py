"""Logging in where there is no browser: the person enters a code elsewhere (RFC 8628)."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from store_client.errors import NotAllowed, Refused, StoreError, TimedOut, Unreachable
from store_client.login.discovery import Service
from store_client.login.expiry import printable
from store_client.login.granting import CLIENT_ID, SCOPE, Granted, OAuthRefusal, granted, post
from store_client.transport.session import Session

GRANT_TYPE = "urn:ietf:params:oauth:grant-type:device_code"
INTERVAL_S = 5.0
SLOWER_S = 5.0
"""What is added when we asked too soon (RFC 8628, 3.5)."""
LONGEST_S = 60.0
LASTING_S = 1_800.0
AGAIN = "again: store login --remote"


@dataclass(frozen=True, slots=True)
class Device:
    """A code that a person enters, and the one that is asked with meanwhile."""

    user_code: str
    address: str
    whole_address: str
    expires_in: float
    interval: float
    device_code: str = field(repr=False)


def remote(
    session: Session,
    service: Service,
    *,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Granted:
    """The tokens of who enters the code; TimedOut, or NotAllowed when they say no."""
    device = begin(session, service)
    say(f"On any device with a browser, open\n  {device.address}\nand enter the code")
    say(f"  {device.user_code}")
    if device.whole_address:
        say(f"(or open {device.whole_address})")
    until, interval = now() + device.expires_in, device.interval
    while now() + interval < until:
        sleep(interval)
        try:
            return _asked(session, service, device)
        except OAuthRefusal as error:
            interval = _slower(error, interval)
        except (Unreachable, TimedOut):
            # 3.5: whoever is not answered asks less often.
            interval = min(2 * interval, LONGEST_S)
    raise TimedOut("nobody entered the code in time", hint=AGAIN)


def begin(session: Session, service: Service) -> Device:
    """A code for a person to enter."""
    if not service.device_authorization_endpoint:
        raise StoreError(
            "this store has no login for machines without a browser",
            hint="log in elsewhere and bring the token: store login --access-token -",
        )
    form = {"client_id": CLIENT_ID, "scope": SCOPE}
    answer = post(session, service.device_authorization_endpoint, form, again=True)
    try:
        return _device(answer.json())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused("the authorization service answered with no code to enter") from error


def _device(said: Any) -> Device:
    if not said["device_code"] or not said["user_code"] or not said["verification_uri"]:
        raise ValueError
    return Device(
        user_code=printable(said["user_code"], longest=40),
        address=printable(said["verification_uri"]),
        whole_address=printable(said.get("verification_uri_complete") or ""),
        expires_in=min(float(said.get("expires_in") or LASTING_S), LASTING_S),
        interval=min(max(float(said.get("interval") or INTERVAL_S), 1.0), LONGEST_S),
        device_code=str(said["device_code"]),
    )


def _asked(session: Session, service: Service, device: Device) -> Granted:
    form = {"grant_type": GRANT_TYPE, "device_code": device.device_code}
    return granted(session, service.token_endpoint, form, again=True)


def _slower(refusal: OAuthRefusal, interval: float) -> float:
    """How long to wait before asking again; the refusal itself when that is of no use."""
    if refusal.error == "authorization_pending":
        return interval
    if refusal.error == "slow_down":
        return interval + SLOWER_S
    if refusal.error == "expired_token":
        raise TimedOut("nobody entered the code in time", hint=AGAIN) from refusal
    if refusal.error == "access_denied":
        raise NotAllowed("the login was refused", hint=AGAIN) from refusal
    raise refusal
