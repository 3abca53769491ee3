"""`probe`: whether a worker or the scheduler makes progress, for container platforms.

It imports little, because platforms run it every few seconds.
"""

import json
import sys

import click

from config import Settings
from ops.options import FiniteRange
from storage.heartbeats import read_heartbeats, require_writable

PROCESS_NAMES = (
    "verify",
    "sync",
    "index",
    "match",
    "verify_large",
    "sync_large",
    "checkout",
    "chores",
    "purge",
    "deliver",
    "clock",
)
"""The queues and the scheduler; their modules would take long to import."""
MAX_AGE_S = 60.0
"""Age of the last heartbeat at which a process counts as stuck; one comes every 5 s."""


@click.command(short_help="Check that a worker or the scheduler makes progress.")
@click.argument("queues", nargs=-1, type=click.Choice(PROCESS_NAMES), metavar="[QUEUES]...")
@click.option(
    "--max-age",
    type=FiniteRange(min=0, min_open=True),
    default=MAX_AGE_S,
    show_default=True,
    help="Seconds since its last heartbeat after which a process counts as stuck.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def probe(settings: Settings, queues: tuple[str, ...], max_age: float, as_json: bool) -> None:
    """Check that a worker or the scheduler of this home makes progress.

    QUEUES are those of the worker, as in `python -m workers QUEUES…`; `clock` is the scheduler.
    Without any, it is a worker of all queues, which an embedded store has. The exit status is 1 if
    no such process runs, or if one is stuck. It also says if the home takes no heartbeats.
    """
    name = "+".join(sorted(set(queues))) or "worker"
    running = read_heartbeats(settings.heartbeats_folder, name)
    oldest = max(running, key=lambda heartbeat: heartbeat.age_s, default=None)
    if oldest is None:
        state, reason = _explain_absence(settings)
    else:
        state = "stuck" if oldest.age_s > max_age else "ok"
        reason = f"last heartbeat {oldest.age_s:.0f} s ago (process {oldest.pid})"
    found = {"process": name, "status": state, "reason": reason}
    click.echo(json.dumps(found) if as_json else f"{name}: {state}, {reason}")
    sys.exit(state != "ok")


def _explain_absence(settings: Settings) -> tuple[str, str]:
    """Return the state and the reason for which there is no heartbeat."""
    folder = settings.heartbeats_folder
    try:
        require_writable(folder)
    except OSError as error:
        return "unwritable", f"{folder} takes no heartbeats (see STORE_HOME): {error.strerror}"
    return "missing", f"no such process runs with the home {settings.home}"
