"""Run scrub turns without waiting, on objects with old verification times."""

from pipelines import scrub
from pipelines.scrub import ReadRateLimiter, ScrubBudget, ScrubRun
from storage.catalog.integrity import DAY_US
from storage.catalog.sql import parse
from storage.stores import Stores

PLENTY = ScrubBudget(10**9, 10**12, 30)


class Sleeper:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stop_at = float("inf")

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.now >= self.stop_at

    def clock(self) -> float:
        return self.now


def pace(bytes_per_s: int = 10**9, sleeper: Sleeper | None = None) -> ReadRateLimiter:
    sleeper = sleeper or Sleeper()
    return ReadRateLimiter(bytes_per_s, sleeper.wait, sleeper.clock)


def run(stores: Stores, budget: ScrubBudget = PLENTY) -> ScrubRun:
    return scrub.run_scrub(stores, budget, pace(budget.bytes_per_s), turn_s=60)


def age(stores: Stores, days: float) -> None:
    """Let the time of all verifications, and of all findings, be longer ago."""
    past = {"past": int(days * DAY_US)}
    with stores.catalog.write() as tx:
        for table in ("blob_replicas", "presence"):
            tx.execute(parse(f"UPDATE {table} SET verified_us = verified_us - :past"), past)
        tx.execute(parse("UPDATE damaged_objects SET tried_us = tried_us - :past"), past)
        tx.execute(parse("UPDATE scrubbed SET day = day - :days"), {"days": int(days)})
