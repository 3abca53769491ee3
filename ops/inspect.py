"""What an operator looks at and re-drives: processes, health, the backlog, parked rows."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import httpx
from rich.console import Console

from config import Settings
from ops import home as homes
from ops import tokens
from ops.opening import open_catalog, opened, require_home
from ops.tables import show
from pipelines.replicating import sweeps
from storage.catalog import Tx, integrity, purges, todo
from storage.model import REPLICAS, Todo

LISTED = 100
RETRIED = 1_000_000


@click.command()
@click.pass_obj
def status(settings: Settings) -> None:
    """Show processes, health, backlog, damage, parked rows."""
    require_home(settings)
    console = Console()
    show(console, "Processes", ("process", "pid", "starts"), _processes(settings.home))
    other = (
        f"{settings.internal_url} is not the store of {settings.home}: set STORE_HOME or STORE_PORT"
    )
    health = _health(settings)
    shown = [("api", "failed", other)] if health is None else health
    show(console, "Health", ("part", "state", "reason"), shown)
    with open_catalog(settings).read() as tx:
        backlog, parked_count = todo.backlog(tx), todo.count_parked(tx)
        going_on, damaged = _purges(tx), integrity.damaged(tx, limit=LISTED)
    rows = [(step, replica, count) for (step, replica), count in sorted(backlog.items())]
    show(console, "Backlog", ("step", "replica", "open rows"), rows)
    if going_on:
        show(console, "Purges", ("what", "since", *REPLICAS, "reason"), going_on)
    if damaged:
        rows_damaged = [(one.replica, one.key, one.reason) for one in damaged]
        show(console, "Damaged objects", ("replica", "key", "reason"), rows_damaged)
    click.echo(f"parked: {parked_count}")
    if health is None:
        raise click.ClickException(other)


def _purges(tx: Tx) -> list[tuple[str, ...]]:
    """Those that go on, the oldest first, and how far each replica is."""
    return [
        (
            f"{purge.kind} {purge.name}",
            _time(purge.created_us),
            *(far.get(replica, "waiting") for replica in REPLICAS),
            purge.reason,
        )
        for purge in purges.unfinished(tx, limit=LISTED)
        for far in [purges.progress(tx, purge)]
    ]


@click.command()
@click.option("--dry-run", is_flag=True, help="Show what differs, and change nothing.")
@click.pass_obj
def sweep(settings: Settings, dry_run: bool) -> None:
    """Compare buckets and indexes with the catalog now.

    What is missing becomes ordinary work, seen in `status`. What is "new or unknown" was written
    within the last minutes and is left to its own work; if such a count stays, the bucket has what
    the catalog does not know: see `reconcile`.
    """
    stores, repair = opened(settings), not dry_run
    swept = [
        *sweeps.replication(stores, repair=repair),
        *sweeps.indexing(stores, repair=repair),
    ]
    console = Console()
    rows = ((one.kind, one.replica, one.seen, one.missing, one.strange) for one in swept)
    show(console, "Sweep", ("kind", "replica", "there", "missing", "new or unknown"), rows)
    missing = [(one.kind, one.replica, name) for one in swept for name in one.named]
    if missing:
        show(console, "Missing, some of it", ("kind", "replica", "name"), missing)


@click.group()
def parked() -> None:
    """List, or try again, rows that were put aside."""


@parked.command(name="list")
@click.option(
    "--limit",
    default=LISTED,
    type=click.IntRange(1, RETRIED),
    show_default=True,
    help="How many at the most.",
)
@click.pass_obj
def list_parked(settings: Settings, limit: int) -> None:
    """List them with their reasons, the latest first."""
    with open_catalog(settings).read() as tx:
        found = todo.parked(tx, limit=limit)
    rows = (
        (item.todo.step, item.todo.replica, item.todo.ref, _time(item.parked_us), item.reason)
        for item in found
    )
    show(Console(), "Parked", ("step", "replica", "reference", "since", "reason"), rows)


@parked.command()
@click.option("--step", help="Only rows of this step.")
@click.option("--ref", help="Only the row of this reference.")
@click.pass_obj
def retry(settings: Settings, step: str | None, ref: str | None) -> None:
    """Let the workers try them again; the clock sends the messages."""
    with open_catalog(settings).write() as tx:
        rows = list(_matching(todo.parked(tx, limit=RETRIED), step, ref))
        todo.add(tx, rows, sent=False)
    click.echo(f"{len(rows)} rows are due again")


def _matching(found: Iterable[todo.Parked], step: str | None, ref: str | None) -> Iterator[Todo]:
    for item in found:
        if step in (None, item.todo.step) and ref in (None, item.todo.ref):
            yield item.todo


def _processes(home: Path) -> list[tuple[str, int, int]]:
    found = homes.read(home, homes.PROCESSES) or {"processes": {}}
    return [
        (name, facts["pid"], facts["starts"]) for name, facts in sorted(found["processes"].items())
    ]


def _health(settings: Settings) -> list[tuple[str, str, str]] | None:
    """What the API says of its parts; one row with the reason when nothing answers; None when
    something answers that is not this store."""
    try:
        reply = httpx.get(f"{settings.internal_url}/health", trust_env=False, timeout=5.0)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return [("api", "failed", f"does not answer: {type(error).__name__}")]
    try:
        value = reply.json()
        parts: dict[str, Any] = value["parts"]
        instance = value["instance"]
    except (ValueError, KeyError, TypeError):
        return None
    if instance != tokens.instance(settings):
        return None
    return [(name, part["status"], part["reason"]) for name, part in parts.items()]


def _time(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="seconds")
