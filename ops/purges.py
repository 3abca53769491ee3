"""The command `purge`: delete a bundle or a collection permanently."""

from typing import NamedTuple

import click

from config import Settings
from ops.commands import open_stores
from pipelines import bundles, collections, purges
from pipelines.formats import parse_uuid, parse_version
from pipelines.recovery import epochs
from storage import keys
from storage.catalog import purges as catalog_purges
from storage.errors import ConflictError, DomainError
from storage.model import REPLICAS
from storage.stores import Stores


@click.command()
@click.argument("name", metavar="[collection:]UUID[.VERSION]")
@click.option("--reason", required=True, help="Why; written into the markers in every bucket.")
@click.option("--author", default="operator", show_default=True, help="Who wanted it.")
@click.option("--dry-run", is_flag=True, help="Show what would go, and change nothing.")
@click.option("--force", is_flag=True, help="Put it under a tombstone first, if it is under none.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def purge(
    settings: Settings, name: str, reason: str, author: str, dry_run: bool, force: bool, yes: bool
) -> None:
    """Remove a bundle or a collection for good.

    UUID.VERSION is one version of a bundle, UUID all of them, with the files that nothing else
    names; collection:UUID is a collection with all its versions. It has to be under a tombstone,
    and can never be put again. Says what would go and asks; given again, it drives on what is
    unfinished. `status` shows how far it is.
    """
    stores = open_stores(settings)
    try:
        doomed = _parse_target(name)
        extent = purges.measure_extent(stores, doomed.uuid, doomed.version, kind=doomed.kind)
        _print_extent(doomed, extent)
        if dry_run:
            return
        if not extent.has_tombstone and not force:
            raise click.ClickException("It is not under a tombstone: delete it first, or --force.")
        if not yes:
            click.confirm("Remove all this for good?", abort=True)
        _require_writable(stores)
        if force and not extent.has_tombstone:
            _write_tombstone(stores, doomed, reason=reason, author=author)
        _order_purge(stores, doomed, reason=reason, author=author)
    except DomainError as error:
        raise click.ClickException(error.detail) from error


class _PurgeTarget(NamedTuple):
    kind: keys.Kind
    uuid: str
    version: str | None


def _parse_target(name: str) -> _PurgeTarget:
    kind, colon, named = name.rpartition(":")
    uuid, _, version = named.partition(".")
    if not colon:
        return _PurgeTarget(
            bundles.KIND, parse_uuid(uuid), parse_version(version) if version else None
        )
    if kind != collections.KIND or version:
        raise click.BadParameter("A bundle is named by its uuid, a collection by collection:UUID.")
    return _PurgeTarget(collections.KIND, parse_uuid(uuid), None)


def _compute_extent(stores: Stores, doomed: _PurgeTarget) -> purges.PurgeExtent:
    if doomed.kind == collections.KIND:
        return purges.measure_extent(stores, doomed.uuid, None, kind="collection")
    return purges.measure_extent(stores, doomed.uuid, doomed.version)


def _print_extent(doomed: _PurgeTarget, extent: purges.PurgeExtent) -> None:
    for fqid in extent.versions:
        click.echo(f"{doomed.kind} {fqid}")
    click.echo(f"{extent.files} files that nothing else names; {extent.kept_files} others stay")


def _require_writable(stores: Stores) -> None:
    in_doubt = epochs.check_epoch(stores)
    if in_doubt is not None:
        raise ConflictError(in_doubt, code="read_only")


def _write_tombstone(stores: Stores, doomed: _PurgeTarget, *, reason: str, author: str) -> None:
    if doomed.kind == collections.KIND:
        collections.delete_as_owner(stores, doomed.uuid)
    else:
        grave = doomed.uuid, doomed.version
        bundles.delete(stores, REPLICAS[0], *grave, reason=reason, author=author)


def _order_purge(stores: Stores, doomed: _PurgeTarget, *, reason: str, author: str) -> None:
    purges.order_purge(
        stores, doomed.uuid, doomed.version, reason=reason, author=author, kind=doomed.kind
    )
    with stores.catalog.read() as tx:
        going_on = len(catalog_purges.list_unfinished(tx, limit=1000))
    click.echo(f"Ordered; the workers do it. {going_on} purges go on, `ops status` shows how far.")
