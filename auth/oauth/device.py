"""Device authorization grant (RFC 8628).

User codes consist of twenty consonants, which form no words and are not easily confused. Entering
one needs a login, and wrong codes lead to a lockout.
"""

import secrets
import uuid
from dataclasses import dataclass
from typing import Any

from auth.accounts import admit_at_login
from auth.login import lockout
from auth.login.lockout import LockoutPolicy
from auth.login.sessions import BrowserSession
from auth.oauth.authorize import parse_scopes
from auth.oauth.provider import FormFields, OAuthError, OAuthProvider, invalid_grant
from auth.secret_values import create_secret, hash_secret
from storage.catalog import Tx, oauth
from storage.catalog.oauth import APPROVED, DENIED, PENDING, DeviceCodeRow, GrantRow, OAuthClient
from storage.errors import Unavailable

DEVICE_GRANT_TYPE = "urn:ietf:params:oauth:grant-type:device_code"
USER_CODE_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
USER_CODE_LENGTH = 8
SLOW_DOWN_S = 5
"""Added to a device's poll interval when it polls too soon (RFC 8628, section 3.5)."""
POLL_TOLERANCE_S = 0.5
"""Network jitter that is allowed for."""
_CODE_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class PendingDevice:
    """A device that waits for a decision of the user."""

    id: str
    client: OAuthClient
    scopes: tuple[str, ...]


def start_device_login(
    provider: OAuthProvider, client: OAuthClient, form: FormFields
) -> dict[str, Any]:
    """Create a device code and a user code (RFC 8628, section 3.2)."""
    scope = " ".join(parse_scopes(form.get("scope") or None))
    device_code = create_secret()
    with provider.catalog.write() as tx:
        user_code = _add_device(tx, provider, device_code, client, scope)
    address = f"{provider.issuer}/device"
    return {
        "device_code": device_code,
        "user_code": user_code,
        "verification_uri": address,
        "verification_uri_complete": f"{address}?user_code={user_code}",
        "expires_in": provider.settings.device_code_s,
        "interval": provider.settings.device_poll_s,
    }


def _add_device(
    tx: Tx, provider: OAuthProvider, device_code: str, client: OAuthClient, scope: str
) -> str:
    now = provider.now_us()
    for _ in range(_CODE_ATTEMPTS):
        letters = "".join(secrets.choice(USER_CODE_LETTERS) for _ in range(USER_CODE_LENGTH))
        row = DeviceCodeRow(
            id=hash_secret(device_code),
            user_code=hash_secret(letters),
            client=client.id,
            scope=scope,
            state=PENDING,
            email=None,
            auth_us=None,
            interval_s=provider.settings.device_poll_s,
            polled_us=None,
            ends_us=now + provider.settings.device_code_s * 1_000_000,
        )
        if oauth.insert_device_code(tx, row, now):
            return format_user_code(letters)
    raise Unavailable("No user code is available.", retry_after_s=1)


def format_user_code(code: str) -> str:
    """Format a user code as devices show it, however it was entered."""
    letters = _normalize_user_code(code)
    return f"{letters[: USER_CODE_LENGTH // 2]}-{letters[USER_CODE_LENGTH // 2 :]}"


def _normalize_user_code(code: str) -> str:
    return "".join(letter for letter in code.upper()[:64] if letter.isalnum())


def find_pending_device(tx: Tx, provider: OAuthProvider, entered: str) -> PendingDevice | None:
    """Return the pending device with this user code, however it was entered."""
    row = oauth.lock_user_code(tx, hash_secret(_normalize_user_code(entered)))
    return None if row is None else _build_pending_device(tx, provider, row)


def enter_user_code(
    provider: OAuthProvider, code: str, email: str, patience: LockoutPolicy
) -> PendingDevice | None:
    """Return the pending device of an entered code; TooManyRequests after too many wrong codes."""
    counted = lockout.count_attempt(
        provider.catalog, [lockout.device_key(email)], patience, provider.clock()
    )
    with provider.catalog.write() as tx:
        pending = find_pending_device(tx, provider, code)
        if pending is not None:
            lockout.forgive_attempt(tx, counted)
    return pending


def decide_device(
    tx: Tx, provider: OAuthProvider, device_id: str, session: BrowserSession, *, allow: bool
) -> bool:
    """Record a decision; False if the device is not pending, Forbidden if the user is disabled."""
    row = oauth.lock_device_code(tx, device_id)
    if row is None or _build_pending_device(tx, provider, row) is None:
        return False
    admit_at_login(tx, session.email)
    state = APPROVED if allow else DENIED
    oauth.decide_device_code(tx, device_id, state, email=session.email, auth_us=session.at_us)
    return True


def poll_device(
    tx: Tx, provider: OAuthProvider, client: OAuthClient, device_code: str
) -> GrantRow | OAuthError:
    """Return the grant of an approved device, once; else the OAuth error for its state."""
    row, now = oauth.lock_device_code(tx, hash_secret(device_code)), provider.now_us()
    if row is None or row.client != client.id:
        return invalid_grant("device_code: unknown, used, or of another client.")
    if now >= row.ends_us:
        return OAuthError("expired_token", "The code has expired. Start again.")
    if row.state == PENDING:
        return _check_poll_interval(tx, row, now) or OAuthError(
            "authorization_pending", "The user has not decided yet."
        )
    oauth.delete_device_code(tx, row.id)
    if row.state == DENIED:
        return OAuthError("access_denied", "The user denied access.")
    return _create_grant(tx, row, now, grant_id=str(uuid.uuid4()))


def _check_poll_interval(tx: Tx, row: DeviceCodeRow, now_us: int) -> OAuthError | None:
    since_s = None if row.polled_us is None else (now_us - row.polled_us) / 1e6
    if since_s is None or since_s >= row.interval_s - POLL_TOLERANCE_S:
        oauth.record_device_poll(tx, row.id, now_us, interval_s=row.interval_s)
        return None
    oauth.record_device_poll(tx, row.id, now_us, interval_s=row.interval_s + SLOW_DOWN_S)
    return OAuthError("slow_down", f"Poll every {row.interval_s + SLOW_DOWN_S} seconds.")


def _create_grant(tx: Tx, row: DeviceCodeRow, now_us: int, *, grant_id: str) -> GrantRow:
    grant = GrantRow(
        id=grant_id,
        client=row.client,
        email=row.email or "",
        scope=row.scope,
        auth_us=row.auth_us or now_us,
        created_us=now_us,
        ends_us=row.ends_us,
    )
    oauth.insert_grant(tx, grant)
    return grant


def _build_pending_device(
    tx: Tx, provider: OAuthProvider, row: DeviceCodeRow
) -> PendingDevice | None:
    client = provider.client(tx, row.client)
    if client is None or row.state != PENDING or provider.now_us() >= row.ends_us:
        return None
    return PendingDevice(row.id, client, tuple(row.scope.split()))
