from auth.login.rates import limit
from storage.catalog import Catalog
from storage.errors import TooMany
from storage.rates import Rate

NOW = 1_700_000_000.0
RATE = Rate(per_minute=60, burst=3)


def taken(catalog: Catalog, who: str, at: float, rate: Rate = RATE) -> int:
    """0, or the seconds to wait."""
    try:
        limit(catalog, who, rate, NOW + at)
    except TooMany as error:
        return error.retry_after_s or 0
    return 0


def test_a_burst_is_let_in_and_then_one_at_a_time(catalog: Catalog) -> None:
    assert [taken(catalog, "a", 0) for _ in range(5)] == [0, 0, 0, 1, 1]
    assert [taken(catalog, "a", 1) for _ in range(2)] == [0, 1]
    assert taken(catalog, "b", 0) == 0
    assert [taken(catalog, "a", 100) for _ in range(4)] == [0, 0, 0, 1]


def test_without_a_rate_everybody_may(catalog: Catalog) -> None:
    assert {taken(catalog, "a", 0, Rate(0, 0)) for _ in range(50)} == {0}


def test_who_has_the_whole_allowance_is_forgotten(catalog: Catalog) -> None:
    taken(catalog, "a", 0)
    taken(catalog, "b", 1_000)
    with catalog.read() as tx:
        found = tx.exec_driver_sql("SELECT who FROM rates").scalars().all()
    assert found == ["b"]
