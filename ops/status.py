"""The commands `status` and `sweep`."""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import httpx

from config import Settings
from ops import commands
from ops import home as homes
from ops.commands import format_time, open_catalog, open_stores, require_home
from ops.output import CommandOutput, OutputTable, prints_output, prints_state
from pipelines import sweeps
from storage.catalog import Tx, integrity, jobs, purges
from storage.engines import open_bucket
from storage.errors import DomainError, explain_error
from storage.model import REPLICAS
from storage.protocols import DirectUploads

LIST_LIMIT = 100


@click.command()
@click.pass_obj
@prints_state
def status(settings: Settings) -> CommandOutput:
    """Show processes, health, backlog, damage and dead jobs."""
    require_home(settings)
    other = (
        f"{settings.internal_url} is not the store of {settings.home}: set STORE_HOME, STORE_PORT"
        " and STORE_SECRET_KEY as the store has them"
    )
    health = _fetch_health(settings)
    shown = [("api", "failed", other)] if health is None else health
    shown += check_browser_uploads(settings)
    with closing(open_catalog(settings)) as catalog, catalog.read() as tx:
        backlog, dead = jobs.count_open(tx), jobs.count_dead(tx)
        going_on, damaged = _list_purges(tx), integrity.list_damaged(tx, limit=LIST_LIMIT)
    rows = [(step, replica, count) for (step, replica), count in sorted(backlog.items())]
    rows_damaged = [(one.replica, one.key, one.reason) for one in damaged]
    return CommandOutput(
        {
            "processes": OutputTable(
                "Processes", ("process", "pid", "starts"), _list_processes(settings.home)
            ),
            "health": OutputTable("Health", ("part", "state", "reason"), shown),
            "backlog": OutputTable("Backlog", ("step", "replica", "open rows"), rows),
            "purges": OutputTable(
                "Purges", ("what", "since", *REPLICAS, "reason"), going_on, hidden_if_empty=True
            ),
            "damaged": OutputTable(
                "Damaged objects", ("replica", "key", "reason"), rows_damaged, hidden_if_empty=True
            ),
            "dead": dead,
        },
        f"parked: {dead}",
        error=other if health is None else "",
    )


def _list_purges(tx: Tx) -> list[tuple[str, ...]]:
    """Those that go on, the oldest first, and how far each replica is."""
    return [
        (
            f"{purge.kind} {purge.name}",
            format_time(purge.created_us),
            *(far.get(replica, "waiting") for replica in REPLICAS),
            purge.reason,
        )
        for purge in purges.list_unfinished(tx, limit=LIST_LIMIT)
        for far in [purges.read_progress(tx, purge)]
    ]


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show what differs.")
@click.pass_obj
@prints_output
def sweep(settings: Settings, dry_run: bool) -> CommandOutput:
    """Compare buckets and indexes with the catalog now.

    Missing objects become jobs, seen in `status`. "new or unknown" objects were usually written
    within the last minutes. If such a count stays, the bucket has objects that the catalog does
    not know: see `reconcile`.
    """
    stores, repair = open_stores(settings), not dry_run
    swept = [
        *sweeps.sweep_replicas(stores, repair=repair),
        *sweeps.sweep_indexes(stores, repair=repair),
    ]
    rows = [(one.kind, one.replica, one.seen, one.missing, one.unexpected) for one in swept]
    columns = ("kind", "replica", "there", "missing", "new or unknown")
    missing = [(one.kind, one.replica, name) for one in swept for name in one.named]
    return CommandOutput(
        {
            "sweep": OutputTable("Sweep", columns, rows),
            "missing": OutputTable(
                "Missing, some of it", ("kind", "replica", "name"), missing, hidden_if_empty=True
            ),
        }
    )


def _list_processes(home: Path) -> list[tuple[str, int, int]]:
    found = homes.read_json(home, homes.PROCESSES) or {"processes": {}}
    return [
        (name, facts["pid"], facts["starts"]) for name, facts in sorted(found["processes"].items())
    ]


def _fetch_health(settings: Settings) -> list[tuple[str, str, str]] | None:
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
    if instance != commands.find_instance_id(settings):
        return None
    return [(name, part["status"], part["reason"]) for name, part in parts.items()]


PREFLIGHT_KEY = "areas/-"


def check_browser_uploads(settings: Settings) -> list[tuple[str, str, str]]:
    """Ask the bucket of the areas, as a browser would, whether the pages may send parts to it.

    No row if the store receives the parts itself.
    """
    part, site = "browser uploads", urlsplit(settings.site_url)
    origin = f"{site.scheme}://{site.netloc}"
    if not settings.areas_url:
        return []
    try:
        bucket = open_bucket(settings, "areas", settings.areas_url)
        direct = bucket.find_direct_uploads()
        if direct is None:
            return []
        # Some credentials sign nothing.
        bucket.sign(PREFLIGHT_KEY, expires_s=1)
        allowed = _send_preflight(origin, direct)
    except (httpx.HTTPError, httpx.InvalidURL, DomainError) as error:
        return [(part, "warning", f"pass through the store: {explain_error(error)}")]
    if not allowed:
        reason = f"pass through the store: the bucket has no CORS rule for {origin}"
        return [(part, "warning", f"{reason} (docs/deployment.md, Uploads from browsers)")]
    return [(part, "ok", "go to the bucket")]


def _send_preflight(origin: str, direct: DirectUploads) -> bool:
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "PUT",
        "Access-Control-Request-Headers": ",".join(direct.headers),
    }
    reply = httpx.options(direct.url + PREFLIGHT_KEY, headers=asked, timeout=5.0)

    def allows(header: str, wanted: Iterable[str]) -> bool:
        given = reply.headers.get(f"Access-Control-Allow-{header}", "")
        names = {name.strip().lower() for name in given.split(",")}
        return "*" in names or names.issuperset(name.lower() for name in wanted)

    return (
        reply.is_success
        and allows("Origin", [origin])
        and allows("Methods", ["PUT"])
        and allows("Headers", direct.headers)
    )
