"""Run batches of jobs of one step that share transactions, round trips and fsyncs.

A batch function gets the claims of several jobs and completes those that succeed. The step's own
function runs the others one by one, so a bad job never fails the others, and one place handles
errors.
"""

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Executor, ThreadPoolExecutor, wait
from functools import lru_cache
from typing import TypeVar

from storage.errors import ClaimLost
from storage.model import Job

log = logging.getLogger(__name__)

CompletedJobs = Mapping[Job, tuple[Job, ...]]
"""The jobs that a batch completed, each with its following jobs."""

GROUP_WAIT_S = 0.25
"""How long finished jobs of a batch wait for the others."""

INTERRUPT_POLL_S = 0.5
"""How long a wait may delay the notice that the worker stops or the time limit is over."""

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Result = TypeVar("Result")


def run_each(
    work: Callable[[Key], Result], keys: Iterable[Key], *, step: str, replica: str, parallel: int
) -> dict[Key, Result]:
    """Call a function for each key concurrently, and return the results of successful calls.

    Each step has a thread pool per replica, so a bucket that hangs delays no other.
    """
    attempted = list(keys)
    if len(attempted) < 2:
        outcomes = [_attempt(work, key) for key in attempted]
    else:
        outcomes = list(
            _get_pool(step, replica, parallel).map(lambda key: _attempt(work, key), attempted)
        )
    return {key: outcome[0] for key, outcome in zip(attempted, outcomes, strict=True) if outcome}


def run_in_own_threads(
    work: Callable[[Item], Result], items: Sequence[Item], *, threads: int
) -> list[Result]:
    """Call a function for each item concurrently, in threads that end with the call."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))


def run_in_groups(
    work: Callable[[Key], Result],
    keys: Iterable[Key],
    complete: Callable[[dict[Key, Result]], CompletedJobs],
    *,
    step: str,
    replica: str,
    parallel: int,
) -> CompletedJobs:
    """Call a function for each key concurrently, and complete the jobs in groups as they finish.

    A slow key delays no other.
    """
    pool = _get_pool(step, replica, parallel)
    futures = {pool.submit(_attempt, work, key): key for key in keys}
    waiting, completed = set(futures), dict[Job, tuple[Job, ...]]()
    try:
        while waiting:
            done, waiting = wait(waiting, GROUP_WAIT_S)
            if not done:
                done, waiting = wait(waiting, INTERRUPT_POLL_S, FIRST_COMPLETED)
            outcomes = [(key, future.result()) for future, key in futures.items() if future in done]
            if group := {key: outcome[0] for key, outcome in outcomes if outcome}:
                completed.update(complete(group))
    finally:
        for future in waiting:
            future.cancel()
    return completed


def run_until_error(
    pool: Executor, work: Callable[[Item], object], items: Iterable[Item], *, parallel: int
) -> None:
    """Call a function for each item concurrently; after the first error start no more calls."""
    # Each thread takes the next item: a future per item would cost as much as a short call.
    waiting = deque(items)

    def run() -> None:
        while waiting:
            try:
                item = waiting.popleft()
            except IndexError:  # Another thread took the last item.
                return
            work(item)

    futures = [pool.submit(run) for _ in range(min(parallel, len(waiting)))]
    pending = set(futures)
    try:
        while pending:
            done, pending = wait(pending, INTERRUPT_POLL_S, FIRST_EXCEPTION)
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
        if not isinstance(error, ClaimLost):
            log.debug("%s leaves its batch: %s", key, error)
        return None


@lru_cache(maxsize=32)
def _get_pool(step: str, replica: str, size: int) -> ThreadPoolExecutor:
    """Return the threads of a step and a replica, which all batches of this process share."""
    return ThreadPoolExecutor(size, thread_name_prefix=f"{step}-{replica}")
