"""The commands `migrate`, `prepare` and `read-only`."""

import logging
import os
import sys
from contextlib import closing

import click

from auth.tokens import issuance
from config import Settings
from ops import home
from ops.commands import open_catalog, open_stores
from ops.output import CommandOutput, prints_output, prints_state
from pipelines.recovery import epochs
from storage import engines
from storage.catalog import Catalog, store_state
from storage.catalog.revisions import require_known_revision
from storage.errors import DomainError, Unavailable, explain_error

log = logging.getLogger(__name__)

READ_ONLY_REASON = "The store is read-only at the moment."


@click.group(name="read-only")
def read_only() -> None:
    """Switch read-only mode on or off."""


@read_only.command()
@click.option(
    "--reason", default=READ_ONLY_REASON, show_default=True, help="The reason that writers get."
)
@click.pass_obj
@prints_output
def on(settings: Settings, reason: str) -> CommandOutput:
    """Refuse every write with 503 `read_only`.

    It applies to all processes within two seconds. Reads and accepted work continue.
    """
    return _set_read_only(settings, reason)


@read_only.command()
@click.pass_obj
@prints_output
def off(settings: Settings) -> CommandOutput:
    """Accept writes again."""
    return _set_read_only(settings, None)


@read_only.command(name="show")
@click.pass_obj
@prints_state
def show_read_only(settings: Settings) -> CommandOutput:
    """Show whether writes are accepted."""
    with closing(open_catalog(settings)) as catalog, catalog.read() as tx:
        reason = store_state.find_read_only_reason(tx)
    if settings.read_only:
        reason = "STORE_READ_ONLY is set."
    return _describe_state(reason)


def _set_read_only(settings: Settings, reason: str | None) -> CommandOutput:
    with open_catalog(settings).write() as tx:
        store_state.set_read_only(tx, reason)
    return _describe_state(reason)


def _describe_state(reason: str | None) -> CommandOutput:
    text = "off" if reason is None else f"on: {reason}"
    return CommandOutput({"read_only": reason is not None, "reason": reason}, text)


@click.command()
@click.option("--to", "revision", metavar="REVISION", help="Undo the migrations after this one.")
@click.pass_obj
@prints_output
def migrate(settings: Settings, revision: str | None = None) -> CommandOutput:
    """Bring the catalog's tables up to date; safe to repeat.

    To go back to an earlier release, stop all processes and undo with --to what that release does
    not know; what only the undone tables hold is lost.

    Exit code 75 means try again later. If catalog and buckets disagree, it says that the store will
    be read-only: see `reconcile`.
    """
    home.make_home(settings.home)
    catalog = Catalog(settings.catalog)
    try:
        require_known_revision(catalog)
        if revision is not None:
            reached = engines.undo_migrations(catalog, revision)
            return CommandOutput({"revision": reached}, f"The catalog is at revision {reached}.")
        revision = engines.migrate_catalog(catalog)
    except Unavailable as error:
        click.echo(explain_error(error), err=True)
        sys.exit(os.EX_TEMPFAIL)
    try:
        if in_doubt := epochs.begin_epoch(open_stores(settings)):
            click.echo(f"The store will be read-only. {in_doubt}", err=True)
    except DomainError as error:
        # A bucket that is down must not block the others: the scheduler tries again.
        log.warning("no epoch begins now: %s", error.detail)
    return CommandOutput({"revision": revision}, f"The catalog is at revision {revision}.")


@click.command(hidden=True)
@click.pass_context
def prepare(context: click.Context) -> None:
    """Prepare the home, as `run` does before it starts processes."""
    context.invoke(migrate)
    issuance.write_admin_token(context.obj)
