"""The command `migrate`: the catalog's tables, and a new epoch."""

import os
import sys

import click

from config import Settings
from ops import home
from ops.faults import explain
from ops.integrity import begin_epoch
from ops.opening import require_known
from storage import engines
from storage.catalog import Catalog
from storage.errors import Unavailable


@click.command()
@click.pass_obj
def migrate(settings: Settings) -> None:
    """Bring the catalog's tables up to date; safe to repeat.

    The exit code is 75 when trying again later may help. Says when the store will be read-only,
    since catalog and buckets do not belong together: see `reconcile`.
    """
    home.make(settings.home)
    catalog = Catalog(settings.catalog)
    try:
        require_known(catalog)
        revision = engines.migrate(catalog)
    except Unavailable as error:
        click.echo(explain(error), err=True)
        sys.exit(os.EX_TEMPFAIL)
    click.echo(f"The catalog is at revision {revision}.")
    in_doubt = begin_epoch(settings)
    if in_doubt is not None:
        click.echo(f"The store will be read-only. {in_doubt}", err=True)
