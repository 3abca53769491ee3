"""Log in by token, browser or device code (RFC 8628); log out and revoke the login."""

import contextlib
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from store_client.atomic_files import parse_json_object
from store_client.auth import credentials as files
from store_client.auth.claims import make_printable
from store_client.auth.credentials import SavedLogin
from store_client.auth.identity import VerifiedToken, extract_jwt, verify_token
from store_client.auth.oauth import (
    CLIENT_ID,
    SCOPE,
    AuthService,
    OAuthRefusal,
    TokenGrant,
    discover_service,
    is_unencrypted,
    post_form,
    request_tokens,
)
from store_client.configuration import Configuration
from store_client.errors import NotAllowed, Refused, StoreError, TimedOut, Unreachable
from store_client.http.session import HttpSession

if TYPE_CHECKING:
    from store_client.auth.browser import Say, Show

WAIT_S = 300.0
"""How long to wait for the browser."""


@dataclass(frozen=True, slots=True)
class LoginPrompts:
    """Output, browser and clock of a login."""

    say: "Say"
    show: "Show | None" = None
    """Opens a browser; None: the system's."""
    wait_s: float = WAIT_S
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time


def login_with_token(
    session: HttpSession, config: Configuration, given: str, *, around: LoginPrompts
) -> VerifiedToken:
    """Save a given token, if the store accepts it."""
    _warn_if_unencrypted(config.url, around.say)
    token = extract_jwt(given)
    found = verify_token(session, config, token, now=around.now)
    _save_login(session, config, SavedLogin(token, expires=found.expires, email=found.email))
    return found


def login_with_consent(
    session: HttpSession, config: Configuration, *, around: LoginPrompts, elsewhere: bool = False
) -> VerifiedToken:
    """Log in at the browser, or by device code if `elsewhere`, and save the login."""
    service = discover_service(session, config, fresh=True)
    for url in (config.url, service.issuer):
        _warn_if_unencrypted(url, around.say)
    granted: TokenGrant
    if elsewhere:
        granted = authorize_device(session, service, say=around.say, sleep=around.sleep)
    else:
        browser: Any = importlib.import_module("store_client.auth.browser")
        granted = browser.authorize_in_browser(
            session, service, say=around.say, show=around.show, wait_s=around.wait_s
        )
    at = around.now()
    found = verify_token(session, config, granted.access_token, now=around.now)
    saved = SavedLogin(
        access_token=granted.access_token,
        refresh_token=granted.refresh_token,
        expires=granted.expires_at(at),
        email=found.email or granted.email,
        issuer=service.issuer,
        token_endpoint=service.token_endpoint,
        revocation_endpoint=service.revocation_endpoint,
    )
    _save_login(session, config, saved)
    return found


def _save_login(session: HttpSession, config: Configuration, kept: SavedLogin) -> None:
    """Save a login, and revoke the one that it replaces."""
    with files.lock_login(config):
        before = files.read_login(config)
        files.write_login(config, kept)
    if before is not None and before.refresh_token:
        revoke_login(session, before)


def _warn_if_unencrypted(url: str, say: "Say") -> None:
    if is_unencrypted(url):
        say(f"Warning: {url} is not encrypted: others on the network can read your token.")


@dataclass(frozen=True, slots=True)
class LogoutResult:
    """The result of a logout."""

    was_in: bool
    email: str = ""
    revoked: bool = False
    expires: float | None = None
    """Until when the token is good all the same, when it could not be revoked."""
    why_not: str = ""


def log_out(session: HttpSession, config: Configuration) -> LogoutResult:
    """Delete and revoke the saved login; StoreError only if the file cannot be deleted."""
    with contextlib.ExitStack() as stack:
        # A logout does not fail because of a lock.
        with contextlib.suppress(StoreError):
            stack.enter_context(files.lock_login(config))
        kept = files.read_login(config)
        was_in = files.delete_login(config)
    if kept is None:
        return LogoutResult(was_in)
    why_not = revoke_login(session, kept)
    return LogoutResult(was_in, kept.email, not why_not, kept.expires, why_not)


def revoke_login(session: HttpSession, kept: SavedLogin) -> str:
    """Revoke a login at its service; the reason if that failed, else ""."""
    if not kept.revocation_endpoint:
        return "the token came from elsewhere"
    token = kept.refresh_token or kept.access_token
    form = {"client_id": CLIENT_ID, "token": token}
    try:
        post_form(session, kept.revocation_endpoint, form, again=True)
    except StoreError as error:
        return str(error)
    return ""


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
