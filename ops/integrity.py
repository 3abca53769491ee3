"""Holding buckets and catalog to each other: reconciling after a restore, reading bytes again."""

import logging
import sys
from random import Random

import click
from rich.console import Console

from config import Settings
from ops.backups import ENDED
from ops.opening import chosen, opened
from ops.tables import show
from pipelines.recovering import epochs, reconciling
from pipelines.replicating import verification
from storage.errors import StoreError
from storage.model import REPLICAS

log = logging.getLogger(__name__)

RESTORED = (
    "Who may do what is as it was when the catalog was copied: take again what was taken from"
    " somebody since then (`ops users`, `ops clients`, `ops service-accounts`, /v1/audit)."
)


def begin_epoch(settings: Settings) -> str | None:
    """Begin an epoch before anything is written; why not, when catalog and buckets disagree. A
    bucket that is away must not keep the others from starting: the clock tries again."""
    try:
        return epochs.begin(opened(settings))
    except StoreError as error:
        log.warning("no epoch begins now: %s", error.detail)
        return None


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say whether they agree.")
@click.pass_obj
def reconcile(settings: Settings, dry_run: bool) -> None:
    """Take in what the buckets hold and the catalog lacks.

    After a catalog was restored or rebuilt, or a bucket replaced: writes are taken again once it is
    through. Nobody is notified of what is taken in. What is wrong is refused and left: the log
    names it and says why. All logins end if the catalog is of another time than the buckets.
    """
    stores = opened(settings)
    try:
        reason = epochs.judge(stores)
        click.echo(reason or "Catalog and buckets are of one epoch.")
        if dry_run:
            return
        restored = epochs.is_of_another_time(stores)
        merged = reconciling.reconcile(stores)
    except StoreError as error:
        raise click.ClickException(error.detail) from error
    rows = ((one.kind, one.replica, one.known, one.taken, one.refused) for one in merged)
    show(Console(), "Reconciled", ("kind", "replica", "known", "taken in", "refused"), rows)
    if restored:
        click.echo(f"{ENDED} {RESTORED}")


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
    stores = opened(settings)
    done = [
        verification.verify(stores, name, rng=Random(), share=sample / 100, repair=repair)
        for name in chosen(replica)
    ]
    console = Console()
    rows = ((one.replica, one.objects, one.size, len(one.damaged)) for one in done)
    show(console, "Verified", ("replica", "objects", "bytes", "damaged"), rows)
    found = [each for one in done for each in one.damaged]
    told = ((one.key, one.replica, one.reason, "yes" if one.repaired else "no") for one in found)
    if found:
        show(console, "Damaged", ("object", "replica", "why", "repaired"), told)
    if not all(one.repaired for one in found):
        sys.exit(1)
