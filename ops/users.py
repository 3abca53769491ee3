"""Users that log in with a password. A password is typed or piped, and never an argument: those are
seen by every user of the machine.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import click
from rich.console import Console

from auth.login import users as accounts
from auth.login.passwords import Passwords, costs
from auth.login.users import User
from config import Settings
from ops.opening import open_catalog
from ops.tables import show
from storage.catalog import Catalog

EMAIL = click.argument("email")


@click.group()
def users() -> None:
    """Users that log in with a password of this store."""


@users.command()
@EMAIL
@click.pass_obj
def add(settings: Settings, email: str) -> None:
    """Add a user; the password is asked for, or read from standard input."""
    with _catalog(settings) as catalog:
        name, passwords = accounts.named(email), Passwords(costs(settings))
        accounts.add(catalog, passwords, name, _password(), now=time.time())
    click.echo(f"{name} may log in.")


@users.command(name="list")
@click.pass_obj
def listing(settings: Settings) -> None:
    """Show every user, and who has to wait."""
    with _catalog(settings) as catalog:
        found = accounts.listing(catalog)
    columns = ("user", "status", "password of", "failed", "waits until")
    show(Console(), "Users", columns, [_row(user) for user in found])


@users.command()
@EMAIL
@click.pass_obj
def passwd(settings: Settings, email: str) -> None:
    """Change a password; every login with the one so far ends."""
    with _catalog(settings) as catalog:
        name, passwords = accounts.named(email), Passwords(costs(settings))
        accounts.change(catalog, passwords, name, _password(), time.time())
    click.echo(f"The password of {name} is changed, and their logins have ended.")


@users.command()
@EMAIL
@click.pass_obj
def enable(settings: Settings, email: str) -> None:
    """Let a user in again."""
    with _catalog(settings) as catalog:
        changed = accounts.put_status(catalog, email, enabled=True)
    click.echo("Enabled." if changed else "Was enabled before.")


@users.command()
@EMAIL
@click.pass_obj
def disable(settings: Settings, email: str) -> None:
    """Shut a user out at once, whatever they logged in with."""
    with _catalog(settings) as catalog:
        changed = accounts.put_status(catalog, email, enabled=False)
    click.echo("Disabled." if changed else "Was disabled before.")


@users.command()
@EMAIL
@click.pass_obj
def remove(settings: Settings, email: str) -> None:
    """Take a user's password away; record and belongings stay."""
    with _catalog(settings) as catalog:
        accounts.remove(catalog, email)
    click.echo("Removed. Who can log in elsewhere by that e-mail address still may: see `disable`.")


@users.command()
@click.argument("email", required=False)
@click.option("--address", help="Of who comes from this address, instead of a user's.")
@click.pass_obj
def unlock(settings: Settings, email: str | None, address: str | None) -> None:
    """Forget failed logins: nobody has to wait any more."""
    if (email is None) == (address is None):
        raise click.UsageError("Name a user, or an address.")
    with _catalog(settings) as catalog:
        if address is not None:
            forgiven = accounts.unlock_address(catalog, address)
        else:
            forgiven = accounts.unlock(catalog, email or "")
    click.echo("Unlocked." if forgiven else "Nothing was held against them.")


def _row(user: User) -> tuple[str, str, str, str, str]:
    waiting = user.until_us / 1e6 > time.time()
    return (
        user.email,
        "enabled" if user.enabled else "disabled",
        _day(user.changed_us),
        str(user.failures or ""),
        datetime.fromtimestamp(user.until_us / 1e6, UTC).strftime("%H:%M:%S UTC")
        if waiting
        else "",
    )


def _day(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%d")


def _password() -> str:
    """Typed twice at a terminal, else the first line of standard input."""
    if _at_terminal():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline().rstrip("\r\n")


def _at_terminal() -> bool:
    return sys.stdin.isatty()


@contextmanager
def _catalog(settings: Settings) -> Iterator[Catalog]:
    """Open as long as the block."""
    catalog = open_catalog(settings)
    try:
        yield catalog
    finally:
        catalog.close()
