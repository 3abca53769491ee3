"""The drill `python -m tests.drill`: kills, outages and lost messages lose no bundle."""

import os
import secrets
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import click

from examples.webhooks import Receiver, running_receiver
from ops import local_store
from storage.model import REPLICAS
from storage.stores import Stores
from tests.drill import chaos, checks, collection_load, environment, notification_checks, samples
from tests.drill.buckets import Bucket, Folder
from tests.drill.collection_progress import Arrivals, Everything
from tests.engines import optional_engines
from tests.live.api import ApiClient
from tests.live.deposits import DepositedBundle, Depositor, SampleBundle
from tests.live.progress import STAGES, Progress, update_progress, watch

COMPLETING = 24
"""A killed worker holds a bundle up until its lease ends: the others go on meanwhile."""
STALL_S = 300.0
PATIENCE_S = 600.0
"""How long a depositor asks again: longer than a replica is away."""
SHOWN = 25


@dataclass(frozen=True)
class Size:
    """How much is deposited, and how often what is done meanwhile."""

    bundles: int
    large_every: int
    doses: Mapping[str, int]


SIZES: Mapping[str, Size] = {
    # One worker is all of them: a kill of it is one of every kind.
    "embedded": Size(200, 50, {chaos.WORKER: 6, chaos.API: 3}),
    "real": Size(
        300,
        50,
        {
            chaos.WORKER: 30,
            chaos.API: 6,
            chaos.FLUSH: 3,
            chaos.OUTAGE: 1,
            "queue restarted": 3,
            "catalog restarted": 1,
            "catalog killed": 1,
            "index deleted": 1,
        },
    ),
}


@click.command()
@click.option("--engines", type=click.Choice(list(SIZES)), default="embedded", show_default=True)
@click.option("--seed", type=int, help="Repeat the drill of this seed.")
@click.option("--bundles", type=int, help="Fewer, with as much less damage.")
@optional_engines.option
@click.option("--keep", is_flag=True, help="Leave the store's folder behind.")
def drill(
    engines: str, seed: int | None, bundles: int | None, excuse: set[str], keep: bool
) -> None:
    """Deposit while processes are killed and engines are hurt; then count."""
    seed = secrets.randbelow(2**31) if seed is None else seed
    size = _scaled(SIZES[engines], bundles)
    click.echo(f"drill: {engines} engines, seed {seed}, {size.bundles} bundles")
    began, found = time.monotonic(), []
    try:
        with local_store.temporary_home(keep=keep) as home:
            if keep:
                click.echo(f"drill: {home}")
            found = _on_a_stand(engines, home, size, Random(seed), frozenset(excuse))
    except environment.Lacking as error:
        sys.exit(f"drill: {error}; excuse it by --excuse")
    for fault in found[:SHOWN]:
        click.echo(f"drill: FAIL {fault}")
    click.echo(
        f"drill: {'failed' if found else 'held'} after {time.monotonic() - began:.0f} s"
        f" ({engines} engines, seed {seed}, {len(found)} faults)"
    )
    sys.exit(1 if found else 0)


def _scaled(size: Size, bundles: int | None) -> Size:
    """All of it for as many bundles as asked for; what is done at all is done once."""
    if bundles is None:
        return size
    share = bundles / size.bundles
    doses = {what: max(1, round(count * share)) for what, count in size.doses.items()}
    return replace(size, bundles=bundles, doses=doses)


def _on_a_stand(
    engines: str, home: Path, size: Size, rng: Random, excused: frozenset[str]
) -> list[str]:
    with _standing(engines, rng, excused) as ground:
        os.environ.update({k: v for k, v in ground.settings.items() if not k.startswith("STORE_")})
        if ground.struck:
            click.echo(f"drill: the bucket of {ground.struck} will fail for a while")
        with local_store.running_store(home, ground.settings) as store:
            click.echo(f"drill: a store in {store.started_in_s:.0f} s")
            found = _run(store, ground, size, rng)
            if found:
                click.echo(f"The end of the store's log:\n{store.read_warnings()}")
            return found


@contextmanager
def _standing(engines: str, rng: Random, excused: frozenset[str]) -> Iterator[environment.Stand]:
    if engines == "embedded":
        with environment.embedded() as ground:
            yield ground
    else:
        # Not in the store's home: PostgreSQL runs as a user who may not look into it.
        with (
            tempfile.TemporaryDirectory(prefix="drill-") as folder,
            environment.real(Path(folder), rng, excused=excused) as ground,
        ):
            yield ground


def _run(
    store: local_store.LocalStore, ground: environment.Stand, size: Size, rng: Random
) -> list[str]:
    service = ApiClient.open(store.api, store.token, retry_for_s=PATIENCE_S)
    bundles = samples.bundles(size.bundles, rng, large_every=size.large_every)
    labels = tuple(bundle.label for bundle in bundles)
    progress = Progress(labels, frozenset(labels))
    deposited: list[DepositedBundle] = []
    curator = collection_load.Curator(service, Random(rng.random()))
    hurt = chaos.Chaos(store, ground, rng)
    strikes = chaos.plan(rng, bundles=size.bundles, doses=_possible(size.doses, ground))
    key = secrets.token_urlsafe(24)
    with running_receiver(key, accept=notification_checks.Reluctance()) as inbox:
        notification_checks.subscribe(service, inbox)
        with hurt.raging(strikes, done=lambda: len(deposited)) as damage:
            refused = _deposit(service, bundles, progress, (deposited, curator), inbox, hurt)
            refused += curator.finish()
        click.echo(f"drill: {damage.told()}")
        counts = ", ".join(f"{stage} {progress.count(stage)}/{len(bundles)}" for stage in STAGES)
        click.echo(f"drill: {counts} after {progress.elapsed_s():.0f} s")
        click.echo(f"drill: {curator.told()}")
        late = [(name, sorted(progress.missing(name))[:5]) for name in STAGES]
        found = [*refused, *(f"not {name}: {', '.join(some)}" for name, some in late if some)]
        with environment.opened(store, ground) as stores:
            found += _checked(service, store, stores, ground, deposited, curator, rng)
        found += notification_checks.faults(inbox, {one.fqid for one in deposited})
        click.echo(
            f"drill: {notification_checks.Told.of(inbox.accepted)}, {len(inbox.rejected)} refused once"
        )
    if alone := checks.ended_alone(store, lambda name: damage.killed[name]):
        click.echo(f"drill: ended by themselves and were started again: {', '.join(alone)}")
    return found


def _possible(doses: Mapping[str, int], ground: environment.Stand) -> dict[str, int]:
    """What can be done on this stand; an engine that was excused cannot be hurt."""
    able = {chaos.WORKER, chaos.API, chaos.FLUSH, *ground.hands}
    able |= {chaos.OUTAGE} if ground.proxy else set()
    return {what: count for what, count in doses.items() if what in able}


def _checked(
    service: ApiClient,
    store: local_store.LocalStore,
    stores: Stores,
    ground: environment.Stand,
    deposited: list[DepositedBundle],
    curator: collection_load.Curator,
    rng: Random,
) -> list[str]:
    began = time.monotonic()
    folders: dict[str, Bucket] = {replica: Folder(stores.replicas[replica]) for replica in REPLICAS}
    buckets = {**folders, **ground.buckets}
    found = [
        *checks.settled(stores, service, deposited),
        *checks.wanting(stores),
        *checks.tidied(stores, buckets),
        *checks.unreadable(service, deposited, rng),
        *collection_load.faults(service, curator),
        *checks.misplaced(buckets, deposited),
        *checks.uncatalogued(stores, buckets),
        *checks.done_twice(store),
        *checks.absent(store),
    ]
    click.echo(f"drill: looked at all of it in {time.monotonic() - began:.0f} s")
    return found


def _deposit(
    service: ApiClient,
    bundles: tuple[SampleBundle, ...],
    progress: Progress,
    takers: tuple[list[DepositedBundle], collection_load.Curator],
    inbox: Receiver,
    hurt: chaos.Chaos,
) -> list[str]:
    """Deposit everything and watch until all is there or nothing moves; what was refused."""

    deposited, curator = takers

    def acknowledged(one: DepositedBundle) -> None:
        deposited.append(one)
        progress.acknowledge(one.bundle.label, one.fqid)
        curator.acknowledged(one)

    def notified() -> set[str]:
        return set.intersection(*(inbox.fqids(path) for path in notification_checks.SUBSCRIBERS))

    def look_once() -> None:
        update_progress(progress, service, notified)
        arrivals.look()

    arrivals = Arrivals(curator, curator)
    everything = Everything(progress, arrivals)
    depositor = Depositor(service, str(uuid.uuid4()))
    depositor.create_area()
    with depositor.depositing(bundles, acknowledged, completions=COMPLETING) as deposits:
        watch(
            everything,
            look_once,
            show=_Lines(progress, arrivals).show,
            stop=lambda: deposits.failed() or hurt.error is not None,
            stall_s=STALL_S,
        )
        return [f"refused: {error!r}" for error in deposits.errors()]


class _Lines:
    """A line about the progress now and then."""

    EVERY_S = 15.0

    def __init__(self, progress: Progress, arrivals: Arrivals) -> None:
        self._progress, self._arrivals = progress, arrivals
        self._shown_at = -self.EVERY_S

    def show(self) -> None:
        """Print it when it is time."""
        now = self._progress.elapsed_s()
        if now - self._shown_at >= self.EVERY_S:
            self._shown_at = now
            counts = ", ".join(f"{stage} {self._progress.count(stage)}" for stage in STAGES)
            waiting = len(self._arrivals.missing())
            came = f"collections {len(self._arrivals.arrived)}, {waiting} to come"
            click.echo(f"drill: {now:5.0f} s  {counts}; {came}")


if __name__ == "__main__":
    drill()
