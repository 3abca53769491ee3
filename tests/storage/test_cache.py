"""The cache of bytes: what is evicted, and that it holds no more memory than it counts."""

import orjson

from storage.cache import ByteCache


class Clock:
    """A clock that a test sets."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def find_kept(cache: ByteCache, keys: str) -> str:
    """The keys that have a value; asking for them counts as use."""
    return "".join(key for key in keys if cache.get(key) is not None)


def test_evicts_least_recently_used() -> None:
    cache = ByteCache(3)
    for key in "abc":
        cache.put(key, b"x")
    assert cache.get("a") == b"x"
    cache.put("d", b"xx")
    assert find_kept(cache, "abcd") == "ad"


def test_replaced_value_counts_once() -> None:
    cache = ByteCache(3)
    for value in (b"xx", b"yyy", b"z"):
        cache.put("a", value)
    cache.put("b", b"xx")
    assert (cache.get("a"), cache.get("b")) == (b"z", b"xx")


def test_ignores_values_above_the_limit() -> None:
    cache = ByteCache(3)
    cache.put("a", b"xxx")
    cache.put("b", b"xxxx")
    assert find_kept(cache, "ab") == "a"


def test_evicts_what_was_not_used_for_long() -> None:
    clock = Clock()
    cache = ByteCache(100, max_idle_s=10, clock=clock)
    cache.put("a", b"x")
    cache.put("b", b"x")
    clock.now_s = 8
    assert cache.get("a") == b"x"
    clock.now_s = 11
    cache.put("c", b"x")
    assert find_kept(cache, "abc") == "ac"


def test_reading_evicts_what_was_not_used_for_long() -> None:
    clock = Clock()
    cache = ByteCache(100, max_idle_s=10, clock=clock)
    cache.put("a", b"x")
    clock.now_s = 11
    assert cache.get("a") is None


def test_keeps_no_serializer_buffer() -> None:
    cache, encoded = ByteCache(10_000), orjson.dumps({"text": "x" * 1_000})
    cache.put("a", encoded)
    kept = cache.get("a")
    assert kept == encoded
    assert kept is not encoded
