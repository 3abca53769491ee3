"""Kill processes and disturb engines by a seeded plan."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from ops.local_store import LocalStore
from tests.drill.environment import Stand, flush
from tests.drill.fault_proxy import Mode, Proxy

WORKER, API, FLUSH = "worker killed", "api killed", "queue emptied"
OUTAGE = "outage"
SERVES_API = frozenset({"api", "web"})
SPARED = SERVES_API | {"auth"}
"""No workers. Who asks the API gets an error and asks again; identity fails on its own."""

POLL_S = 0.05
LONGEST_JITTER_S = 0.5
LAST = 0.95
"""Share of the bundles that must be acknowledged before the last strike."""
MIDDLE = (0.25, 0.6)
"""Where in the drill strikes of which there is only one happen."""
SCRIPT: tuple[tuple[Mode, float], ...] = (
    (Mode.REFUSE, 60.0),
    (Mode.SLOW, 25.0),
    (Mode.TRUNCATE, 25.0),
    (Mode.RESET, 10.0),
)
"""An outage: what the replica does, and for how many seconds."""


@dataclass(frozen=True)
class Strike:
    """Something that happens once so many bundles were acknowledged, a moment later."""

    after: int
    jitter_s: float
    what: str


@dataclass
class Damage:
    """What was done."""

    done: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)

    def told(self) -> str:
        """In one line."""
        processes = ", ".join(f"{name} {count}" for name, count in sorted(self.killed.items()))
        strikes = ", ".join(f"{name} {count}×" for name, count in sorted(self.done.items()))
        return f"{strikes} ({processes})"


def plan(rng: Random, *, bundles: int, doses: Mapping[str, int]) -> list[Strike]:
    """When to strike: anywhere before the last bundles, what happens once in the middle."""
    strikes = []
    for what, count in doses.items():
        least, most = MIDDLE if count == 1 else (0.0, LAST)
        for _ in range(count):
            after = rng.randrange(int(bundles * least), max(1, int(bundles * most)))
            strikes.append(Strike(after, rng.uniform(0, LONGEST_JITTER_S), what))
    return sorted(strikes, key=lambda strike: (strike.after, strike.jitter_s))


class Chaos:
    """The hand that strikes, for one running store on its stand."""

    def __init__(self, stage: LocalStore, stand: Stand, rng: Random) -> None:
        self.damage = Damage()
        self.error: BaseException | None = None
        """What ended the hand before its plan did."""
        self._stage, self._stand, self._rng = stage, stand, rng
        self._over = threading.Event()
        self._outages: list[threading.Thread] = []

    @contextmanager
    def raging(self, strikes: list[Strike], *, done: Callable[[], int]) -> Iterator[Damage]:
        """Carry the plan out beside the block; all of it is done when the block is left."""
        thread = threading.Thread(target=self._rage, args=(strikes, done))
        thread.start()
        try:
            yield self.damage
        finally:
            self._over.set()
            for each in (thread, *self._outages):
                each.join()
        if self.error is not None:
            raise self.error

    def _rage(self, strikes: list[Strike], done: Callable[[], int]) -> None:
        try:
            self._carry_out(strikes, done)
        except Exception as error:
            self.error = error

    def _carry_out(self, strikes: list[Strike], done: Callable[[], int]) -> None:
        for strike in strikes:
            while done() < strike.after and not self._over.is_set():
                self._over.wait(POLL_S)
            self._over.wait(strike.jitter_s)
            self._strike(strike.what)
            self.damage.done[strike.what] += 1

    def _strike(self, what: str) -> None:
        own = {WORKER: self._kill_worker, API: self._kill_api, OUTAGE: self._outage}
        if what in own:
            own[what]()
        elif what == FLUSH:
            flush(self._stand.settings["STORE_REDIS_URL"])
        else:
            self._stand.hands[what]()

    def _kill_worker(self) -> None:
        """One worker process that runs now; wait for one if none does."""
        self._kill(lambda running: [name for name in running if name not in SPARED], _itself)

    def _kill_api(self) -> None:
        """The API's master, or one of its processes."""
        self._kill(lambda running: [name for name in running if name in SERVES_API], self._family)

    def _family(self, pid: int) -> int:
        return self._rng.choice([pid, *_children(pid)])

    def _kill(self, choose: Callable[[list[str]], list[str]], whom: Callable[[int], int]) -> None:
        while True:
            running = self._stage.read_processes()["processes"]
            names = choose(sorted(running))
            for name in self._rng.sample(names, len(names)):
                leader = running[name]["pid"]
                pid = whom(leader)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.damage.killed[name if pid == leader else f"{name}'s child"] += 1
                    return
            time.sleep(POLL_S)

    def _outage(self) -> None:
        """Let one replica fail in every way in turn, beside whatever else happens."""
        proxy = self._stand.proxy
        assert proxy is not None
        thread = threading.Thread(target=_fail, args=(proxy,))
        thread.start()
        self._outages.append(thread)


def _fail(proxy: Proxy) -> None:
    for mode, seconds in SCRIPT:
        proxy.mode = mode
        time.sleep(seconds)
    proxy.mode = Mode.PASS


def _itself(pid: int) -> int:
    return pid


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]
