"""Whose turn it is: receivers served round-robin, each within its window. No input or output."""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from pipelines.notifying import pacing
from storage.catalog.deliveries import Due
from storage.catalog.endpoints import Endpoint

FRESH_S = 2.0
"""Age at which a fetched delivery is fetched again: it may be superseded or cancelled by now."""
LINGER_S = 2.0
"""How long an endpoint with nothing to send is held, so that the next delivery needs no claim."""
AHEAD = 8
"""Deliveries fetched ahead, in windows: one round of recording lasts as long as many answers."""
BUFFERED = 2000
"""Deliveries fetched ahead in all."""
SUSPECT_SHARE = 4
"""Receivers that keep failing share this part of all that may be in flight: a quarter."""


@dataclass
class Lane:
    """One endpoint that this process holds."""

    endpoint: Endpoint
    until: float
    """When its lease ends, by this process's clock."""
    idle_since: float
    queue: deque[Due] = field(default_factory=deque)
    fetched: float = 0.0
    full: bool = False
    """Whether there was more to fetch."""
    open: dict[int, Due] = field(default_factory=dict)
    """In flight, or not yet recorded."""
    flying: set[int] = field(default_factory=set)
    ready: bool = False
    """Whether it stands in the row of those to serve."""

    def takes(self, now: float, now_us: int) -> bool:
        """Whether a request may go out."""
        return self.hopeful() and not self.rests(now_us) and now < self.until

    def hopeful(self) -> bool:
        """Whether there is something to send and room for it."""
        return bool(self.queue) and len(self.flying) < pacing.allowed(self.endpoint)

    def rests(self, now_us: int) -> bool:
        """Whether it failed so often that it is left alone for a while."""
        return pacing.probing(self.endpoint) and self.endpoint.resume_us > now_us

    def ended(self, now: float, now_us: int) -> bool:
        """Whether it is of no use to hold it any longer."""
        idle = not self.queue and now - self.idle_since > LINGER_S
        return not self.open and (idle or self.rests(now_us))

    def wanted(self) -> int:
        """How many deliveries to fetch; 0 while there are enough."""
        ahead = AHEAD * pacing.allowed(self.endpoint)
        return ahead - len(self.queue) if len(self.queue) <= ahead // 2 else 0


class Lanes:
    """All endpoints that this process holds, and the row in which they take turns."""

    def __init__(self, *, in_flight: int) -> None:
        self._in_flight = in_flight
        self._lanes: dict[int, Lane] = {}
        self._row: deque[Lane] = deque()
        self._flying: set[int] = set()
        self._suspects: set[int] = set()
        self.hungry = False
        """Whether somebody ran low of whom there is more to fetch."""

    @property
    def flying(self) -> int:
        """Requests in flight."""
        return len(self._flying)

    def take(self, endpoints: Iterable[Endpoint], *, until: float, now: float) -> None:
        """Hold these from now on."""
        for endpoint in endpoints:
            self._lanes[endpoint.id] = Lane(endpoint, until, idle_since=now)

    def extend(self, ids: Collection[int], asked: Collection[int], *, until: float) -> None:
        """The leases of `ids` were renewed; what else was asked for is lost."""
        for ident in set(asked) - set(ids):
            lane = self._lanes.pop(ident, None)
            if lane is not None:
                lane.queue.clear()
        for ident in ids:
            lane = self._lanes.get(ident)
            if lane is not None:
                lane.until = until
                self._line_up(lane)

    def held(self) -> list[int]:
        """The ids of all endpoints held."""
        return list(self._lanes)

    def subscriptions(self) -> set[int]:
        """Of what is in flight or waits for it."""
        return {
            due.subscription_id
            for lane in self._lanes.values()
            for due in (*lane.queue, *lane.open.values())
        }

    def drop_ended(self, *, now: float, now_us: int) -> list[Endpoint]:
        """Hold on no longer to what is idle or rests; with what was learnt of each."""
        ended = [lane for lane in self._lanes.values() if lane.ended(now, now_us)]
        return [self._drop(lane) for lane in ended]

    def drop_all(self) -> list[Endpoint]:
        """Hold nothing any more."""
        return [self._drop(lane) for lane in list(self._lanes.values())]

    def _drop(self, lane: Lane) -> Endpoint:
        lane.queue.clear()
        return self._lanes.pop(lane.endpoint.id).endpoint

    def wants(self, *, limit: int, now_us: int) -> dict[int, int]:
        """How many deliveries to fetch for whom; who was asked for moves behind the others.

        Includes those that are open already, which a fetch finds again.
        """
        self.hungry = False
        room = BUFFERED - sum(len(lane.queue) for lane in self._lanes.values())
        wants: dict[int, int] = {}
        for ident, lane in list(self._lanes.items()):
            wanted = lane.wanted()
            if len(wants) == limit or room <= 0:
                break
            if wanted and not lane.rests(now_us):
                self._lanes[ident] = self._lanes.pop(ident)
                wants[ident] = wanted + len(lane.queue) + len(lane.open)
                room -= wanted
        return wants

    def feed(self, ident: int, found: Iterable[Due], *, full: bool, now: float) -> None:
        """Replace what waits in a lane by what was found, but for pairs that are being told."""
        lane = self._lanes.get(ident)
        if lane is None:
            return
        busy = {due.pair for due in lane.open.values()}
        lane.queue = deque(due for due in found if due.pair not in busy)
        lane.fetched, lane.full = now, full
        if lane.queue:
            lane.idle_since = now
            self._line_up(lane)

    def next(self, *, now: float, now_us: int) -> tuple[int, Due] | None:
        """The delivery whose turn it is, now in flight; None when none may go out."""
        for _ in range(len(self._row)):
            if self.flying >= self._in_flight:
                return None
            lane = self._row.popleft()
            lane.ready = False
            if lane.queue and now - lane.fetched > FRESH_S:
                lane.queue.clear()
                self.hungry = True
            if not lane.takes(now, now_us):
                continue
            if pacing.probing(lane.endpoint) and self._crowded():
                self._line_up(lane)
                continue
            return lane.endpoint.id, self._launch(lane, now)
        return None

    def _crowded(self) -> bool:
        """Whether those that keep failing use their share."""
        return len(self._suspects) * SUSPECT_SHARE >= self._in_flight

    def _launch(self, lane: Lane, now: float) -> Due:
        due = lane.queue.popleft()
        lane.open[due.id] = due
        lane.flying.add(due.id)
        lane.idle_since = now
        self._flying.add(due.id)
        if pacing.probing(lane.endpoint):
            self._suspects.add(due.id)
        self.hungry |= lane.full and lane.wanted() > 0
        self._line_up(lane)
        return due

    def _line_up(self, lane: Lane) -> None:
        if not lane.ready and lane.hopeful():
            lane.ready = True
            self._row.append(lane)

    def landed(self, ident: int, delivery_id: int, *, success: bool | None, now_us: int) -> None:
        """An attempt ended; `success` None says nothing about the receiver."""
        self._flying.discard(delivery_id)
        self._suspects.discard(delivery_id)
        lane = self._lanes.get(ident)
        if lane is None:
            return
        lane.flying.discard(delivery_id)
        if success:
            lane.endpoint = pacing.succeeded(lane.endpoint)
        elif success is not None:
            lane.endpoint = pacing.failed(lane.endpoint, now_us=now_us)
        self._line_up(lane)

    def recorded(self, ident: int, delivery_id: int) -> None:
        """The end of an attempt is in the catalog: what follows it may be fetched."""
        lane = self._lanes.get(ident)
        if lane is not None:
            lane.open.pop(delivery_id, None)
