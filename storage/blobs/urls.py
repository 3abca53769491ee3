"""Bucket URLs of clouds: `<scheme>://<bucket>?<options>`."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from config.settings import SettingsError


def taken_apart(url: str, scheme: str, known: frozenset[str]) -> tuple[str, Mapping[str, str]]:
    """The bucket's name and the options that are not empty; SettingsError names what is wrong.
    `endpoint` and `public` are http URLs."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - known)
    if unknown or parts.scheme != scheme or not parts.netloc or parts.path.strip("/"):
        expected = f"{scheme}://<bucket> is expected"
        why = f"unknown options {', '.join(unknown)}" if unknown else expected
        raise SettingsError(f"bucket URL {url}: {why}")
    for name in ("endpoint", "public"):
        if urlsplit(options.get(name) or "http://").scheme not in ("http", "https"):
            raise SettingsError(f"bucket URL {url}: {name} is no http URL")
    return parts.netloc, {name: value for name, value in options.items() if value}
