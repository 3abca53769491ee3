"""Switches that an operator throws while the store runs."""

import click

from config import Settings
from ops.opening import open_catalog
from storage.catalog import switches

REASON = "The store is read-only at the moment."


@click.group(name="read-only")
def read_only() -> None:
    """Take no writes for a while, or take them again."""


@read_only.command()
@click.option("--reason", default=REASON, show_default=True, help="What writers are told.")
@click.pass_obj
def on(settings: Settings, reason: str) -> None:
    """Refuse every write with 503 `read_only`.

    Every process knows within two seconds. Reads, and work that was accepted before, go on.
    """
    _throw(settings, reason)


@read_only.command()
@click.pass_obj
def off(settings: Settings) -> None:
    """Take writes again."""
    _throw(settings, None)


@read_only.command(name="show")
@click.pass_obj
def show_read_only(settings: Settings) -> None:
    """Say whether writes are taken."""
    with open_catalog(settings).read() as tx:
        reason = switches.read_only(tx)
    if settings.read_only:
        reason = "STORE_READ_ONLY is set."
    click.echo(_said(reason))


def _throw(settings: Settings, reason: str | None) -> None:
    with open_catalog(settings).write() as tx:
        switches.set_read_only(tx, reason)
    click.echo(_said(reason))


def _said(reason: str | None) -> str:
    return "off" if reason is None else f"on: {reason}"
