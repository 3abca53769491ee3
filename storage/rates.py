"""How often somebody may ask: token buckets, here those of one process.

A bucket holds `burst` tokens and gains `per_minute` of them. Processes that share a Redis share
their buckets (`storage.rates_redis`).
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Final, Protocol

NETWORK_BITS: Final = 64
"""Of an IPv6 address: what one customer has is one address."""


def counted_as(address: IPv4Address | IPv6Address) -> str:
    """What requests from an address are counted under: it, or the network that it is of."""
    if address.version == 4:
        return str(address)
    return str(ip_network((address, NETWORK_BITS), strict=False))


@dataclass(frozen=True, slots=True)
class Rate:
    """So many requests at once, and so many a minute after that."""

    per_minute: int
    burst: int


@dataclass(frozen=True, slots=True)
class Taken:
    """Whether the request is within its rate, how many more are, when the next one will be and when
    all of them are back."""

    allowed: bool
    left: int
    next_s: int
    full_s: int


class Rates(Protocol):
    """Counts requests by whom they come from."""

    def take(self, who: str, rate: Rate) -> Taken | None:
        """One request more of `who`; None when nobody counts."""


class MemoryRates:
    """Buckets of one process. Of more than `most`, those not asked for longest are forgotten."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, most: int = 100_000) -> None:
        self._clock, self._most = clock, most
        self._lock = threading.Lock()
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str, rate: Rate) -> Taken:
        """See Rates."""
        now, per_second = self._clock(), rate.per_minute / 60
        with self._lock:
            tokens, at = self._held.pop(who, (float(rate.burst), now))
            tokens = min(rate.burst, tokens + (now - at) * per_second)
            allowed = tokens >= 1
            tokens -= allowed
            self._held[who] = (tokens, now)
            if len(self._held) > self._most:
                self._held.popitem(last=False)
        next_s = math.ceil((1 - tokens) / per_second)
        full_s = math.ceil((rate.burst - tokens) / per_second)
        return Taken(allowed, math.floor(tokens), max(0, next_s), max(0, full_s))
