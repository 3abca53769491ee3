"""Limits on how often one principal, or one address without a token, may ask."""

import ipaddress
import math
import re

from flask import Flask, Request, Response, g

from config.settings import Settings
from storage.errors import TooMany
from storage.model import Principal
from storage.rates import Rate, Rates

_WITH_PORT = re.compile(r"([0-9.]+):[0-9]+|\[([0-9a-fA-F:.]+)\](?::[0-9]+)?")
NETWORK_BITS = 64
"""Of an IPv6 address: what one customer has is one address."""


def throttle(
    rates: Rates | None, settings: Settings, request: Request, principal: Principal | None
) -> None:
    """Count a request; TooMany when its sender asks too often."""
    rate = _rate(settings, principal)
    if rates is None or rate is None:
        return
    taken = rates.take(client(request, settings.proxies, principal), rate)
    if taken is None:
        return
    g.rate = {
        "RateLimit-Limit": str(rate.burst),
        "RateLimit-Remaining": str(taken.left),
        "RateLimit-Reset": str(taken.full_s),
    }
    if not taken.allowed:
        said = f"More than {rate.per_minute} requests a minute, and {rate.burst} at once."
        raise TooMany(said, retry_after_s=max(1, math.ceil(taken.next_s)))


def client(request: Request, proxies: int, principal: Principal | None) -> str:
    """Whom limits are for: a principal, or an address without one."""
    return f"p:{principal.email}" if principal else f"a:{address(request, proxies)}"


def _rate(settings: Settings, principal: Principal | None) -> Rate | None:
    per_minute, burst = (
        (settings.rate_anonymous_per_minute, settings.rate_anonymous_burst)
        if principal is None
        else (settings.rate_per_minute, settings.rate_burst)
    )
    return Rate(per_minute, max(1, burst)) if per_minute > 0 else None


def address(request: Request, proxies: int) -> str:
    """Where a request came from: as the first of our proxies saw it, whatever the client says."""
    seen = request.remote_addr or ""
    if proxies > 0:
        hops = [hop.strip() for hop in request.headers.get("X-Forwarded-For", "").split(",")]
        seen = hops[-proxies] if len(hops) >= proxies else seen
    try:
        parsed = ipaddress.ip_address(_without_port(seen))
    except ValueError:
        return seen[:100]
    # A socket for both families shows an IPv4 address within an IPv6 one.
    parsed = getattr(parsed, "ipv4_mapped", None) or parsed
    if parsed.version == 4:
        return str(parsed)
    return str(ipaddress.ip_network((parsed, NETWORK_BITS), strict=False))


def _without_port(seen: str) -> str:
    """Some proxies tell the port, too: whoever connects anew is not somebody else."""
    found = _WITH_PORT.fullmatch(seen)
    return (found[1] or found[2]) if found else seen


def register_limits(app: Flask) -> None:
    """Say on every counted answer what is left."""

    @app.after_request
    def tell(response: Response) -> Response:
        response.headers.update(g.get("rate", {}))
        return response
