"""The command `run`: the store on this machine."""

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import click

from auth.private_files import secret
from config import Settings
from ops import home, ports, procfile, supervisor

PREPARE = (sys.executable, "-m", "ops", "prepare")


@click.command()
@click.option("--only", multiple=True, help="Run only these processes.")
@click.pass_obj
def run(settings: Settings, only: tuple[str, ...]) -> None:
    """Run the store here, until Ctrl-C.

    In two processes, or with STORE_REDIS_URL in those of the Procfile.
    """
    lines = procfile.read() if settings.redis_url else procfile.embedded(settings)
    lines = _chosen(lines, only)
    prepare = PREPARE if settings.redis_url else ()
    say = partial(_say, max(len(line.name) for line in lines))
    try:
        supervise(settings, lines, environ=os.environ, say=say, prepare=prepare)
    except (home.Taken, home.Exposed, ports.PortTaken, supervisor.StartFailed) as error:
        raise click.ClickException(str(error)) from error


def _chosen(
    lines: tuple[procfile.ProcessLine, ...], only: tuple[str, ...]
) -> tuple[procfile.ProcessLine, ...]:
    unknown = set(only) - {line.name for line in lines}
    if unknown:
        raise click.BadParameter(f"no such process: {', '.join(sorted(unknown))}")
    return tuple(line for line in lines if not only or line.name in only)


def _say(width: int, who: str, line: str) -> None:
    # Whoever read our output may be gone (`make run | head`): the store goes on and can be stopped.
    with suppress(OSError):
        click.echo(f"{click.style(who.ljust(width), fg='cyan')} | {line}")


def supervise(
    settings: Settings,
    lines: tuple[procfile.ProcessLine, ...],
    *,
    environ: Mapping[str, str],
    say: supervisor.Say,
    prepare: tuple[str, ...] = (),
    grace_s: float = supervisor.GRACE_S,
) -> None:
    """Run the store until it is told to stop; StartFailed, Taken, Exposed or PortTaken if not."""
    with home.locked(settings.home):
        ports.require(settings.host, settings.port)
        # Left by one that was killed: it must not speak for us.
        for name in (home.READY, home.PROCESSES):
            home.remove(settings.home, name)
        # Counters begin anew with the store: each worker that ever ran has files of its own there.
        shutil.rmtree(settings.worker_metrics, ignore_errors=True)
        given = {
            **environ,
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), environ.get("PATH", ""))),
            "PYTHONUNBUFFERED": "1",
            "STORE_HOME": str(settings.home.absolute()),
            "STORE_PORT": str(settings.port),
            "STORE_SECRET_KEY": secret(settings.home, given=settings.secret_key).decode(),
        }
        supervisor.Supervisor(settings, lines, given, say, prepare, grace_s).run()
