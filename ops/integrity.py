"""The commands `reconcile` and `verify`: compare buckets with the catalog."""

import logging
import sys
from random import Random

import click
from rich.console import Console

from config import Settings
from ops.backups import LOGINS_ENDED_NOTICE
from ops.commands import open_stores, print_table, select_replicas
from pipelines import scrub
from pipelines.recovery import epochs
from pipelines.recovery import reconcile as recovery_reconcile
from storage.errors import DomainError
from storage.model import REPLICAS

log = logging.getLogger(__name__)

RESTORED_NOTICE = (
    "Users and rights are as they were when the catalog was copied: repeat what was revoked"
    " since then (`ops users`, `ops clients`, `ops service-accounts`, /v1/audit)."
)


def begin_epoch(settings: Settings) -> str | None:
    """Begin an epoch before anything is written; why not, when catalog and buckets disagree. A
    bucket that is away must not keep the others from starting: the clock tries again."""
    try:
        return epochs.begin_epoch(open_stores(settings))
    except DomainError as error:
        log.warning("no epoch begins now: %s", error.detail)
        return None


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say whether they agree.")
@click.pass_obj
def reconcile(settings: Settings, dry_run: bool) -> None:
    """Take in what the buckets hold and the catalog lacks.

    Run it after a catalog was restored or rebuilt, or a bucket replaced. Writes are accepted again
    when it has finished. It sends no notifications. Invalid objects stay where they are: the log
    names each with the reason. All logins end if the catalog is of another time than the buckets.
    """
    stores = open_stores(settings)
    try:
        reason = epochs.check_epoch(stores)
        click.echo(reason or "Catalog and buckets are of one epoch.")
        if dry_run:
            return
        restored = epochs.is_catalog_restored(stores)
        merged = recovery_reconcile.reconcile_catalog(stores)
    except DomainError as error:
        raise click.ClickException(error.detail) from error
    rows = ((one.kind, one.replica, one.known, one.imported, one.refused) for one in merged)
    print_table(Console(), "Reconciled", ("kind", "replica", "known", "taken in", "refused"), rows)
    if restored:
        click.echo(f"{LOGINS_ENDED_NOTICE} {RESTORED_NOTICE}")


@click.command()
@click.option("--replica", type=click.Choice(REPLICAS), help="Only this one.")
@click.option(
    "--sample", default=100.0, type=click.FloatRange(0, 100), show_default=True, help="Per cent."
)
@click.option("--repair", is_flag=True, help="Replace what is damaged by the other replica's.")
@click.pass_obj
def verify(settings: Settings, replica: str | None, sample: float, repair: bool) -> None:
    """Read what is stored again and compare its checksums.

    The exit code is 1 when damage is left. It reads every byte, unless --sample says less.
    """
    stores = open_stores(settings)
    done = [
        scrub.verify_replica(stores, name, rng=Random(), share=sample / 100, repair=repair)
        for name in select_replicas(replica)
    ]
    console = Console()
    rows = ((one.replica, one.objects, one.size, len(one.damaged)) for one in done)
    print_table(console, "Verified", ("replica", "objects", "bytes", "damaged"), rows)
    found = [each for one in done for each in one.damaged]
    told = ((one.key, one.replica, one.reason, "yes" if one.repaired else "no") for one in found)
    if found:
        print_table(console, "Damaged", ("object", "replica", "why", "repaired"), told)
    if not all(one.repaired for one in found):
        sys.exit(1)
