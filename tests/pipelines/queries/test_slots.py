"""Slots: what is found in order, by length or by value is what trying each value would find."""

from random import Random
from typing import Any

import pytest

from pipelines.queries.slots import MAX_TEXT, slots
from pipelines.queries.terms import ALL, CHECKS, HEAVY, NULL, NUMBER, STRING, Check, Sight, slot
from tests.pipelines.expressions import SCALARS

SORTS = [NULL, STRING, NUMBER | NULL, ALL]
TEXTS = [one for one in SCALARS if isinstance(one, str)]
ORDERED = [one for one in SCALARS if type(one) in (int, float, str)]
LITERALS = {
    Check.EQUAL: [slot(one) for one in SCALARS],
    Check.GT: ORDERED,
    Check.GE: ORDERED,
    Check.LT: ORDERED,
    Check.LE: ORDERED,
    Check.STARTS: TEXTS,
    Check.ENDS: TEXTS,
    Check.HAS: [one for one in SCALARS if one is not True and one is not False],
    Check.UNLIKE: SORTS,
}


def sights(rng: Random, limit: int = 1000) -> Sight:
    """One value or several, some of them lists or not numbers at all."""
    values = [rng.choice(SCALARS) for _ in range(rng.choice([0, 1, 1, 1, 2, 5]))]
    if rng.random() < 0.3:
        values += [[rng.choice([*SCALARS, [1], {}]) for _ in range(4)], float("nan"), {"a": 1}]
    return Sight(values, limit)


@pytest.mark.parametrize("test", Check)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_found_is_what_passes(test: Check, seed: int) -> None:
    rng = Random(seed)
    filed, literals = slots(test, CHECKS[test]), LITERALS[test]
    now: dict[Any, set[int]] = {}
    for turn in range(200):
        value, asked = rng.choice(literals), rng.randrange(5)
        if asked in now.get(value, ()):
            filed.remove(value, asked)
            now[value].discard(asked)
        else:
            filed.add(value, asked)
            now.setdefault(value, set()).add(asked)
        sight = sights(rng)
        passing = {one: those for one, those in now.items() if those and CHECKS[test](sight, one)}
        found = [set(one) for one in filed.found(sight)]
        assert sorted(map(sorted, found)) == sorted(map(sorted, passing.values())), turn
        assert len(filed) == sum(map(bool, now.values()))


def test_a_long_text_is_not_searched_for_every_part() -> None:
    filed = slots(Check.HAS, CHECKS[Check.HAS])
    filed.add("a", 1)
    filed.add(5, 2)
    assert [set(one) for one in filed.found(Sight(["x" * MAX_TEXT], 1000))] == []
    assert [set(one) for one in filed.found(Sight(["x" * (MAX_TEXT + 1)], 1000))] == [{1}]


def test_what_is_heavy_is_of_a_sort_of_its_own() -> None:
    assert HEAVY in Sight(["x" * 6400], 99).sorts
    assert Sight(["x" * 6400], 100).sorts == STRING
    assert Sight([[1] * 100, None], 100).sorts == {"array", "null"}
    assert HEAVY in Sight([[1] * 60, [1] * 60], 100).sorts
