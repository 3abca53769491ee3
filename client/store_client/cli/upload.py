"""The command upload."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from store_client.cli.bulk import describe_kept, upload_many
from store_client.cli.context import CommandContext, command
from store_client.cli.nouns import page_query, replica_option, table_options
from store_client.cli.progress import open_progress
from store_client.cli.terminal import escape_line
from store_client.content_types import METADATA
from store_client.errors import Misused
from store_client.progress import format_count, format_size
from store_client.references import Reference
from store_client.uploads.options import JOBS, MAX_JOBS, TIMEOUT_SECONDS, UploadOptions

if TYPE_CHECKING:
    from store_client.uploads.plan import UploadReport

ANOTHER = (
    "This directory was uploaded before, as bundle {0}, and has changed since: this is another"
    " bundle. For a new version of that one: --bundle-uuid {0}"
)
ABOUT = """Upload a directory of files to the store as a bundle, or many bundles at once.

Names in the bundle are relative to the directory. Names that end with .json are metadata, unless
--indexed says otherwise. Links to files are followed, links to directories are not. An interrupted
run resumes when you give the same command again; nothing is sent if the store has the same content.
"""
MORE = """\b
Examples:
  store upload sample
  store upload sample --dry-run
  store upload sample --replica gcp --bundle-uuid UUID     (a new version of a bundle)
  store upload sample --staging-bucket s3://my-bucket/staging
  store upload study --each-folder            (each folder is a bundle)
  store upload --table runs.tsv --template run.json --report report.tsv
With --each-folder, each topmost folder that has files is a bundle, with all below it:
  study/m1/sample.json and study/m1/reads/1.txt     one bundle, m1
  study/m2/a/sample.json and study/m2/b/sample.json two bundles, m2/a and m2/b
A template says which files the bundle of a row has; {column} stands for a cell:
  {"bundle": "{run}", "files": {
     "run.json": {"run": "{run}", "organism": "{organism}", "megabases": "{mbases:number}"},
     "{run}.fastq.gz": "@reads/{run}.fastq.gz"}}
Without a template, a row is one file metadata.json, and columns `file` or `file:NAME` name files.
Without a staging bucket, files are staged in an upload area of the store. Buckets on S3 need
consortium-store-client[s3], those of Google consortium-store-client[gcs]; what was staged in a
bucket of your own stays there. At most 512 MiB of files are held in memory.
"""


@command("upload", help=ABOUT, epilog=MORE)
@click.argument(
    "directory", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option(
    "--src-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The directory, as without this option.",
)
@replica_option
@click.option(
    "--staging-bucket",
    default="",
    metavar="BUCKET",
    help="Your bucket, where files stay until they are verified: s3://bucket/prefix,"
    " gs://bucket/prefix, or a name in the replica's cloud. Default: an upload area.",
)
@click.option(
    "--timeout-seconds",
    type=click.FloatRange(min=0),
    default=TIMEOUT_SECONDS,
    show_default=True,
    help="How long to wait for the store's verification.",
)
@click.option("--no-progress", is_flag=True, help="Show no progress.")
@click.option(
    "--bundle-uuid", metavar="UUID", help="Add a version to this bundle. Default: a new bundle."
)
@click.option(
    "--creator-uid",
    type=int,
    default=0,
    show_default=True,
    help="The creator's number, stored with files and bundle.",
)
@click.option(
    "--indexed",
    multiple=True,
    metavar="PATTERN",
    default=METADATA,
    show_default=True,
    help="Names of metadata files, which search indexes; may be repeated.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, MAX_JOBS),
    default=JOBS,
    show_default=True,
    help="Files, and parts of large files, uploaded at once.",
)
@click.option("--each-folder", is_flag=True, help="Each folder becomes a bundle.")
@table_options
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a table of all bundles of --each-folder or --table.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing.")
@click.option(
    "--no-validate",
    "--allow-invalid-json",
    "allow_invalid_json",
    is_flag=True,
    help="Upload without validating the metadata before.",
)
def upload(
    here: CommandContext,
    directory: Path | None,
    src_dir: Path | None,
    replica: str | None,
    no_progress: bool,
    each_folder: bool,
    table: Path | None,
    template: Path | None,
    data_dir: Path | None,
    report: Path | None,
    **given: Any,
) -> None:
    """Upload a directory, and show the bundle."""
    many = each_folder or table is not None
    here.check_fields(BULK_FIELDS if many else FIELDS)
    _check_together(many, bool(given["bundle_uuid"]), report, table, template or data_dir)
    named = [one for one in (directory, src_dir, table) if one is not None]
    if len(named) != 1:
        raise Misused("name one directory, or one --table", hint="store upload DIRECTORY")
    chosen = here.replica(replica)
    source = table.parent if table else named[0]
    options = UploadOptions(src_dir=source, replica=chosen, **given)
    progress = open_progress(enabled=not (no_progress or here.quiet), what="upload")
    if many:
        upload_many(
            here, options, progress, table=table, template=template, folder=data_dir, report=report
        )
        return
    running: Any = importlib.import_module("store_client.uploads.job")
    try:
        with progress:
            done = running.upload(here.client, options, progress)
    except running.UploadInterrupted as stopped:
        here.note_how_to_resume(describe_kept(stopped))
        raise
    if done.earlier_uuid:
        here.note(ANOTHER.format(done.earlier_uuid))
    if here.output == "table" and not here.format_chosen and done.bundle_uuid and done.version:
        show_upload(here, done, chosen)
    else:
        here.show(done.as_json(), title=_result_title(done))


FIELDS = ("bundle_uuid", "version", "state", "sent", "bundle", "files")
BULK_FIELDS = ("label", "state", "files", "bytes", "uuid", "version", "error")


def _check_together(
    many: bool, new_version: bool, report: Path | None, table: Path | None, of_table: Path | None
) -> None:
    if many and new_version:
        raise Misused("--bundle-uuid is for one bundle, not for many")
    if report and not many:
        raise Misused("--report goes with --each-folder or --table")
    if of_table and table is None:
        raise Misused("--template and --data-dir go with --table")


def _result_title(done: "UploadReport") -> str:
    """The title of a table of files: bundle and state."""
    name = f"{done.bundle_uuid or 'a new one'} {done.version or ''}".strip()
    return f"bundle {name}: {done.state}"


def show_upload(here: CommandContext, done: Any, replica: str) -> None:
    """Show what an upload made, in three lines: bundle, files, page."""
    exact = Reference(done.bundle_uuid, done.version)
    size = sum(entry["size"] for entry in done.files)
    click.echo(escape_line(f"Bundle {exact}"))
    sent = f"{done.sent_files} sent ({format_size(done.sent_bytes)}), all verified by the store"
    if done.state == "unchanged":
        sent = "the store had all of it already"
    click.echo(f"{format_count(len(done.files), 'file')} ({format_size(size)}): {sent}.")
    page = here.page_url(f"/bundles/{exact.uuid}{page_query(exact, replica)}")
    click.echo(escape_line(page))
