"""The operator's commands: `python -m ops --help`."""

import math
import os
import sys
import time
import uuid
from contextlib import suppress
from functools import partial
from typing import Any

import click
from rich.console import Console

from auth.login.users import named
from auth.tokens.issuing import Grant
from auth.tokens.key_file import rotate
from auth.tokens.keys import Algorithm
from config import Settings, SettingsError, load
from ops import home, manual, ports, procfile, supervisor, tokens
from ops.backups import backup, restore
from ops.clients import clients
from ops.demo.cli import demo
from ops.faults import explain
from ops.fixity import fixity_report
from ops.inspect import parked, status, sweep
from ops.integrity import begin_epoch, reconcile, verify
from ops.opening import require_known
from ops.purging import purge
from ops.rebuilding import print_fingerprint, rebuild
from ops.service_accounts import service_accounts
from ops.switches import read_only
from ops.tables import show
from ops.users import users
from storage.catalog import Catalog
from storage.catalog.migrate import upgrade
from storage.errors import StoreError, Unavailable

LONGEST_H = 10 * 365 * 24


class Plainly(click.Group):
    """Commands that say in a sentence what they could not do: operators need no traceback of it."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen one."""
        try:
            return super().invoke(ctx)
        except (StoreError, SettingsError, OSError) as error:
            raise click.ClickException(explain(error)) from error


@click.group(
    cls=Plainly,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Operate a store. Settings come from STORE_* variables.

    When something is wrong, `status` says what; docs/operations.md says what to do about it ("What
    can fail", "When something is lost"). Every command may be interrupted, and given again.
    """
    context.obj = load(os.environ)


@cli.command()
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


@cli.command()
@click.pass_obj
def migrate(settings: Settings) -> None:
    """Bring the catalog's tables up to date; safe to repeat.

    The exit code is 75 when trying again later may help. Says when the store will be read-only,
    since catalog and buckets do not belong together: see `reconcile`.
    """
    home.make(settings.home)
    catalog = Catalog(settings.catalog)
    try:
        require_known(catalog)
        revision = upgrade(catalog)
    except Unavailable as error:
        click.echo(explain(error), err=True)
        sys.exit(os.EX_TEMPFAIL)
    click.echo(f"The catalog is at revision {revision}.")
    in_doubt = begin_epoch(settings)
    if in_doubt is not None:
        click.echo(f"The store will be read-only. {in_doubt}", err=True)


def _number(hours: float) -> float:
    """A range lets through what is no number."""
    if math.isnan(hours):
        raise click.BadParameter("It is not a number.")
    return hours


@cli.command()
@click.option("--email", required=True, help="Whom the token names.")
@click.option("--groups", default="", help="Groups it claims, by commas; store_admin may all.")
@click.option(
    "--hours",
    default=12.0,
    type=click.FloatRange(0.01, LONGEST_H),
    callback=lambda _context, _option, hours: _number(hours),
    show_default=True,
    help="How long it is good.",
)
@click.pass_obj
def token(settings: Settings, email: str, groups: str, hours: float) -> None:
    """Print a bearer token signed with the store's own key."""
    claimed = tuple(part.strip() for part in groups.split(",") if part.strip())
    grant = Grant(named(email), claimed, int(hours * 3600))
    click.echo(tokens.make(settings, grant, now=time.time(), token_id=str(uuid.uuid4())))


@cli.command(name="rotate-key")
@click.option("--leaked", is_flag=True, help="Whatever was signed so far ends at once.")
@click.option(
    "--algorithm",
    type=click.Choice(["RS256", "ES256"]),
    default="RS256",
    show_default=True,
    help="What the new key signs with.",
)
@click.pass_obj
def rotate_key(settings: Settings, leaked: bool, algorithm: Algorithm) -> None:
    """Sign new tokens with a new key; old ones hold.

    A key before it goes at a rotation after the last of its tokens has ended. Processes notice at
    once; bring secrets/signing-keys.json of the home to every other machine that runs `api` or
    `auth`. If a key leaked, give --leaked: all tokens end, admin.token too, which is made anew at
    the next start once it is removed.
    """
    keys = rotate(
        settings.home,
        algorithm,
        now=time.time(),
        life_s=settings.access_token_s,
        given=settings.secret_key,
        drop=leaked,
    )
    held = len(keys.keys) - 1
    click.echo(f"New tokens are signed with a new key; {held} before it still hold.")


@cli.command(name="settings")
@click.pass_obj
def print_settings(settings: Settings) -> None:
    """Print every setting with its present value."""
    show(Console(), "Settings", ("variable", "value", "meaning"), manual.current(settings))


for command in (
    demo,
    clients,
    status,
    sweep,
    parked,
    read_only,
    service_accounts,
    purge,
    reconcile,
    verify,
    fixity_report,
    rebuild,
    print_fingerprint,
    backup,
    restore,
    users,
):
    cli.add_command(command)
