"""The commands download, download-manifest and download-collection."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import click

from store_client import downloads
from store_client.cli.arguments import JsonValue
from store_client.cli.context import CommandContext, command
from store_client.cli.nouns import combine_options, page_query, parse_ids, replica_option
from store_client.cli.progress import open_progress
from store_client.downloads import options as defaults
from store_client.downloads.options import LAYOUTS, DownloadCounts, DownloadOptions, Filters
from store_client.errors import Misused
from store_client.progress import format_count, format_size
from store_client.references import Reference, parse_reference
from store_client.transfer.engine import DownloadInterrupted

ABOUT_BUNDLE = """Download bundles, or all that match a query, to <download-dir>/<uuid>.<version>/.

A bundle is UUID, UUID.VERSION or the URL of its page; - reads them from standard input.

The bytes are cached in .store in the current directory, and linked from there. Cached files are
not fetched again, and an interrupted download resumes."""
ABOUT_MANIFEST = """Download the files of a manifest.

The manifest is a table separated by tabs with the columns bundle_uuid, bundle_version, file_name,
file_uuid, file_sha256, file_size, in any order among others. A copy with the column file_path,
where each file is in .store, is written to the current directory. Layout bundle also makes a
directory of each bundle, with its metadata and the data files that are listed."""
ABOUT_COLLECTION = """Download a collection, and the bundles, files, fragments and collections that
it links to, to <download-dir>/<uuid>.<version>/."""


_directory_option = click.option(
    "--download-dir",
    default="",
    type=click.Path(file_okay=False),
    help="Where to create directories.  [default: the current one]",
)
_kind_options = combine_options(
    click.option("--no-metadata", is_flag=True, help="Skip metadata files."),
    click.option("--no-data", is_flag=True, help="Skip data files."),
)
_transfer_options = combine_options(
    click.option(
        "--num-retries",
        type=click.IntRange(0, 1000),
        default=defaults.NUM_RETRIES,
        show_default=True,
        help="Failures allowed for a file; each received block allows one more.",
    ),
    click.option(
        "--min-delay-seconds",
        type=click.FloatRange(0, 3600),
        default=defaults.MIN_DELAY_S,
        show_default=True,
        help="Shortest wait before a retry; doubles with each retry.",
    ),
    click.option(
        "--jobs",
        "-j",
        type=click.IntRange(1, defaults.MAX_JOBS),
        default=defaults.JOBS,
        show_default=True,
        help="Transfers at once.",
    ),
    click.option("--dry-run", is_flag=True, help="Show what would be fetched, and fetch nothing."),
    click.option("--no-progress", is_flag=True, help="Show no progress."),
)


EXAMPLES = """\b
Examples:
  store download 17ce8db8-6b1c-4e6a-9a53-0d3a63c3b3f5
  store download UUID --no-data --download-dir metadata
  store search kidney | store download -
"""


@command("download", help=ABOUT_BUNDLE, epilog=EXAMPLES)
@click.argument("bundles", nargs=-1, metavar="[BUNDLE]...")
@click.option("--bundle-uuid", default="", help="The bundle, as without this option.")
@click.option("--es-query", type=JsonValue(), help="All bundles that match this search query.")
@replica_option
@click.option("--version", default="", help="Its version.  [default: the latest]")
@_directory_option
@click.option("--metadata-filter", help="Shell pattern of metadata files' names.  [default: *]")
@click.option("--data-filter", help="Shell pattern of data files' names.  [default: *]")
@_kind_options
@_transfer_options
def download(
    here: CommandContext,
    bundles: tuple[str, ...],
    bundle_uuid: str,
    es_query: Any,
    version: str,
    **given: Any,
) -> None:
    said = (*bundles, *([bundle_uuid] if bundle_uuid else []))
    if bool(said) == (es_query is not None):
        raise Misused(
            "name a bundle (--bundle-uuid) or a query (--es-query)",
            hint="see: store download --help",
        )
    named = parse_ids(said, "bundle") if said else []
    if version and len(named) != 1:
        raise Misused("--version goes with --bundle-uuid")
    if version:
        named = [replace(named[0], version=version)]
    filters = Filters(
        metadata=given["metadata_filter"],
        data=given["data_filter"],
        no_metadata=given["no_metadata"],
        no_data=given["no_data"],
    )
    replica = given["replica"] or next((one.replica for one in named if one.replica), "")
    check_report_fields(here, defaults.BundleReport if len(named) == 1 else defaults.SearchReport)
    with _run_download(here, {**given, "replica": here.replica(replica)}) as options:
        if len(named) == 1:
            one = downloads.download(
                here.client,
                named[0].uuid,
                options=options,
                version=named[0].version,
                filters=filters,
            )
        elif es_query is not None:
            found = downloads.download_matches(
                here.client, es_query, options=options, filters=filters
            )
        else:
            texts = [str(each) for each in named]
            found = downloads.download_several(here.client, texts, options=options, filters=filters)
    if len(named) != 1:
        show_download(
            here, found, f"of {format_count(found.bundles, 'bundle')} in {found.directory}"
        )
        return
    exact = Reference(one.bundle_uuid, one.version)
    page = f"/bundles/{exact.uuid}{page_query(exact, options.replica)}"
    show_download(here, one, f"in {one.directory}", title=f"Bundle {exact}", page=page)


@command(
    "download-manifest",
    help=ABOUT_MANIFEST,
    example="store download-manifest --manifest cohort.tsv --layout bundle",
)
@click.option(
    "--manifest", required=True, type=click.Path(dir_okay=False), help="The table, a TSV file."
)
@replica_option
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default="none",
    show_default=True,
    help="none: only the cache; bundle: a directory of each bundle, too.",
)
@_kind_options
@_directory_option
@_transfer_options
def download_manifest(here: CommandContext, manifest: str, layout: str, **given: Any) -> None:
    given["replica"] = here.replica(given["replica"])
    check_report_fields(here, defaults.ManifestReport)
    with _run_download(here, given) as options:
        report = downloads.download_manifest(
            here.client,
            Path(manifest),
            options=options,
            layout=layout,
            no_metadata=given["no_metadata"],
            no_data=given["no_data"],
        )
    show_download(here, report, f"listed with their paths in {report.manifest}")


@command(
    "download-collection",
    help=ABOUT_COLLECTION,
    example="store collection download UUID --download-dir figures",
)
@click.argument("collection", required=False)
@click.option("--uuid", help="The collection, as without this option.")
@replica_option
@click.option("--version", default="", help="Its version.  [default: the latest]")
@_directory_option
@_transfer_options
def download_collection(
    here: CommandContext, collection: str | None, uuid: str | None, version: str, **given: Any
) -> None:
    if bool(collection) == bool(uuid):
        raise Misused("name a collection", hint="store collection download UUID")
    named = parse_reference(collection or uuid or "", "collection")
    version = version or named.version
    given["replica"] = here.replica(given["replica"] or named.replica)
    check_report_fields(here, defaults.CollectionReport)
    with _run_download(here, given) as options:
        report = downloads.download_collection(
            here.client, named.uuid, options=options, version=version
        )
    show_download(here, report, f"in {report.directory}")


@contextmanager
def _run_download(here: CommandContext, given: dict[str, Any]) -> Iterator[DownloadOptions]:
    """Show progress during a download, and say after Ctrl-C what is kept."""
    shown = not (given["no_progress"] or here.quiet or given["dry_run"])
    try:
        with open_progress(enabled=shown, what="download") as bar:
            yield DownloadOptions(
                replica=given["replica"],
                directory=Path(given["download_dir"]),
                num_retries=given["num_retries"],
                min_delay_s=given["min_delay_seconds"],
                jobs=given["jobs"],
                dry_run=given["dry_run"],
                tell=bar,
            )
    except DownloadInterrupted as stopped:
        here.note_how_to_resume(_describe_kept(stopped))
        raise


def _describe_kept(stopped: DownloadInterrupted) -> str:
    kept = []
    if stopped.files:
        kept.append(format_count(stopped.files, "file"))
    if stopped.unfinished:
        kept.append(f"{format_size(stopped.unfinished)} of unfinished files")
    if not kept:
        return "Stopped before anything was downloaded."
    return f"Stopped. {Path(defaults.CACHE).absolute()} keeps {' and '.join(kept)}."


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
