"""`python -m tests.drill`: kills and lost messages cost time, never a bundle."""

import secrets
import sys
import time
import uuid
from collections.abc import Mapping
from random import Random
from typing import Any

import click

from ops.demo import stage
from ops.demo.bundles import SampleBundle
from ops.demo.depositing import Deposited, Depositor
from ops.demo.progress import STAGES, Progress, look, watch
from ops.demo.receiver import Inbox, receiving
from ops.demo.service import Service
from ops.demo.story import new_key
from tests.drill import chaos, checking, material

COMPLETING = 24
"""A killed worker holds a bundle up until its lease ends: the others go on meanwhile."""

STALL_S = 200.0
SUBSCRIBERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "/all-aws": ("aws", {}),
    "/all-gcp": ("gcp", {"jmespath_query": "files.sample_json[0].number >= `0`"}),
    "/found-aws": ("aws", {"es_query": {"query": {"match_all": {}}}}),
    "/found-gcp": (
        "gcp",
        {"es_query": {"query": {"exists": {"field": "files.sample_json.number"}}}},
    ),
}


@click.command()
@click.option("--seed", type=int, help="Repeat the drill of this seed.")
@click.option("--bundles", default=300, show_default=True)
@click.option("--kills", default=30, show_default=True)
@click.option("--flushes", default=3, show_default=True)
@click.option("--keep", is_flag=True, help="Leave the store's folder behind.")
def drill(seed: int | None, bundles: int, kills: int, flushes: int, keep: bool) -> None:
    """Deposit while workers are killed and the queue is emptied; then count."""
    seed = secrets.randbelow(2**31) if seed is None else seed
    click.echo(f"drill: seed {seed}, {bundles} bundles, {kills} kills, {flushes} emptied queues")
    rng, began = Random(seed), time.monotonic()
    strikes = chaos.plan(rng, bundles=bundles, kills=kills, flushes=flushes)
    with stage.temporary_home(keep=keep) as home, stage.running(home, {}) as store:
        if keep:
            click.echo(f"drill: {home}")
        faults = _run(store, material.bundles(bundles, rng), strikes, rng)
        if faults:
            click.echo(f"The end of the store's log:\n{store.complaints()}")
    for fault in faults[:20]:
        click.echo(f"drill: FAIL {fault}")
    click.echo(
        f"drill: {'failed' if faults else 'held'} after {time.monotonic() - began:.0f} s"
        f" (seed {seed}, {len(faults)} faults)"
    )
    sys.exit(1 if faults else 0)


def _run(
    store: stage.Stage,
    bundles: tuple[SampleBundle, ...],
    strikes: list[chaos.Strike],
    rng: Random,
) -> list[str]:
    service = Service.open(store.api, store.token)
    labels = tuple(bundle.label for bundle in bundles)
    progress = Progress(labels, frozenset(labels))
    deposited: list[Deposited] = []
    with receiving(new_key()) as (url, inbox):
        _subscribe(service, url, inbox)
        with chaos.raging(store, strikes, done=lambda: len(deposited), rng=rng) as damage:
            refused = _deposit(service, bundles, progress, deposited, inbox)
    killed = ", ".join(f"{name} {count}" for name, count in sorted(damage.killed.items()))
    click.echo(f"drill: killed {damage.kills} ({killed}), emptied {damage.flushes} times")
    counts = ", ".join(f"{stage} {progress.count(stage)}/{len(bundles)}" for stage in STAGES)
    click.echo(f"drill: {counts} after {progress.elapsed():.0f} s")
    late = [f"not {stage}: {', '.join(sorted(progress.missing(stage))[:5])}" for stage in STAGES]
    return [
        *refused,
        *(line for line, stage in zip(late, STAGES, strict=True) if progress.missing(stage)),
        *checking.faults(service, store.home, deposited, rng),
    ]


def _subscribe(service: Service, url: str, inbox: Inbox) -> None:
    for path, (replica, query) in SUBSCRIBERS.items():
        body = {"callback_url": url + path, "hmac_secret_key": inbox.key.decode(), **query}
        service.call("PUT", "/subscriptions", params={"replica": replica}, json=body)


def _deposit(
    service: Service,
    bundles: tuple[SampleBundle, ...],
    progress: Progress,
    deposited: list[Deposited],
    inbox: Inbox,
) -> list[str]:
    """Deposit everything and watch until all is there or nothing moves; what was refused."""

    def acknowledged(one: Deposited) -> None:
        deposited.append(one)
        progress.acknowledged(one.bundle.label, one.fqid)

    def notified() -> set[str]:
        return set.intersection(*(inbox.seen(path) for path in SUBSCRIBERS))

    depositor = Depositor(service, str(uuid.uuid4()))
    depositor.open_area()
    with depositor.depositing(bundles, acknowledged, completing=COMPLETING) as deposits:
        watch(
            progress,
            lambda: look(progress, service, notified),
            shown=_Lines(progress).show,
            stop=deposits.failed,
            stall_s=STALL_S,
        )
        return [f"refused: {error}" for error in deposits.errors()]


class _Lines:
    """A line about the progress now and then."""

    EVERY_S = 15.0

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._shown_at = -self.EVERY_S

    def show(self) -> None:
        """Print it when it is time."""
        now = self._progress.elapsed()
        if now - self._shown_at >= self.EVERY_S:
            self._shown_at = now
            counts = ", ".join(f"{stage} {self._progress.count(stage)}" for stage in STAGES)
            click.echo(f"drill: {now:5.0f} s  {counts}")


if __name__ == "__main__":
    drill()
