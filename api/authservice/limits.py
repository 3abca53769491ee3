"""How often one address may ask for login pages and for tokens."""

from flask import Request

from api.throttle import address
from auth.login.rates import limit
from config.settings import Settings
from storage.catalog import Catalog
from storage.rates import Rate


def limit_logins(catalog: Catalog, settings: Settings, request: Request, now: float) -> None:
    """Count a request to a page of logins; TooMany beyond the rate."""
    rate = Rate(settings.login_rate_per_minute, settings.login_rate_burst)
    limit(catalog, f"login:{address(request, settings.proxies)}", rate, now)


def limit_tokens(catalog: Catalog, settings: Settings, request: Request, now: float) -> None:
    """Count a request for a token, or to end one; TooMany beyond the rate."""
    rate = Rate(settings.token_rate_per_minute, settings.token_rate_burst)
    limit(catalog, f"token:{address(request, settings.proxies)}", rate, now)
