"""Deliveries are recorded in bounded batches."""

from collections.abc import Iterator

import pytest

from pipelines.matching import MAX_BATCH, MAX_BATCH_CHARACTERS, split_into_batches
from storage.catalog.deliveries import NewDelivery


def deliveries(count: int, payload: str = "{}") -> Iterator[NewDelivery]:
    return (NewDelivery(f"{number}", number, payload) for number in range(count))


@pytest.mark.parametrize("count", [0, 1, MAX_BATCH, MAX_BATCH + 1, 3 * MAX_BATCH])
def test_every_delivery_is_in_one_batch_and_only_the_last_is_the_last(count: int) -> None:
    made = list(split_into_batches(deliveries(count)))
    assert [one.subscription_id for batch, _ in made for one in batch] == list(range(count))
    assert [is_last for _, is_last in made] == [False] * (len(made) - 1) + [True]
    assert max(len(batch) for batch, _ in made) <= MAX_BATCH


def test_large_payloads_are_not_gathered_in_memory() -> None:
    taken = 0

    def counted() -> Iterator[NewDelivery]:
        nonlocal taken
        for delivery in deliveries(40, "x" * (MAX_BATCH_CHARACTERS // 8)):
            taken += 1
            yield delivery

    first, is_last = next(split_into_batches(counted()))
    assert (len(first) < 12, is_last, taken < 13) == (True, False, True)
