"""Token buckets: a burst, then so many a minute; where Redis is away, everybody may."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ops import ports
from storage.rates import MemoryRates, Rate, Rates
from storage.rates_redis import RedisRates
from tests.patience import until
from tests.redis_server import RedisServer, needed


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path)
    made.start()
    yield made
    made.kill()


@pytest.fixture(params=["memory", pytest.param("redis", marks=needed)])
def rates(request: pytest.FixtureRequest) -> Iterator[Rates]:
    if request.param == "memory":
        yield MemoryRates()
        return
    made = RedisRates(request.getfixturevalue("server").url)
    yield made
    made.close()


def test_a_burst_is_let_through_and_no_more(rates: Rates) -> None:
    taken = [rates.take("ada", Rate(per_minute=1, burst=3)) for _ in range(5)]
    assert [one and one.allowed for one in taken] == [True, True, True, False, False]
    assert [one and one.left for one in taken] == [2, 1, 0, 0, 0]
    assert taken[-1] is not None
    assert 55 <= taken[-1].next_s <= 60
    assert 175 <= taken[-1].full_s <= 180


def test_everybody_has_a_bucket_of_their_own(rates: Rates) -> None:
    rate = Rate(per_minute=1, burst=1)
    allowed = [rates.take(who, rate) for who in ("ada", "ada", "bob")]
    assert [one and one.allowed for one in allowed] == [True, False, True]


def test_tokens_come_back_with_time(rates: Rates) -> None:
    rate = Rate(per_minute=6_000, burst=1)
    assert [rates.take("ada", rate) is None for _ in range(2)] == [False, False]
    until(lambda: (taken := rates.take("ada", rate)) is not None and taken.allowed)


def test_many_threads_take_no_more_than_there_is(rates: Rates) -> None:
    rate = Rate(per_minute=1, burst=20)
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: rates.take("ada", rate), range(60)))
    assert sum(one is not None and one.allowed for one in taken) == 20


@needed
def test_buckets_do_not_stay_for_ever(server: RedisServer) -> None:
    rates = RedisRates(server.url)
    rates.take("ada", Rate(per_minute=60, burst=10))
    assert 0 < rates._client.ttl("store:rate:ada") <= 11
    rates.close()


def test_in_memory_those_who_did_not_ask_for_longest_are_forgotten() -> None:
    rates, rate = MemoryRates(most=2), Rate(per_minute=1, burst=1)
    allowed = [rates.take(who, rate).allowed for who in ("ada", "bob", "ada", "eve", "ada", "bob")]
    assert allowed == [True, True, False, True, False, True]


def test_without_redis_nobody_is_counted_and_nobody_waits_twice(tmp_path: Path) -> None:
    now = [0.0]
    rates = RedisRates(f"redis://127.0.0.1:{ports.free()}/0", clock=lambda: now[0])
    assert rates.take("ada", Rate(1, 1)) is None
    assert rates.take("ada", Rate(1, 1)) is None
    rates.close()


@needed
def test_counting_goes_on_once_redis_is_back(server: RedisServer) -> None:
    now = [0.0]
    rates = RedisRates(server.url, clock=lambda: now[0])
    assert rates.take("ada", Rate(1, 1)) is not None
    server.kill()
    assert rates.take("ada", Rate(1, 1)) is None
    server.start()
    assert rates.take("ada", Rate(1, 1)) is None
    now[0] = 60.0
    assert rates.take("ada", Rate(1, 1)) is not None
    rates.close()
