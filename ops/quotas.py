"""The command `usage`, and `quotas list`, `quotas set`, `quotas remove` and `quotas count`."""

import json
import re
from contextlib import closing
from typing import Any

import click

from auth.accounts import is_account_id, require_account
from auth.login.users import parse_user_email
from config import Settings
from ops.commands import open_catalog
from ops.options import PrintableText
from ops.output import CommandOutput, OutputTable, prints_output, prints_state
from pipelines.quotas import compute_left, count_usage, list_usage
from pipelines.usage import USAGE_COLUMNS, measure_usage
from storage.catalog import Catalog, Tx, accounts, audit, quotas
from storage.catalog.accounts import AccountKey
from storage.catalog.audit import OPERATOR, AuditChange
from storage.catalog.quotas import NO_LIMIT, DefaultQuotas, Limits, OwnerKind, Quota, QuotaUsage
from storage.connect import read_default_quotas
from storage.errors import Invalid

MAX_AMOUNT = 2**62
DEFAULT_LIMIT = 0
"""An option that sets the limit of the settings; None stands for an option that is not given."""
_UNITS = {
    "": 1,
    "B": 1,
    **{f"{prefix}B": 1000 ** (power + 1) for power, prefix in enumerate("kMGTP")},
    **{f"{prefix}iB": 1024 ** (power + 1) for power, prefix in enumerate("KMGTP")},
}
_AMOUNT_REGEX = re.compile(r"([0-9]{1,18}) ?([A-Za-z]*)")
MEMBERS_PER_PAGE = 1_000
NOT_ENFORCED = "Quotas are not enforced: set STORE_QUOTAS=true, and restart the store."


class QuotaAmount(click.ParamType[int | None]):
    """A number with a unit, `none` for no limit, or `default` for that of the settings."""

    name = "amount"

    def __init__(self, units: dict[str, int]) -> None:
        self._units = units

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, NO_LIMIT or DEFAULT_LIMIT."""
        if value is None or isinstance(value, int):
            return value
        if value == "default":
            return DEFAULT_LIMIT
        if value == "none":
            return NO_LIMIT
        found = _AMOUNT_REGEX.fullmatch(value)
        amount = int(found[1]) * self._units.get(found[2], 0) if found else 0
        if not 0 < amount <= MAX_AMOUNT:
            example = "500GB or 2TiB" if len(self._units) > 1 else "100000"
            self.fail(f"must be a number such as {example}, none or default (got {value!r})")
        return amount


_GROUP_OPTION = click.option("--group", "is_group", is_flag=True, help="NAME is a group.")


@click.group(name="quotas")
def quota_commands() -> None:
    """Limit what owners and groups may deposit."""


@quota_commands.command(name="list")
@click.pass_obj
@prints_state
def list_quotas(settings: Settings) -> CommandOutput:
    """List each owner and group with a quota, what is used of it, and what is left.

    A quota is a number, none, or default if that of the settings holds, which has no limit.
    """
    defaults = read_default_quotas(settings)
    with closing(open_catalog(settings)) as catalog:
        rows = _list_quota_rows(catalog, defaults or DefaultQuotas(Limits(), Limits()))
    return CommandOutput(_make_quota_table(rows), "" if defaults else NOT_ENFORCED)


def _list_quota_rows(catalog: Catalog, defaults: DefaultQuotas) -> list[QuotaUsage]:
    """Return all groups and users with a limit or a quota of their own."""
    kinds: tuple[OwnerKind, ...] = ("group", "user")
    return [one for kind in kinds for one in list_usage(catalog, defaults, kind=kind)]


def _make_quota_table(rows: list[QuotaUsage], *, hidden_if_empty: bool = False) -> OutputTable:
    """Return a table of quotas; what is left is empty where there is no limit."""
    cells = [
        (
            one.kind,
            one.name,
            *(_describe_limit(one, "bytes"), one.used.bytes, compute_left(one).bytes),
            *(_describe_limit(one, "files"), one.used.files, compute_left(one).files),
        )
        for one in rows
    ]
    columns = [
        f"{unit} {what}".strip()
        for unit in ("bytes", "files")
        for what in ("quota", "used", "left")
    ]
    return OutputTable("Quotas", ("kind", "name", *columns), cells, hidden_if_empty)


def _describe_limit(usage: QuotaUsage, unit: str) -> int | str:
    limit = getattr(usage.limits, unit)
    if limit is not None:
        return int(limit)
    return "none" if getattr(usage.quota, unit, None) == NO_LIMIT else "default"


@quota_commands.command(name="set")
@click.argument("name")
@_GROUP_OPTION
@click.option(
    "--bytes",
    "size",
    type=QuotaAmount(_UNITS),
    help="Bytes, such as 500GB or 2TiB; none: no limit; default: that of the settings.",
)
@click.option("--files", type=QuotaAmount({"": 1}), help="Number of files; none; default.")
@click.pass_obj
@prints_output
def set_quota(
    settings: Settings, name: str, is_group: bool, size: int | None, files: int | None
) -> CommandOutput:
    """Set the quota of an owner or group; what is not given stays.

    What is stored already stays, even if it is more. The change is in the audit log.
    """
    if size is None and files is None:
        raise click.UsageError("Give --bytes, --files, or both.")
    kind, name = _parse_owner(name, is_group)
    with closing(open_catalog(settings)) as catalog, catalog.write() as tx:
        if is_group:
            require_account(tx, AccountKey("group", name))
        former = quotas.find_quota(tx, kind, name) or Quota(kind, name, None, None)
        quota = Quota(
            kind, name, _choose_limit(size, former.bytes), _choose_limit(files, former.files)
        )
        _record_change(tx, "set_quota", kind, name, quota)
        quotas.set_quota(tx, quota)
        if is_group:
            quotas.count_groups(tx, [name])
    warning = "" if read_default_quotas(settings) else f" {NOT_ENFORCED}"
    value = {"kind": kind, "name": name, **_describe(quota)}
    return CommandOutput(value, f"The quota of {kind} {name} is set.{warning}")


@quota_commands.command()
@click.argument("name")
@_GROUP_OPTION
@click.pass_obj
@prints_output
def remove(settings: Settings, name: str, is_group: bool) -> CommandOutput:
    """Remove the quota of an owner or group: that of the settings holds again."""
    kind, name = _parse_owner(name, is_group)
    with closing(open_catalog(settings)) as catalog, catalog.write() as tx:
        is_set = _record_change(tx, "remove_quota", kind, name, None)
        quotas.remove_quota(tx, kind, name)
    text = f"The quota of {kind} {name} is removed." if is_set else f"{name} has no quota."
    return CommandOutput({"removed": is_set}, text)


@quota_commands.command()
@click.pass_obj
@prints_output
def count(settings: Settings) -> CommandOutput:
    """Recount what owners and groups use, after quotas were switched on or a rebuild.

    The scheduler does so once a day.
    """
    defaults = read_default_quotas(settings)
    if defaults is None:
        raise click.ClickException(NOT_ENFORCED)
    with closing(open_catalog(settings)) as catalog:
        corrected = count_usage(catalog, defaults)
    return CommandOutput({"corrected": corrected}, f"corrected the counters of {corrected} owners")


def _parse_owner(name: str, is_group: bool) -> tuple[OwnerKind, str]:
    """Return the kind and the normalized name of an owner or group."""
    name = name.strip()
    if is_group:
        if not is_account_id(name):
            raise click.BadParameter(
                f"must be the name of a group (got {name!r})", param_hint="NAME"
            )
        return "group", name
    try:
        return "user", parse_user_email(name)
    except Invalid as error:
        raise click.BadParameter(error.detail, param_hint="NAME") from error


def _choose_limit(given: int | None, former: int | None) -> int | None:
    if given is None:
        return former
    return None if given == DEFAULT_LIMIT else given


def _record_change(tx: Tx, what: str, kind: OwnerKind, name: str, quota: Quota | None) -> bool:
    """Record a change in the audit log; return whether there was a quota before."""
    former = quotas.find_quota(tx, kind, name)
    if former is None and quota is None:
        return False
    before, after = (
        None if one is None else json.dumps({"quota": _describe(one)}) for one in (former, quota)
    )
    audit.append(tx, AuditChange(OPERATOR, what, f"{kind}/{name}", before, after, ""))
    return former is not None


def _describe(quota: Quota) -> dict[str, int | str]:
    words = {None: "default", NO_LIMIT: "none"}
    return {
        "bytes": words.get(quota.bytes, quota.bytes or 0),
        "files": words.get(quota.files, quota.files or 0),
    }


@click.command(name="usage")
@click.option("--group", type=PrintableText(), help="Only the users of this group.")
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
        quotas = [] if defaults is None else _list_quota_rows(catalog, defaults)
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
                [
                    (owner, *(getattr(usage, name) for name in USAGE_COLUMNS))
                    for owner, usage in ordered
                ],
            ),
            "lacking": OutputTable(
                "Not complete in a replica",
                ("owner", "replica", "files", "bytes", "bundles"),
                lacking,
                hidden_if_empty=True,
            ),
            "quotas": _make_quota_table(
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


def _list_members(catalog: Catalog, group: str) -> set[str]:
    """Return the users of a group; NotFoundError if no group has that name."""
    name, members, after = AccountKey("group", group), set[str](), ""
    with catalog.read() as tx:
        require_account(tx, name)
        while page := accounts.list_members(tx, name, "user", after=after, limit=MEMBERS_PER_PAGE):
            members.update(page)
            after = page[-1]
    return members
