"""The commands `store bundle list|show|files|versions|diff|delete`."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from store_client.cli.context import CommandContext, command, is_interactive
from store_client.cli.nouns import (
    id_argument,
    ids_argument,
    limit_option,
    page_query,
    replica_option,
    web_option,
    yes_option,
)
from store_client.cli.terminal import escape_text
from store_client.errors import AnswerObject, Misused
from store_client.progress import format_size
from store_client.references import Reference

LIST_EXAMPLES = """\b
Examples:
  store bundle list --limit 20
  store bundle list --prefix 17ce
  store bundle list --format csv > bundles.csv
"""
SHOW_EXAMPLES = """\b
Examples:
  store bundle show 17ce8db8-6b1c-4e6a-9a53-0d3a63c3b3f5
  store bundle show https://store.example/bundles/17ce8db8-6b1c-4e6a-9a53-0d3a63c3b3f5
  store bundle list --prefix 17ce | store bundle show - --json uuid,size
"""
DIFF_EXAMPLES = """\b
Examples:
  store bundle diff UUID                       the latest version with the one before
  store bundle diff UUID.VERSION UUID.VERSION
  store bundle diff UUID --patch               the lines of metadata that differ, too
"""
SHOWN_NAMES = 5
"""Names of metadata files that a terminal shows."""
BIGGEST_PATCH = 4_000_000
"""Bytes of a metadata file that --patch compares line by line."""


@command("list", help="List bundles, one row a version.", epilog=LIST_EXAMPLES, as_answer=True)
@replica_option
@click.option("--prefix", help="Only uuids that begin so.")
@limit_option
def list_(here: CommandContext, replica: str | None, prefix: str | None, limit: int | None) -> None:
    found = here.client.items(
        "get_bundles_all", replica=here.replica(replica), prefix=prefix or None
    )
    here.show_rows(found, ("uuid", "version"), empty="There are no such bundles.", limit=limit)


@command(
    "show", help="Show a bundle: versions, size and files.", epilog=SHOW_EXAMPLES, as_answer=True
)
@ids_argument("bundle")
@replica_option
@web_option
def show(here: CommandContext, ids: tuple[Reference, ...], replica: str | None, web: bool) -> None:
    table = here.answer.chosen == "table"
    for place, one in enumerate(ids):
        chosen = here.replica(replica or one.replica)
        if web:
            here.open_page(f"/bundles/{one.uuid}{page_query(one, chosen)}")
            continue
        bundle = fetch_bundle(here, one, chosen)
        files = bundle["files"]
        exact = Reference(one.uuid, bundle["version"])
        if place and table:
            click.echo()
        size = sum(entry["size"] for entry in files)
        metadata = [entry["name"] for entry in files if entry["indexed"]]
        here.show_record(
            {
                "uuid": bundle["uuid"],
                "version": bundle["version"],
                "creator_uid": bundle["creator_uid"],
                "count": len(files),
                "size": format_size(size) if table else size,
                "metadata": shorten_list(metadata) if table else metadata,
                "page": here.page_url(f"/bundles/{one.uuid}{page_query(exact, chosen)}"),
                "files": files,
            },
            hidden=("files",),
        )


@command(
    "files",
    help="List the files of bundles.",
    as_answer=True,
    example="store bundle files UUID --format csv",
)
@ids_argument("bundle")
@replica_option
@limit_option
def files(
    here: CommandContext, ids: tuple[Reference, ...], replica: str | None, limit: int | None
) -> None:
    """List names, sizes, types, ids and checksums; of several bundles with `bundle`."""
    columns = ("name", "size", "content-type", "indexed", "uuid", "version", "sha256")
    several = len(ids) > 1

    def list_files() -> Iterator[Mapping[str, Any]]:
        for one in ids:
            bundle = fetch_bundle(here, one, here.replica(replica or one.replica))
            label = {"bundle": f"{bundle['uuid']}.{bundle['version']}"} if several else {}
            yield from ({**label, **entry} for entry in bundle["files"])

    shown = ("bundle", *columns) if several else columns
    here.show_rows(list_files(), shown, empty="The bundle has no files.", limit=limit)


@command(
    "versions",
    help="List the versions of a bundle, the newest first.",
    as_answer=True,
    example="store bundle versions UUID",
)
@id_argument("bundle")
@replica_option
@limit_option
def versions(
    here: CommandContext, named: Reference, replica: str | None, limit: int | None
) -> None:
    """List the versions that were not deleted."""
    chosen = here.replica(replica or named.replica)
    found = [{"uuid": named.uuid, "version": one} for one in list_versions(here, named, chosen)]
    if not found:
        fetch_bundle(here, Reference(named.uuid), chosen)  # says why there is none
    here.show_rows(found, ("uuid", "version"), limit=limit)


@command("diff", help="Compare two versions, or two bundles.", epilog=DIFF_EXAMPLES, as_answer=True)
@id_argument("bundle")
@id_argument("bundle", "other", required=False)
@replica_option
@click.option("--patch", is_flag=True, help="Show the lines of metadata files that differ.")
@web_option
def diff(
    here: CommandContext,
    named: Reference,
    other: Reference | None,
    replica: str | None,
    patch: bool,
    web: bool,
) -> None:
    """Compare by file names and checksums; exit code 0 also if they differ."""
    chosen = here.replica(replica or named.replica)
    before, after = _both_sides(here, named, other, chosen)
    if web:
        if before.uuid != after.uuid:
            raise Misused("the page compares versions of one bundle")
        here.open_page(
            f"/bundles/{after.uuid}/diff?from={before.version}&to={after.version}&replica={chosen}"
        )
        return
    old = {entry["name"]: entry for entry in fetch_bundle(here, before, chosen)["files"]}
    new = {entry["name"]: entry for entry in fetch_bundle(here, after, chosen)["files"]}
    changes = list(_compare(old, new))
    here.show_rows(
        changes,
        ("change", "name", "size_before", "size"),
        title=f"{before} → {after}" if here.answer.chosen == "table" else "",
        empty=f"{before} and {after} have the same files.",
    )
    if patch:
        for change in changes:
            _print_patch(here, old.get(change["name"]), new.get(change["name"]), chosen)


@command(
    "delete",
    help="Delete a bundle, or one version of it.",
    as_answer=True,
    example="store bundle delete UUID.VERSION --reason 'the wrong sample'",
)
@ids_argument("bundle")
@replica_option
@click.option(
    "--reason", help="Why; it is kept with the record of the deletion. Asked for on a terminal."
)
@yes_option
def delete(
    here: CommandContext,
    ids: tuple[Reference, ...],
    replica: str | None,
    reason: str | None,
    yes: bool,
) -> None:
    if not reason and not is_interactive():
        raise Misused("a deletion needs a reason", hint="--reason 'the wrong sample'")
    reason = reason or click.prompt("Why is it deleted?", err=True)
    what = ", ".join(_describe_deletion(one) for one in ids)
    chosen = here.replica(replica or ids[0].replica)
    here.confirm(
        f"This deletes {what} in all replicas: it can no longer be read, found or downloaded, "
        "and subscribers are notified. It cannot be undone; a deposit of the same files makes "
        "another bundle.",
        sure=yes,
    )
    for one in ids:
        here.client.call(
            "delete_bundle",
            uuid=one.uuid,
            version=one.version or None,
            replica=chosen,
            reason=reason,
        )
        here.note(f"Deleted {one}.")


def shorten_list(names: Sequence[str]) -> str:
    """The first names, and how many there are."""
    shown = ", ".join(names[:SHOWN_NAMES])
    return shown if len(names) <= SHOWN_NAMES else f"{shown}, … ({len(names)} in all)"


def _describe_deletion(one: Reference) -> str:
    return (
        f"version {one.version} of bundle {one.uuid}"
        if one.version
        else (f"bundle {one.uuid} with all its versions")
    )


def fetch_bundle(here: CommandContext, one: Reference, replica: str) -> dict[str, Any]:
    """The bundle with all its files."""
    bundle: dict[str, Any] = {}
    for page in here.client.pages(
        "get_bundle", uuid=one.uuid, version=one.version or None, replica=replica
    ):
        entries = bundle.get("files", [])
        bundle = AnswerObject(page["bundle"], files=[*entries, *page["bundle"]["files"]])
    return bundle


def list_versions(here: CommandContext, one: Reference, replica: str) -> list[str]:
    """The versions of a bundle, the newest first."""
    rows = here.client.items("get_bundles_all", replica=replica, prefix=one.uuid)
    return sorted((row["version"] for row in rows), reverse=True)


def _both_sides(
    here: CommandContext, named: Reference, other: Reference | None, replica: str
) -> tuple[Reference, Reference]:
    """The older and the newer side; one id stands for it and the version before."""
    if other is not None:
        return named, other
    known = list_versions(here, named, replica)
    after = named.version or (known[0] if known else "")
    earlier = [one for one in known if one < after]
    if not earlier:
        fetch_bundle(here, named, replica)  # says if there is no such bundle
        raise Misused(f"{named} has no earlier version", hint="name two: store bundle diff A B")
    return Reference(named.uuid, earlier[0]), Reference(named.uuid, after)


def _compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before and after and before["sha256"] == after["sha256"]:
            continue
        yield {
            "change": "changed" if before and after else "added" if after else "removed",
            "name": name,
            "size_before": before["size"] if before else None,
            "size": after["size"] if after else None,
            "sha256_before": before["sha256"] if before else None,
            "sha256": after["sha256"] if after else None,
        }


def _print_patch(
    here: CommandContext,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    replica: str,
) -> None:
    """Print the lines of a changed metadata file, JSON in one layout, as a unified diff."""
    if not (before and after and after["indexed"]):
        return
    if max(before["size"], after["size"]) > BIGGEST_PATCH:
        here.note(f"{after['name']} is too large to be compared line by line.")
        return
    lines = difflib.unified_diff(
        _read_lines(here, before, replica),
        _read_lines(here, after, replica),
        f"{before['name']} {before['version']}",
        f"{after['name']} {after['version']}",
        lineterm="",
    )
    for line in lines:
        click.echo(escape_text(line))


def _read_lines(here: CommandContext, entry: Mapping[str, Any], replica: str) -> list[str]:
    found = here.client.call(
        "get_file", uuid=entry["uuid"], version=entry["version"], replica=replica
    )
    with here.client.session.stream("GET", found["location"], authorize=False) as content:
        text = content.read().decode("utf-8", "backslashreplace")
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False).splitlines()
    except (ValueError, RecursionError):
        return text.splitlines()
