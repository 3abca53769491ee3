"""Where a request comes from, and by what transport, as the first of our proxies saw it: nothing
that a client says of itself counts.
"""

import ipaddress
import re

from flask import Request

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_WITH_PORT = re.compile(r"([0-9.]+):[0-9]+|\[([0-9a-fA-F:.]+)\](?::[0-9]+)?")


def sender(request: Request, proxies: int) -> Address | None:
    """The address that connected to the first of so many proxies; None when they do not tell."""
    seen = request.remote_addr or ""
    if proxies > 0:
        hops = _told(request, "X-Forwarded-For")
        seen = hops[-proxies] if len(hops) >= proxies else ""
    try:
        found = ipaddress.ip_address(_without_port(seen))
    except ValueError:
        return None
    # A socket for both families shows an IPv4 address within an IPv6 one.
    return getattr(found, "ipv4_mapped", None) or found


def is_secure(request: Request, proxies: int) -> bool:
    """Whether it is known that the client speaks TLS, with us or with the first of our proxies."""
    if proxies == 0:
        return request.scheme == "https"
    said = _told(request, "X-Forwarded-Proto")
    # Most proxies pass on what the one before them said; some add to it, as all do with addresses.
    first = said[0] if len(said) == 1 else said[-proxies] if len(said) >= proxies else ""
    return first.lower() == "https"


def _told(request: Request, header: str) -> list[str]:
    return [each.strip() for each in request.headers.get(header, "").split(",")]


def _without_port(seen: str) -> str:
    """Some proxies tell the port, too: whoever connects anew is not somebody else."""
    found = _WITH_PORT.fullmatch(seen)
    return (found[1] or found[2]) if found else seen
