"""The token end point: a code or a refresh token becomes tokens.

What decides is one unit of work each, which holds the grant: of two who redeem one code exactly one
wins. What is found out there, such as a second use, is written down even though the client is
refused; so a refusal comes out of a unit of work as a value, and is raised behind it.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import Any

from auth.digests import digest, encoded, new_secret, s256
from auth.openid import devices
from auth.openid.clients import Client
from auth.openid.errors import OAuthError, invalid_grant, invalid_request
from auth.openid.provider import Provider
from auth.openid.proving import Form
from auth.openid.tokens import Granted, answer
from storage.catalog import grants
from storage.catalog.engine import Tx
from storage.catalog.grants import GrantRow, RefreshRow

USELESS = "The code or token is not known, is over, was used, or is not this client's."
"""One sentence for all of it: who tries learns nothing."""

_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")


def exchange(provider: Provider, client: Client, form: Form) -> dict[str, Any]:
    """Tokens for what the client has; OAuthError when it has nothing that gives any."""
    act = _GRANTS.get(_member(form, "grant_type"))
    if act is None:
        raise OAuthError("unsupported_grant_type", "grant_type is not one of those in discovery.")
    return answer(provider, act(provider, client, form))


def _by_code(provider: Provider, client: Client, form: Form) -> Granted:
    code = _member(form, "code")
    with provider.catalog.write() as tx:
        outcome = _redeemed(tx, provider, client, form, grants.hold_by_code(tx, digest(code)))
    return _raised(outcome)


def _by_refresh_token(provider: Provider, client: Client, form: Form) -> Granted:
    token = _member(form, "refresh_token")
    with provider.catalog.write() as tx:
        outcome = _refreshed(tx, provider, client, form, token)
    return _raised(outcome)


def _by_device(provider: Provider, client: Client, form: Form) -> Granted:
    code = _member(form, "device_code")
    with provider.catalog.write() as tx:
        found = devices.poll(tx, provider, client, code)
        outcome = found if isinstance(found, OAuthError) else _first(tx, provider, found)
    return _raised(outcome)


_GRANTS: Mapping[str, Callable[[Provider, Client, Form], Granted]] = {
    "authorization_code": _by_code,
    "refresh_token": _by_refresh_token,
    devices.GRANT_TYPE: _by_device,
}
GRANT_TYPES = tuple(_GRANTS)


def _redeemed(
    tx: Tx, provider: Provider, client: Client, form: Form, grant: GrantRow | None
) -> Granted | OAuthError:
    if grant is None or grant.client != client.id:
        return invalid_grant(USELESS)
    if grant.redeemed_us is not None:
        # RFC 6749, 4.1.2: two have this code, so one of them stole it, and has tokens maybe.
        grants.revoke(tx, grant.id, provider.now_us())
        return invalid_grant(USELESS)
    if not grant.stands(provider.now_us()) or (grant.code_ends_us or 0) <= provider.now_us():
        return invalid_grant(USELESS)
    if form.get("redirect_uri") != grant.redirect_uri and grant.redirect_uri is not None:
        return invalid_grant("redirect_uri is not the one that the code was asked for with.")
    if not _answers(form.get("code_verifier"), grant.challenge):
        return invalid_grant("code_verifier does not answer the code's challenge.")
    return _first(tx, provider, grant)


def _answers(verifier: str | None, challenge: str | None) -> bool:
    """Whether the verifier is of the challenge; one without a challenge is a challenge lost."""
    if verifier is None or challenge is None:
        return verifier is None and challenge is None
    return bool(_VERIFIER.fullmatch(verifier)) and hmac.compare_digest(s256(verifier), challenge)


def _first(tx: Tx, provider: Provider, grant: GrantRow) -> Granted | OAuthError:
    """The first tokens of a grant, which now lasts as long as those that may follow."""
    if (refusal := _disabled(tx, provider, grant)) is not None:
        return refusal
    now = provider.now_us()
    ends = now + provider.settings.grant_s * 1_000_000
    grants.redeem(tx, grant.id, now, ends_us=ends)
    token = new_secret()
    _keep(tx, provider, token, grant.id, grant_ends_us=ends)
    groups = provider.people.groups(tx, grant.email)
    return Granted(grant, tuple(grant.scope.split()), groups, token, grant.nonce)


def _refreshed(
    tx: Tx, provider: Provider, client: Client, form: Form, token: str
) -> Granted | OAuthError:
    grant, now = grants.hold_by_token(tx, digest(token)), provider.now_us()
    used = grants.token(tx, digest(token))
    if grant is None or used is None or grant.client != client.id:
        return invalid_grant(USELESS)
    if not grant.stands(now) or used.ends_us <= now:
        return invalid_grant(USELESS)
    if (refusal := _disabled(tx, provider, grant)) is not None:
        return refusal
    scopes = _narrowed(grant, form.get("scope"))
    if isinstance(scopes, OAuthError):
        return scopes
    following = _successor(provider, token)
    if not _follow(tx, provider, used, following, grant):
        grants.revoke(tx, grant.id, now)
        return invalid_grant(USELESS)
    return Granted(grant, scopes, provider.people.groups(tx, grant.email), following)


def _follow(tx: Tx, provider: Provider, used: RefreshRow, following: str, grant: GrantRow) -> bool:
    """Use a token, and have the one that follows it; False when it was used before.

    An answer may get lost, or two processes of one person refresh at once: for a few seconds a used
    token gives its one successor again, as long as nobody used that. So there are never two lines
    of tokens: who stole one, and who owns it, end up with the same, and the second use shows.
    """
    now = provider.now_us()
    if used.used_us is None:
        grants.use_token(tx, used.id, now)
        _keep(tx, provider, following, grant.id, grant_ends_us=grant.ends_us)
        return True
    successor = grants.token(tx, digest(following))
    unused = successor is not None and successor.used_us is None
    return unused and now < used.used_us + provider.settings.refresh_grace_s * 1_000_000


def _successor(provider: Provider, token: str) -> str:
    """The token that follows this one: always the same, and nobody else can make it."""
    return encoded(hmac.new(provider.refresh_key, token.encode(), hashlib.sha256).digest())


def _keep(tx: Tx, provider: Provider, token: str, grant_id: str, *, grant_ends_us: int) -> None:
    now = provider.now_us()
    ends = min(now + provider.settings.refresh_idle_s * 1_000_000, grant_ends_us)
    grants.add_token(tx, RefreshRow(digest(token), grant_id, now, used_us=None, ends_us=ends))


def _disabled(tx: Tx, provider: Provider, grant: GrantRow) -> OAuthError | None:
    """A disabled person's grants end when somebody tries them."""
    if provider.people.is_enabled(tx, grant.email):
        return None
    grants.revoke(tx, grant.id, provider.now_us())
    return invalid_grant(USELESS)


def _narrowed(grant: GrantRow, scope: str | None) -> tuple[str, ...] | OAuthError:
    """What this one access token is for: no more than was granted (RFC 6749, 6)."""
    granted = tuple(grant.scope.split())
    wanted = set(scope.split()) if scope else set(granted)
    if not wanted or not wanted.issubset(granted):
        return OAuthError("invalid_scope", "scope goes beyond what was granted.")
    return tuple(name for name in granted if name in wanted)


def _raised(outcome: Granted | OAuthError) -> Granted:
    if isinstance(outcome, OAuthError):
        raise outcome
    return outcome


def _member(form: Form, name: str) -> str:
    value = form.get(name)
    if not value:
        raise invalid_request(f"{name} is missing.")
    return value
