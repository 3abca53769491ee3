import pytest

from auth.openid import carrying
from storage.sealing import Sealer, derive
from tests.auth.builders import NOW

SEALER = Sealer(derive(b"a secret for tests only", b"pages"))


def test_what_is_carried_comes_back_for_the_same_purpose() -> None:
    carried = carrying.seal(SEALER, carrying.CONSENT, {"a": ["b"]}, NOW)
    assert carrying.opened(SEALER, carrying.CONSENT, carried, NOW + 1) == {"a": ["b"], "at": NOW}
    assert carrying.opened(SEALER, carrying.CONTINUE, carried, NOW + 1) is None


def test_the_machine_that_sealed_it_may_be_half_a_minute_ahead_and_no_more() -> None:
    carried = carrying.seal(SEALER, carrying.CONTINUE, {}, NOW)
    for ahead_s, opens in ((0, True), (1, True), (30, True), (31, False)):
        opened = carrying.opened(SEALER, carrying.CONTINUE, carried, NOW - ahead_s)
        assert (opened is not None) is opens


@pytest.mark.parametrize("late_s", [-carrying.SKEW_S - 1, carrying.LIFE_S + 1])
def test_what_is_carried_is_good_for_a_while(late_s: float) -> None:
    carried = carrying.seal(SEALER, carrying.CONTINUE, {}, NOW)
    assert carrying.opened(SEALER, carrying.CONTINUE, carried, NOW + late_s) is None


@pytest.mark.parametrize("forged", ["", "a", "é", "####", "A" * 100, "A" * 20_000])
def test_what_was_not_sealed_here_is_nothing(forged: str) -> None:
    assert carrying.opened(SEALER, carrying.CONTINUE, forged, NOW) is None


def test_nothing_can_be_changed_on_the_way() -> None:
    carried = carrying.seal(SEALER, carrying.CONTINUE, {"a": "b"}, NOW)
    for place in range(len(carried)):
        other = "A" if carried[place] != "A" else "B"
        changed = carried[:place] + other + carried[place + 1 :]
        opened = carrying.opened(SEALER, carrying.CONTINUE, changed, NOW)
        assert opened is None or opened == {"a": "b", "at": NOW}
