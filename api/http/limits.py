"""Limits on requests: rate limit, semaphores, memory and read-only mode.

A thread that waits for its client or for a worker costs only kilobytes. A running thread costs
processor time and connections to the catalog, so a semaphore limits the number of running ones.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

from flask import Request, g

from api.http.auth import client_address
from api.http.permits import suspend_permit
from config import Settings
from storage.catalog import Catalog, store_state
from storage.errors import Forbidden, TooManyRequests, Unavailable
from storage.json_codec import SMALL_BYTES, MemoryBudget
from storage.model import Principal
from storage.rate_limits import Rate, RateLimiter, rate_limit_key


def check_rate_limit(
    limiter: RateLimiter | None, settings: Settings, request: Request, principal: Principal | None
) -> None:
    """Count a request against its client's rate limit; TooManyRequests if it is exceeded."""
    per_minute, burst = (
        (settings.rate_anonymous_per_minute, settings.rate_anonymous_burst)
        if principal is None
        else (settings.rate_per_minute, settings.rate_burst)
    )
    if limiter is None or per_minute <= 0:
        return
    rate = Rate(per_minute, max(1, burst))
    status = limiter.take(client_key(request, settings.proxies, principal), rate)
    if status is None:
        return
    g.rate = {
        "RateLimit-Limit": str(rate.burst),
        "RateLimit-Remaining": str(status.remaining),
        "RateLimit-Reset": str(status.reset_after_s),
    }
    if not status.allowed:
        message = f"Rate limit exceeded: {rate.per_minute} requests per minute, burst {rate.burst}."
        raise TooManyRequests(message, retry_after_s=max(1, math.ceil(status.retry_after_s)))


def client_key(request: Request, proxies: int, principal: Principal | None) -> str:
    """Return the key that limits count by: the principal, or the address of anonymous clients."""
    return f"p:{principal.email}" if principal else f"a:{address_key(request, proxies)}"


def address_key(request: Request, proxies: int) -> str:
    """Return the key of an anonymous client: its address or network, else the peer's address."""
    address = client_address(request, proxies)
    return (request.remote_addr or "")[:100] if address is None else rate_limit_key(address)


BUSY_RETRY_S = 5


@dataclass(frozen=True)
class FairSemaphore:
    """At most `total` slots, `per_client` of them for one client (0: no such limit), per process.

    `resource` names the slots in error messages. With `per_client` below the total, a client that
    holds as many slots as are free gets no more (dynamic thresholds, Choudhury and Hahne 1998): n
    busy clients get one part in n + 1 each, and one part stays free for the next client.
    """

    resource: str
    total: int
    per_client: int = 0
    _held: Counter[str] = field(default_factory=Counter, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def acquire(self, client: str) -> Callable[[], None]:
        """Take a slot and return the function that releases it, to be called once.

        Raises TooManyRequests at the client's own limit, and Unavailable if the slots that are
        left are reserved for other clients.
        """
        with self._lock:
            held = self._held[client]
            if self.per_client and held >= self.per_client:
                message = f"Too many {self.resource}: at most {self.per_client} per client."
                raise TooManyRequests(message, retry_after_s=BUSY_RETRY_S)
            free = max(1, self.total) - self._held.total()
            is_shared = 0 < self.per_client < self.total
            if free <= (held if is_shared else 0):
                message = f"Too many {self.resource} on this server."
                raise Unavailable(message, retry_after_s=BUSY_RETRY_S)
            self._held[client] += 1
        return partial(self._release, client)

    def _release(self, client: str) -> None:
        with self._lock:
            self._held[client] -= 1
            if not self._held[client]:
                del self._held[client]


MEMORY_TIMEOUT_S = 60.0
"""How long a request waits for memory: the maximum of `Prefer: wait`."""


def new_memory_budget() -> MemoryBudget:
    """Return the memory budget of a process; requests that wait for memory release their permit."""
    return MemoryBudget(timeout_s=MEMORY_TIMEOUT_S, waiting=suspend_permit)


def reserve_memory(budget: MemoryBudget, size: int) -> None:
    """Replace the request's memory reservation, which ends with the request.

    Raises Unavailable if other requests hold too much memory for too long.
    """
    if "reservation" in g:
        g.pop("reservation").__exit__(None, None, None)
    if size <= SMALL_BYTES:
        return
    reservation = budget.reserve(size)
    reservation.__enter__()
    g.reservation = reservation


READ_ONLY_RETRY_S = 60
READ_ONLY_CACHE_S = 1.0
"""How long the reason is cached, so that not every write reads it from the catalog."""


@dataclass
class ReadOnlyMode:
    """Read-only mode; shared by the threads of one process."""

    catalog: Catalog
    always: bool = False
    mirror_of: str = ""
    clock: Callable[[], float] = time.monotonic
    _read_at: float = field(default=float("-inf"), init=False)
    _reason: str | None = field(default=None, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def require_writable(self) -> None:
        """Raise Forbidden in a mirror, Unavailable in read-only mode."""
        if self.mirror_of:
            detail = f"This store is a read-only mirror of {self.mirror_of}: write there."
            raise Forbidden(detail, code="read_only_mirror")
        if reason := self.reason():
            raise Unavailable(reason, code="read_only", retry_after_s=READ_ONLY_RETRY_S)

    def reason(self) -> str | None:
        """Return why writes are refused, or None if they are accepted."""
        if self.always:
            return "The store is read-only: writes are refused until an operator ends this mode."
        with self._lock:
            if self.clock() - self._read_at >= READ_ONLY_CACHE_S:
                with self.catalog.read() as tx:
                    self._reason = store_state.find_read_only_reason(tx)
                self._read_at = self.clock()
            return self._reason
