"""The commands `store file show|cat|cp`."""

import importlib
from dataclasses import replace as with_changes
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import click

from store_client.cli.context import CommandContext, command
from store_client.cli.nouns import page_query, read_stdin, replica_option, web_option
from store_client.cli.operations import write_verified
from store_client.cli.progress import open_progress
from store_client.downloads.options import JOBS, MAX_JOBS, DownloadOptions
from store_client.errors import Misused, NotFound
from store_client.identifiers import quote_text
from store_client.progress import format_size
from store_client.references import Reference, parse_reference

if TYPE_CHECKING:
    from store_client.transfer.streams import RemoteFile

FILE_HELP = "A file is UUID[.VERSION], or BUNDLE/NAME: a name in a bundle."
CAT_EXAMPLES = """\b
Examples:
  store file cat 4f0c2f1e-9b57-4d0c-8f3a-0a6d8a6c2d11 | head
  store file cat 17ce8db8-6b1c-4e6a-9a53-0d3a63c3b3f5/sample.json
"""
CP_EXAMPLES = """\b
Examples:
  store file cp 17ce8db8-6b1c-4e6a-9a53-0d3a63c3b3f5/reads.fastq.gz .
  store file cp 4f0c2f1e-9b57-4d0c-8f3a-0a6d8a6c2d11 reads.fastq.gz
"""
PREFIX = "store://"


@command(
    "show",
    help=f"Show size, type and checksums of files. {FILE_HELP}",
    as_answer=True,
    example="store file show BUNDLE/sample.json",
)
@click.argument("named", nargs=-1, required=True, metavar="FILE...")
@replica_option
@web_option
def show(here: CommandContext, named: tuple[str, ...], replica: str | None, web: bool) -> None:
    for place, one in enumerate(_read_names(named)):
        found, chosen = _resolve(here, one, replica)
        if web:
            where = page_query(Reference(found.uuid, found.version), chosen)
            here.open_page(f"/files/{found.uuid}{where}")
            continue
        told = here.client.call("head_file", uuid=found.uuid, version=found.version, replica=chosen)
        headers = {name.lower(): value for name, value in told.items()}
        table = here.answer.chosen == "table"
        if place and table:
            click.echo()
        size = int(headers["x-store-size"])
        here.show_record(
            {
                "uuid": found.uuid,
                "version": headers["x-store-version"],
                "size": format_size(size) if table else size,
                "content_type": headers.get("x-store-content-type", ""),
                **{
                    name: headers.get(f"x-store-{name.replace('_', '-')}", "")
                    for name in ("sha256", "sha1", "s3_etag", "crc32c")
                },
                "page": here.page_url(
                    f"/files/{found.uuid}{page_query(Reference(found.uuid, found.version), chosen)}"
                ),
            }
        )


@command("cat", help=f"Print files to standard output. {FILE_HELP}", epilog=CAT_EXAMPLES)
@click.argument("named", nargs=-1, required=True, metavar="FILE...")
@replica_option
def cat(here: CommandContext, named: tuple[str, ...], replica: str | None) -> None:
    """Print each file; Damaged at its end if it is not intact."""
    for one in _read_names(named):
        found, chosen = _resolve(here, one, replica)
        url = found.url or _listing().renew_url(here.client, chosen, found)
        write_verified(here.client, url, found.sha256)


@command("cp", help=f"Copy a file to this machine. {FILE_HELP}", epilog=CP_EXAMPLES)
@click.argument("named", metavar="FILE")
@click.argument("target", type=click.Path(path_type=Path), default=".")
@replica_option
@click.option("--jobs", "-j", type=click.IntRange(1, MAX_JOBS), default=JOBS, help="Streams.")
@click.option("--no-progress", is_flag=True, help="Show no progress.")
def cp(
    here: CommandContext,
    named: str,
    target: Path,
    replica: str | None,
    jobs: int,
    no_progress: bool,
) -> None:
    """Copy by the cache, so that an interrupted copy resumes."""
    if str(target) == "-":
        raise Misused(
            "cp writes to a file or a directory", hint=f"to print it: store file cat {named}"
        )
    found, chosen = _resolve(here, named, replica)
    name = found.name.rpartition("/")[2]
    path = target / name if target.is_dir() else target
    if not path.absolute().parent.is_dir():
        raise Misused(f"there is no directory {path.parent}")
    with open_progress(enabled=not (no_progress or here.quiet), what="download") as bar:
        options = DownloadOptions(chosen, directory=path.parent, jobs=jobs, tell=bar)
        with importlib.import_module("store_client.downloads.job").open_job(
            here.client, options
        ) as running:
            running.run(running.file_tasks([with_changes(found, name=path.name)], path.parent))
    here.note(f"{path} has {format_size(found.size)}; its SHA-256 is right.")
    if not here.quiet:
        click.echo(path)


def _read_names(named: tuple[str, ...]) -> list[str]:
    """The names of files; `-` stands for the lines of standard input."""
    found: list[str] = []
    for one in named:
        if one == "-":
            found += map(str, read_stdin("file"))
        else:
            found.append(one)
    if not found:
        raise Misused("there is no file on standard input")
    return found


def _resolve(here: CommandContext, said: str, replica: str | None) -> tuple["RemoteFile", str]:
    """Find a file by its id, its page, or its name in a bundle; and the replica to read."""
    bundle, slash, name = said.removeprefix(f"{PREFIX}bundle/").partition("/")
    if slash and not bundle.endswith(":"):
        within = parse_reference(bundle, "bundle")
        chosen = here.replica(replica)
        wanted = unquote(name) if said.startswith(PREFIX) else name
        listed = _listing().list_bundle(here.client, chosen, within.uuid, version=within.version)
        for one in listed.files:
            if one.name == wanted:
                return one, chosen
        raise NotFound(
            f"bundle {listed.fqid} has no file {quote_text(wanted)}",
            hint=f"its files: store bundle files {within.uuid}",
        )
    wanted_file = parse_reference(said.removeprefix(f"{PREFIX}file/"), "file")
    chosen = here.replica(replica or wanted_file.replica)
    found = _listing().find_file(here.client, chosen, wanted_file.uuid, version=wanted_file.version)
    return found, chosen


def _listing() -> Any:
    """Imported late: help and completion do without it."""
    return importlib.import_module("store_client.downloads.listing")
