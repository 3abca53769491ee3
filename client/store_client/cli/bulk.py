"""Uploads of many bundles: what is planned, and the one report of them."""

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
from store_client.cli.context import CommandContext
from store_client.cli.progress import ProgressCounter
from store_client.errors import Misused, StoreError, name_os_errors
from store_client.progress import format_count, format_size
from store_client.uploads.options import UploadOptions

if TYPE_CHECKING:
    from store_client.uploads.bulk import BulkReport, BulkResult, BundleSource
    from store_client.uploads.job import UploadInterrupted

REPORT_COLUMNS = ("label", "state", "uuid", "version", "files", "bytes", "error")
SHOWN_FAILURES = 10
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of cells that spreadsheets take for formulas."""


def upload_many(
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
        here.note_how_to_resume(describe_kept(stopped))
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
    with name_os_errors(f"write {path}", Misused):
        write_atomically(path, text.getvalue().encode())


def _disarm(cell: str | int) -> str | int:
    """A cell that no spreadsheet takes for a formula, by the advice of OWASP."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def describe_kept(stopped: "UploadInterrupted") -> str:
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
