"""Token-bucket rate limits within one process.

A bucket holds `burst` tokens and gains `per_minute` of them. Processes that share a Redis share
their buckets (`storage.redis_engines`).
"""

import math
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Final, Protocol

NETWORK_BITS: Final = 64
"""Prefix of an IPv6 address that counts as one client: the usual size of a customer's network."""


def rate_limit_key(address: IPv4Address | IPv6Address) -> str:
    """Return the key of an address: itself, or its IPv6 network."""
    if address.version == 4:
        return str(address)
    return str(ip_network((address, NETWORK_BITS), strict=False))


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket's size, and the tokens that it gains per minute."""

    per_minute: int
    burst: int


@dataclass(frozen=True, slots=True)
class RateDecision:
    """Whether a request is allowed, with tokens left and seconds to the next one and to a full
    bucket."""

    allowed: bool
    remaining: int
    retry_after_s: int
    reset_after_s: int


class RateLimiter(Protocol):
    """Counts requests by client."""

    def take(self, who: str, rate: Rate) -> RateDecision | None:
        """Take a token of client `who`; None if the limiter is unavailable."""


class MemoryRateLimiter:
    """See RateLimiter; token buckets of one process, the `most` used last."""

    def __init__(self, *, most: int = 100_000) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str, rate: Rate) -> RateDecision:
        now, per_second = time.monotonic(), rate.per_minute / 60
        with self._lock:
            tokens, at = self._buckets.pop(who, (float(rate.burst), now))
            tokens = min(rate.burst, tokens + (now - at) * per_second)
            allowed = tokens >= 1
            tokens -= allowed
            self._buckets[who] = (tokens, now)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        next_s = math.ceil((1 - tokens) / per_second)
        full_s = math.ceil((rate.burst - tokens) / per_second)
        return RateDecision(allowed, math.floor(tokens), max(0, next_s), max(0, full_s))
