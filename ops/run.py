"""The command `run`: the store on this machine."""

import os
from contextlib import suppress
from functools import partial

import click

from config import Settings
from ops import home, ports, procfile, supervisor


@click.command()
@click.option("--only", multiple=True, help="Run only these processes.")
@click.pass_obj
def run(settings: Settings, only: tuple[str, ...]) -> None:
    """Run the store here, until Ctrl-C.

    In two processes, or with STORE_REDIS_URL in those of the Procfile.
    """
    lines = procfile.read() if settings.redis_url else procfile.embedded(settings)
    lines = _chosen(lines, only)
    prepare = supervisor.PREPARE if settings.redis_url else ()
    say = partial(_say, max(len(line.name) for line in lines))
    try:
        supervisor.run(settings, lines, environ=os.environ, say=say, prepare=prepare)
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
