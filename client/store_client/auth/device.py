"""Log in without a browser: the OAuth device flow (RFC 8628)."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from store_client.atomic_files import parse_json_object
from store_client.auth.claims import make_printable
from store_client.auth.oauth import (
    CLIENT_ID,
    SCOPE,
    AuthService,
    OAuthRefusal,
    TokenGrant,
    post_form,
    request_tokens,
)
from store_client.errors import NotAllowed, Refused, StoreError, TimedOut, Unreachable
from store_client.http.session import HttpSession

GRANT_TYPE = "urn:ietf:params:oauth:grant-type:device_code"
INTERVAL_S = 5.0
SLOWER_S = 5.0
"""What is added when we asked too soon (RFC 8628, 3.5)."""
LONGEST_S = 60.0
LASTING_S = 1_800.0
AGAIN = "again: store login --remote"


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """The user code to enter, and the device code to poll with."""

    user_code: str
    address: str
    whole_address: str
    expires_in: float
    interval: float
    device_code: str = field(repr=False)


def authorize_device(
    session: HttpSession,
    service: AuthService,
    *,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> TokenGrant:
    """Log in by device flow; TimedOut, or NotAllowed if consent is denied."""
    device = request_device_code(session, service)
    say(f"On any device with a browser, open\n  {device.address}\nand enter the code")
    say(f"  {device.user_code}")
    if device.whole_address:
        say(f"(or open {device.whole_address})")
    form = {"grant_type": GRANT_TYPE, "device_code": device.device_code}
    until, interval = now() + device.expires_in, device.interval
    while now() + interval < until:
        sleep(interval)
        try:
            return request_tokens(session, service.token_endpoint, form, again=True)
        except OAuthRefusal as error:
            interval = _next_interval(error, interval)
        except (Unreachable, TimedOut):
            # 3.5: without an answer, poll less often.
            interval = min(2 * interval, LONGEST_S)
    raise TimedOut("the code was not entered in time", hint=AGAIN)


def request_device_code(session: HttpSession, service: AuthService) -> DeviceCode:
    """Request a user code."""
    if not service.device_authorization_endpoint:
        raise StoreError(
            "this store has no login for machines without a browser",
            hint="log in on another machine and pass the token: store login --access-token -",
        )
    form = {"client_id": CLIENT_ID, "scope": SCOPE}
    answer = post_form(session, service.device_authorization_endpoint, form, again=True)
    try:
        return _parse_device_code(parse_json_object(answer.content))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused("the authorization service answered with no code to enter") from error


def _parse_device_code(said: Any) -> DeviceCode:
    if not said["device_code"] or not said["user_code"] or not said["verification_uri"]:
        raise ValueError
    return DeviceCode(
        user_code=make_printable(said["user_code"], longest=40),
        address=make_printable(said["verification_uri"]),
        whole_address=make_printable(said.get("verification_uri_complete") or ""),
        expires_in=min(float(said.get("expires_in") or LASTING_S), LASTING_S),
        interval=min(max(float(said.get("interval") or INTERVAL_S), 1.0), LONGEST_S),
        device_code=str(said["device_code"]),
    )


def _next_interval(refusal: OAuthRefusal, interval: float) -> float:
    """The interval until the next poll; raises if polling is pointless."""
    if refusal.error == "authorization_pending":
        return interval
    if refusal.error == "slow_down":
        return interval + SLOWER_S
    if refusal.error == "expired_token":
        raise TimedOut("the code was not entered in time", hint=AGAIN) from refusal
    if refusal.error == "access_denied":
        raise NotAllowed("the login was refused", hint=AGAIN) from refusal
    raise refusal
