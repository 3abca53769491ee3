"""The commands about upload areas themselves: select, areas, forget, creds.

Those about the files in them are in area_files.py.
"""

import shlex
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from store_client.areas import asking, kept
from store_client.cli import registry
from store_client.cli.frame import Here, command
from store_client.cli.plain import line
from store_client.errors import Misused, NotFound, StoreError
from store_client.versions import create_version

AT_ONCE = 8
WHICH = "An area is named by its URI, its uuid, or the beginning of its uuid if no other begins so."

SELECTING = """\b
Examples:
  store select --new                                        open an area, and select it
  store select https://store.example/v1/area/UUID/          one that you were given
  store select 3fa9                                         one that `store areas` lists
"""


@command(
    "select",
    help=f"Say which upload area is meant from now on; --new opens one. {WHICH}",
    section=registry.AREAS,
    epilog=SELECTING,
)
@click.argument("uri_or_alias", required=False)
@click.option("--new", is_flag=True, help="Open an area, of that uuid if one is given.")
def select(here: Here, uri_or_alias: str | None, new: bool) -> None:
    """Only one that is there."""
    if new:
        found = kept.find(here.config, uri_or_alias or str(uuid.uuid4()))
        uri = asking.open_area(here.client, found.uuid)
    elif uri_or_alias:
        found = kept.find(here.config, uri_or_alias)
        asking.state(here.client, found.uuid)
        uri = found.uri or _uri(here, found.uuid)
    else:
        raise Misused("which area?", hint="store select URI, or store select --new to open one")
    kept.select(here.config, found.uuid, uri=uri, now=create_version())
    state = asking.state(here.client, found.uuid)
    alias = kept.selected(here.config).alias
    if state != asking.UNLOCKED:
        here.note(f"The area is {state}: no files can be brought into it now.")
    here.show({"uuid": found.uuid, "uri": uri, "alias": alias, "state": state})


def _uri(here: Here, found: str) -> str:
    page = next(asking.pages(here.client, found, per_page=1))
    return str(page["uri"])


@command(
    "areas",
    help="List the upload areas of this store that this client knows, and which is selected.",
    section=registry.AREAS,
)
def areas(here: Here) -> None:
    """With the state of each in the store."""
    known = kept.known(here.config)
    if not known:
        here.note("No area is known: store select URI, or store select --new to open one.")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        states = list(pool.map(lambda area: _state(here, area.uuid), known))
    rows = [
        {
            "selected": area.selected,
            "alias": area.alias,
            "uuid": area.uuid,
            "state": state,
            "uri": area.uri,
            "added": area.added,
        }
        for area, state in zip(known, states, strict=True)
    ]
    if here.output == "table":
        rows = [{**row, "selected": "*" if row["selected"] else ""} for row in rows]
    here.show(rows)


def _state(here: Here, found: str) -> str:
    """Not knowing one is no reason not to list the others."""
    try:
        return asking.state(here.client, found)
    except NotFound:
        return "gone"
    except StoreError as error:
        here.note(f"{found}: {line(str(error))}")
        return "?"


@command(
    "forget",
    help=f"Forget an upload area: the store keeps it, and what lies in it. {WHICH}",
    section=registry.AREAS,
)
@click.argument("uuid_or_alias")
def forget(here: Here, uuid_or_alias: str) -> None:
    """On this machine alone."""
    found = kept.find(here.config, uuid_or_alias)
    kept.forget(here.config, found.uuid)
    here.note(f"Area {found.uuid} is forgotten here; nothing was removed from it.")
    if found.selected:
        here.note("None is selected now.")


CREDENTIALS = """\b
Examples:
  env $(store creds 3fa9) sh -c 'aws s3 cp reads.bam $STORE_AREA_URI'   where there is S3
  store creds 3fa9 --json
  store creds 3fa9 reads.bam                               a URL to PUT that file to
What was brought by them is told to the store with: store post-area-file
"""


@command(
    "creds",
    help="Print temporary credentials that are good in one upload area alone, as lines for a "
    f"shell. Where the store gives URLs instead, name the files. {WHICH}",
    section=registry.AREAS,
    epilog=CREDENTIALS,
)
@click.argument("uuid_or_alias")
@click.argument("filenames", nargs=-1)
def creds(here: Here, uuid_or_alias: str, filenames: tuple[str, ...]) -> None:
    """They are shown here, and nowhere else."""
    found = kept.find(here.config, uuid_or_alias)
    said = asking.credentials(here.client, found.uuid, filenames)
    if here.chosen:
        here.show(said)
        return
    for text in _lines(said):
        click.echo(text)
    here.note(f"Good until {said['expires']}.")
    if said["kind"] == "urls" and not filenames:
        here.note("This store signs a URL for each file: store creds AREA FILENAME...")


def _lines(said: Mapping[str, Any]) -> Iterator[str]:
    """As a shell takes them in."""
    if said["kind"] == "urls":
        yield from (f"{line(name)}\t{line(url)}" for name, url in said["urls"].items())
        return
    values = _FOR_S3 if said["kind"] == "s3" else _FOR_GOOGLE
    for name, member in values.items():
        if said.get(member):
            yield f"{name}={shlex.quote(line(str(said[member])))}"
    scheme = "s3" if said["kind"] == "s3" else "gs"
    uri = f"{scheme}://{said['bucket']}/{said['prefix']}"
    yield f"STORE_AREA_URI={shlex.quote(line(uri))}"


_FOR_S3 = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
    "AWS_DEFAULT_REGION": "region",
    "AWS_ENDPOINT_URL_S3": "endpoint",
}
_FOR_GOOGLE = {"CLOUDSDK_AUTH_ACCESS_TOKEN": "access_token"}
