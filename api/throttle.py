"""Limits on how often one principal, or one address without a token, may ask."""

import math

from flask import Flask, Request, Response, g

from api.senders import sender
from config.settings import Settings
from storage.errors import TooMany
from storage.model import Principal
from storage.rates import Rate, Rates, counted_as


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
    """Who is counted as one without a token: an address, or a network of them. What our proxies do
    not tell of counts as what connected to us."""
    found = sender(request, proxies)
    if found is None:
        return (request.remote_addr or "")[:100]
    return counted_as(found)


def register_limits(app: Flask) -> None:
    """Say on every counted answer what is left."""

    @app.after_request
    def tell(response: Response) -> Response:
        response.headers.update(g.get("rate", {}))
        return response
