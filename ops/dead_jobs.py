"""The commands `dead list`, `dead retry` and `dead drop`."""

from collections.abc import Callable
from contextlib import closing
from functools import wraps
from typing import Any

import click

from config import Settings
from ops.commands import format_time, open_catalog
from ops.options import PrintableText
from ops.output import CommandOutput, OutputTable, prints_output, prints_state
from pipelines.dead_jobs import (
    DROP_EFFECTS,
    MAX_DEAD_JOBS,
    count_droppable,
    drop_dead_jobs,
    retry_dead_jobs,
)
from pipelines.flow import Step
from storage.catalog import jobs
from storage.catalog.jobs import ANY_DEAD_JOB, DeadJobFilter
from storage.model import REPLICAS

LIST_LIMIT = 100


def _add_filter_options(limit: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options that choose dead jobs; the command gets them as `chosen` and `limit`."""
    options = [
        click.option(
            "--step", type=click.Choice([step.value for step in Step]), help="Jobs of this step."
        ),
        click.option("--replica", type=click.Choice(REPLICAS), help="Jobs of this replica."),
        click.option("--ref", type=PrintableText(), help="The job with this reference."),
        click.option(
            "--reason",
            type=PrintableText(),
            help="A part of the reason, or a pattern of all of it with * and ?.",
        ),
        click.option(
            "--limit",
            default=limit,
            type=click.IntRange(1, MAX_DEAD_JOBS),
            show_default=True,
            help="Maximum number, the latest first.",
        ),
    ]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def run(
            *args: Any,
            step: str | None,
            replica: str | None,
            ref: str | None,
            reason: str | None,
            **others: Any,
        ) -> Any:
            chosen = DeadJobFilter(step, replica, ref, reason)
            return function(*args, chosen=chosen, **others)

        for option in reversed(options):
            run = option(run)
        return run

    return decorate


@click.group(name="dead")
def dead_jobs() -> None:
    """List, retry and drop dead jobs."""


@dead_jobs.command(name="list")
@_add_filter_options(LIST_LIMIT)
@click.pass_obj
@prints_state
def list_dead_jobs(settings: Settings, limit: int, chosen: DeadJobFilter) -> CommandOutput:
    """List dead jobs with their reasons, the latest first."""
    with closing(open_catalog(settings)) as catalog, catalog.read() as tx:
        found = jobs.list_dead(tx, chosen, limit=limit)
    rows = [
        (one.todo.step, one.todo.replica, one.todo.ref, format_time(one.parked_us), one.reason)
        for one in found
    ]
    columns = ("step", "replica", "reference", "since", "reason")
    return CommandOutput(OutputTable("Dead jobs", columns, rows))


@dead_jobs.command()
@_add_filter_options(MAX_DEAD_JOBS)
@click.pass_obj
@prints_output
def retry(settings: Settings, limit: int, chosen: DeadJobFilter) -> CommandOutput:
    """Retry dead jobs, without options all."""
    retried = retry_dead_jobs(open_catalog(settings), chosen, limit=limit)
    return CommandOutput({"retried": len(retried)}, f"{len(retried)} rows are due again")


@dead_jobs.command()
@_add_filter_options(MAX_DEAD_JOBS)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
@prints_output
def drop(settings: Settings, limit: int, yes: bool, chosen: DeadJobFilter) -> CommandOutput:
    """Delete dead jobs that cannot succeed.

    It says what is lost, and asks first. Jobs that an accepted upload, a deletion or a purge needs
    are refused: nothing is dropped then. Each drop is in the audit log.
    """
    if chosen == ANY_DEAD_JOB:
        raise click.UsageError("Choose jobs with --step, --replica, --ref or --reason.")
    catalog = open_catalog(settings)
    filter_, counts = count_droppable(catalog, chosen)
    effects = {name: DROP_EFFECTS[name] for name in sorted(counts)}
    dropped = 0
    if counts:
        for name, effect in effects.items():
            click.echo(f"{name} ({counts[name]}): {effect}.", err=True)
        if not yes:
            most = min(limit, sum(counts.values()))
            click.confirm(f"Drop {most} dead jobs?", abort=True, err=True)
        dropped = drop_dead_jobs(catalog, filter_, limit=limit)
    return CommandOutput(
        {"dropped": dropped, "effects": effects}, f"{dropped} dead jobs were dropped"
    )
