"""Leaving threads behind: after Ctrl-C an answer that does not come is not waited for.

They cannot be ended while they wait for the network. What they were at is safe: the journal knows
what arrived, and the store takes the same twice.
"""

import os
import sys
from collections.abc import Collection
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from typing import Any

GRACE_S = 2.0
"""How long those are waited for that are about to end."""


def leave(pool: Executor, futures: Collection[Future[Any]] = ()) -> None:
    """Begin nothing more, and wait a moment for what is under way."""
    pool.shutdown(wait=False, cancel_futures=True)
    wait([one for one in futures if not one.cancelled()], timeout=GRACE_S)


def exit_at_once(code: int) -> None:
    """End the program, whatever its threads wait for."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code)
