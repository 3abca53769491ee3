"""Token bucket rate limits, also when Redis is away."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ops import ports
from storage.rate_limits import MemoryRateLimiter, Rate, RateLimiter
from storage.redis_engines import RedisRateLimiter
from tests.redis_server import RedisServer, needed
from tests.waiting import until

pytestmark = pytest.mark.spec("CON-21")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path)
    made.start()
    yield made
    made.kill()


@pytest.fixture(params=["memory", pytest.param("redis", marks=needed)])
def rates(request: pytest.FixtureRequest) -> Iterator[RateLimiter]:
    if request.param == "memory":
        yield MemoryRateLimiter()
        return
    made = RedisRateLimiter(request.getfixturevalue("server").url)
    yield made
    made.close()


def test_a_burst_is_let_through_and_no_more(rates: RateLimiter) -> None:
    taken = [rates.take("ada", Rate(per_minute=1, burst=3)) for _ in range(5)]
    assert [one and one.allowed for one in taken] == [True, True, True, False, False]
    assert [one and one.remaining for one in taken] == [2, 1, 0, 0, 0]
    assert taken[-1] is not None
    assert 55 <= taken[-1].retry_after_s <= 60
    assert 175 <= taken[-1].reset_after_s <= 180


def test_callers_have_separate_buckets(rates: RateLimiter) -> None:
    rate = Rate(per_minute=1, burst=1)
    allowed = [rates.take(who, rate) for who in ("ada", "ada", "bob")]
    assert [one and one.allowed for one in allowed] == [True, False, True]


def test_tokens_refill_with_time(rates: RateLimiter) -> None:
    rate = Rate(per_minute=6_000, burst=1)
    assert [rates.take("ada", rate) is None for _ in range(2)] == [False, False]
    until(lambda: (taken := rates.take("ada", rate)) is not None and taken.allowed)


def test_threads_never_exceed_limit(rates: RateLimiter) -> None:
    rate = Rate(per_minute=1, burst=20)
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: rates.take("ada", rate), range(60)))
    assert sum(one is not None and one.allowed for one in taken) == 20


@needed
def test_buckets_do_not_stay_for_ever(server: RedisServer) -> None:
    rates = RedisRateLimiter(server.url)
    rates.take("ada", Rate(per_minute=60, burst=10))
    assert 0 < rates._client.ttl("store:rate:ada") <= 11
    rates.close()


def test_forgets_longest_idle_callers() -> None:
    rates, rate = MemoryRateLimiter(most=2), Rate(per_minute=1, burst=1)
    allowed = [rates.take(who, rate).allowed for who in ("ada", "bob", "ada", "eve", "ada", "bob")]
    assert allowed == [True, True, False, True, False, True]


def test_redis_outage_disables_limits_without_repeated_waits(tmp_path: Path) -> None:
    now = [0.0]
    rates = RedisRateLimiter(f"redis://127.0.0.1:{ports.find_free_port()}/0", clock=lambda: now[0])
    assert rates.take("ada", Rate(1, 1)) is None
    assert rates.take("ada", Rate(1, 1)) is None
    rates.close()


@needed
def test_limits_apply_again_after_redis_outage(server: RedisServer) -> None:
    now = [0.0]
    rates = RedisRateLimiter(server.url, clock=lambda: now[0])
    assert rates.take("ada", Rate(1, 1)) is not None
    server.kill()
    assert rates.take("ada", Rate(1, 1)) is None
    server.start()
    assert rates.take("ada", Rate(1, 1)) is None
    now[0] = 60.0
    assert rates.take("ada", Rate(1, 1)) is not None
    rates.close()
