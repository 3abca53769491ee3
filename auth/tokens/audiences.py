"""What a store is called in the tokens that programs sign for it alone: by its address.

A word such as `store` may be an audience of many stores; whoever signs for the address that it
asks signs nothing that another store would take.
"""

import ipaddress
from collections.abc import Callable, Collection
from urllib.parse import urlsplit


def own_address(external_url: str, allowed_hosts: Collection[str]) -> Callable[[str], bool]:
    """Whether an audience is this store's base URL. One that was not told its own is called as its
    absolute URLs are: by this machine, and by the hosts that are believed."""
    named = {host.lower() for host in allowed_hosts}
    own = _parts(external_url)

    def is_own(audience: str) -> bool:
        given = _parts(audience)
        if given is None or own is not None:
            return given is not None and given == own
        _, host, place, path = given
        return not path and (_loopback(host) or host in named or place in named)

    return is_own


def _parts(url: str) -> tuple[str, str, str, str] | None:
    """Scheme, host, host with its port unless that is the usual one, path; None of no base URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    if usual is None or not host or parts.query or parts.fragment or parts.username is not None:
        return None
    place = host if port in (None, usual) else f"{host}:{port}"
    return parts.scheme, host, place, parts.path.rstrip("/")


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
