"""Making again what was lost: the search index from the catalog, the catalog from a bucket."""

import time

import click
from rich.console import Console

from config import Settings
from ops.opening import chosen, opened
from ops.tables import show
from pipelines.formats import new_uuid
from pipelines.recovering import rebuilding, reindexing
from pipelines.recovering.rebuild_reading import Tally
from pipelines.recovering.reindexing import Progress
from storage.catalog import fingerprint
from storage.errors import StoreError, Unavailable
from storage.model import REPLICAS, Replica
from storage.stores import Stores

_LOOK_S, _TELL_S, _STILL_S = 0.3, 5.0, 30.0


@click.group()
def rebuild() -> None:
    """Make a lost search index, or a lost catalog, again."""


@rebuild.command(name="index")
@click.option("--replica", type=click.Choice(REPLICAS), help="Only this one.")
@click.option("--force", is_flag=True, help="Search it although rows are parked; they lack then.")
@click.pass_obj
def rebuild_index(settings: Settings, replica: str | None, force: bool) -> None:
    """Write a new search index from the catalog, then search it.

    The store runs meanwhile: the old index is searched, what arrives goes to both, nobody is
    notified again. Interrupted, run it again: it goes on. Documents that the engine refused are
    tried once more.
    """
    stores = opened(settings)
    try:
        for name in chosen(replica):
            generation = reindexing.begin(stores, name)
            click.echo(f"{name}: building {generation}")
            _watched(stores, name, force=force)
    except StoreError as error:
        raise click.ClickException(error.detail) from error


def _watched(stores: Stores, name: Replica, *, force: bool) -> None:
    told = moved = time.monotonic()
    before = Progress(0, 0, 0)
    while not (now := reindexing.advance(stores, name, force=force)).done:
        if now != before:
            before, moved = now, time.monotonic()
        if now.all and now.parked and not now.waiting and not force:
            raise click.ClickException(
                f"{name}: {now.parked} rows are parked, the old index is still searched. See"
                " `python -m ops parked list`, mend the cause, `python -m ops parked retry`, and"
                " run this again; or --force."
            )
        if time.monotonic() > told + _TELL_S:
            told = time.monotonic()
            still = told > moved + _STILL_S
            hint = ": nothing moves, do the workers and the clock run?" if still else ""
            click.echo(f"{name}: {now.asked} asked for, {now.waiting} wait{hint}")
        time.sleep(_LOOK_S)
    click.echo(f"{name}: the new index is searched")


@rebuild.command(name="catalog")
@click.option(
    "--from", "replica", type=click.Choice(REPLICAS), required=True, help="The bucket to read."
)
@click.pass_obj
def rebuild_catalog(settings: Settings, replica: Replica) -> None:
    """Fill an empty catalog from one bucket alone.

    Run `migrate` before, `reconcile` after: docs/operations.md, "When something is lost".
    Files, bundles, collections, tombstones, purges and journalled events are as they were. What is
    damaged or foreign is told and left. Interrupted, run it again: it goes on. Subscriptions,
    deliveries, checkouts and tasks are in no bucket: `restore` brings them back from a backup.
    """
    tallies: list[Tally] = []
    try:
        for tally in rebuilding.catalog(opened(settings), replica, token=new_uuid()):
            tallies.append(tally)
            click.echo(
                f"{tally.kind}: {tally.taken} taken in, {tally.known} known before", err=True
            )
    except Unavailable as error:
        raise click.ClickException(f"{error.detail} Nothing is lost: run it again.") from error
    except StoreError as error:
        raise click.ClickException(error.detail) from error
    console = Console()
    rows = ((one.kind, one.known, one.taken, one.refused) for one in tallies)
    show(console, "Rebuilt", ("kind", "known", "taken in", "refused"), rows)
    refused = [pair for one in tallies for pair in one.named]
    if refused:
        show(console, "Refused, some of it", ("object", "why"), refused)
    click.echo("The store is read-only until you have run `python -m ops reconcile`.")


@click.command(name="fingerprint")
@click.option("--replica", type=click.Choice(REPLICAS), help="Only this one.")
@click.pass_obj
def print_fingerprint(settings: Settings, replica: str | None) -> None:
    """Print digests of what the catalog knows.

    One for each part of each replica. Two catalogs of the same data print the same, for instance
    one that was lost and the one that was rebuilt.
    """
    stores = opened(settings)
    rows = []
    try:
        for name in chosen(replica):
            with stores.catalog.read() as tx:
                rows += [(name, one.name, one.rows, one.sha256) for one in fingerprint.of(tx, name)]
    except StoreError as error:
        raise click.ClickException(error.detail) from error
    show(Console(), "Fingerprint", ("replica", "part", "rows", "sha256"), rows)
