"""The commands `store collection list|show|create|delete`."""

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from store_client.cli.answers import TERMINAL_ROWS
from store_client.cli.arguments import JsonValue
from store_client.cli.context import CommandContext, command
from store_client.cli.nouns import (
    id_argument,
    ids_argument,
    limit_option,
    page_query,
    replica_option,
    web_option,
    yes_option,
)
from store_client.errors import Misused, NotFound
from store_client.identifiers import create_version
from store_client.references import Reference, read_references

CREATE_EXAMPLES = """\b
Examples:
  store collection create --name "Kidney, first release" --bundles cohort.txt
  store search kidney | store collection create --name Kidney --bundles -
"""
AT_ONCE = 8
"""Collections whose names are asked for at once."""
MOST_LINKS = 1000
"""Of one request; further links are added by requests that follow."""


@command("list", help="List your collections.", as_answer=True, example="store collection list")
@replica_option
@limit_option
def list_(here: CommandContext, replica: str | None, limit: int | None) -> None:
    """List the caller's collections; on a terminal with their names, which are asked for."""
    found = here.client.items("get_collections")
    if here.answer.chosen == "table":
        chosen = here.replica(replica)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            listed = list(islice(found, (limit or TERMINAL_ROWS) + 1))
            found = iter(list(pool.map(lambda row: _add_name(here, row, chosen), listed)))
    columns = ("uuid", "version", "name", "links")
    here.show_rows(found, columns, empty="You have no collections.", limit=limit)


def _add_name(here: CommandContext, row: dict[str, Any], replica: str) -> dict[str, Any]:
    """The row with the collection's name; without where it has not come to the replica yet."""
    try:
        found = here.client.call("get_collection", replica=replica, **row)
    except NotFound:
        return row
    return {**row, "name": found["name"], "links": len(found["contents"])}


@command(
    "show",
    help="Show a collection and what it links to.",
    as_answer=True,
    example="store collection show UUID --json name,contents",
)
@id_argument("collection")
@replica_option
@web_option
def show(here: CommandContext, named: Reference, replica: str | None, web: bool) -> None:
    chosen = here.replica(replica or named.replica)
    path = f"/collections/{named.uuid}{page_query(named, chosen)}"
    if web:
        here.open_page(path)
        return
    found = here.client.call(
        "get_collection", uuid=named.uuid, version=named.version or None, replica=chosen
    )
    here.show_record(
        {**found, "count": len(found["contents"]), "page": here.page_url(path)},
        hidden=("contents", "details"),
    )


@command("create", help="Create a collection of bundles.", epilog=CREATE_EXAMPLES, as_answer=True)
@click.option("--name", required=True, help="A short name.")
@click.option("--description", default="", help="Markdown.")
@click.option("--details", type=JsonValue(), help="More metadata: JSON, @FILE or -.")
@click.option(
    "--bundles",
    type=click.Path(allow_dash=True, path_type=Path),
    help="A file with the id of a bundle in each line, or -.",
)
@click.option("--uuid", "given", help="Its uuid.  [default: a new one]")
@replica_option
def create(
    here: CommandContext,
    name: str,
    description: str,
    details: object,
    bundles: Path | None,
    given: str | None,
    replica: str | None,
) -> None:
    """Create it; ids without a version link to the latest version now."""
    here.check_fields_of("put_collection", "count", "page")
    chosen = here.replica(replica)
    links = [] if bundles is None else _read_links(here, bundles, chosen)
    version = create_version()
    body = {"name": name, "description": description, "details": details or {}}
    made = here.client.call(
        "put_collection",
        uuid=given or str(uuid4()),
        version=version,
        replica=chosen,
        contents=links[:MOST_LINKS],
        **body,
    )
    for start in range(MOST_LINKS, len(links), MOST_LINKS):
        made = here.client.call(
            "patch_collection",
            uuid=made["uuid"],
            version=made["version"],
            replica=chosen,
            add_contents=links[start : start + MOST_LINKS],
        )
    page = here.page_url(f"/collections/{made['uuid']}{page_query(Reference(''), chosen)}")
    here.show_record({**made, "count": len(links), "page": page})


@command(
    "delete",
    help="Delete collections of yours.",
    as_answer=True,
    example="store collection delete UUID",
)
@ids_argument("collection")
@replica_option
@yes_option
def delete(
    here: CommandContext, ids: tuple[Reference, ...], replica: str | None, yes: bool
) -> None:
    if any(one.version for one in ids):
        raise Misused("a collection is deleted with all its versions; leave the version away")
    chosen = here.replica(replica or ids[0].replica)
    named = ", ".join(map(str, ids))
    here.confirm(
        f"This deletes the collection {named} with all versions, in all replicas. What it links "
        "to stays. It cannot be undone.",
        sure=yes,
    )
    for one in ids:
        here.client.call("delete_collection", uuid=one.uuid, replica=chosen)
        here.note(f"Deleted {one}.")


def _read_links(here: CommandContext, path: Path, replica: str) -> list[dict[str, str]]:
    """Links to the bundles of a file, in its order, each once."""
    with click.open_file(str(path), encoding="utf-8-sig") as lines:
        found = dict.fromkeys(read_references(lines, "bundle"))
    if not found:
        raise Misused("--bundles: there is no bundle", hint="without --bundles it is created empty")
    return [
        {
            "type": "bundle",
            "uuid": one.uuid,
            "version": one.version or _latest_version(here, one.uuid, replica),
        }
        for one in found
    ]


def _latest_version(here: CommandContext, uuid: str, replica: str) -> str:
    page = here.client.call("get_bundle", uuid=uuid, replica=replica, per_page=10)
    return str(page["bundle"]["version"])
