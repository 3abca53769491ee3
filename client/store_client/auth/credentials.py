"""The file of one profile's login: mode 0600, one writer at a time.

`expires` is on this machine's clock: it was computed from the lifetime of the token.
"""

import logging
import os
import stat
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from store_client.atomic_files import PRIVATE_MODE, lock_file, read_json, remove_file, write_json
from store_client.auth.claims import parse_seconds
from store_client.configuration import Configuration, read_profiles
from store_client.errors import name_os_errors

log = logging.getLogger(__name__)

CREDENTIALS_VARIABLE = "CLOUD_APPLICATION_CREDENTIALS"
"""Names the credentials file of a program."""
LOCK_WAIT_S = 60.0
"""Longer than a refresh takes."""
OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class SavedLogin:
    """A saved login. Without a refresh token it ends when its access token expires."""

    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    expires: float | None = None
    email: str = ""
    issuer: str = ""
    token_endpoint: str = ""
    revocation_endpoint: str = ""
    over: str = ""
    """Why the login has ended, "" while it is valid."""


def read_login(config: Configuration) -> SavedLogin | None:
    """Read the saved login of this profile; None if missing or invalid.

    A file that others can read is made private.
    """
    migrate_shared_login(config)
    make_private(config.credentials)
    return _parse_login(read_json(config.credentials))


def write_login(config: Configuration, kept: SavedLogin) -> None:
    """Save a login in place of the current one."""
    write_json(config.credentials, {"url": config.url, "profile": config.profile, **asdict(kept)})


def migrate_shared_login(config: Configuration) -> None:
    """Move the login that an earlier release shared among profiles to its profile.

    Only the default profile gets it, or the only profile of the store. With several others the
    owner is unknown, and a refresh token can be used once.
    """
    shared = replace(config, profile="").credentials
    if not config.profile or config.credentials.exists() or not shared.exists():
        return
    if not _inherits_login(config) or "profile" in read_json(shared):
        return
    with suppress(OSError):
        # Unlike a rename it replaces no login that was made meanwhile.
        os.link(shared, config.credentials)
        shared.unlink()


def _inherits_login(config: Configuration) -> bool:
    known = read_profiles(config.home)
    same = [name for name in known.entries if known.url(name) == config.url]
    return config.profile in same and (len(same) == 1 or config.profile == known.default)


def delete_login(config: Configuration) -> bool:
    """Delete the saved login; whether there was one."""
    hint = "remove it yourself: anyone who reads it can act as you"
    with name_os_errors(f"remove {config.credentials}", hint=hint):
        return remove_file(config.credentials)


def lock_login(config: Configuration) -> AbstractContextManager[None]:
    """Lock the saved login among all processes, to read and then write it."""
    return lock_file(config.credentials, wait_s=LOCK_WAIT_S)


def is_readable_by_others(path: Path) -> bool:
    """Whether other users may access a regular file; always False on Windows."""
    if os.name == "nt":
        return False
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(stat.S_IMODE(mode) & OTHERS)


def make_private(path: Path) -> None:
    """Restrict a file to its owner, and warn if others could read it."""
    if not is_readable_by_others(path):
        return
    try:
        path.chmod(PRIVATE_MODE)
    except OSError:
        log.warning("other users can read %s, and you cannot change its permissions", path)
        return
    log.warning(
        "%s could be read by others of this machine, and is private now;"
        " if you do not trust them: store logout, store login",
        path,
    )


def _parse_login(found: Mapping[str, Any]) -> SavedLogin | None:
    if not found.get("access_token"):
        return None
    texts = {name: found.get(name, "") for name in SavedLogin.__slots__ if name != "expires"}
    if not all(isinstance(text, str) for text in texts.values()):
        return None
    return SavedLogin(**texts, expires=parse_seconds(found.get("expires")))
