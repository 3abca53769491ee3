"""The command `run`: every process of the store on this machine."""

import os
from contextlib import suppress
from functools import partial

import click

from config import Settings
from ops import home, ports, procfile, supervisor


@click.command()
@click.option("--only", multiple=True, help="Run only these processes of the Procfile.")
@click.pass_obj
def run(settings: Settings, only: tuple[str, ...]) -> None:
    """Run every process of the store here, until Ctrl-C."""
    lines = _chosen(procfile.read(), only)
    width = max(len(line.name) for line in lines)
    try:
        supervisor.run(settings, lines, environ=os.environ, say=partial(_say, width))
    except (home.Taken, home.Exposed, ports.PortTaken, supervisor.StartFailed) as error:
        raise click.ClickException(str(error)) from error


def _chosen(
    lines: tuple[procfile.ProcessLine, ...], only: tuple[str, ...]
) -> tuple[procfile.ProcessLine, ...]:
    unknown = set(only) - {line.name for line in lines}
    if unknown:
        raise click.BadParameter(f"not in the Procfile: {', '.join(sorted(unknown))}")
    return tuple(line for line in lines if not only or line.name in only)


def _say(width: int, who: str, line: str) -> None:
    # Whoever read our output may be gone (`make run | head`): the store goes on and can be stopped.
    with suppress(OSError):
        click.echo(f"{click.style(who.ljust(width), fg='cyan')} | {line}")
