"""The commands `rebuild`, `reconcile` and `fingerprint`."""

import time
from contextlib import closing

import click

from config import Settings
from ops.backups import LOGINS_ENDED_NOTICE
from ops.commands import open_catalog, open_stores, select_replicas
from ops.output import CommandOutput, OutputTable, prints_output, prints_state
from pipelines import search
from pipelines.formats import new_uuid
from pipelines.recovery import epochs
from pipelines.recovery import rebuild as recovery_rebuild
from pipelines.recovery import reconcile as recovery_reconcile
from pipelines.recovery.bucket_reader import RebuildTally
from pipelines.search import ReindexProgress
from storage.catalog import recovery
from storage.errors import Unavailable
from storage.model import REPLICAS, Replica
from storage.stores import Stores

RESTORED_NOTICE = (
    "Users and rights are as they were when the catalog was copied: repeat what was revoked"
    " since then (`ops users`, `ops clients`, `ops service-accounts`, /v1/audit)."
)
_POLL_S, _REPORT_S, _STALLED_S = 0.3, 5.0, 30.0


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show whether they agree.")
@click.pass_obj
@prints_output
def reconcile(settings: Settings, dry_run: bool) -> CommandOutput:
    """Add to the catalog what only the buckets have.

    Run it after a catalog was restored or rebuilt, or a bucket replaced. Writes are accepted again
    when it has finished. It sends no notifications. Invalid objects stay where they are: the log
    names each with the reason. All logins end if the catalog is of another time than the buckets.
    """
    stores = open_stores(settings)
    reason = epochs.check_epoch(stores)
    agreement = reason or "Catalog and buckets are of one epoch."
    if dry_run:
        return CommandOutput({"agree": reason is None, "reason": reason}, agreement)
    restored = epochs.is_catalog_restored(stores)
    merged = recovery_reconcile.reconcile_catalog(stores)
    rows = [(one.kind, one.replica, one.known, one.imported, one.refused) for one in merged]
    columns = ("kind", "replica", "known", "taken in", "refused")
    return CommandOutput(
        {
            "agree": reason is None,
            "reason": reason,
            "restored": restored,
            "reconciled": OutputTable("Reconciled", columns, rows),
        },
        f"{LOGINS_ENDED_NOTICE} {RESTORED_NOTICE}" if restored else "",
        before=agreement,
    )


@click.group()
def rebuild() -> None:
    """Rebuild the search index or the catalog."""


@rebuild.command(name="index")
@click.option("--replica", type=click.Choice(REPLICAS), help="Only this one.")
@click.option(
    "--force", is_flag=True, help="Use it despite dead jobs; their documents are missing."
)
@click.pass_obj
@prints_output
def rebuild_index(settings: Settings, replica: str | None, force: bool) -> CommandOutput:
    """Write a new search index from the catalog, then search it.

    The store runs meanwhile: searches use the old index, new documents go to both, and no
    notification is sent again. If it is interrupted, run it again: it resumes. Documents that the
    engine refused are tried once more.
    """
    stores = open_stores(settings)
    built: dict[str, str] = {}
    for name in select_replicas(replica):
        built[name] = search.begin_reindex(stores, name)
        click.echo(f"{name}: building {built[name]}", err=True)
        _watch_rebuild(stores, name, force=force)
    text = "\n".join(f"{name}: the new index is searched" for name in built)
    return CommandOutput(built, text)


def _watch_rebuild(stores: Stores, name: Replica, *, force: bool) -> None:
    reported = moved = time.monotonic()
    before = ReindexProgress(0, 0, 0)
    while not (now := search.advance_reindex(stores, name, force=force)).done:
        if now != before:
            before, moved = now, time.monotonic()
        if now.all_requested and now.dead and not now.waiting and not force:
            raise click.ClickException(
                f"{name}: {now.dead} rows are parked, the old index is still searched. See"
                " `python -m ops dead list`, mend the cause, `python -m ops dead retry`, and"
                " run this again; or --force."
            )
        if time.monotonic() > reported + _REPORT_S:
            reported = time.monotonic()
            still = reported > moved + _STALLED_S
            hint = ": nothing moves, do the workers and the clock run?" if still else ""
            click.echo(f"{name}: {now.requested} asked for, {now.waiting} wait{hint}", err=True)
        time.sleep(_POLL_S)


@rebuild.command(name="catalog")
@click.option(
    "--from", "replica", type=click.Choice(REPLICAS), required=True, help="The bucket to read."
)
@click.pass_obj
@prints_output
def rebuild_catalog(settings: Settings, replica: Replica) -> CommandOutput:
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
    rows = [(one.kind, one.known, one.imported, one.refused) for one in tallies]
    refused = [pair for one in tallies for pair in one.named]
    return CommandOutput(
        {
            "rebuilt": OutputTable("Rebuilt", ("kind", "known", "taken in", "refused"), rows),
            "refused": OutputTable(
                "Refused, some of it", ("object", "why"), refused, hidden_if_empty=True
            ),
        },
        "The store is read-only until you have run `python -m ops reconcile`.",
    )


@click.command(name="fingerprint")
@click.option("--replica", type=click.Choice(REPLICAS), help="Only this one.")
@click.pass_obj
@prints_state
def print_fingerprint(settings: Settings, replica: str | None) -> CommandOutput:
    """Print digests of what the catalog knows.

    One for each part of each replica. Two catalogs with the same data print the same digests, for
    example a lost one and the rebuilt one.
    """
    rows = []
    with closing(open_catalog(settings)) as catalog:
        for name in select_replicas(replica):
            with catalog.read() as tx:
                rows += [
                    (name, one.name, one.rows, one.sha256)
                    for one in recovery.compute_fingerprint(tx, name)
                ]
    return CommandOutput(OutputTable("Fingerprint", ("replica", "part", "rows", "sha256"), rows))
