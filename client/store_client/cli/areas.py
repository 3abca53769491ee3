"""Commands for upload areas: select, areas, forget, creds, files, list, status, report."""

import csv
import importlib
import io
import shlex
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from store_client.areas import JOBS, selection
from store_client.atomic_files import replace_atomically
from store_client.cli import answers
from store_client.cli.context import CommandContext, command
from store_client.cli.nouns import yes_option
from store_client.cli.progress import open_progress
from store_client.cli.terminal import escape_line
from store_client.content_types import guess_content_type
from store_client.errors import Misused, NotFound, StoreError, name_os_errors
from store_client.identifiers import create_version
from store_client.progress import format_count, format_size
from store_client.transfer import api

if TYPE_CHECKING:
    from store_client.areas.upload import AreaFileResult

COLUMNS = ("name", "size", "content_type", "status", "validation", "cause")
SUMS = ("sha1", "sha256", "crc32c", "s3_etag")
REPORT_COLUMNS = (*COLUMNS, *SUMS, "url")


def report_row(found: Mapping[str, Any]) -> dict[str, Any]:
    """A listed file as a row of the report; unknown cells are empty."""
    sums = found.get("checksums") or {}
    row = {name: (sums if name in SUMS else found).get(name) for name in REPORT_COLUMNS}
    return {name: "" if value is None else value for name, value in row.items()}


def write_report(path: Path, files: Iterable[Mapping[str, Any]]) -> int:
    """Write the report atomically; the number of files.

    Separated by commas if the name ends with .csv, else by tabs.
    """
    text = io.StringIO()
    separator = "," if path.name.lower().endswith(".csv") else "\t"
    table = csv.DictWriter(text, REPORT_COLUMNS, delimiter=separator, lineterminator="\n")
    table.writeheader()
    count = 0
    for found in files:
        table.writerow(report_row(found))
        count += 1
    with name_os_errors(f"write {path}", Misused):
        replace_atomically(path, lambda temporary: temporary.write_bytes(text.getvalue().encode()))
    return count


AT_ONCE = 8
AREA_HELP = "Give an area's URI, uuid, or a unique prefix of its uuid."

SELECT_EPILOG = """\b
Examples:
  store area select --new                                 open an area, and select it
  store area select https://store.example/v1/area/UUID/   one that you were given
  store area select 3fa9                                  one that `store area list` lists
"""


@command(
    "select",
    help=f"Set the current upload area; --new opens one.  {AREA_HELP}",
    epilog=SELECT_EPILOG,
)
@click.argument("uri_or_alias", required=False)
@click.option("--new", is_flag=True, help="Open an area, with the given uuid if there is one.")
def select(here: CommandContext, uri_or_alias: str | None, new: bool) -> None:
    here.check_fields(("uuid", "uri", "alias", "state"))
    if new:
        found = selection.find_area(here.config, uri_or_alias or str(uuid.uuid4()))
        uri = api.open_area(here.client, found.uuid)
    elif uri_or_alias:
        found = selection.find_area(here.config, uri_or_alias)
        api.area_state(here.client, found.uuid)
        uri = found.uri or _fetch_uri(here, found.uuid)
    else:
        raise Misused("no area is named", hint=selection.SELECT_HINT)
    selection.select_area(here.config, found.uuid, uri=uri, now=create_version())
    state = api.area_state(here.client, found.uuid)
    alias = selection.selected_area(here.config).alias
    if state != api.UNLOCKED:
        here.note(f"The area is {state}: you cannot upload files to it now.")
    here.show({"uuid": found.uuid, "uri": uri, "alias": alias, "state": state})


def _fetch_uri(here: CommandContext, found: str) -> str:
    page = next(api.area_pages(here.client, found, per_page=1))
    return str(page["uri"])


@command(
    "areas",
    help="List the upload areas of this store that this client knows, and which is selected.",
    example="store area list",
)
def areas(here: CommandContext) -> None:
    known = selection.list_known(here.config)
    if not known:
        here.note(f"No known areas. {selection.SELECT_HINT}.")
        if here.output == "table":
            return
    with ThreadPoolExecutor(AT_ONCE) as pool:
        states = list(pool.map(lambda area: _fetch_state(here, area.uuid), known))
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


def _fetch_state(here: CommandContext, found: str) -> str:
    """The state of an area; "?" if it cannot be fetched."""
    try:
        return api.area_state(here.client, found)
    except NotFound:
        return "gone"
    except StoreError as error:
        here.note(f"{found}: {escape_line(str(error))}")
        return "?"


@command(
    "forget",
    help=f"Forget an upload area; the store keeps it and its files. {AREA_HELP}",
    example="store area forget 3fa9",
)
@click.argument("uuid_or_alias")
def forget(here: CommandContext, uuid_or_alias: str) -> None:
    found = selection.find_area(here.config, uuid_or_alias)
    selection.forget_area(here.config, found.uuid)
    here.note(f"Area {found.uuid} was forgotten; its files stay in the store.")
    if found.selected:
        here.note("No area is selected now.")


@command(
    "delete",
    help=f"Delete an upload area and its files. {AREA_HELP}",
    example="store area delete 3fa9",
)
@click.argument("uuid_or_alias")
@yes_option
def delete(here: CommandContext, uuid_or_alias: str, yes: bool) -> None:
    """Delete an area in the store, and forget it here."""
    found = selection.find_area(here.config, uuid_or_alias)
    here.confirm(
        f"This deletes the area {found.uuid} with all its files. It cannot be undone; files that "
        "the store has taken into bundles stay.",
        sure=yes,
    )
    here.client.call("delete_area", uuid=found.uuid)
    selection.forget_area(here.config, found.uuid)
    here.note(f"Deleted area {found.uuid}.")


CREDS_EPILOG = """\b
Examples:
  env $(store area creds 3fa9) sh -c 'aws s3 cp reads.bam $STORE_AREA_URI'   where there is S3
  store area creds 3fa9 --json
  store area creds 3fa9 reads.bam                    a URL to PUT that file to
Register files that you uploaded with them: store api post-area-file
"""


@command(
    "creds",
    help="Print temporary credentials for one upload area, as lines for a "
    f"shell. If the store issues URLs instead, name the files. {AREA_HELP}",
    epilog=CREDS_EPILOG,
)
@click.argument("uuid_or_alias")
@click.argument("filenames", nargs=-1)
def creds(here: CommandContext, uuid_or_alias: str, filenames: tuple[str, ...]) -> None:
    """Print temporary credentials; they are stored nowhere."""
    found = selection.find_area(here.config, uuid_or_alias)
    said = api.get_credentials(here.client, found.uuid, filenames)
    if here.format_chosen:
        here.show(said)
        return
    for text in _shell_lines(said):
        click.echo(text)
    here.note(f"Valid until {said['expires']}.")
    if said["kind"] == "urls" and not filenames:
        here.note("This store issues a URL for each file: store area creds AREA FILENAME...")


def _shell_lines(said: Mapping[str, Any]) -> Iterator[str]:
    """Credentials as lines for a shell."""
    if said["kind"] == "urls":
        yield from (
            f"{escape_line(name)}\t{escape_line(url)}" for name, url in said["urls"].items()
        )
        return
    values = _FOR_S3 if said["kind"] == "s3" else _FOR_GOOGLE
    for name, member in values.items():
        if said.get(member):
            yield f"{name}={shlex.quote(escape_line(str(said[member])))}"
    scheme = "s3" if said["kind"] == "s3" else "gs"
    uri = f"{scheme}://{said['bucket']}/{said['prefix']}"
    yield f"STORE_AREA_URI={shlex.quote(escape_line(uri))}"


_FOR_S3 = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
    "AWS_DEFAULT_REGION": "region",
    "AWS_ENDPOINT_URL_S3": "endpoint",
}
_FOR_GOOGLE = {"CLOUDSDK_AUTH_ACCESS_TOKEN": "access_token"}


MAX_JOBS = 64
UUID = click.option(
    "--uuid",
    "area",
    metavar="AREA",
    help="Use this area (uuid, alias or URI) instead of the selected one.",
)


class FilesNotSent(StoreError):
    """Some files were not uploaded; the exit code is that of the first error."""

    def __init__(self, failed: "list[AreaFileResult]", count: int) -> None:
        first = failed[0]
        error = first.error or StoreError("not sent")
        text = f"{len(failed)} of {count} files were not uploaded; {first.outgoing.name}: {error}"
        super().__init__(text, hint=error.hint or "run the same command again with --sync")
        self.exit_code = error.exit_code


FILES_EPILOG = """\b
Example:
  store area upload reads/ notes.json

\b
Names in the area:
  store area upload reads.bam            reads.bam
  store area upload run7                 those below run7, as a/b.txt for run7/a/b.txt
  store area upload x.txt -t y.txt       y.txt
Two files that would get the same name are refused. Files from 64 MB on go in parts; interrupted,
the same command resumes them. A file of the same name in the area is replaced.
"""


@command(
    "files",
    help="Upload files, and all files of directories, to the selected upload area.",
    epilog=FILES_EPILOG,
)
@click.argument("upload_path", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-t", "--target-filename", metavar="NAME", help="Name of a single file in the area.")
@click.option(
    "--file-extension", metavar="EXT", help="Upload only files of directories with this extension."
)
@click.option(
    "--no-transfer-acceleration",
    is_flag=True,
    help="Do not use S3 Transfer Acceleration for large files.",
)
@click.option(
    "-s", "--sync", is_flag=True, help="Skip files that the area has with the same content."
)
@click.option(
    "--jobs",
    type=click.IntRange(1, MAX_JOBS),
    default=JOBS,
    show_default=True,
    help="Files uploaded at once.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing.")
@UUID
def files(
    here: CommandContext, upload_path: tuple[Path, ...], area: str | None, **given: Any
) -> None:
    here.check_fields(RESULT_FIELDS)
    found = selection.choose_area(here.config, area)
    sending: Any = importlib.import_module("store_client.areas.upload")
    engine: Any = importlib.import_module("store_client.transfer.engine")
    planned = sending.plan_area_files(
        upload_path,
        kind_of=guess_content_type,
        target=given["target_filename"],
        extension=given["file_extension"],
    )
    done: list[AreaFileResult] = []
    how = {name: given[name] for name in ("sync", "dry_run", "jobs")}
    accelerate = not given["no_transfer_acceleration"]
    try:
        with (
            open_progress(enabled=not (here.quiet or given["dry_run"]), what="files") as progress,
            engine.open_transfer(sending.PART_JOBS, progress) as context,
        ):
            upload = sending.AreaTransfer(here.client, found.uuid, context, accelerate)
            # On Ctrl-C the loop is left, which stops the files that are being sent.
            done.extend(sending.send_files(upload, planned, **how))
    except KeyboardInterrupt:
        sent = sum(one.state == "sent" for one in done)
        here.note(
            f"\nStopped: {sent} of {format_count(len(planned), 'file')} were sent. "
            "Run the same command with --sync to resume:"
        )
        here.note(f"  {_resuming_line(here.run.words, given['sync'])}")
        raise
    _show_results(here, done, count=len(planned))


def _resuming_line(words: tuple[str, ...], sync: bool) -> str:
    """The command line that skips what was sent."""
    more = () if sync else ("--sync",)
    place = words.index("--") if "--" in words else len(words)
    return shlex.join(["store", *words[:place], *more, *words[place:]])


def _show_results(here: CommandContext, done: "list[AreaFileResult]", *, count: int) -> None:
    ordered = sorted(done, key=lambda one: one.outgoing.name)
    # --quiet leaves only errors, unless an output format is given.
    if here.format_chosen or not here.quiet:
        rows = [_result_row(one) for one in ordered]
        if here.answer.fields:
            rows = [{**dict.fromkeys(RESULT_FIELDS), **row} for row in rows]
        here.show(rows)
    failed = [one for one in done if one.error]
    for one in failed[1:]:
        here.note(f"{escape_line(one.outgoing.name)}: {escape_line(str(one.error))}")
    arrived = [one for one in done if one.state == "sent"]
    there = sum(one.state == "unchanged" for one in done)
    planned = sum(one.state == "to send" for one in done)
    volume = format_size(sum(one.outgoing.size for one in arrived))
    said = f"{planned} to send" if planned else f"{len(arrived)} sent ({volume})"
    here.note(f"{said}, {there} unchanged, {len(failed)} failed.")
    if failed:
        raise FilesNotSent(failed, count)


def _result_row(one: "AreaFileResult") -> dict[str, Any]:
    row = {"name": one.outgoing.name, "size": one.outgoing.size, "state": one.state}
    if one.sent:
        row |= {"url": one.sent.url, "sha256": one.sent.checksums.sha256}
    return row


RESULT_FIELDS = ("name", "size", "state", "url", "sha256")


@command(
    "list", help="List the files of the selected upload area.", example="store area files --long"
)
@click.option("-l", "--long", is_flag=True, help="Show size, content type, checksums and status.")
@click.option("--no-paginate", is_flag=True, help="Show the first page only.")
@UUID
def list_(here: CommandContext, long: bool, no_paginate: bool, area: str | None) -> None:
    found = selection.choose_area(here.config, area)
    listed = _iterate_entries(here, found.uuid, first=no_paginate)
    shown = listed if long or here.answer.fields else (entry["name"] for entry in listed)
    if here.answer.fields:
        here.show(shown)
    elif here.output == "lines":
        answers.write_lines(shown)
    elif here.output == "table":
        _show_table(here, shown, long=long)
    else:
        here.show(list(shown))


def _iterate_entries(
    here: CommandContext, area: str, *, first: bool
) -> Iterator[Mapping[str, Any]]:
    for page in api.area_pages(here.client, area):
        yield from page["files"]
        if first:
            return


def _show_table(here: CommandContext, shown: Iterator[Any], *, long: bool) -> None:
    if not long:
        for name in shown:
            click.echo(escape_line(name))
        return
    rows = [report_row(entry) for entry in shown]
    wanted = ("name", "size", "content_type", "status", "validation", "crc32c", "sha256")
    here.show([{name: row[name] for name in wanted} for row in rows])


@command(
    "status",
    help="Show the verification status of a file in the selected upload area.",
    example="store area status reads.fastq.gz",
)
@click.argument("filename")
@UUID
def status(here: CommandContext, filename: str, area: str | None) -> None:
    found = selection.choose_area(here.config, area)
    summed = api.get_file_state(here.client, found.uuid, filename)
    valid = api.get_file_state(here.client, found.uuid, filename, of="validate")
    here.show(
        {
            "name": filename,
            "checksum": summed["status"],
            "validation": valid["status"],
            "cause": summed.get("cause") or valid.get("cause") or "",
            "checksums": summed.get("checksums"),
        }
    )


@command(
    "report",
    help="Write a table of all files of the selected upload area, with their states, to a file.",
    example="store area report --output-file-name area.tsv",
)
@click.option(
    "--output-file-name",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file; with commas if it ends with .csv, else with tabs.  [default: AREA-UUID.tsv]",
)
@UUID
def report(here: CommandContext, output_file_name: Path | None, area: str | None) -> None:
    here.check_fields(("area", "file", "files"))
    found = selection.choose_area(here.config, area)
    path = output_file_name or Path(f"{found.uuid}.tsv")
    count = write_report(path, api.list_area_files(here.client, found.uuid))
    here.note(f"{path} lists {format_count(count, 'file')}.")
    here.show({"area": found.uuid, "file": str(path), "files": count})
