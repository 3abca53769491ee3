"""The command group `clients`: OAuth clients of the authorization service."""

import time

import click
from rich.console import Console

from auth.oauth.clients import (
    NewOAuthClient,
    add_client,
    built_in_clients,
    list_clients,
    remove_client,
)
from config import Settings
from ops.commands import open_catalog, print_table

REDIRECT_URI_OPTION = click.option(
    "--redirect-uri",
    "uris",
    multiple=True,
    help="Where people come back to, exactly so. May be given several times.",
)


@click.group()
def clients() -> None:
    """Applications that people may let act for them."""


@clients.command(name="add")
@click.argument("client_id", metavar="ID")
@click.option("--name", default="", help="What people are asked about; the id when not given.")
@REDIRECT_URI_OPTION
@click.option("--public", is_flag=True, help="It can keep no secret: a native program, a page.")
@click.option("--first-party", is_flag=True, help="It is ours: people are not asked.")
@click.pass_obj
def add_client_command(
    settings: Settings,
    client_id: str,
    name: str,
    uris: tuple[str, ...],
    public: bool,
    first_party: bool,
) -> None:
    """Add an application; its secret is shown once.

    Addresses begin with https://, http://127.0.0.1 or http://[::1]; those of a --public one may
    have any port on a loopback address, or begin with a private scheme (com.example.app:). It
    needs none to connect devices.
    """
    new = NewOAuthClient(client_id, name or client_id, uris, public, first_party)
    with open_catalog(settings).write() as tx:
        secret = add_client(tx, new, int(time.time() * 1e6), taken=settings.audiences)
    click.echo(f"{client_id} is a client.")
    if secret is not None:
        click.echo(f"Its secret, which is shown only now: {secret}")


@clients.command(name="list")
@click.pass_obj
def list_clients_command(settings: Settings) -> None:
    """Show every application."""
    with open_catalog(settings).read() as tx:
        found = list_clients(tx, built_in_clients(settings.web_redirect_uris))
    rows = [
        (
            client.id,
            client.name,
            "public" if client.public else "has a secret",
            "ours" if client.first_party else "asks",
            "\n".join(client.redirect_uris),
        )
        for client in found
    ]
    print_table(Console(), "Clients", ("id", "name", "kind", "people", "comes back to"), rows)


@clients.command(name="remove")
@click.argument("client_id", metavar="ID")
@click.pass_obj
def remove_client_command(settings: Settings, client_id: str) -> None:
    """Remove an application; all that people let it have ends."""
    with open_catalog(settings).write() as tx:
        remove_client(tx, client_id, int(time.time() * 1e6))
    click.echo(f"{client_id} is no client any more.")
