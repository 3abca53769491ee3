"""What was answered under a key is answered again, until it is forgotten."""

import pytest

from pipelines import repeating
from pipelines.repeating import Repeatable
from storage.catalog import answers, now_us
from storage.errors import Conflict
from storage.stores import Stores

ASKED = Repeatable("somebody@example.org", "key", "digest")


def test_an_answer_is_kept_until_it_is_too_old(stores: Stores) -> None:
    with stores.catalog.write() as tx:
        repeating.remember(tx, ASKED, "first")
        repeating.remember(tx, None, "not kept")
    with stores.catalog.read() as tx:
        assert repeating.answered(tx, ASKED) == "first"
        assert repeating.answered(tx, None) is None
        now = now_us(tx)
    repeating.forget(stores, now - 60_000_000)
    with stores.catalog.read() as tx:
        assert repeating.answered(tx, ASKED) == "first"
    repeating.forget(stores, now + 60_000_000)
    with stores.catalog.read() as tx:
        assert repeating.answered(tx, ASKED) is None


def test_forgetting_goes_on_in_bounded_statements(stores: Stores) -> None:
    with stores.catalog.write() as tx:
        for number in range(answers.FORGOTTEN + 5):
            repeating.remember(tx, Repeatable("a", str(number), "d"), "x")
        now = now_us(tx)
    repeating.forget(stores, now + 60_000_000)
    with stores.catalog.read() as tx:
        assert all(answers.find(tx, "a", str(n)) is None for n in (0, answers.FORGOTTEN + 4))


def test_a_key_that_two_requests_used_at_once_is_the_first_one_s(stores: Stores) -> None:
    with stores.catalog.write() as tx:
        repeating.remember(tx, ASKED, "first")
    with pytest.raises(Conflict), stores.catalog.write() as tx:
        repeating.remember(tx, ASKED, "second")
