"""The commands about the files of an upload area: files, list, status, report."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from store_client.areas import asking, kept
from store_client.areas import report as reporting
from store_client.areas.bringing import JOBS, Brought, bring
from store_client.areas.planning import plan
from store_client.areas.sent import Sending
from store_client.cli import output, registry
from store_client.cli.frame import Here, command
from store_client.cli.plain import line
from store_client.cli.progress import progress
from store_client.errors import StoreError
from store_client.kinds import content_type
from store_client.telling import size

MAX_JOBS = 64
AGAIN = "interrupted: what has arrived is kept; the same command with --sync goes on"
UUID = click.option(
    "--uuid", "area", metavar="AREA", help="Another area than the selected one: uuid, alias, URI."
)


class NotAll(StoreError):
    """Some files did not arrive; the exit code is that of the first that did not."""

    def __init__(self, failed: list[Brought], count: int) -> None:
        first = failed[0]
        error = first.error or StoreError("it was not sent")
        text = f"{len(failed)} of {count} files did not arrive; {first.outgoing.name}: {error}"
        super().__init__(text, hint=error.hint or "run the same command again with --sync")
        self.exit_code = error.exit_code


BRINGING = """\b
Names in the area:
  store files reads.bam            reads.bam
  store files run7                 those below run7, as a/b.txt for run7/a/b.txt
  store files x.txt -t y.txt       y.txt
Two files that would get the same name are refused. Files from 64 MB on go in parts; interrupted,
the same command goes on where they were. A file of the same name in the area is replaced.
"""


@command(
    "files",
    help="Bring files, and all files of directories, into the selected upload area.",
    section=registry.AREAS,
    epilog=BRINGING,
)
@click.argument("upload_path", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-t", "--target-filename", metavar="NAME", help="What a single file is called.")
@click.option("--file-extension", metavar="EXT", help="Of directories, only the files that end so.")
@click.option(
    "--no-transfer-acceleration",
    is_flag=True,
    help="Send large files to a bucket of Amazon's by its usual address.",
)
@click.option("-s", "--sync", is_flag=True, help="Skip files that lie there with that content.")
@click.option(
    "--jobs",
    type=click.IntRange(1, MAX_JOBS),
    default=JOBS,
    show_default=True,
    help="Files on their way at once.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
@UUID
def files(here: Here, upload_path: tuple[Path, ...], area: str | None, **given: Any) -> None:
    """Show what became of each."""
    found = kept.chosen(here.config, area)
    planned = plan(
        upload_path,
        kind_of=content_type,
        target=given["target_filename"],
        extension=given["file_extension"],
    )
    done: list[Brought] = []
    how = {name: given[name] for name in ("sync", "dry_run", "jobs")}
    with progress(enabled=not (here.quiet or given["dry_run"]), what="files") as told:
        accelerate = not given["no_transfer_acceleration"]
        sending = Sending(here.client, found.uuid, tell=told, accelerate=accelerate)
        try:
            # On Ctrl-C the loop is left, and what it iterates ends those under way.
            done.extend(bring(sending, planned, **how))
        except KeyboardInterrupt:
            here.note(AGAIN)
            raise
    _tell(here, done, count=len(planned))


def _tell(here: Here, done: list[Brought], *, count: int) -> None:
    ordered = sorted(done, key=lambda one: one.outgoing.name)
    # Quiet here means no news but errors, unless a form of the result is asked for.
    if here.chosen or not here.quiet:
        here.show([_row(one) for one in ordered])
    failed = [one for one in done if one.error]
    for one in failed[1:]:
        here.note(f"{line(one.outgoing.name)}: {line(str(one.error))}")
    arrived = [one for one in done if one.state == "sent"]
    there = sum(one.state == "unchanged" for one in done)
    planned = sum(one.state == "to send" for one in done)
    volume = size(sum(one.outgoing.size for one in arrived))
    said = f"{planned} to send" if planned else f"{len(arrived)} sent ({volume})"
    here.note(f"{said}, {there} unchanged, {len(failed)} failed.")
    if failed:
        raise NotAll(failed, count)


def _row(one: Brought) -> dict[str, Any]:
    row = {"name": one.outgoing.name, "size": one.outgoing.size, "state": one.state}
    if one.sent:
        row |= {"url": one.sent.url, "sha256": one.sent.checksums.sha256}
    return row


@command("list", help="List the files of the selected upload area.", section=registry.AREAS)
@click.option("-l", "--long", is_flag=True, help="Show size, content type, checksums and status.")
@click.option("--no-paginate", is_flag=True, help="Show the first page only.")
@UUID
def list_(here: Here, long: bool, no_paginate: bool, area: str | None) -> None:
    """Their names alone, unless --long."""
    found = kept.chosen(here.config, area)
    listed = _listed(here, found.uuid, first=no_paginate)
    shown = listed if long else (entry["name"] for entry in listed)
    if here.output == "lines":
        output.lines(shown)
    elif here.output == "table":
        _table(here, shown, long=long)
    else:
        here.show(list(shown))


def _listed(here: Here, area: str, *, first: bool) -> Iterator[Mapping[str, Any]]:
    for page in asking.pages(here.client, area):
        yield from page["files"]
        if first:
            return


def _table(here: Here, shown: Iterator[Any], *, long: bool) -> None:
    if not long:
        for name in shown:
            click.echo(line(name))
        return
    rows = [reporting.row(entry) for entry in shown]
    wanted = ("name", "size", "content_type", "status", "validation", "crc32c", "sha256")
    here.show([{name: row[name] for name in wanted} for row in rows])


@command(
    "status",
    help="Tell how far the store is with the check of a file in the selected upload area.",
    section=registry.AREAS,
)
@click.argument("filename")
@UUID
def status(here: Here, filename: str, area: str | None) -> None:
    """Of its checksums and of its validation."""
    found = kept.chosen(here.config, area)
    here.show(asdict(reporting.status(here.client, found.uuid, filename)))


@command(
    "report",
    help="Write a table of all files of the selected upload area, with their states, to a file.",
    section=registry.AREAS,
)
@click.option(
    "--output-file-name",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file; with commas if it ends with .csv, else with tabs.  [default: AREA-UUID.tsv]",
)
@UUID
def report(here: Here, output_file_name: Path | None, area: str | None) -> None:
    """Replaced whole if it is there."""
    found = kept.chosen(here.config, area)
    path = output_file_name or Path(f"{found.uuid}.tsv")
    count = reporting.write(path, asking.files(here.client, found.uuid))
    here.note(f"{count} files are listed in {path}.")
    here.show({"area": found.uuid, "file": str(path), "files": count})
