"""Applications that may ask people to let them act for them."""

import time

import click
from rich.console import Console

from auth.openid.clients import NewClient, add, built_in, listing, remove
from config import Settings
from ops.opening import open_catalog
from ops.tables import show

URI = click.option(
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
@URI
@click.option("--public", is_flag=True, help="It can keep no secret: a native program, a page.")
@click.option("--first-party", is_flag=True, help="It is ours: people are not asked.")
@click.pass_obj
def added(
    settings: Settings,
    client_id: str,
    name: str,
    uris: tuple[str, ...],
    public: bool,
    first_party: bool,
) -> None:
    """Add an application; its secret is shown once.

    Addresses begin with https://, http://127.0.0.1 or http://[::1]; those of a --public one may
    have any port on a loopback address, or begin with a scheme of its own (com.example.app:). It
    needs none to connect devices.
    """
    new = NewClient(client_id, name or client_id, uris, public, first_party)
    with open_catalog(settings).write() as tx:
        secret = add(tx, new, int(time.time() * 1e6), taken=settings.audiences)
    click.echo(f"{client_id} is a client.")
    if secret is not None:
        click.echo(f"Its secret, which is shown only now: {secret}")


@clients.command(name="list")
@click.pass_obj
def listed(settings: Settings) -> None:
    """Show every application."""
    with open_catalog(settings).read() as tx:
        found = listing(tx, built_in(settings.web_redirect_uris))
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
    show(Console(), "Clients", ("id", "name", "kind", "people", "comes back to"), rows)


@clients.command(name="remove")
@click.argument("client_id", metavar="ID")
@click.pass_obj
def removed(settings: Settings, client_id: str) -> None:
    """Remove an application; all that people let it have ends."""
    with open_catalog(settings).write() as tx:
        remove(tx, client_id, int(time.time() * 1e6))
    click.echo(f"{client_id} is no client any more.")
