"""Tracking waits until every collection has arrived."""

from dataclasses import dataclass, field

from storage.model import FQID, Replica
from tests.drill.collection_progress import ASKED_AT_ONCE, Arrivals, Everything
from tests.live.progress import STAGES, Progress, watch


@dataclass
class World:
    """A store that has some collections, and a curator who made some."""

    there: set[tuple[str, Replica]] = field(default_factory=set)
    kept: dict[str, object] = field(default_factory=dict)
    busy: bool = False
    asked: list[str] = field(default_factory=list)

    def idle(self) -> bool:
        return not self.busy

    def stands(self, fqid: FQID, replica: Replica) -> bool:
        self.asked.append(f"{fqid} {replica}")
        return (str(fqid), replica) in self.there

    def come(self, name: str) -> None:
        self.there |= {(name, "aws"), (name, "gcp")}


def test_arrived_version_is_not_polled_again() -> None:
    world = World(kept={"u.1": 0, "u.2": 0}, there={("u.1", "aws")})
    arrivals = Arrivals(world, world)
    arrivals.look()
    assert (arrivals.arrived, arrivals.steps()) == (set(), 1)
    world.come("u.1")
    arrivals.look()
    assert (arrivals.arrived, arrivals.missing()) == ({"u.1"}, {"u.2"})
    world.come("u.2")
    arrivals.look()
    assert arrivals.is_complete()
    assert world.asked.count("u.1 aws") == world.asked.count("u.1 gcp") - 1 == 1
    world.busy = True
    assert not arrivals.is_complete()


def test_ignores_deleted_collections() -> None:
    world = World(kept={"u.1": 0})
    arrivals = Arrivals(world, world)
    arrivals.look()
    world.kept.clear()
    arrivals.look()
    assert arrivals.is_complete()


def test_polls_in_turns() -> None:
    count = ASKED_AT_ONCE + 10
    world = World(kept={f"u{number:03d}.1": 0 for number in range(count)})
    arrivals = Arrivals(world, world)
    arrivals.look()
    assert len(world.asked) == ASKED_AT_ONCE
    arrivals.look()
    assert len({name.split()[0] for name in world.asked}) == count


def test_watch_ends_with_last_arrival() -> None:
    world = World(kept={f"u{number}.1": 0 for number in range(5)})
    progress = Progress(("a",), frozenset({"a"}))
    progress.acknowledge("a", "b.1")
    for stage in STAGES:
        progress.mark(stage, {"b.1"})
    arrivals = Arrivals(world, world)
    left = sorted(world.kept)

    def look() -> None:
        if left:
            world.come(left.pop())
        arrivals.look()

    everything = Everything(progress, arrivals)
    # With a patience of nothing, one look in which nothing moves is the end.
    assert watch(everything, look, show=lambda: None, stop=lambda: False, stall_s=0)
    assert len(arrivals.arrived) == 5


def test_watch_ends_without_progress() -> None:
    world = World(kept={"u.1": 0})
    arrivals = Arrivals(world, world)
    everything = Everything(Progress((), frozenset()), arrivals)
    assert not watch(everything, arrivals.look, show=lambda: None, stop=lambda: False, stall_s=0)
