"""How long is waited, and how often is tried again."""

from dataclasses import dataclass

TRY_AGAIN = frozenset({500, 502, 503, 504})
"""Faults of a server that may be gone the next time."""
TOO_MANY = 429
REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})
"""Methods that may be sent twice; others may when they carry an `Idempotency-Key`."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Seconds and counts; the defaults are what the service recommends to its clients."""

    waits_s: tuple[float, ...] = (1, 2, 4, 8, 16)
    """One retry after each."""
    unknown_retries: int = 2
    """Retries where no answer ever came from: a URL that is mistyped should not take half a minute
    to be told so."""
    retry_after_cap_s: float = 120.0
    """A server that asks for more is not waited for."""
    redirects: int = 20
    """Redirects in a row that ask for no waiting."""
    redirected_s: float = 1200.0
    """Waited for in all, when an answer of 301 says again and again to come back."""
    connect_s: float = 10.0
    read_s: float = 90.0
    """Servers wait up to a minute for work to be done."""
    write_s: float = 90.0
    connections: int = 64
