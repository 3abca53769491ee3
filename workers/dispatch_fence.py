"""Fence: lets an attempt begin only on a recent look at its subscription.

Deleting or pausing a subscription waits for longer than a look counts before it is answered
(`pipelines.notifying.subscriptions.wait_for_dispatchers`). So no attempt begins after the answer,
though dispatchers fetch deliveries ahead and nothing is written before an attempt.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Literal

from pipelines.notifying.pacing import BEGIN_S

Stop = Literal["deleted", "halted"]
Look = Callable[[Collection[int]], Awaitable[Mapping[int, Stop]]]
"""Reads which of these subscriptions are deleted or not active."""


class Fence:
    """One dispatcher's looks at its subscriptions; `others` are those it will ask about soon."""

    def __init__(self, look: Look, others: Callable[[], set[int]]) -> None:
        self._look, self._others = look, others
        self._lock = asyncio.Lock()
        self._until: Mapping[int, float] = {}
        self._stopped: Mapping[int, Stop] = {}

    async def stopped(self, subscription_id: int) -> Stop | None:
        """How the subscription was stopped, None while it is active; StoreError if unknown.

        The answer counts for the very next step of the caller, not across an `await`.
        """
        while not self._is_fresh(subscription_id):
            async with self._lock:
                if not self._is_fresh(subscription_id):
                    await self._refresh({subscription_id, *self._others()})
        return self._stopped.get(subscription_id)

    def _is_fresh(self, subscription_id: int) -> bool:
        return time.monotonic() < self._until.get(subscription_id, float("-inf"))

    async def _refresh(self, ids: Collection[int]) -> None:
        # Counted from before the look: what is stopped during it may have been missed.
        until = time.monotonic() + BEGIN_S
        self._stopped = await self._look(ids)
        self._until = dict.fromkeys(ids, until)
