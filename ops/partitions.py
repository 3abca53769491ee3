"""The command `partition`."""

import os
import sys
from contextlib import closing

import click

from config import Settings
from ops.commands import open_catalog
from ops.output import CommandOutput, prints_output
from storage.catalog import partitions
from storage.catalog.engine import LOCK_S
from storage.catalog.partitions import LOCK_TIMEOUT_S, MAX_PARTS, PARTITION_KEYS, TableState
from storage.errors import Unavailable, explain_error


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
    type=click.FloatRange(0.1, LOCK_S),
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
