"""Commands about accounts: tokens, login links, users, applications and service accounts."""

import os
import sys
import time
import uuid
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import click

from auth.accounts import EMAIL_RULE, AuditContext, is_user_id
from auth.login import users as local_users
from auth.login.links import create_login_link
from auth.login.passwords import PasswordHashing
from auth.login.users import PasswordUser
from auth.oauth.clients import (
    NewOAuthClient,
    add_client,
    built_in_clients,
    list_clients,
    remove_client,
)
from auth.service_accounts import (
    RegisteredKey,
    add_account_key,
    create_credentials,
    parse_credentials_key,
    parse_public_key,
    remove_account_keys,
)
from auth.tokens import issuance
from auth.tokens.issuance import TokenSpec
from auth.tokens.signing_keys import SigningAlgorithm, rotate_key_file
from config import Settings
from ops.commands import format_time, open_catalog
from ops.options import FiniteRange, PrintableText
from ops.output import CommandOutput, OutputTable, prints_output, prints_state
from storage.catalog import accounts as catalog_accounts
from storage.catalog.accounts import AccountStatus
from storage.catalog.audit import OPERATOR
from storage.model import normalize_identity

MAX_TOKEN_HOURS = 10 * 365 * 24
_READABLE_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NEW_FILE = click.Path(dir_okay=False, path_type=Path)
EMAIL_ARGUMENT = click.argument("email")

# Tokens


@click.command()
@click.option("--email", required=True, help="E-mail address in the token.")
@click.option(
    "--groups",
    type=PrintableText(may_be_empty=True),
    default="",
    help="Groups in the token, separated by commas; store_admin for everything.",
)
@click.option(
    "--hours",
    default=12.0,
    type=FiniteRange(0.01, MAX_TOKEN_HOURS),
    show_default=True,
    help="Lifetime in hours.",
)
@click.pass_obj
@prints_output
def token(settings: Settings, email: str, groups: str, hours: float) -> CommandOutput:
    """Print a bearer token signed with the store's own key."""
    claimed = tuple(part.strip() for part in groups.split(",") if part.strip())
    grant = TokenSpec(local_users.parse_user_email(email), claimed, int(hours * 3600))
    made = issuance.create_token(settings, grant, now=time.time(), token_id=str(uuid.uuid4()))
    return CommandOutput({"token": made}, made)


@click.command(name="login-link")
@click.argument("email", required=False)
@click.pass_obj
@prints_output
def login_link(settings: Settings, email: str | None) -> CommandOutput:
    """Print a one-time login link for a browser.

    By default it is for the administrator, who gets the role store_admin. It ends earlier links of
    the same user.
    """
    if settings.policies_url:
        raise click.ClickException(
            f"Accounts of this store are managed at {settings.auth_url}: create the link there."
        )
    with closing(open_catalog(settings)) as catalog:
        link = create_login_link(catalog, settings, email, now=time.time())
    until = format_time(link.ends_us)
    click.echo(f"It logs in {link.email} once, until {until}.", err=True)
    return CommandOutput({"url": link.url, "email": link.email, "until": until}, link.url)


@click.command(name="rotate-key")
@click.option("--leaked", is_flag=True, help="All tokens signed so far end at once.")
@click.option(
    "--algorithm",
    type=click.Choice(["RS256", "ES256"]),
    default="RS256",
    show_default=True,
    help="Algorithm of the new key.",
)
@click.pass_obj
@prints_output
def rotate_key(settings: Settings, leaked: bool, algorithm: SigningAlgorithm) -> CommandOutput:
    """Sign new tokens with a new key; old tokens stay valid.

    A former key is removed at a rotation after its last token has expired. Processes notice at
    once. Copy secrets/signing-keys.json of the home to every other machine with `api` or `auth`.
    After a leak use --leaked: all tokens end, also admin.token; remove it, and the next start
    creates a new one.
    """
    keys = rotate_key_file(
        settings.home,
        algorithm,
        now=time.time(),
        life_s=settings.access_token_s,
        given=settings.secret_keys,
        drop=leaked,
    )
    held = len(keys.keys) - 1
    text = f"New tokens are signed with a new key; {held} before it still hold."
    return CommandOutput({"former_keys": held}, text)


# Users with a password


@click.group()
def users() -> None:
    """Manage users with a password of this store."""


@users.command(name="add")
@EMAIL_ARGUMENT
@click.option(
    "--role",
    "roles",
    type=PrintableText(),
    multiple=True,
    help="A role, such as store_ingest (deposits) or store_admin (everything); repeatable.",
)
@click.pass_obj
@prints_output
def add_user(settings: Settings, email: str, roles: tuple[str, ...]) -> CommandOutput:
    """Add a user; prompts for the password, or reads it from standard input."""
    with closing(open_catalog(settings)) as catalog:
        name, passwords = local_users.parse_user_email(email), PasswordHashing(settings)
        local_users.require_roles(catalog, roles)
        local_users.add_user(
            catalog, passwords, name, _read_password(), now=time.time(), roles=roles
        )
    return CommandOutput({"user": name, "roles": [*dict.fromkeys(roles)]}, f"{name} may log in.")


@users.command(name="list")
@click.pass_obj
@prints_state
def list_users_command(settings: Settings) -> CommandOutput:
    """Show every user, with lockouts and the roles of their own, without those of groups."""
    with closing(open_catalog(settings)) as catalog:
        found = local_users.list_users(catalog)
    columns = ("user", "status", "password of", "failed", "waits until", "roles")
    return CommandOutput(OutputTable("Users", columns, [_build_row(user) for user in found]))


@users.command(name="passwd")
@EMAIL_ARGUMENT
@click.pass_obj
@prints_output
def change_password(settings: Settings, email: str) -> CommandOutput:
    """Change a password; all logins of the user end."""
    with closing(open_catalog(settings)) as catalog:
        name, passwords = local_users.parse_user_email(email), PasswordHashing(settings)
        local_users.change_user_password(catalog, passwords, name, _read_password(), time.time())
    text = f"The password of {name} is changed, and their logins have ended."
    return CommandOutput({"user": name}, text)


@users.command(name="enable")
@EMAIL_ARGUMENT
@click.pass_obj
@prints_output
def enable_user(settings: Settings, email: str) -> CommandOutput:
    """Enable a user again."""
    return _set_user_status(settings, email, "enabled")


@users.command(name="disable")
@EMAIL_ARGUMENT
@click.pass_obj
@prints_output
def disable_user(settings: Settings, email: str) -> CommandOutput:
    """Disable a user at once, for every login."""
    return _set_user_status(settings, email, "disabled")


def _set_user_status(settings: Settings, email: str, status: AccountStatus) -> CommandOutput:
    with closing(open_catalog(settings)) as catalog:
        changed = local_users.set_user_status(catalog, email, enabled=status == "enabled")
    text = f"{status.capitalize()}." if changed else f"Was {status} before."
    return CommandOutput({"user": email, "changed": changed}, text)


@users.command(name="remove")
@EMAIL_ARGUMENT
@click.pass_obj
@prints_output
def remove_user(settings: Settings, email: str) -> CommandOutput:
    """Remove a user's password; the record and belongings stay."""
    with closing(open_catalog(settings)) as catalog:
        local_users.remove_password(catalog, email)
    text = "Removed. Who can log in elsewhere by that e-mail address still may: see `disable`."
    return CommandOutput({"user": email}, text)


@users.command(name="unlock")
@click.argument("email", required=False)
@click.option("--address", help="Failures of this address instead of a user.")
@click.pass_obj
@prints_output
def unlock_login(settings: Settings, email: str | None, address: str | None) -> CommandOutput:
    """Forget failed logins, so that the next login need not wait."""
    if (email is None) == (address is None):
        raise click.UsageError("Name a user, or an address.")
    with closing(open_catalog(settings)) as catalog:
        if address is not None:
            forgiven = local_users.unlock_address(catalog, address)
        else:
            forgiven = local_users.unlock_user(catalog, email or "")
    text = "Unlocked." if forgiven else "Nothing was held against them."
    return CommandOutput({"user": email, "address": address, "changed": forgiven}, text)


def _build_row(user: PasswordUser) -> tuple[object, ...]:
    until = datetime.fromtimestamp(user.until_us / 1e6, UTC)
    return (
        user.email,
        "enabled" if user.enabled else "disabled",
        datetime.fromtimestamp(user.changed_us / 1e6, UTC).strftime("%Y-%m-%d"),
        user.failures,
        until if until > datetime.now(UTC) else None,
        " ".join(user.roles),
    )


def _read_password() -> str:
    """Typed twice at a terminal, else the first line of standard input."""
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline().rstrip("\r\n")


# Applications


@click.group()
def clients() -> None:
    """Manage applications that act for people."""


@clients.command(name="add")
@click.argument("client_id", metavar="ID")
@click.option("--name", default="", help="Name on the consent page; default: the id.")
@click.option(
    "--redirect-uri",
    "uris",
    multiple=True,
    help="A redirect URI, compared exactly; repeatable.",
)
@click.option("--public", is_flag=True, help="It cannot keep a secret: a native program or a page.")
@click.option("--first-party", is_flag=True, help="It needs no consent.")
@click.pass_obj
@prints_output
def add_client_command(
    settings: Settings,
    client_id: str,
    name: str,
    uris: tuple[str, ...],
    public: bool,
    first_party: bool,
) -> CommandOutput:
    """Add an application; its secret is shown once.

    Addresses begin with https://, http://127.0.0.1 or http://[::1]; those of a --public one may
    have any port on a loopback address, or begin with a private scheme (com.example.app:).
    Devices need no address.
    """
    new = NewOAuthClient(client_id, name or client_id, uris, public, first_party)
    with open_catalog(settings).write() as tx:
        secret = add_client(tx, new, int(time.time() * 1e6), taken=settings.audiences)
    text = f"{client_id} is a client."
    if secret is not None:
        text += f"\nIts secret, which is shown only now: {secret}"
    return CommandOutput({"id": client_id, "secret": secret}, text)


@clients.command(name="list")
@click.pass_obj
@prints_state
def list_clients_command(settings: Settings) -> CommandOutput:
    """Show every application."""
    with closing(open_catalog(settings)) as catalog, catalog.read() as tx:
        found = list_clients(tx, built_in_clients(settings))
    rows = [
        (
            client.id,
            client.name,
            "public" if client.public else "has a secret",
            "ours" if client.first_party else "asks",
            list(client.redirect_uris),
        )
        for client in found
    ]
    columns = ("id", "name", "kind", "people", "comes back to")
    return CommandOutput(OutputTable("Clients", columns, rows))


@clients.command(name="remove")
@click.argument("client_id", type=PrintableText(), metavar="ID")
@click.pass_obj
@prints_output
def remove_client_command(settings: Settings, client_id: str) -> CommandOutput:
    """Remove an application; all its tokens end."""
    with open_catalog(settings).write() as tx:
        remove_client(tx, client_id, int(time.time() * 1e6))
    return CommandOutput({"id": client_id}, f"{client_id} is no client any more.")


# Service accounts


@click.group(name="service-accounts")
def service_accounts() -> None:
    """Manage programs that sign their own tokens.

    Their tokens are valid as long as the key is on this list. Give the account groups and roles as
    a user with its address.
    """


@service_accounts.command(name="add")
@click.argument("email")
@click.option("--key", type=_READABLE_FILE, help="A public key: PEM, or JWK.")
@click.option("--credentials", "held", type=_READABLE_FILE, help="An existing credentials file.")
@click.option("--make", type=_NEW_FILE, help="Create a key and a credentials file with mode 0600.")
@click.option("--kid", default="", help="Id of the key of --key, if its file has none.")
@click.pass_obj
@prints_output
def add_service_account(
    settings: Settings, email: str, key: Path | None, held: Path | None, make: Path | None, kid: str
) -> CommandOutput:
    """Add an account or another of its keys: RSA, at least 2,048 bits.

    With --make, name the new file in CLOUD_APPLICATION_CREDENTIALS of the program. The store keeps
    only the public half.
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
    text = f"{email} may sign with key {registered.kid}."
    return CommandOutput({"account": email, "key": registered.kid}, text)


@service_accounts.command(name="remove")
@click.argument("email", type=PrintableText())
@click.option(
    "--kid",
    type=PrintableText(),
    default=None,
    help="Only this key; default: the account with all keys.",
)
@click.pass_obj
@prints_output
def remove_service_account(settings: Settings, email: str, kid: str | None) -> CommandOutput:
    """Remove an account or one of its keys; its next request fails."""
    with open_catalog(settings).write() as tx:
        gone = remove_account_keys(tx, email, kid, by=_build_change("remove_service_key"))
        left = len(catalog_accounts.list_service_keys(tx, normalize_identity(email)))
    text = f"{email}: {len(gone)} removed, {left} left."
    return CommandOutput({"account": email, "removed": len(gone), "left": left}, text)


@service_accounts.command(name="list")
@click.pass_obj
@prints_state
def list_service_accounts(settings: Settings) -> CommandOutput:
    """Show every account with its keys."""
    with closing(open_catalog(settings)) as catalog, catalog.read() as tx:
        keys = catalog_accounts.list_service_keys(tx)
    rows = [(key.email, key.kid, format_time(key.created_us)) for key in keys]
    return CommandOutput(OutputTable("Service accounts", ("account", "key", "since"), rows))


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
        add_account_key(tx, email, registered, by=_build_change("add_service_key"))
    return registered


def _build_change(what: str) -> AuditContext:
    return AuditContext(OPERATOR, what, str(uuid.uuid4()))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path} cannot be read") from error
