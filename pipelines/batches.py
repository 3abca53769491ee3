"""Batches: jobs of one step that share transactions, round trips and fsyncs.

A batch function gets the claims of several jobs and completes those that go well. Any other job is
left to the step's own function, which runs it by itself: so one bad job never fails the others, and
what to do about an error is decided in one place.
"""

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    Executor,
    ThreadPoolExecutor,
    wait,
)
from functools import lru_cache
from typing import TypeVar

from storage.errors import Lost
from storage.model import Todo

log = logging.getLogger(__name__)

Completed = Mapping[Todo, tuple[Todo, ...]]
"""The jobs that a batch completed, each with those that follow from it."""

GROUP_S = 0.25
"""How long those of a batch that are done wait for the others."""

INTERRUPTED_S = 0.5
"""How long a wait keeps a job from noticing that its worker stops, or that its time is over."""

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Result = TypeVar("Result")


def run_each(
    work: Callable[[Key], Result], keys: Iterable[Key], *, step: str, replica: str, parallel: int
) -> dict[Key, Result]:
    """Call a function for each key, several at a time; the results of those that did not fail.

    Each step has threads of its own for each replica: a bucket that hangs holds no other up.
    """
    attempted = list(keys)
    if len(attempted) < 2:
        outcomes = [_attempt(work, key) for key in attempted]
    else:
        outcomes = list(
            _pool(step, replica, parallel).map(lambda key: _attempt(work, key), attempted)
        )
    return {key: found[0] for key, found in zip(attempted, outcomes, strict=True) if found}


def run_apart(
    work: Callable[[Item], Result], items: Sequence[Item], *, threads: int
) -> list[Result]:
    """Call a function for each item, several at a time, in threads that end with the call."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))


def run_in_groups(
    work: Callable[[Key], Result],
    keys: Iterable[Key],
    complete: Callable[[dict[Key, Result]], Completed],
    *,
    step: str,
    replica: str,
    parallel: int,
) -> Completed:
    """The same, and complete the jobs in groups as they are done, so that a key that takes long
    holds no other up."""
    pool = _pool(step, replica, parallel)
    futures = {pool.submit(_attempt, work, key): key for key in keys}
    waiting, completed = set(futures), dict[Todo, tuple[Todo, ...]]()
    try:
        while waiting:
            done, waiting = wait(waiting, GROUP_S)
            if not done:
                done, waiting = wait(waiting, INTERRUPTED_S, FIRST_COMPLETED)
            outcomes = [(key, future.result()) for future, key in futures.items() if future in done]
            if group := {key: found[0] for key, found in outcomes if found}:
                completed.update(complete(group))
    finally:
        for future in waiting:
            future.cancel()
    return completed


def run_through(
    pool: Executor, work: Callable[[Item], object], items: Iterable[Item], *, parallel: int
) -> None:
    """Call a function for each item, several at a time; the first error stops those not begun.

    Each thread takes the next item: a future for each of many short calls would cost as much."""
    waiting = deque(items)

    def run() -> None:
        while waiting:
            try:
                item = waiting.popleft()
            except IndexError:  # Another thread took the last one.
                return
            work(item)

    futures = [pool.submit(run) for _ in range(min(parallel, len(waiting)))]
    pending = set(futures)
    try:
        while pending:
            done, pending = wait(pending, INTERRUPTED_S, FIRST_EXCEPTION)
            if any(future.exception() for future in done):
                break
    finally:
        waiting.clear()
    for future in futures:
        future.result()


def _attempt(work: Callable[[Key], Result], key: Key) -> tuple[Result] | None:
    try:
        return (work(key),)
    except Exception as error:
        if not isinstance(error, Lost):
            log.debug("%s leaves its batch: %s", key, error)
        return None


@lru_cache(maxsize=32)
def _pool(step: str, replica: str, size: int) -> ThreadPoolExecutor:
    """Threads that wait for a bucket, shared by the batches of this process."""
    return ThreadPoolExecutor(size, thread_name_prefix=f"{step}-{replica}")
