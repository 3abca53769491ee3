"""What transfers say at their end: three lines for a person, a document for a program."""

from dataclasses import asdict, fields
from typing import Any

import click

from store_client.cli.context import CommandContext
from store_client.cli.nouns import page_query
from store_client.cli.terminal import escape_line
from store_client.downloads.options import DownloadCounts
from store_client.progress import format_count, format_size
from store_client.references import Reference


def check_report_fields(here: CommandContext, report: Any) -> None:
    """Misused for a field that reports of this class do not have."""
    names = [one.name for one in fields(report) if one.name != "counts"]
    here.check_fields([*names, *(one.name for one in fields(DownloadCounts))])


def show_download(
    here: CommandContext, report: Any, where: str, *, title: str = "", page: str = ""
) -> None:
    """Show what a download brought, where it is, and its page."""
    counts = report.counts
    if here.output in ("json", "csv", "tsv") or here.answer.form not in ("", "table"):
        shown = asdict(report)
        counted = shown.pop("counts")
        here.show({**shown, **counted})
        return
    files = format_count(counts.files, "file")
    came = f"{counts.fetched_files} of {files} ({format_size(counts.fetched_bytes)})"
    if report.dry_run:
        click.echo(f"Would fetch {came}; the other files are cached.")
        return
    if title:
        click.echo(title)
    click.echo(f"{files} ({format_size(counts.bytes)}) {where}; fetched {came}.")
    if page:
        click.echo(here.page_url(page))


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
