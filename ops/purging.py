"""Removing a bundle for good."""

from dataclasses import replace

import click

from config import Settings
from ops import tokens
from pipelines import epochs, purging, tombstones
from pipelines.formats import uuid_of, version_of
from storage.catalog import purges
from storage.connecting import connect
from storage.errors import Conflict, StoreError
from storage.model import REPLICAS
from storage.stores import Stores


@click.command()
@click.argument("name", metavar="UUID[.VERSION]")
@click.option("--reason", required=True, help="Why; written into the markers in every bucket.")
@click.option("--author", default="operator", show_default=True, help="Who wanted it.")
@click.option("--dry-run", is_flag=True, help="Show what would go, and change nothing.")
@click.option("--force", is_flag=True, help="Put it under a tombstone first.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def purge(
    settings: Settings, name: str, reason: str, author: str, dry_run: bool, force: bool, yes: bool
) -> None:
    """Remove a bundle, and what only it names, for good; it can never be put again."""
    opened = connect(replace(settings, secret_key=tokens.secret_key(settings)))
    try:
        uuid, version = _parsed(name)
        extent = purging.extent(opened, uuid, version)
        _tell(extent)
        if dry_run:
            return
        if not extent.buried and not force:
            raise click.ClickException("It is not under a tombstone: delete it first, or --force.")
        if not yes:
            click.confirm("Remove all this for good?", abort=True)
        _order(opened, uuid, version, reason=reason, author=author, force=force)
    except StoreError as error:
        raise click.ClickException(error.detail) from error


def _parsed(name: str) -> tuple[str, str | None]:
    uuid, _, version = name.partition(".")
    return uuid_of(uuid), version_of(version) if version else None


def _tell(extent: purging.Extent) -> None:
    for fqid in extent.versions:
        click.echo(f"bundle {fqid}")
    click.echo(f"{extent.files} files that nothing else names; {extent.kept} others stay")


def _order(
    stores: Stores, uuid: str, version: str | None, *, reason: str, author: str, force: bool
) -> None:
    in_doubt = epochs.judge(stores)
    if in_doubt is not None:
        raise Conflict(in_doubt, code="read_only")
    if force and not purging.buried(stores, uuid, version):
        tombstones.bury(stores, REPLICAS[0], uuid, version, reason=reason, author=author)
    purging.order(stores, uuid, version, reason=reason, author=author)
    with stores.catalog.read() as tx:
        going_on = len(purges.unfinished(tx, limit=1000))
    click.echo(f"Ordered; the workers do it. {going_on} purges go on, `ops status` shows how far.")
