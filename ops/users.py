"""The command group `users`: local users, their passwords and lockouts."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import click
from rich.console import Console

from auth.login import users as accounts
from auth.login.passwords import PasswordHashing, hash_costs
from auth.login.users import PasswordUser
from config import Settings
from ops.commands import open_catalog, print_table
from storage.catalog import Catalog

EMAIL_ARGUMENT = click.argument("email")


@click.group()
def users() -> None:
    """Users that log in with a password of this store."""


@users.command()
@EMAIL_ARGUMENT
@click.pass_obj
def add(settings: Settings, email: str) -> None:
    """Add a user; prompts for the password, or reads it from standard input."""
    with _open_catalog(settings) as catalog:
        name, passwords = accounts.parse_user_email(email), PasswordHashing(hash_costs(settings))
        accounts.add_user(catalog, passwords, name, _read_password(), now=time.time())
    click.echo(f"{name} may log in.")


@users.command(name="list")
@click.pass_obj
def list_users_command(settings: Settings) -> None:
    """Show every user, and who has to wait."""
    with _open_catalog(settings) as catalog:
        found = accounts.list_users(catalog)
    columns = ("user", "status", "password of", "failed", "waits until")
    print_table(Console(), "Users", columns, [_format_user(user) for user in found])


@users.command()
@EMAIL_ARGUMENT
@click.pass_obj
def passwd(settings: Settings, email: str) -> None:
    """Change a password; every login with the one so far ends."""
    with _open_catalog(settings) as catalog:
        name, passwords = accounts.parse_user_email(email), PasswordHashing(hash_costs(settings))
        accounts.change_user_password(catalog, passwords, name, _read_password(), time.time())
    click.echo(f"The password of {name} is changed, and their logins have ended.")


@users.command()
@EMAIL_ARGUMENT
@click.pass_obj
def enable(settings: Settings, email: str) -> None:
    """Let a user in again."""
    with _open_catalog(settings) as catalog:
        changed = accounts.set_user_status(catalog, email, enabled=True)
    click.echo("Enabled." if changed else "Was enabled before.")


@users.command()
@EMAIL_ARGUMENT
@click.pass_obj
def disable(settings: Settings, email: str) -> None:
    """Shut a user out at once, whatever they logged in with."""
    with _open_catalog(settings) as catalog:
        changed = accounts.set_user_status(catalog, email, enabled=False)
    click.echo("Disabled." if changed else "Was disabled before.")


@users.command()
@EMAIL_ARGUMENT
@click.pass_obj
def remove(settings: Settings, email: str) -> None:
    """Take a user's password away; record and belongings stay."""
    with _open_catalog(settings) as catalog:
        accounts.remove_password(catalog, email)
    click.echo("Removed. Who can log in elsewhere by that e-mail address still may: see `disable`.")


@users.command()
@click.argument("email", required=False)
@click.option("--address", help="Of who comes from this address, instead of a user's.")
@click.pass_obj
def unlock(settings: Settings, email: str | None, address: str | None) -> None:
    """Forget failed logins, so that the next login need not wait."""
    if (email is None) == (address is None):
        raise click.UsageError("Name a user, or an address.")
    with _open_catalog(settings) as catalog:
        if address is not None:
            forgiven = accounts.unlock_address(catalog, address)
        else:
            forgiven = accounts.unlock_user(catalog, email or "")
    click.echo("Unlocked." if forgiven else "Nothing was held against them.")


def _format_user(user: PasswordUser) -> tuple[str, str, str, str, str]:
    waiting = user.until_us / 1e6 > time.time()
    return (
        user.email,
        "enabled" if user.enabled else "disabled",
        datetime.fromtimestamp(user.changed_us / 1e6, UTC).strftime("%Y-%m-%d"),
        str(user.failures or ""),
        datetime.fromtimestamp(user.until_us / 1e6, UTC).strftime("%H:%M:%S UTC")
        if waiting
        else "",
    )


def _read_password() -> str:
    """Typed twice at a terminal, else the first line of standard input."""
    if _is_terminal():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline().rstrip("\r\n")


def _is_terminal() -> bool:
    return sys.stdin.isatty()


@contextmanager
def _open_catalog(settings: Settings) -> Iterator[Catalog]:
    """Open as long as the block."""
    catalog = open_catalog(settings)
    try:
        yield catalog
    finally:
        catalog.close()
