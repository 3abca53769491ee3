"""What the settings say of people's rights, as far as this room asks."""

import hashlib
import json
from typing import Protocol

from auth.accounts import builtin


class Rights(Protocol):
    """The part of Settings that gives rights whatever the records say."""

    @property
    def deployment(self) -> str: ...
    @property
    def administrators(self) -> tuple[str, ...]: ...
    @property
    def ingest_groups(self) -> tuple[str, ...]: ...
    @property
    def admin_groups(self) -> tuple[str, ...]: ...
    @property
    def decisions_kept(self) -> int: ...


def settled(rights: Rights) -> str:
    """A short name of all that decides beside the records: the settings, and what is built in."""
    given = [rights.deployment, rights.administrators, rights.ingest_groups, rights.admin_groups]
    text = json.dumps([*given, builtin.documents(rights.deployment)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
