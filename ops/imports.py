"""The command `import`."""

import time
from collections.abc import Mapping
from contextlib import closing

import click

from config import Settings
from config.parsing import is_plain_url
from ops.commands import open_stores, parse_owner
from ops.options import PrintableText
from ops.output import CommandOutput, OutputTable, prints_output
from pipelines.imports import (
    FolderCollector,
    ImportRequest,
    ImportResult,
    find_state,
    import_files,
    list_sources,
)
from storage.blobs.clients import SourceAccess, canonical_endpoint
from storage.errors import Forbidden, Unavailable
from storage.model import REPLICAS, Replica
from storage.stores import Stores

PROGRESS_S = 10.0
"""How often at most the command reports how far it is."""


@click.command(name="import")
@click.argument("source")
@click.option("--replica", type=click.Choice(REPLICAS), help="By default that of the scheme.")
@click.option(
    "--bundle-by",
    type=click.Choice(["none", "folder"]),
    default="none",
    show_default=True,
    help="Make a bundle of the objects of each folder.",
)
@click.option(
    "--owner",
    type=PrintableText(),
    help="E-mail address of the owner; by default the administrator.",
)
@click.option("--creator-uid", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True)
@click.option("--endpoint", default="", help="URL of the S3 service, if it is not Amazon's.")
@click.option("--limit", type=click.IntRange(1), help="Only the first objects.")
@click.option("--dry-run", is_flag=True, help="Show what would be imported.")
@click.pass_obj
@prints_output
def import_bucket(
    settings: Settings,
    source: str,
    replica: Replica | None,
    bundle_by: str,
    owner: str | None,
    creator_uid: int,
    endpoint: str,
    limit: int | None,
    dry_run: bool,
) -> CommandOutput:
    """Import the objects of a public bucket.

    SOURCE is s3://bucket/prefix or gs://bucket/prefix. Requests carry no credentials. Each object
    is read twice: to compute its checksums, which are compared with those that the bucket states,
    and to store and verify it. Objects that fail are listed, and the exit code is 1. Repeat the
    command to go on: what is stored is not imported again. How far it is comes every 10 s on
    standard error.
    """
    if endpoint and not is_plain_url(endpoint):
        raise click.BadParameter(
            f"must be an http or https URL with a host (got {endpoint})", param_hint="--endpoint"
        )
    if endpoint and source.startswith("gs:"):
        raise click.UsageError("--endpoint is for sources in S3: it needs s3://bucket/prefix.")
    if bundle_by == "folder" and limit:
        raise click.UsageError("--limit cuts folders: it cannot be used with --bundle-by folder.")
    # Its spelling is a part of what the uuids of files come from.
    endpoint = canonical_endpoint(endpoint.rstrip("/")) if endpoint else ""
    if settings.read_only:
        raise Unavailable("STORE_READ_ONLY is set.", code="read_only")
    if settings.mirror_of:
        raise Forbidden(
            f"This store is a read-only mirror of {settings.mirror_of}: import there.",
            code="read_only_mirror",
        )
    request = ImportRequest(
        source,
        replica or ("gcp" if source.startswith("gs:") else "aws"),
        parse_owner(settings, owner),
        creator_uid,
        endpoint,
        limit,
    )
    stores = open_stores(settings, SourceAccess(anonymous=True, s3_endpoint=endpoint or None))
    with closing(stores.catalog):
        if dry_run:
            return _show_sources(stores, request)
        folders = FolderCollector() if bundle_by == "folder" else None
        return _summarize(stores, request, folders)


def _show_sources(stores: Stores, request: ImportRequest) -> CommandOutput:
    rows = [
        (one.url, one.fqid.uuid, one.fqid.version, one.info.size, find_state(stores, request, one))
        for one in list_sources(stores, request)
    ]
    columns = ("source", "uuid", "version", "size", "state")
    new = [row for row in rows if row[4] == "new"]
    return CommandOutput(
        {"objects": OutputTable("Objects", columns, rows)},
        f"{len(new)} objects with {sum(row[3] for row in new)} bytes would be imported",
        error="" if rows else _explain_absence(request),
    )


def _explain_absence(request: ImportRequest) -> str:
    return f"no object below {request.source_url}"


def _summarize(
    stores: Stores, request: ImportRequest, folders: FolderCollector | None
) -> CommandOutput:
    """Import everything, and count the outcomes."""
    counts = {"imported": 0, "present": 0, "failed": 0}
    size, failed = 0, list[ImportResult]()
    reported_s = time.monotonic()
    for source, result in import_files(stores, request, list_sources(stores, request)):
        counts[result.outcome] += 1
        size += result.size if result.outcome == "imported" else 0
        if result.outcome == "failed":
            failed.append(result)
        if folders:
            folders.add(source, result.outcome)
        if time.monotonic() - reported_s >= PROGRESS_S:
            reported_s = time.monotonic()
            click.echo(f"so far {_describe_counts(counts, size)}", err=True)
    written = list(folders.write_bundles(stores, request)) if folders else []
    failed += [one for one in written if one.outcome == "failed"]
    written_bundles = [one for one in written if one.outcome != "failed"]
    new_bundles = [one for one in written_bundles if one.outcome == "imported"]
    error = "" if any(counts.values()) else _explain_absence(request)
    if failed:
        error = f"{len(failed)} objects or bundles were not imported"
    return CommandOutput(
        {
            **counts,
            "bytes": size,
            "bundles": OutputTable(
                "Bundles",
                ("folder", "uuid", "version"),
                [(one.url, *one.fqid) for one in written_bundles],
                hidden_if_empty=True,
            ),
            "failures": OutputTable(
                "Not imported",
                ("source", "reason"),
                [(one.url, one.reason) for one in failed],
                hidden_if_empty=True,
            ),
        },
        f"{_describe_counts(counts, size)}; {len(written_bundles)} bundles, {len(new_bundles)} new",
        error=error,
    )


def _describe_counts(counts: Mapping[str, int], size: int) -> str:
    return (
        f"imported {counts['imported']} objects with {size} bytes;"
        f" {counts['present']} already stored, {counts['failed']} failed"
    )
