"""Kills worker processes and empties the queue, as deposits move on."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random

import redis

from ops.demo.stage import Stage

SPARED = frozenset({"redis", "api", "auth"})
"""Not workers: who asks them gets an answer or an error, and both are part of other tests."""

POLL_S = 0.05
LONGEST_JITTER_S = 0.5


@dataclass(frozen=True)
class Strike:
    """Something that happens once so many bundles were acknowledged, a moment later."""

    after: int
    jitter_s: float
    flush: bool


@dataclass
class Damage:
    """What was done."""

    killed: dict[str, int] = field(default_factory=dict)
    flushes: int = 0

    @property
    def kills(self) -> int:
        """Processes killed."""
        return sum(self.killed.values())


def plan(rng: Random, *, bundles: int, kills: int, flushes: int) -> list[Strike]:
    """When to strike: anywhere before the last bundles."""
    kinds = [False] * kills + [True] * flushes
    strikes = [
        Strike(rng.randrange(int(bundles * 0.95)), rng.uniform(0, LONGEST_JITTER_S), flush)
        for flush in kinds
    ]
    return sorted(strikes, key=lambda strike: (strike.after, strike.jitter_s))


@contextmanager
def raging(
    stage: Stage, strikes: list[Strike], *, done: Callable[[], int], rng: Random
) -> Iterator[Damage]:
    """Carry the plan out beside the block; all of it is done when the block is left."""
    damage, over = Damage(), threading.Event()
    thread = threading.Thread(target=_rage, args=(stage, strikes, done, rng, damage, over))
    thread.start()
    try:
        yield damage
    finally:
        over.set()
        thread.join()


def _rage(
    stage: Stage,
    strikes: list[Strike],
    done: Callable[[], int],
    rng: Random,
    damage: Damage,
    over: threading.Event,
) -> None:
    for strike in strikes:
        while done() < strike.after and not over.is_set():
            over.wait(POLL_S)
        over.wait(strike.jitter_s)
        if strike.flush:
            _flush(stage, damage)
        else:
            _kill(stage, rng, damage)


def _kill(stage: Stage, rng: Random, damage: Damage) -> None:
    """Kill one worker process that runs now; wait for one if none does."""
    while True:
        running = stage.processes()["processes"]
        for name in rng.sample(sorted(running), len(running)):
            if name in SPARED:
                continue
            with suppress(ProcessLookupError):
                os.kill(running[name]["pid"], signal.SIGKILL)
                damage.killed[name] = damage.killed.get(name, 0) + 1
                return
        threading.Event().wait(POLL_S)


def _flush(stage: Stage, damage: Damage) -> None:
    with redis.Redis.from_url(stage.processes()["redis_url"]) as client:
        client.flushall()
    damage.flushes += 1
