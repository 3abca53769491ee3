"""Who a URL leads to, and who is shown a token. Nothing is sent here."""

import ipaddress
from collections.abc import Iterable
from urllib.parse import urljoin, urlsplit

USUAL_PORTS = {"http": 80, "https": 443}

Origin = tuple[str, str, int]
"""Scheme, host, port."""


def origin(url: str) -> Origin:
    """Of an absolute URL; ValueError when it has none."""
    parts = urlsplit(url)
    if parts.scheme not in USUAL_PORTS or not parts.hostname:
        raise ValueError(f"{url!r} is no HTTP URL")
    return parts.scheme, parts.hostname.lower(), parts.port or USUAL_PORTS[parts.scheme]


def secured(found: Origin) -> Origin:
    """The same host over TLS, where a plain one usually leads to."""
    scheme, host, port = found
    return ("https", host, 443) if (scheme, port) == ("http", 80) else found


def trusted(url: str, origins: Iterable[Origin]) -> bool:
    """Whether a token may be shown there: one of these, or one of them by TLS."""
    try:
        asked = origin(url)
    except ValueError:
        return False
    return any(asked in (one, secured(one)) for one in origins)


def downgrade(before: str, after: str) -> bool:
    """Whether what was encrypted would not be any more, but on this machine."""
    scheme, host, _ = origin(after)
    return scheme == "http" and origin(before)[0] == "https" and not _loopback(host)


def resolved(base: str, url: str) -> str:
    """What a `Location` or a link means where it was found; "" when nothing."""
    try:
        return urljoin(base, url)
    except ValueError:
        return ""


def shown(url: str) -> str:
    """For people and logs: what follows `?` may be a secret."""
    return url.partition("?")[0]


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
