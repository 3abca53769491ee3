"""Token-bucket rate limits in Redis, shared by all processes.

While Redis is down all requests are allowed: the limit protects the service and must not end it.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from config import SettingsError
from storage.rate_limits import Rate, RateDecision

log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 0.25
_COOL_DOWN_S: Final = 5.0
"""How long all requests are allowed after a failure of Redis."""

_TAKE_TOKEN_SCRIPT: Final = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local burst, per_second = tonumber(ARGV[1]), tonumber(ARGV[2]) / 60
local held = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(held[1]) or burst, tonumber(held[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * per_second)
local taken = 0
if tokens >= 1 then
  tokens, taken = tokens - 1, 1
end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens),
           'at', string.format('%.6f', now))
redis.call('EXPIRE', KEYS[1], math.ceil(burst / per_second) + 1)
return {taken, math.floor(tokens), math.ceil((1 - tokens) / per_second),
        math.ceil((burst - tokens) / per_second)}
"""


class RedisRateLimiter:
    """Token buckets that all processes of one Redis share."""

    def __init__(
        self, url: str, *, prefix: str = "store:rate:", clock: Callable[[], float] = time.monotonic
    ) -> None:
        try:
            self._client = redis.Redis.from_url(
                url,
                socket_timeout=_TIMEOUT_S,
                socket_connect_timeout=_TIMEOUT_S,
                # One retry: the connection may predate a restart of Redis.
                retry=Retry(NoBackoff(), 1),
            )
        except ValueError as error:
            raise SettingsError(f"STORE_REDIS_URL: {error}") from error
        self._script = self._client.register_script(_TAKE_TOKEN_SCRIPT)
        self._prefix, self._clock = prefix, clock
        self._silent_until = float("-inf")

    def take(self, who: str, rate: Rate) -> RateDecision | None:
        """See RateLimiter."""
        if self._clock() < self._silent_until:
            return None
        try:
            found: Any = self._script(keys=[self._prefix + who], args=[rate.burst, rate.per_minute])
        except (redis.RedisError, OSError) as error:
            self._silent_until = self._clock() + _COOL_DOWN_S
            log.warning("rate limits are off for a while: %s", error)
            return None
        taken, left, next_s, full_s = (int(part) for part in found)
        return RateDecision(bool(taken), left, max(0, next_s), max(0, full_s))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
