"""Where the client keeps things, and which store it talks to.

`STORE_CLIENT_HOME` moves everything; else configuration and cache are where the system keeps such.

    <home>/profiles.json                  {"profiles": {<name>: {"url": ...}}, "default": <name>}
    <home>/credentials/<profile>@<key of both>.json
                                          tokens of a profile, mode 0600
    <home>/credentials/<key of URL>.json  tokens of a login without a profile
    <home>/areas/<key of URL>.json        upload areas and which is selected
    <home>/uploads/                       how far uploads have come
    <cache>/definitions/<key of URL>.json API definitions
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs

from store_client.errors import Misused
from store_client.private_files import locked, read_json, write_json

DEFAULT_URL = "http://127.0.0.1:8000"
"""A store that was just started on this machine."""
PROFILES = "profiles.json"
HOME, URL, PROFILE = "STORE_CLIENT_HOME", "STORE_CLIENT_URL", "STORE_CLIENT_PROFILE"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Configuration:
    """The folders of one user, and the base URL of one store."""

    home: Path
    cache: Path
    url: str
    profile: str = ""

    @property
    def key(self) -> str:
        """What files about this store are named by."""
        return _key(self.url, self.url)

    @property
    def credentials(self) -> Path:
        """The file of the profile's tokens, or of the store's where no profile is in use."""
        name = self.key
        if self.profile:
            # The digest tells names apart that differ in case, where file systems do not.
            name = f"{self.profile}@{_key(self.url, f'{self.profile} {self.url}')}"
        return self.home / "credentials" / f"{name}.json"

    @property
    def areas(self) -> Path:
        """The file of this store's upload areas."""
        return self.home / "areas" / f"{self.key}.json"

    @property
    def uploads(self) -> Path:
        """The folder that says how far uploads have come."""
        return self.home / "uploads"

    @property
    def definitions(self) -> Path:
        """The folder of cached API definitions."""
        return self.cache / "definitions"


def _key(url: str, text: str) -> str:
    """A file name of a URL's host and the digest of a text."""
    host = re.sub(r"[^a-z0-9.-]", "_", urlsplit(url).netloc.lower())
    return f"{host[:80]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def normal_url(url: str) -> str:
    """A base URL as it is kept: without `/v1` and without a slash at its end; Misused."""
    try:
        found = urlsplit(url.strip())
        port = found.port
    except ValueError:
        raise Misused(f"{url!r} is no URL", hint="it looks like https://store.example") from None
    if found.scheme not in ("http", "https") or not found.hostname or found.username:
        raise Misused(f"{url!r} is no base URL", hint="it looks like https://store.example")
    if found.query or found.fragment:
        raise Misused(f"{url!r} has more than a base URL has")
    host = f"[{found.hostname}]" if ":" in found.hostname else found.hostname
    usual = {"http": 80, "https": 443}[found.scheme]
    place = host if port in (None, usual) else f"{host}:{port}"
    return f"{found.scheme}://{place}{found.path.rstrip('/').removesuffix('/v1')}"


def configuration(
    url: str | None = None,
    profile: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
) -> Configuration:
    """The URL given, else the profile's that is given; else what the environment says, in the same
    order; else the default profile's, else this machine's. Misused for an unknown profile.

    A URL without a profile means the default profile if that is of this URL."""
    home, cache = _folders(environ)
    kept = read_json(home / PROFILES)
    for said_url, said_profile in (
        (url, profile),
        (environ.get(URL), environ.get(PROFILE)),
        (None, _default(kept)),
    ):
        if said_url:
            found = normal_url(said_url)
            return Configuration(home, cache, found, _named(said_profile) or _usual(kept, found))
        if said_profile:
            return Configuration(home, cache, _of_profile(kept, said_profile), said_profile)
    return Configuration(home, cache, DEFAULT_URL)


def profiles(config: Configuration) -> dict[str, str]:
    """The base URLs of all profiles, by name."""
    kept = read_json(config.home / PROFILES).get("profiles")
    found = kept if isinstance(kept, dict) else {}
    return {
        name: entry["url"]
        for name, entry in found.items()
        if isinstance(entry, dict) and isinstance(entry.get("url"), str)
    }


def default_profile(config: Configuration) -> str:
    """The profile that is meant when none is named; "" when there is none."""
    return _default(read_json(config.home / PROFILES))


def url_of_profile(config: Configuration, name: str) -> str:
    """The base URL of a profile; Misused when there is none of that name."""
    return _of_profile(read_json(config.home / PROFILES), name)


def keep_profile(config: Configuration, name: str, *, default: bool) -> None:
    """Name this store; as the one that is meant when nothing is said, too, if `default`."""
    _named(name)
    path = config.home / PROFILES
    with locked(path):
        kept = read_json(path)
        named = kept.get("profiles")
        before = named if isinstance(named, dict) else {}
        kept["profiles"] = {**before, name: {"url": config.url}}
        if default:
            kept["default"] = name
        write_json(path, kept)


def _named(name: str | None) -> str:
    """A name that a profile can have, or "" for none; Misused."""
    if name and not _NAME.fullmatch(name):
        raise Misused(f"{name!r} is no name of a profile", hint="use letters, digits, . _ -")
    return name or ""


def _usual(kept: Mapping[str, object], url: str) -> str:
    """The default profile if it is of this URL, else ""."""
    name = _default(kept)
    try:
        return name if name and _of_profile(kept, name) == url else ""
    except Misused:
        return ""


def _default(kept: Mapping[str, object]) -> str:
    found = kept.get("default")
    return found if isinstance(found, str) else ""


def _of_profile(kept: Mapping[str, object], name: str) -> str:
    named = kept.get("profiles")
    entry = named.get(name) if isinstance(named, dict) else None
    if not isinstance(entry, dict) or not isinstance(entry.get("url"), str):
        known = ", ".join(sorted(named)) if isinstance(named, dict) and named else "none"
        raise Misused(
            f"there is no profile {name!r} (known: {known})",
            hint="make one: store login --url URL --profile NAME",
        )
    return normal_url(entry["url"])


def _folders(environ: Mapping[str, str]) -> tuple[Path, Path]:
    if said := environ.get(HOME):
        return Path(said), Path(said) / "cache"
    return (
        platformdirs.user_config_path("consortium-store", appauthor=False),
        platformdirs.user_cache_path("consortium-store", appauthor=False),
    )
