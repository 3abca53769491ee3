"""HTTP requests to one store: pooled connections, retries, redirects and pages."""

from store_client.http.retries import RetryPolicy, StaticToken, TokenSource
from store_client.http.session import HttpSession

__all__ = ["HttpSession", "RetryPolicy", "StaticToken", "TokenSource"]
