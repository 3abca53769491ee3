"""The embedded store's own secret, and bearer tokens signed with its own key."""

import time
import uuid
from pathlib import Path

from auth.private_files import FOLDER, SECRET_FILE, secret
from auth.tokens.claims import read
from auth.tokens.issuing import GROUPS_BY, OPERATOR, Grant, issue
from auth.tokens.key_file import signing_until
from config import Settings
from ops import home as homes
from storage.errors import Unauthorized
from storage.sealing import instance_id

ADMIN_LIFETIME_S = 365 * 86_400


def make(settings: Settings, grant: Grant, *, now: float, token_id: str) -> str:
    """A token that this deployment accepts."""
    return issue(
        signing_until(settings.home, now + grant.lifetime_s, settings.secret_key),
        grant,
        issuer=settings.auth_url,
        audience=settings.audiences,
        now=now,
        token_id=token_id,
    )


def secret_key(settings: Settings) -> str:
    """The store's secret: the operator's, else the one that this home keeps."""
    return secret(settings.home, given=settings.secret_key).decode()


def instance(settings: Settings) -> str | None:
    """Which store this home is; None when no store was ever started in it."""
    kept = settings.home / FOLDER / SECRET_FILE
    if not settings.secret_key and not kept.exists():
        return None
    return instance_id(secret_key(settings).encode())


def administrator(settings: Settings) -> Grant:
    """All that an operator may, for a year."""
    email = f"admin@{settings.deployment}"
    groups = tuple(dict.fromkeys(settings.admin_groups + settings.ingest_groups))
    return Grant(email, groups, ADMIN_LIFETIME_S)


def keep_administrators(settings: Settings) -> Path:
    """Write the administrator's token if there is none, or none of this address; its path."""
    path = settings.home / homes.ADMIN_TOKEN
    if not _fits(path, settings.auth_url):
        token = make(settings, administrator(settings), now=time.time(), token_id=str(uuid.uuid4()))
        homes.write_text(settings.home, homes.ADMIN_TOKEN, token + "\n")
    return path


def _fits(path: Path, issuer: str) -> bool:
    """A token names the address that issued it, so one of another port is of no use; nor is one of
    a release that did not say who chose its groups."""
    try:
        found = read(path.read_text().strip())
        return found.issuer == issuer and found.claims.get(GROUPS_BY) == OPERATOR
    except (OSError, Unauthorized):
        return False
