"""The commands `migrate`, which makes the catalog's tables, and `prepare`."""

import os
import sys

import click

from auth.tokens import administrator
from config import Settings
from ops import home
from ops.integrity import begin_epoch
from storage import engines
from storage.catalog import Catalog
from storage.catalog.revisions import require_known
from storage.errors import Unavailable
from storage.faults import explain


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


@click.command(hidden=True)
@click.pass_context
def prepare(context: click.Context) -> None:
    """What `run` does before it starts the processes of the Procfile."""
    context.invoke(migrate)
    administrator.keep(context.obj)
