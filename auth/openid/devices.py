"""Devices without a browser (RFC 8628): they show a code, which a person enters elsewhere.

Codes of people have twenty letters, none of which makes a word or looks like another. Who guesses
them has to be logged in, and is stopped after a few tries.
"""

import secrets
import uuid
from dataclasses import dataclass
from typing import Any

from auth.digests import digest, new_secret
from auth.login import lockout
from auth.login.lockout import Patience
from auth.openid.authorizing import scopes_of
from auth.openid.clients import Client
from auth.openid.errors import OAuthError, invalid_grant
from auth.openid.granting import Person
from auth.openid.provider import Provider
from auth.openid.proving import Form
from storage.catalog import device_codes as rows
from storage.catalog import grants
from storage.catalog.device_codes import APPROVED, DENIED, PENDING, DeviceRow
from storage.catalog.engine import Tx
from storage.catalog.grants import GrantRow
from storage.errors import Unavailable

GRANT_TYPE = "urn:ietf:params:oauth:grant-type:device_code"
LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
LENGTH = 8
SLOWER_S = 5
"""What is added to a device's interval when it asks too soon (RFC 8628, 3.5)."""
EAGER_S = 0.5
"""How much too soon is not too soon: networks are not even."""
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Waiting:
    """A device that waits for a person: of which client, for what."""

    id: str
    client: Client
    scopes: tuple[str, ...]


def begin(provider: Provider, client: Client, form: Form) -> dict[str, Any]:
    """A device's code and the code that it shows (RFC 8628, 3.2)."""
    scope = " ".join(scopes_of(form.get("scope") or None))
    device_code = new_secret()
    with provider.catalog.write() as tx:
        user_code = _added(tx, provider, device_code, client, scope)
    address = f"{provider.issuer}/device"
    return {
        "device_code": device_code,
        "user_code": user_code,
        "verification_uri": address,
        "verification_uri_complete": f"{address}?user_code={user_code}",
        "expires_in": provider.settings.device_code_s,
        "interval": provider.settings.device_poll_s,
    }


def _added(tx: Tx, provider: Provider, device_code: str, client: Client, scope: str) -> str:
    now = provider.now_us()
    for _ in range(_TRIES):
        letters = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
        row = DeviceRow(
            id=digest(device_code),
            user_code=digest(letters),
            client=client.id,
            scope=scope,
            state=PENDING,
            email=None,
            auth_us=None,
            interval_s=provider.settings.device_poll_s,
            polled_us=None,
            ends_us=now + provider.settings.device_code_s * 1_000_000,
        )
        if rows.add(tx, row, now):
            return as_shown(letters)
    raise Unavailable("No code is free.", retry_after_s=1)


def as_shown(code: str) -> str:
    """A code as a device shows it, however a person writes it."""
    letters = _letters(code)
    return f"{letters[: LENGTH // 2]}-{letters[LENGTH // 2 :]}"


def _letters(code: str) -> str:
    return "".join(letter for letter in code.upper()[:64] if letter.isalnum())


def waiting(tx: Tx, provider: Provider, entered: str) -> Waiting | None:
    """The device that shows this code, however a person writes it; None when none waits by it."""
    row = rows.hold_by_user_code(tx, digest(_letters(entered)))
    return None if row is None else _waiting(tx, provider, row)


def entered(provider: Provider, code: str, email: str, patience: Patience) -> Waiting | None:
    """The device whose code this person entered; TooMany when they entered too many that were of
    none."""
    counted = lockout.enter(provider.catalog, [lockout.device(email)], patience, provider.clock())
    with provider.catalog.write() as tx:
        found = waiting(tx, provider, code)
        if found is not None:
            lockout.passed(tx, counted)
    return found


def decide(tx: Tx, provider: Provider, device_id: str, person: Person, *, allow: bool) -> bool:
    """A person decided; False when the device does not wait any more. Forbidden when the person is
    disabled."""
    row = rows.hold(tx, device_id)
    if row is None or _waiting(tx, provider, row) is None:
        return False
    provider.people.admit(tx, person.email)
    state = APPROVED if allow else DENIED
    rows.decide(tx, device_id, state, email=person.email, auth_us=person.auth_us)
    return True


def poll(tx: Tx, provider: Provider, client: Client, device_code: str) -> GrantRow | OAuthError:
    """A device asks whether somebody entered its code: the grant, once, or how it stands."""
    row, now = rows.hold(tx, digest(device_code)), provider.now_us()
    if row is None or row.client != client.id:
        return invalid_grant("The code is not known, was used, or is not this client's.")
    if now >= row.ends_us:
        return OAuthError("expired_token", "Nobody entered the code in time: begin again.")
    if row.state == PENDING:
        return _too_soon(tx, row, now) or OAuthError(
            "authorization_pending", "Nobody has decided yet."
        )
    rows.remove(tx, row.id)
    if row.state == DENIED:
        return OAuthError("access_denied", "The person said no.")
    return _granted(tx, row, now, grant_id=str(uuid.uuid4()))


def _too_soon(tx: Tx, row: DeviceRow, now_us: int) -> OAuthError | None:
    since_s = None if row.polled_us is None else (now_us - row.polled_us) / 1e6
    if since_s is None or since_s >= row.interval_s - EAGER_S:
        rows.poll(tx, row.id, now_us, interval_s=row.interval_s)
        return None
    rows.poll(tx, row.id, now_us, interval_s=row.interval_s + SLOWER_S)
    return OAuthError("slow_down", f"Ask every {row.interval_s + SLOWER_S} seconds.")


def _granted(tx: Tx, row: DeviceRow, now_us: int, *, grant_id: str) -> GrantRow:
    grant = GrantRow(
        id=grant_id,
        client=row.client,
        email=row.email or "",
        scope=row.scope,
        auth_us=row.auth_us or now_us,
        code=None,
        code_ends_us=None,
        redirect_uri=None,
        challenge=None,
        nonce=None,
        created_us=now_us,
        redeemed_us=None,
        revoked_us=None,
        ends_us=row.ends_us,
    )
    grants.add(tx, grant)
    return grant


def _waiting(tx: Tx, provider: Provider, row: DeviceRow) -> Waiting | None:
    client = provider.client(tx, row.client)
    if client is None or row.state != PENDING or provider.now_us() >= row.ends_us:
        return None
    return Waiting(row.id, client, tuple(row.scope.split()))
