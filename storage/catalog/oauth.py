"""OAuth clients, grants, refresh tokens, consents, and device codes.

A transaction that changes a grant or one of its tokens locks the grant's row. So if a code or
refresh token is used twice at once, the second use sees the first.
"""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import orjson
from sqlalchemy import ColumnElement, Row, delete, insert, select, update

from storage.catalog import sql, versions
from storage.catalog.sql import Tx
from storage.catalog.tables.accounts import clients, consents, device_codes, grants, refresh_tokens


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """An application; `secret` is its digest."""

    id: str
    name: str
    secret: str | None
    redirect_uris: tuple[str, ...]
    first_party: bool
    created_us: int = 0

    @property
    def public(self) -> bool:
        """Whether it has no secret."""
        return self.secret is None


def insert_client(tx: Tx, row: OAuthClient) -> bool:
    """Insert a client; False when the id exists."""
    uris = orjson.dumps(row.redirect_uris).decode()
    return bool(sql.insert_missing(tx, clients, [{**asdict(row), "redirect_uris": uris}]))


def find_client(tx: Tx, client_id: str) -> OAuthClient | None:
    """Return a client by its id."""
    return sql.find_row(tx, _client_from_row, select(clients).filter_by(id=client_id))


def list_clients(tx: Tx) -> list[OAuthClient]:
    """List all clients by id; operators add them by hand, so there are few."""
    return [_client_from_row(row) for row in tx.execute(select(clients).order_by(clients.c.id))]


def delete_client(tx: Tx, client_id: str) -> bool:
    """Delete a client and its consents, but not its grants; False when it does not exist."""
    for table in (consents, device_codes):
        tx.execute(delete(table).filter_by(client=client_id))
    return bool(tx.execute(delete(clients).filter_by(id=client_id)).rowcount)


def _client_from_row(row: Row[Any]) -> OAuthClient:
    return sql.map_row(OAuthClient, row, redirect_uris=tuple(orjson.loads(row.redirect_uris)))


GRANTS_HEAD, ALL_GRANTS = "grants", "all"


@dataclass(frozen=True, slots=True)
class GrantRow:
    """What a user allowed a client; the fields of a code are None if none was issued.

    A personal token is a grant with a name."""

    id: str
    client: str
    email: str
    scope: str
    auth_us: int
    created_us: int
    ends_us: int
    code: str | None = None
    code_ends_us: int | None = None
    redirect_uri: str | None = None
    challenge: str | None = None
    nonce: str | None = None
    redeemed_us: int | None = None
    revoked_us: int | None = None
    name: str | None = None
    used_us: int | None = None

    def is_valid(self, now_us: int) -> bool:
        """Return whether the grant may issue tokens and its tokens are valid."""
        return self.revoked_us is None and now_us < self.ends_us


@dataclass(frozen=True, slots=True)
class RefreshTokenRow:
    """A refresh token: used once, and stored until it expires."""

    id: str
    grant_id: str
    created_us: int
    used_us: int | None
    ends_us: int


def insert_grant(tx: Tx, row: GrantRow) -> None:
    """Insert a grant, and delete some that have expired."""
    sql.delete_oldest(tx, "grants", before_us=row.created_us)
    tx.execute(insert(grants), asdict(row))


def find_grant(tx: Tx, grant_id: str) -> GrantRow | None:
    """Return a grant, valid or not."""
    return sql.find_row(tx, GrantRow, select(grants).filter_by(id=grant_id))


class GrantUse(NamedTuple):
    """Whether a valid grant is a personal token, and when that was last used."""

    personal: bool
    used_us: int | None


_FIND_GRANT_USE = sql.parse(
    "SELECT name IS NOT NULL AS personal, used_us FROM grants"
    " WHERE id = :id AND revoked_us IS NULL AND ends_us > :now"
)


def find_grant_use(tx: Tx, grant_id: str, now_us: int) -> GrantUse | None:
    """Return the last use of a valid grant; None if its tokens are not valid."""
    row = tx.execute(_FIND_GRANT_USE, {"id": grant_id, "now": now_us}).first()
    return None if row is None else GrantUse(bool(row.personal), row.used_us)


def is_grant_valid(tx: Tx, grant_id: str, now_us: int) -> bool:
    """Return whether a grant's tokens are valid; False for a deleted grant."""
    return find_grant_use(tx, grant_id, now_us) is not None


def touch_grant(tx: Tx, grant_id: str, now_us: int) -> None:
    """Record that a personal token was used."""
    tx.execute(update(grants).filter_by(id=grant_id).values(used_us=now_us))


def lock_grant_by_code(tx: Tx, code: str) -> GrantRow | None:
    """Return and lock the grant of a code, redeemed or not."""
    return sql.find_row(tx, GrantRow, select(grants).filter_by(code=code).with_for_update())


def lock_grant_by_token(tx: Tx, token: str) -> GrantRow | None:
    """Return and lock the grant of a refresh token."""
    of_token = select(grants).join(refresh_tokens, refresh_tokens.c.grant_id == grants.c.id)
    query = of_token.where(refresh_tokens.c.id == token)
    return sql.find_row(tx, GrantRow, query.with_for_update(of=grants))


def redeem_grant(tx: Tx, grant_id: str, now_us: int, *, ends_us: int) -> None:
    """Mark a code redeemed; the grant now expires with its tokens. The caller holds the lock."""
    redeemed = update(grants).filter_by(id=grant_id)
    tx.execute(redeemed.values(redeemed_us=now_us, ends_us=ends_us))


@dataclass(frozen=True, slots=True)
class ActiveGrantRow:
    """A valid grant that has issued tokens."""

    id: str
    client: str
    scope: str
    since_us: int
    used_us: int | None
    ends_us: int
    auth_us: int
    name: str | None


_SELECT_ACTIVE_GRANTS = sql.parse(
    "SELECT g.id AS id, g.client AS client, g.scope AS scope, g.redeemed_us AS since_us,"
    " COALESCE(g.used_us, (SELECT max(r.created_us) FROM refresh_tokens AS r"
    " WHERE r.grant_id = g.id), CASE WHEN g.name IS NULL THEN g.redeemed_us END) AS used_us,"
    " g.ends_us AS ends_us, g.auth_us AS auth_us,"
    " g.name AS name FROM grants AS g WHERE g.email = :email AND g.revoked_us IS NULL"
    " AND g.redeemed_us IS NOT NULL AND g.ends_us > :now"
    " ORDER BY g.redeemed_us DESC, g.id LIMIT :limit"
)


_SELECT_PERSONAL_TOKENS = sql.parse(
    "SELECT id, client, scope, redeemed_us AS since_us, used_us, ends_us, auth_us, name FROM grants"
    " WHERE email = :email AND name IS NOT NULL AND revoked_us IS NULL AND ends_us > :now"
    " ORDER BY redeemed_us DESC, id"
)


def list_active_grants(tx: Tx, email: str, now_us: int, *, limit: int) -> list[ActiveGrantRow]:
    """List a user's valid grants that have issued tokens, the newest first."""
    rows = tx.execute(_SELECT_ACTIVE_GRANTS, {"email": email, "now": now_us, "limit": limit})
    return sql.map_rows(ActiveGrantRow, rows)


def list_personal_tokens(tx: Tx, email: str, now_us: int) -> list[ActiveGrantRow]:
    """List a user's valid personal tokens, the newest first; there are few."""
    rows = tx.execute(_SELECT_PERSONAL_TOKENS, {"email": email, "now": now_us})
    return sql.map_rows(ActiveGrantRow, rows)


def revoke_grant(tx: Tx, grant_id: str, now_us: int) -> bool:
    """Revoke a grant and its tokens; False when it is revoked already."""
    return bool(_revoke_where(tx, now_us, grants.c.id == grant_id))


def revoke_grants(
    tx: Tx, now_us: int, *, email: str | None = None, client: str | None = None
) -> int:
    """Revoke all grants of a user, of a client, or of both; return how many."""
    by = {"email": email, "client": client}
    conditions = [grants.c[name] == value for name, value in by.items() if value is not None]
    if not conditions:
        raise ValueError("email or client: one of them is required")
    return _revoke_where(tx, now_us, *conditions)


AUTH_ROUNDING_US = 2
"""A grant's time of login is that of the session, but for the rounding of seconds."""


def revoke_grants_of_login(tx: Tx, now_us: int, *, email: str, client: str, auth_us: int) -> int:
    """Revoke a client's grants that came of one login of a user; return how many."""
    c = grants.c
    near = c.auth_us.between(auth_us - AUTH_ROUNDING_US, auth_us + AUTH_ROUNDING_US)
    return _revoke_where(tx, now_us, c.email == email, c.client == client, near)


def _revoke_where(tx: Tx, now_us: int, *conditions: ColumnElement[bool]) -> int:
    """Revoke grants, and count that, so that caches are refreshed.

    This lock comes last: its holder waits for no grant.
    """
    valid = update(grants).where(grants.c.revoked_us.is_(None), *conditions)
    revoked = tx.execute(valid.values(revoked_us=now_us)).rowcount
    if revoked:
        versions.lock_heads(tx, GRANTS_HEAD, [ALL_GRANTS])
        versions.count_change_by_clock(tx, GRANTS_HEAD, ALL_GRANTS)
    return revoked


def read_revocation_count(tx: Tx) -> int:
    """Return a number that grows with every revocation and never repeats."""
    return versions.read_changes(tx, GRANTS_HEAD, ALL_GRANTS)


def revoke_all_grants(tx: Tx, now_us: int) -> int:
    """Revoke all grants; return how many."""
    return _revoke_where(tx, now_us, grants.c.ends_us > now_us)


def insert_refresh_token(tx: Tx, row: RefreshTokenRow) -> None:
    """Insert a refresh token, and delete some that have expired."""
    sql.delete_oldest(tx, "refresh_tokens", before_us=row.created_us)
    tx.execute(insert(refresh_tokens), asdict(row))


def find_refresh_token(tx: Tx, token_id: str) -> RefreshTokenRow | None:
    """Return a refresh token, used or not."""
    query = select(refresh_tokens).filter_by(id=token_id)
    return sql.find_row(tx, RefreshTokenRow, query)


def mark_refresh_token_used(tx: Tx, token_id: str, now_us: int) -> None:
    """Mark a refresh token used; the caller locked its grant and checked that it was unused."""
    tx.execute(update(refresh_tokens).filter_by(id=token_id).values(used_us=now_us))


def find_consent(tx: Tx, email: str, client: str) -> frozenset[str]:
    """Return the scopes of a user's permanent consent for a client."""
    query = select(consents.c.scope).where(consents.c.email == email, consents.c.client == client)
    return frozenset((tx.execute(query).scalar() or "").split())


def record_consent(tx: Tx, email: str, client: str, scopes: frozenset[str], now_us: int) -> None:
    """Add scopes to a user's permanent consent for a client."""
    scope = " ".join(sorted(scopes | find_consent(tx, email, client)))
    row = {"email": email, "client": client, "scope": scope, "at_us": now_us}
    sql.upsert(tx, consents, row)


def delete_consent(tx: Tx, email: str, client: str) -> None:
    """Delete a user's permanent consent for a client."""
    tx.execute(delete(consents).filter_by(email=email, client=client))


PENDING, APPROVED, DENIED = "pending", "approved", "denied"
EXPIRED_CODE_GRACE_US = 600_000_000
"""How long an expired code answers `expired` before it is unknown."""


@dataclass(frozen=True, slots=True)
class DeviceCodeRow:
    """A device code with its user code, and the user's decision."""

    id: str
    user_code: str
    client: str
    scope: str
    state: str
    email: str | None
    auth_us: int | None
    interval_s: int
    polled_us: int | None
    ends_us: int


def insert_device_code(tx: Tx, row: DeviceCodeRow, now_us: int) -> bool:
    """Insert a device code, and delete some old ones; False when the user code is taken."""
    sql.delete_oldest(tx, "device_codes", before_us=now_us - EXPIRED_CODE_GRACE_US)
    return bool(sql.insert_missing(tx, device_codes, [asdict(row)]))


def lock_device_code(tx: Tx, device_code: str) -> DeviceCodeRow | None:
    """Return a device code and lock it until the transaction ends."""
    query = select(device_codes).filter_by(id=device_code)
    return sql.find_row(tx, DeviceCodeRow, query.with_for_update())


def lock_user_code(tx: Tx, user_code: str) -> DeviceCodeRow | None:
    """Return the device code of a user code and lock it until the transaction ends."""
    query = select(device_codes).filter_by(user_code=user_code)
    return sql.find_row(tx, DeviceCodeRow, query.with_for_update())


def record_device_poll(tx: Tx, device_code: str, now_us: int, *, interval_s: int) -> None:
    """Record a poll and the interval until the next; the caller holds the lock."""
    polled = update(device_codes).filter_by(id=device_code)
    tx.execute(polled.values(polled_us=now_us, interval_s=interval_s))


def decide_device_code(tx: Tx, device_code: str, state: str, *, email: str, auth_us: int) -> None:
    """Record the user's decision; the caller holds the lock and checked that it is pending."""
    decided = update(device_codes).filter_by(id=device_code)
    tx.execute(decided.values(state=state, email=email, auth_us=auth_us))


def delete_device_code(tx: Tx, device_code: str) -> None:
    """Delete a device code whose tokens were issued."""
    tx.execute(delete(device_codes).filter_by(id=device_code))


def delete_device_codes(tx: Tx, email: str) -> None:
    """Delete the device codes that a user decided about."""
    tx.execute(delete(device_codes).filter_by(email=email))


def delete_all_device_codes(tx: Tx) -> None:
    """Delete all device codes."""
    tx.execute(delete(device_codes))
