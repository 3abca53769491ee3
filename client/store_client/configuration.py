"""Where the client keeps things, and which store it talks to.

`STORE_CLIENT_HOME` moves everything; otherwise the system's folders are used.

    <home>/profiles.json                  {"profiles": {<name>: {"url": ..., "replica": ...}},
                                           "default": <name>}
    <home>/credentials/<profile>@<key of both>.json
                                          tokens of a profile, mode 0600
    <home>/credentials/<key of URL>.json  tokens of a login without a profile
    <home>/areas/<key of URL>.json        known upload areas and which is selected
    <home>/uploads/                       upload journals
    <cache>/definitions/<key of URL>.json API definitions
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import platformdirs

from store_client.atomic_files import lock_file, read_json, write_json
from store_client.errors import Misused
from store_client.identifiers import REPLICAS

DEFAULT_URL = "http://127.0.0.1:8000"
"""A store on this machine."""
DEFAULT_REPLICA = "aws"
PROFILES = "profiles.json"
HOME, URL, PROFILE = "STORE_CLIENT_HOME", "STORE_CLIENT_URL", "STORE_CLIENT_PROFILE"

_BARE_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(:\d+)?(/[^?#@]*)?")
_LOOPBACK = re.compile(r"(localhost|127(\.\d+){3}|\[::1\])(?![A-Za-z0-9.-])", re.IGNORECASE)
_PROFILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Configuration:
    """The folders of the user, and the base URL of the store."""

    home: Path
    cache: Path
    url: str
    profile: str = ""
    replica: str = ""
    """The profile's default replica; "" if it has none."""

    def choose_replica(self, given: str | None) -> str:
        """The replica that was given, or the profile's, or aws."""
        return given or self.replica or DEFAULT_REPLICA

    @property
    def key(self) -> str:
        """The file name for this store."""
        return _file_key(self.url, self.url)

    @property
    def credentials(self) -> Path:
        """The credentials file of the profile, or of the store if there is no profile."""
        name = self.key
        if self.profile:
            # The digest tells names apart that differ in case, where file systems do not.
            name = f"{self.profile}@{_file_key(self.url, f'{self.profile} {self.url}')}"
        return self.home / "credentials" / f"{name}.json"

    @property
    def areas(self) -> Path:
        """The file of known upload areas."""
        return self.home / "areas" / f"{self.key}.json"

    @property
    def uploads(self) -> Path:
        """The folder of upload journals."""
        return self.home / "uploads"

    @property
    def definitions(self) -> Path:
        """The folder of cached API definitions."""
        return self.cache / "definitions"


def _file_key(url: str, text: str) -> str:
    """A file name from a URL's host and the digest of a text."""
    host = re.sub(r"[^a-z0-9.-]", "_", urlsplit(url).netloc.lower())
    return f"{host[:80]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def normalize_url(url: str) -> str:
    """Normalize a base URL: no `/v1`, no final slash; Misused if invalid.

    A bare host gets a scheme: https, but http for this machine.
    """
    text = url.strip()
    if _BARE_HOST.fullmatch(text):
        text = f"{'http' if _LOOPBACK.match(text) else 'https'}://{text}"
    try:
        found = urlsplit(text)
        port = found.port
    except ValueError:
        raise Misused(f"{url!r} is not a URL", hint="it looks like https://store.example") from None
    if found.scheme not in ("http", "https") or not found.hostname or found.username:
        raise Misused(f"{url!r} is not a base URL", hint="it looks like https://store.example")
    if found.query or found.fragment:
        raise Misused(f"{url!r} has a query or fragment, which a base URL cannot have")
    host = f"[{found.hostname}]" if ":" in found.hostname else found.hostname
    usual = {"http": 80, "https": 443}[found.scheme]
    place = host if port in (None, usual) else f"{host}:{port}"
    return f"{found.scheme}://{place}{found.path.rstrip('/').removesuffix('/v1')}"


def load_configuration(
    url: str | None = None,
    profile: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
) -> Configuration:
    """The configuration of this URL or profile, else of the environment or the default.

    Misused for an unknown profile. A URL without a profile means the default profile if that has
    the same URL.
    """
    if folder := environ.get(HOME):
        home, cache = Path(folder), Path(folder) / "cache"
    else:
        home = platformdirs.user_config_path("consortium-store", appauthor=False)
        cache = platformdirs.user_cache_path("consortium-store", appauthor=False)
    profiles = read_profiles(home)
    for said_url, said_profile in (
        (url, profile),
        (environ.get(URL), environ.get(PROFILE)),
        (None, profiles.default),
    ):
        if said_url:
            found = normalize_url(said_url)
            name = _check_profile_name(said_profile) or _matching_default(profiles, found)
            return Configuration(home, cache, found, name, profiles.replica(name))
        if said_profile:
            place, replica = profiles.url(said_profile), profiles.replica(said_profile)
            return Configuration(home, cache, place, said_profile, replica)
    return Configuration(home, cache, DEFAULT_URL)


@dataclass(frozen=True, slots=True)
class Profiles:
    """The saved profiles by name, and the name of the default one, "" if there is none."""

    entries: Mapping[str, Mapping[str, Any]]
    default: str

    def url(self, name: str) -> str:
        """The base URL of a profile; Misused if it does not exist."""
        if name not in self.entries:
            known = ", ".join(sorted(self.entries)) or "none"
            raise Misused(
                f"there is no profile {name!r} (known: {known})",
                hint="make one: store login --url URL --profile NAME",
            )
        return normalize_url(self.entries[name]["url"])

    def replica(self, name: str) -> str:
        """The default replica of a profile; "" if it has none."""
        found = self.entries.get(name, {}).get("replica")
        return found if found in REPLICAS else ""


def read_profiles(home: Path) -> Profiles:
    """Read the saved profiles; invalid ones are left out."""
    kept = read_json(home / PROFILES)
    named, default = kept.get("profiles"), kept.get("default")
    entries = {
        name: entry
        for name, entry in (named.items() if isinstance(named, dict) else ())
        if isinstance(entry, dict) and isinstance(entry.get("url"), str)
    }
    return Profiles(entries, default if isinstance(default, str) else "")


def save_profile(config: Configuration, name: str, *, default: bool, replica: str = "") -> None:
    """Save the store's URL as a profile, with a default replica, also as the default profile."""
    _check_profile_name(name)
    path = config.home / PROFILES
    with lock_file(path):
        kept = read_json(path)
        named = kept.get("profiles")
        before = named if isinstance(named, dict) else {}
        entry: dict[str, str] = {"url": config.url}
        if chosen := replica or read_profiles(config.home).replica(name):
            entry["replica"] = chosen
        kept["profiles"] = {**before, name: entry}
        if default:
            kept["default"] = name
        write_json(path, kept)


def _check_profile_name(name: str | None) -> str:
    """Check a profile name; "" for none; Misused."""
    if name and not _PROFILE_NAME.fullmatch(name):
        raise Misused(f"{name!r} is not a valid profile name", hint="use letters, digits, . _ -")
    return name or ""


def _matching_default(profiles: Profiles, url: str) -> str:
    """The default profile if it has this URL, else ""."""
    try:
        return profiles.default if profiles.url(profiles.default) == url else ""
    except Misused:
        return ""
