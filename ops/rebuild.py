"""The commands `rebuild` and `fingerprint`: recover a search index or a catalog."""

import time

import click
from rich.console import Console

from config import Settings
from ops.commands import open_stores, print_table, select_replicas
from pipelines import search
from pipelines.formats import new_uuid
from pipelines.recovery import rebuild as recovery_rebuild
from pipelines.recovery.bucket_reader import RebuildTally
from pipelines.search import ReindexProgress
from storage.catalog import recovery
from storage.errors import DomainError, Unavailable
from storage.model import REPLICAS, Replica
from storage.stores import Stores

_POLL_S, _REPORT_S, _STALLED_S = 0.3, 5.0, 30.0


@click.group()
def rebuild() -> None:
    """Make a lost search index, or a lost catalog, again."""


@rebuild.command(name="index")
@click.option("--replica", type=click.Choice(REPLICAS), help="Only this one.")
@click.option("--force", is_flag=True, help="Search it although rows are parked; they lack then.")
@click.pass_obj
def rebuild_index(settings: Settings, replica: str | None, force: bool) -> None:
    """Write a new search index from the catalog, then search it.

    The store runs meanwhile: searches use the old index, new documents go to both, and no
    notification is sent again. If it is interrupted, run it again: it resumes. Documents that the
    engine refused are tried once more.
    """
    stores = open_stores(settings)
    try:
        for name in select_replicas(replica):
            generation = search.begin_reindex(stores, name)
            click.echo(f"{name}: building {generation}")
            _watch_rebuild(stores, name, force=force)
    except DomainError as error:
        raise click.ClickException(error.detail) from error


def _watch_rebuild(stores: Stores, name: Replica, *, force: bool) -> None:
    told = moved = time.monotonic()
    before = ReindexProgress(0, 0, 0)
    while not (now := search.advance_reindex(stores, name, force=force)).done:
        if now != before:
            before, moved = now, time.monotonic()
        if now.all_requested and now.dead and not now.waiting and not force:
            raise click.ClickException(
                f"{name}: {now.dead} rows are parked, the old index is still searched. See"
                " `python -m ops parked list`, mend the cause, `python -m ops parked retry`, and"
                " run this again; or --force."
            )
        if time.monotonic() > told + _REPORT_S:
            told = time.monotonic()
            still = told > moved + _STALLED_S
            hint = ": nothing moves, do the workers and the clock run?" if still else ""
            click.echo(f"{name}: {now.requested} asked for, {now.waiting} wait{hint}")
        time.sleep(_POLL_S)
    click.echo(f"{name}: the new index is searched")


@rebuild.command(name="catalog")
@click.option(
    "--from", "replica", type=click.Choice(REPLICAS), required=True, help="The bucket to read."
)
@click.pass_obj
def rebuild_catalog(settings: Settings, replica: Replica) -> None:
    """Fill an empty catalog from one bucket alone.

    Run `migrate` before, `reconcile` after: docs/operations.md, "When something is lost".
    Files, bundles, collections, tombstones, purges and journalled events are as they were. Damaged
    and foreign objects are reported and left. If it is interrupted, run it again: it resumes.
    Subscriptions, deliveries, checkouts and tasks are in no bucket: `restore` brings them back.
    """
    tallies: list[RebuildTally] = []
    try:
        for tally in recovery_rebuild.rebuild_catalog(
            open_stores(settings), replica, token=new_uuid()
        ):
            tallies.append(tally)
            click.echo(
                f"{tally.kind}: {tally.imported} taken in, {tally.known} known before", err=True
            )
    except Unavailable as error:
        raise click.ClickException(f"{error.detail} Nothing is lost: run it again.") from error
    except DomainError as error:
        raise click.ClickException(error.detail) from error
    console = Console()
    rows = ((one.kind, one.known, one.imported, one.refused) for one in tallies)
    print_table(console, "Rebuilt", ("kind", "known", "taken in", "refused"), rows)
    refused = [pair for one in tallies for pair in one.named]
    if refused:
        print_table(console, "Refused, some of it", ("object", "why"), refused)
    click.echo("The store is read-only until you have run `python -m ops reconcile`.")


@click.command(name="fingerprint")
@click.option("--replica", type=click.Choice(REPLICAS), help="Only this one.")
@click.pass_obj
def print_fingerprint(settings: Settings, replica: str | None) -> None:
    """Print digests of what the catalog knows.

    One for each part of each replica. Two catalogs of the same data print the same, for instance
    one that was lost and the one that was rebuilt.
    """
    stores = open_stores(settings)
    rows = []
    try:
        for name in select_replicas(replica):
            with stores.catalog.read() as tx:
                rows += [
                    (name, one.name, one.rows, one.sha256)
                    for one in recovery.compute_fingerprint(tx, name)
                ]
    except DomainError as error:
        raise click.ClickException(error.detail) from error
    print_table(Console(), "Fingerprint", ("replica", "part", "rows", "sha256"), rows)
