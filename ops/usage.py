"""The command `usage`."""

from contextlib import closing

import click

from auth.accounts import require_account
from config import Settings
from ops.commands import open_catalog
from ops.output import CommandOutput, OutputTable, prints_state
from ops.quotas import list_quota_rows, make_quota_table
from pipelines.usage import USAGE_COLUMNS, OwnerUsage, measure_usage
from storage.catalog import Catalog, accounts
from storage.catalog.accounts import AccountKey
from storage.catalog.quotas import QuotaUsage
from storage.connect import read_default_quotas

MEMBERS_PER_PAGE = 1_000


@click.command(name="usage")
@click.option("--group", help="Only the users of this group.")
@click.pass_obj
@prints_state
def print_usage(settings: Settings, group: str | None) -> CommandOutput:
    """Show what each owner has deposited.

    Owners are those who deposited files and bundles, and who have upload areas. Bytes are those of
    each file, although equal contents are stored once. What is deleted but not purged counts. A
    second table says what is not complete in a replica, for example not copied yet. A third one has
    the quotas, if they are enforced: there, files on their way count, too.
    """
    with closing(open_catalog(settings)) as catalog:
        owners = None if group is None else _list_members(catalog, group)
        found = measure_usage(catalog, owners)
        defaults = read_default_quotas(settings)
        quotas = [] if defaults is None else list_quota_rows(catalog, defaults)
    ordered = sorted(found.items(), key=lambda item: (-item[1].bytes, item[0]))
    columns = tuple(name.replace("_", " ") for name in USAGE_COLUMNS)
    lacking = [
        (owner, name, one.files, one.bytes, one.bundles)
        for owner, usage in ordered
        for name, one in usage.lacking.items()
    ]
    total = {name: sum(getattr(one, name) for one in found.values()) for name in USAGE_COLUMNS}
    return CommandOutput(
        {
            "usage": OutputTable(
                "Usage",
                ("owner", *columns),
                [(owner, *_list_values(usage)) for owner, usage in ordered],
            ),
            "lacking": OutputTable(
                "Not complete in a replica",
                ("owner", "replica", "files", "bytes", "bundles"),
                lacking,
                hidden_if_empty=True,
            ),
            "quotas": make_quota_table(
                [one for one in quotas if group is None or _concerns(one, group, owners or set())],
                hidden_if_empty=True,
            ),
            "total": total,
        },
        f"total: {total['files']} files, {total['bytes']} bytes, {total['bundles']} bundles;"
        f" {total['area_files']} files, {total['area_bytes']} bytes in {total['areas']} areas",
    )


def _concerns(quota: QuotaUsage, group: str, owners: set[str]) -> bool:
    """Return whether a quota is that of a group, or of one of its users."""
    return quota.name == group if quota.kind == "group" else quota.name in owners


def _list_values(usage: OwnerUsage) -> list[int]:
    return [getattr(usage, name) for name in USAGE_COLUMNS]


def _list_members(catalog: Catalog, group: str) -> set[str]:
    """Return the users of a group; NotFoundError if no group has that name."""
    name, members, after = AccountKey("group", group), set[str](), ""
    with catalog.read() as tx:
        require_account(tx, name)
        while page := accounts.list_members(tx, name, "user", after=after, limit=MEMBERS_PER_PAGE):
            members.update(page)
            after = page[-1]
    return members
