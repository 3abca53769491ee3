"""The file of credentials of one profile of one store: mode 0600, one writer at a time.

`expires` is by this machine's clock, whatever the store's says: it was reckoned from the seconds
that a token was said to be good for.
"""

import logging
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from store_client.configuration import Configuration, default_profile, normal_url, profiles
from store_client.errors import StoreError
from store_client.login.expiry import seconds
from store_client.private_files import PRIVATE, locked, read_json, remove, write_json

log = logging.getLogger(__name__)

LOCK_WAIT_S = 60.0
"""Longer than one who refreshes takes at most."""
OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class Kept:
    """A login. Without a refresh token it ends when its access token does."""

    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    expires: float | None = None
    email: str = ""
    issuer: str = ""
    token_endpoint: str = ""
    revocation_endpoint: str = ""
    over: str = ""
    """Why no token of it is any good, "" as far as is known."""


def read(config: Configuration) -> Kept | None:
    """The login kept for this profile; None when there is none, or none that can be read. A file
    that others may read is made private."""
    migrate(config)
    make_private(config.credentials)
    return _kept(read_json(config.credentials))


def write(config: Configuration, kept: Kept) -> None:
    """Keep a login instead of what was kept."""
    write_json(config.credentials, {"url": config.url, "profile": config.profile, **asdict(kept)})


def migrate(config: Configuration) -> None:
    """Give a profile the login that an earlier release kept for all profiles of its store.

    Only the default profile gets it, or the only one of the store: of several others nobody can
    tell whose login it is, and a refresh token is good for one.
    """
    shared = replace(config, profile="").credentials
    if not config.profile or config.credentials.exists() or not shared.exists():
        return
    if not _inherits(config) or "profile" in read_json(shared):
        return
    with suppress(OSError):
        # Unlike a rename it replaces no login that was made meanwhile.
        os.link(shared, config.credentials)
        shared.unlink()


def _inherits(config: Configuration) -> bool:
    same = [name for name, url in profiles(config).items() if normal_url(url) == config.url]
    return config.profile in same and (len(same) == 1 or config.profile == default_profile(config))


def forget(config: Configuration) -> bool:
    """Whether there was anything to remove."""
    try:
        return remove(config.credentials)
    except OSError as error:
        raise StoreError(
            f"cannot remove {config.credentials}: {error.strerror or error}",
            hint="remove it yourself: whoever reads it is you to the store",
        ) from error


@contextmanager
def holding(config: Configuration) -> Iterator[None]:
    """One who reads and then writes the login at a time, over all processes."""
    with locked(config.credentials, wait_s=LOCK_WAIT_S):
        yield


def open_to_others(path: Path) -> bool:
    """Whether somebody but its owner may use the file; never where modes mean nothing, nor of a
    device, a pipe or a folder, which are there for others, too."""
    if os.name == "nt":
        return False
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(stat.S_IMODE(mode) & OTHERS)


def make_private(path: Path) -> None:
    """Take a file from all but its owner; who may have read it is told of."""
    if not open_to_others(path):
        return
    try:
        path.chmod(PRIVATE)
    except OSError:
        log.warning("%s can be read by others, and is not yours to change", path)
        return
    log.warning(
        "%s could be read by others of this machine, and is private now;"
        " if you do not trust them: store logout, store login",
        path,
    )


def _kept(found: Mapping[str, Any]) -> Kept | None:
    if not found.get("access_token"):
        return None
    texts = {name: found.get(name, "") for name in Kept.__slots__ if name != "expires"}
    if not all(isinstance(text, str) for text in texts.values()):
        return None
    return Kept(**texts, expires=seconds(found.get("expires")))
