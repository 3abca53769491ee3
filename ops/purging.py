"""Removing a bundle or a collection for good."""

from typing import NamedTuple

import click

from config import Settings
from ops.opening import opened
from pipelines.collecting import collection_purging, collections
from pipelines.depositing import manifests, purging, tombstones
from pipelines.formats import uuid_of, version_of
from pipelines.recovering import epochs
from storage import keys
from storage.catalog import purges
from storage.errors import Conflict, StoreError
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
    stores = opened(settings)
    try:
        doomed = _parsed(name)
        extent = _extent(stores, doomed)
        _tell(doomed, extent)
        if dry_run:
            return
        if not extent.buried and not force:
            raise click.ClickException("It is not under a tombstone: delete it first, or --force.")
        if not yes:
            click.confirm("Remove all this for good?", abort=True)
        _allow(stores)
        if force and not extent.buried:
            _bury(stores, doomed, reason=reason, author=author)
        _order(stores, doomed, reason=reason, author=author)
    except StoreError as error:
        raise click.ClickException(error.detail) from error


class _Doomed(NamedTuple):
    kind: keys.Kind
    uuid: str
    version: str | None


def _parsed(name: str) -> _Doomed:
    kind, colon, named = name.rpartition(":")
    uuid, _, version = named.partition(".")
    if not colon:
        return _Doomed(manifests.KIND, uuid_of(uuid), version_of(version) if version else None)
    if kind != collections.KIND or version:
        raise click.BadParameter("A bundle is named by its uuid, a collection by collection:UUID.")
    return _Doomed(collections.KIND, uuid_of(uuid), None)


def _extent(stores: Stores, doomed: _Doomed) -> purging.Extent:
    if doomed.kind == collections.KIND:
        return collection_purging.extent(stores, doomed.uuid)
    return purging.extent(stores, doomed.uuid, doomed.version)


def _tell(doomed: _Doomed, extent: purging.Extent) -> None:
    for fqid in extent.versions:
        click.echo(f"{doomed.kind} {fqid}")
    click.echo(f"{extent.files} files that nothing else names; {extent.kept} others stay")


def _allow(stores: Stores) -> None:
    in_doubt = epochs.judge(stores)
    if in_doubt is not None:
        raise Conflict(in_doubt, code="read_only")


def _bury(stores: Stores, doomed: _Doomed, *, reason: str, author: str) -> None:
    if doomed.kind == collections.KIND:
        collection_purging.bury(stores, doomed.uuid)
    else:
        grave = doomed.uuid, doomed.version
        tombstones.bury(stores, REPLICAS[0], *grave, reason=reason, author=author)


def _order(stores: Stores, doomed: _Doomed, *, reason: str, author: str) -> None:
    if doomed.kind == collections.KIND:
        collection_purging.order(stores, doomed.uuid, reason=reason, author=author)
    else:
        purging.order(stores, doomed.uuid, doomed.version, reason=reason, author=author)
    with stores.catalog.read() as tx:
        going_on = len(purges.unfinished(tx, limit=1000))
    click.echo(f"Ordered; the workers do it. {going_on} purges go on, `ops status` shows how far.")
