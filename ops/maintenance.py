"""The commands `migrate`, `prepare`, `partition` and `read-only`."""

import logging
import os
import sys
from contextlib import closing

import click

from auth.tokens import issuance
from config import Settings
from ops import home
from ops.commands import open_catalog, open_stores
from ops.options import FiniteRange, PrintableText
from ops.output import CommandOutput, prints_output, prints_state
from pipelines.recovery import epochs
from storage import engines
from storage.catalog import Catalog, partitions, store_state
from storage.catalog.engine import LOCK_S
from storage.catalog.partitions import LOCK_TIMEOUT_S, MAX_PARTS, PARTITION_KEYS, TableState
from storage.catalog.revisions import require_known_revision
from storage.errors import DomainError, Unavailable, explain_error

log = logging.getLogger(__name__)

READ_ONLY_REASON = "The store is read-only at the moment."


@click.group(name="read-only")
def read_only() -> None:
    """Switch read-only mode on or off."""


@read_only.command()
@click.option(
    "--reason",
    type=PrintableText(),
    default=READ_ONLY_REASON,
    show_default=True,
    help="The reason that writers get.",
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


@click.command()
@click.argument("table", type=click.Choice([*PARTITION_KEYS]), metavar="TABLE")
@click.option(
    "--parts",
    type=click.IntRange(1, MAX_PARTS),
    required=True,
    help=f"Number of parts, at most {MAX_PARTS}; 1 makes it one table again.",
)
@click.option(
    "--wait",
    "wait_s",
    type=FiniteRange(0.1, LOCK_S),
    default=LOCK_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for other sessions to end, and for the lock.",
)
@click.option("--dry-run", is_flag=True, help="Only show what it would take.")
@click.pass_obj
@prints_output
def partition(
    settings: Settings, table: str, parts: int, wait_s: float, dry_run: bool
) -> CommandOutput:
    """Split a large table into hash partitions (PostgreSQL).

    TABLE is visible, presence, blob_replicas or entries. Small stores become slower by it: read
    docs/scaling.md ("Partitioning") first. Stop all processes of the store before: the command
    refuses while other sessions can read the table. It is locked and written again in one
    transaction, for which the server needs disk space for the copy and its log.

    Exit code 75 means that it is in use: try again later.
    """
    with closing(open_catalog(settings)) as catalog:
        partitions.require_server(catalog)
        with catalog.read() as tx:
            state = partitions.read_state(tx, table)
            partitions.require_convertible(tx, state, parts)
        click.echo(_describe_cost(state, parts), err=True)
        rows = state.rows
        if not dry_run:
            try:
                rows = partitions.convert(catalog, table, parts, lock_timeout_s=wait_s)
            except Unavailable as error:
                click.echo(explain_error(error), err=True)
                sys.exit(os.EX_TEMPFAIL)
    counts = {"rows": rows, "bytes": state.bytes, "former_parts": state.parts}
    value = {"table": table, "parts": parts, **counts, "converted": not dry_run}
    done = f"{table} has {_describe_parts(parts)} and {rows:,} rows."
    return CommandOutput(value, "Nothing changed." if dry_run else done)


def _describe_cost(state: TableState, parts: int) -> str:
    return (
        f"{state.name} has {_describe_parts(state.parts)}, about {state.rows:,} rows and"
        f" {state.bytes / 1e6:,.0f} MB. Writing it as {_describe_parts(parts)} takes as much disk"
        " again, and as much for the log. It is locked meanwhile."
    )


def _describe_parts(parts: int) -> str:
    return "1 part" if parts == 1 else f"{parts} parts"
