"""Bearer tokens signed with the store's own key, and the one that its first operator finds."""

import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from auth.private_files import replace
from auth.tokens.claims import read
from auth.tokens.issuing import GROUPS_BY, OPERATOR, Grant, issue
from auth.tokens.key_file import signing_until
from storage.errors import Unauthorized

FILE = "admin.token"
LIFETIME_S = 365 * 86_400


class Deployment(Protocol):
    """The part of Settings that says for what and by whom a token is signed."""

    @property
    def home(self) -> Path: ...
    @property
    def deployment(self) -> str: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def auth_url(self) -> str: ...
    @property
    def audiences(self) -> Iterable[str]: ...
    @property
    def admin_groups(self) -> tuple[str, ...]: ...
    @property
    def ingest_groups(self) -> tuple[str, ...]: ...


def make(settings: Deployment, grant: Grant, *, now: float, token_id: str) -> str:
    """A token that this deployment accepts."""
    return issue(
        signing_until(settings.home, now + grant.lifetime_s, settings.secret_key),
        grant,
        issuer=settings.auth_url,
        audience=settings.audiences,
        now=now,
        token_id=token_id,
    )


def administrator(settings: Deployment) -> Grant:
    """All that an operator may, for a year."""
    email = f"admin@{settings.deployment}"
    groups = tuple(dict.fromkeys(settings.admin_groups + settings.ingest_groups))
    return Grant(email, groups, LIFETIME_S)


def keep(settings: Deployment) -> None:
    """Write the administrator's token into the home if there is none, or none of this address."""
    path = settings.home / FILE
    if not _fits(path, settings.auth_url):
        grant, token_id = administrator(settings), str(uuid.uuid4())
        replace(path, make(settings, grant, now=time.time(), token_id=token_id) + "\n")


def _fits(path: Path, issuer: str) -> bool:
    """A token names the address that issued it, so one of another port is of no use; nor is one of
    a release that did not say who chose its groups."""
    try:
        found = read(path.read_text().strip())
        return found.issuer == issuer and found.claims.get(GROUPS_BY) == OPERATOR
    except (OSError, Unauthorized):
        return False
