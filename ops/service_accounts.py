"""The command group `service-accounts`: programs that sign their own tokens."""

import os
import uuid
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from auth import service_accounts as accounts
from auth.accounts import EMAIL_RULE, AuditContext, is_user_id
from auth.service_accounts import (
    RegisteredKey,
    create_credentials,
    parse_credentials_key,
    parse_public_key,
)
from config import Settings
from ops.commands import open_catalog, print_table
from storage.catalog import accounts as catalog_accounts
from storage.catalog.audit import OPERATOR
from storage.model import normalize_identity

_READABLE_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NEW_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group(name="service-accounts")
def service_accounts() -> None:
    """Let programs sign their own tokens, or no longer.

    Such a token is good only as long as its key is on this list. What an account may do is in the
    records of users, as for all users: give it groups and roles there.
    """


@service_accounts.command()
@click.argument("email")
@click.option("--key", type=_READABLE_FILE, help="A public key: PEM, or JWK.")
@click.option("--credentials", "held", type=_READABLE_FILE, help="A credentials file that exists.")
@click.option("--make", type=_NEW_FILE, help="Make a key, and a credentials file here, mode 0600.")
@click.option("--kid", default="", help="Name of a key of --key, if its file has none.")
@click.pass_obj
def add(
    settings: Settings, email: str, key: Path | None, held: Path | None, make: Path | None, kid: str
) -> None:
    """Allow an account, or another of its keys; RSA, 2,048 bits at least.

    With --make, CLOUD_APPLICATION_CREDENTIALS of the program names the new file. Only the public
    half is kept here.
    """
    if [key, held, make].count(None) != 2:
        raise click.UsageError("Give one of --key, --credentials, --make.")
    if not is_user_id(email):
        raise click.BadParameter(EMAIL_RULE, param_hint="EMAIL")
    if make is not None:
        registered = _create_credentials_file(settings, email, make)
    elif held is not None:
        registered = _register_key(
            settings, email, parse_credentials_key(_read_text(held), email=email)
        )
    else:
        registered = _register_key(
            settings, email, parse_public_key(_read_text(key or Path()), kid=kid)
        )
    click.echo(f"{email} may sign with key {registered.kid}.")


@service_accounts.command()
@click.argument("email")
@click.option("--kid", default=None, help="Only this key; else the account with all of its keys.")
@click.pass_obj
def remove(settings: Settings, email: str, kid: str | None) -> None:
    """Take an account, or one of its keys, from the list: its next request fails."""
    with open_catalog(settings).write() as tx:
        gone = accounts.remove_account_keys(tx, email, kid, by=_build_change("remove_service_key"))
        left = len(catalog_accounts.list_service_keys(tx, normalize_identity(email)))
    click.echo(f"{email}: {len(gone)} removed, {left} left.")


@service_accounts.command(name="list")
@click.pass_obj
def list_service_accounts(settings: Settings) -> None:
    """Show every account with its keys."""
    with open_catalog(settings).read() as tx:
        keys = catalog_accounts.list_service_keys(tx)
    rows = [(key.email, key.kid, _format_time(key.created_us)) for key in keys]
    print_table(Console(), "Service accounts", ("account", "key", "since"), rows)


def _create_credentials_file(settings: Settings, email: str, path: Path) -> RegisteredKey:
    """The file is there, whole, before its key is any good."""
    # Signed for the address, a token is good nowhere else.
    text, registered = create_credentials(
        email,
        audience=settings.external_url or settings.audiences[0],
        token_uri=f"{settings.auth_url}/oauth/token",
    )
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be made: {error.strerror}") from error
    try:
        return _register_key(settings, email, registered)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _register_key(settings: Settings, email: str, registered: RegisteredKey) -> RegisteredKey:
    with open_catalog(settings).write() as tx:
        accounts.add_account_key(tx, email, registered, by=_build_change("add_service_key"))
    return registered


def _build_change(what: str) -> AuditContext:
    return AuditContext(OPERATOR, what, str(uuid.uuid4()))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path} cannot be read") from error


def _format_time(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="seconds")
