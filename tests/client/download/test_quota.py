"""The failure quota: starts, rises, falls; and the delay the other way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_client.checksums import BLOCK
from store_client.download.quota import HEADROOM, LEAST, LONGEST_ASKED_S, Quota, Trouble
from store_client.errors import Damaged

TROUBLE = Trouble(Damaged("cut"))


def test_it_starts_at_num_retries_and_the_failure_after_them_is_the_last() -> None:
    waits: list[float] = []
    quota = Quota(3, 0.25, pause=waits.append)
    for _ in range(3):
        quota.failure(TROUBLE)
    with pytest.raises(Damaged, match="cut"):
        quota.failure(TROUBLE)
    assert waits == [0.25, 0.5, 1.0]


def test_a_block_allows_one_more_failure() -> None:
    quota = Quota(0, 0.25, pause=lambda _: None)
    quota.block(BLOCK)
    quota.failure(TROUBLE)
    with pytest.raises(Damaged):
        quota.failure(TROUBLE)


def test_the_delay_falls_with_blocks_and_never_below_the_minimum() -> None:
    quota = Quota(5, 0.25, pause=lambda _: None)
    quota.failure(TROUBLE)
    quota.failure(TROUBLE)
    assert quota.delay_s == 1.0
    for end, expected in enumerate((0.5, 0.25, 0.25), 1):
        quota.block(end * BLOCK)
        assert quota.delay_s == expected


def test_what_a_server_asks_to_be_waited_is_within_a_bound() -> None:
    waits: list[float] = []
    quota = Quota(5, 0.25, pause=waits.append)
    quota.failure(Trouble(Damaged("busy"), retry_after_s=7))
    quota.failure(Trouble(Damaged("busy"), retry_after_s=100_000))
    assert waits == [7, LONGEST_ASKED_S]


@given(st.integers(0, 20), st.floats(0, 5), st.lists(st.booleans(), max_size=200))
def test_whatever_happens_it_is_what_was_counted(
    num_retries: int, least_s: float, story: list[bool]
) -> None:
    waits: list[float] = []
    quota = Quota(num_retries, least_s, pause=waits.append)
    left = num_retries
    for end, good in enumerate(story, 1):
        if good:
            quota.block(end * BLOCK)
            left = min(left + 1, num_retries + HEADROOM)
        elif left:
            quota.failure(TROUBLE)
            left -= 1
        else:
            with pytest.raises(Damaged):
                quota.failure(TROUBLE)
        assert quota.left == left
        assert quota.delay_s >= least_s
    assert all(wait >= least_s for wait in waits)


def test_a_block_that_comes_again_does_not_count() -> None:
    quota = Quota(0, 0.25, pause=lambda _: None)
    quota.block(5 * BLOCK)
    quota.block(5 * BLOCK)
    quota.block(3 * BLOCK)
    assert quota.left == 1


def test_crumbs_count_together_or_at_the_end() -> None:
    quota = Quota(0, 0.25, pause=lambda _: None)
    quota.block(LEAST - 1)
    assert quota.left == 0
    quota.block(LEAST)
    assert quota.left == 1
    quota.block(LEAST + 1, last=True)
    assert quota.left == 2
