"""The failure quota: starts, rises, falls; and the delay the other way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_client.checksums import BLOCK
from store_client.errors import Damaged
from store_client.transfer.connections import (
    HEADROOM,
    MAX_RETRY_AFTER_S,
    MIN_BLOCK,
    FailureQuota,
    TransferFailure,
)

pytestmark = pytest.mark.spec("DWN-05")

TROUBLE = TransferFailure(Damaged("cut"))


def test_fails_after_num_retries() -> None:
    waits: list[float] = []
    quota = FailureQuota(3, 0.25, pause=waits.append)
    for _ in range(3):
        quota.record_failure(TROUBLE)
    with pytest.raises(Damaged, match="cut"):
        quota.record_failure(TROUBLE)
    assert waits == [0.25, 0.5, 1.0]


def test_a_block_allows_one_more_failure() -> None:
    quota = FailureQuota(0, 0.25, pause=lambda _: None)
    quota.record_block(BLOCK)
    quota.record_failure(TROUBLE)
    with pytest.raises(Damaged):
        quota.record_failure(TROUBLE)


def test_the_delay_falls_with_blocks_and_never_below_the_minimum() -> None:
    quota = FailureQuota(5, 0.25, pause=lambda _: None)
    quota.record_failure(TROUBLE)
    quota.record_failure(TROUBLE)
    assert quota.delay_s == 1.0
    for end, expected in enumerate((0.5, 0.25, 0.25), 1):
        quota.record_block(end * BLOCK)
        assert quota.delay_s == expected


def test_bounds_requested_wait() -> None:
    waits: list[float] = []
    quota = FailureQuota(5, 0.25, pause=waits.append)
    quota.record_failure(TransferFailure(Damaged("busy"), retry_after_s=7))
    quota.record_failure(TransferFailure(Damaged("busy"), retry_after_s=100_000))
    assert waits == [7, MAX_RETRY_AFTER_S]


@given(st.integers(0, 20), st.floats(0, 5), st.lists(st.booleans(), max_size=200))
def test_quota_matches_model(num_retries: int, least_s: float, story: list[bool]) -> None:
    waits: list[float] = []
    quota = FailureQuota(num_retries, least_s, pause=waits.append)
    left = num_retries
    for end, good in enumerate(story, 1):
        if good:
            quota.record_block(end * BLOCK)
            left = min(left + 1, num_retries + HEADROOM)
        elif left:
            quota.record_failure(TROUBLE)
            left -= 1
        else:
            with pytest.raises(Damaged):
                quota.record_failure(TROUBLE)
        assert quota.left == left
        assert quota.delay_s >= least_s
    assert all(wait >= least_s for wait in waits)


def test_repeated_block_does_not_count() -> None:
    quota = FailureQuota(0, 0.25, pause=lambda _: None)
    quota.record_block(5 * BLOCK)
    quota.record_block(5 * BLOCK)
    quota.record_block(3 * BLOCK)
    assert quota.left == 1


def test_crumbs_count_together_or_at_the_end() -> None:
    quota = FailureQuota(0, 0.25, pause=lambda _: None)
    quota.record_block(MIN_BLOCK - 1)
    assert quota.left == 0
    quota.record_block(MIN_BLOCK)
    assert quota.left == 1
    quota.record_block(MIN_BLOCK + 1, last=True)
    assert quota.left == 2
