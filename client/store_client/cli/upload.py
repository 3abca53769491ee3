"""The command upload: one bundle, or many with one report of them."""

import csv
import importlib
import io
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from store_client.atomic_files import write_atomically
from store_client.cli.context import CommandContext, command
from store_client.cli.nouns import page_query, replica_option, table_options
from store_client.cli.progress import ProgressCounter, open_progress
from store_client.cli.terminal import escape_line
from store_client.content_types import METADATA
from store_client.errors import Misused, StoreError
from store_client.progress import format_count, format_size
from store_client.references import Reference
from store_client.uploads.options import JOBS, MAX_JOBS, TIMEOUT_SECONDS, UploadOptions

if TYPE_CHECKING:
    from store_client.uploads.bulk import BulkReport, BulkResult, BundleSource
    from store_client.uploads.job import UploadInterrupted

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
    many = each_folder or table is not None
    here.check_fields(REPORT_COLUMNS if many else FIELDS)
    _check_together(many, bool(given["bundle_uuid"]), report, table, template or data_dir)
    named = [one for one in (directory, src_dir, table) if one is not None]
    if len(named) != 1:
        raise Misused("name one directory, or one --table", hint="store upload DIRECTORY")
    chosen = here.replica(replica)
    source = table.parent if table else named[0]
    options = UploadOptions(src_dir=source, replica=chosen, **given)
    progress = open_progress(enabled=not (no_progress or here.quiet), what="upload")
    if many:
        _upload_many(
            here, options, progress, table=table, template=template, folder=data_dir, report=report
        )
        return
    running: Any = importlib.import_module("store_client.uploads.job")
    try:
        with progress:
            done = running.upload(here.client, options, progress)
    except running.UploadInterrupted as stopped:
        here.note_how_to_resume(_describe_kept(stopped))
        raise
    if done.earlier_uuid:
        here.note(ANOTHER.format(done.earlier_uuid))
    if here.output == "table" and not here.format_chosen and done.bundle_uuid and done.version:
        show_upload(here, done, chosen)
    else:
        name = f"{done.bundle_uuid or 'a new one'} {done.version or ''}".strip()
        here.show(done.as_json(), title=f"bundle {name}: {done.state}")


FIELDS = ("bundle_uuid", "version", "state", "sent", "bundle", "files")
REPORT_COLUMNS = ("label", "state", "uuid", "version", "files", "bytes", "error")


def _check_together(
    many: bool, new_version: bool, report: Path | None, table: Path | None, of_table: Path | None
) -> None:
    if many and new_version:
        raise Misused("--bundle-uuid is for one bundle, not for many")
    if report and not many:
        raise Misused("--report goes with --each-folder or --table")
    if of_table and table is None:
        raise Misused("--template and --data-dir go with --table")


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


SHOWN_FAILURES = 10
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of cells that spreadsheets take for formulas."""


def _upload_many(
    here: CommandContext,
    options: UploadOptions,
    progress: ProgressCounter,
    *,
    table: Path | None,
    template: Path | None,
    folder: Path | None,
    report: Path | None,
) -> None:
    """Upload a bundle for each folder or row; StoreError if one of them failed."""
    bulk: Any = importlib.import_module("store_client.uploads.bulk")
    journal = bulk.bulk_journal(here.client, options, table or options.src_dir)
    workspace = journal.with_suffix(".d")
    interrupted: Any = importlib.import_module("store_client.uploads.job").UploadInterrupted
    try:
        # The documents of rows are in the workspace, which another run must not remove.
        with bulk.hold_journal(journal), progress:
            if table:
                sources = _plan_table(options, table, template, folder or table.parent, workspace)
            else:
                sources = bulk.plan_folders(options)
            done = bulk.upload_bundles(here.client, options, sources, journal, progress)
            if "failed" not in done.states:
                shutil.rmtree(workspace, ignore_errors=True)
    except interrupted as stopped:
        here.note_how_to_resume(_describe_kept(stopped))
        raise
    _show_report(here, done, report)


def _plan_table(
    options: UploadOptions, table: Path, template: Path | None, folder: Path, workspace: Path
) -> "Sequence[BundleSource]":
    tables: Any = importlib.import_module("store_client.uploads.table")
    bulk: Any = importlib.import_module("store_client.uploads.bulk")
    rows = tables.read_table(table)
    if template:
        shape = tables.read_template(template, tuple(rows[0].cells))
        bundles = [shape.render(row, folder) for row in rows]
    else:
        bundles = [tables.render_plainly(row, folder) for row in rows]
    sources: Sequence[BundleSource] = bulk.plan_rows(bundles, options, workspace)
    return sources


def _show_report(here: CommandContext, done: "BulkReport", path: Path | None) -> None:
    """Write the report, show its sum or its rows, and fail if a bundle did."""
    if path:
        _write_report(path, done.results)
    failed = [one for one in done.results if one.state == "failed"]
    if here.output == "table" and not here.format_chosen:
        states = ", ".join(f"{count} {state}" for state, count in done.states.items())
        size = format_size(sum(one.bytes for one in done.results))
        click.echo(f"{len(done.results)} bundles ({size}): {states}.")
        for one in failed[:SHOWN_FAILURES]:
            here.note(f"  {one.label}: {one.error}")
        if len(failed) > SHOWN_FAILURES:
            here.note(f"  … and {len(failed) - SHOWN_FAILURES} more")
        if path:
            click.echo(f"Report: {path}")
        click.echo(here.page_url("/search"))
    else:
        here.show([asdict(one) for one in done.results])
    if failed:
        raise StoreError(
            f"{len(failed)} of {len(done.results)} bundles failed; the first: {failed[0].error}",
            hint="mend them, and give the same command again: the others are not sent again",
        )


def _write_report(path: Path, results: "Sequence[BulkResult]") -> None:
    text = io.StringIO(newline="")
    separator = "," if path.suffix.lower() == ".csv" else "\t"
    table = csv.DictWriter(text, REPORT_COLUMNS, delimiter=separator, lineterminator="\n")
    table.writeheader()
    table.writerows({name: _disarm(cell) for name, cell in asdict(one).items()} for one in results)
    write_atomically(path, text.getvalue().encode())


def _disarm(cell: str | int) -> str | int:
    """A cell that no spreadsheet takes for a formula, by the advice of OWASP."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def _describe_kept(stopped: "UploadInterrupted") -> str:
    """What an interrupted upload has done already."""
    kept = [
        f"{format_count(count, noun)} {'is' if count == 1 else 'are'} {state}"
        for count, noun, state in (
            (stopped.bundles, "bundle", "complete"),
            (stopped.stored, "file", "in the store"),
            (stopped.staged, "file", "sent, not yet verified"),
            (stopped.begun, "file", "sent in part"),
        )
        if count
    ]
    if not kept:
        return "Stopped before anything was sent."
    return f"Stopped: {', '.join(kept)}. What was sent is not sent again."
