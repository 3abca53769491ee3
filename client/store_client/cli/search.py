"""The commands search and `search fields`."""

import csv
import io
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

from store_client import downloads
from store_client.atomic_files import write_atomically
from store_client.cli.answers import TERMINAL_ROWS
from store_client.cli.arguments import JsonValue
from store_client.cli.context import CommandContext, command
from store_client.cli.download import check_report_fields, show_download
from store_client.cli.nouns import page_query, replica_option
from store_client.cli.progress import open_progress
from store_client.downloads.options import REQUIRED, DownloadOptions, SearchReport
from store_client.errors import Misused, NotFound
from store_client.progress import format_count
from store_client.references import Reference, parse_reference
from store_client.search import (
    FieldNames,
    build_query,
    join_words,
    named_fields,
    parse_filter,
    read_field,
)

ABOUT = """Find bundles by words of their metadata, by fields, or by a query.

All words must occur, in any field: `zebrafish liver`. A word in one field: `organism:danio`. A
phrase: '"adult heart"'. Not: `-mouse` after `--`. Fields may be named by their last parts; `store
search fields` lists them.
"""
EXAMPLES = """\b
Examples:
  store search zebrafish liver --facet organism
  store search --filter organism="Danio rerio" --filter sex=female --fields uuid,organism,size
  store search kidney --manifest cohort.tsv        for store download-manifest
  store search kidney --download data
  store search kidney --json uuid,version
  store search --es-query @query.json --limit 20
"""
MANIFEST_COLUMNS = (*REQUIRED, "file_version")
OWN_COLUMNS = ("uuid", "version", "count", "size")
RAW_PAGE = 10
"""Documents in one page, at most."""


@command("search", help=ABOUT, epilog=EXAMPLES, as_answer=True)
@click.argument("words", nargs=-1)
@click.option(
    "--filter", "filters", multiple=True, metavar="FIELD=VALUE", help="Exact value; repeat."
)
@click.option("--facet", "facets", multiple=True, metavar="FIELD", help="Count its values; repeat.")
@click.option(
    "--fields", metavar="FIELDS", help="Columns: uuid, version, count, size, page, or metadata."
)
@click.option("--es-query", type=JsonValue(), help="A whole query instead of words.")
@replica_option
@click.option("--limit", type=click.IntRange(1), help="Bundles at most.")
@click.option(
    "--manifest",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a table of the files of all results.",
)
@click.option(
    "--download",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Download all results to this directory.",
)
@click.option("--web", is_flag=True, help="Open the search page in a browser instead.")
def search(
    here: CommandContext,
    words: tuple[str, ...],
    filters: tuple[str, ...],
    facets: tuple[str, ...],
    fields: str | None,
    es_query: Any,
    replica: str | None,
    limit: int | None,
    manifest: Path | None,
    directory: Path | None,
    web: bool,
) -> None:
    chosen = here.replica(replica)
    parsed = [parse_filter(one) for one in filters]
    if es_query is not None and (words or filters):
        raise Misused("give words and filters, or --es-query, not both")
    if manifest and directory:
        raise Misused("give --manifest or --download, not both")
    said = join_words(words)
    wanted = _parse_names(fields)
    names = None
    if parsed or facets or set(wanted) - {*OWN_COLUMNS, "page"} or named_fields(said):
        names = fetch_fields(here, chosen)
    query = es_query if es_query is not None else build_query(said, parsed, names)
    columns = {name: _resolve_column(name, names) for name in wanted}
    if web:
        here.open_page(_search_page(said, parsed, names, chosen))
    elif directory or manifest:
        _take_results(here, query, chosen, limit=limit, manifest=manifest, directory=directory)
    else:
        bundles_too = not facets or bool(wanted) or here.answer.chosen == "table"
        if facets:
            counted = [field for one in facets for field in _resolve(names, one)]
            _show_facets(here, query, counted, chosen, aside=bundles_too)
        if bundles_too:
            _show_results(here, query, columns, chosen, limit=limit)


@command(
    "fields",
    help="List the fields that bundles have.",
    as_answer=True,
    example="store search fields organ",
)
@click.argument("text", default="")
@replica_option
def fields(here: CommandContext, text: str, replica: str | None) -> None:
    """List fields whose name has the text in it."""
    rows = here.client.items("get_search_fields", replica=here.replica(replica))
    found = (row for row in rows if text.lower() in row["name"].lower())
    here.show_rows(found, ("name", "kind", "documents"), empty="There are no such fields.")


def fetch_fields(here: CommandContext, replica: str) -> FieldNames:
    rows = here.client.items("get_search_fields", replica=replica)
    return FieldNames(tuple(row["name"] for row in rows))


def _parse_names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _resolve(names: FieldNames | None, name: str) -> tuple[str, ...]:
    return (name,) if names is None else names.resolve(name)


def _resolve_column(name: str, names: FieldNames | None) -> tuple[str, ...]:
    """The fields of a column; none for the store's own columns."""
    return () if name in (*OWN_COLUMNS, "page") else _resolve(names, name)


def _show_facets(
    here: CommandContext,
    query: Mapping[str, Any],
    wanted: Sequence[str],
    replica: str,
    *,
    aside: bool,
) -> None:
    """Show the counts; `aside` on standard error, where a program reads the bundles."""
    answer = here.client.call("post_search_facets", replica=replica, es_query=query, fields=wanted)
    counts = {field: answer["facets"].get(field, []) for field in wanted}
    if here.answer.chosen == "table":
        for field, values in counts.items():
            here.show_rows(values, ("value", "count"), title=field, empty=f"{field}: none")
            click.echo()
    elif aside:
        for field, values in counts.items():
            shown = ", ".join(f"{one['value']} {one['count']}" for one in values)
            here.note(f"{field}: {shown}")
    else:
        rows = [{"field": field, **each} for field, values in counts.items() for each in values]
        here.show_rows(rows, ("field", "value", "count"))


@dataclass(slots=True)
class _Results:
    """The results of a search as rows; `total` is known once the first row was read."""

    here: CommandContext
    query: Mapping[str, Any]
    columns: Mapping[str, tuple[str, ...]]
    replica: str
    most: int | None
    total: int = 0

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows up to the limit; metadata comes with ten bundles at once."""
        size = min(self.most or RAW_PAGE, RAW_PAGE)
        paging: dict[str, Any] = {"per_page": max(RAW_PAGE, min(self.most or 500, 500))}
        if self.columns:
            paging = {"output_format": "raw", "per_page": size}
        pages = self.here.client.pages(
            "post_search", replica=self.replica, es_query=self.query, **paging
        )
        return islice(self._read(pages), self.most)

    def _read(self, pages: Iterator[Any]) -> Iterator[dict[str, Any]]:
        for page in pages:
            self.total = page["total_hits"]
            for hit in page["results"]:
                named = parse_reference(hit["bundle_fqid"], "bundle")
                if not self.columns:
                    yield {"uuid": named.uuid, "version": named.version}
                    continue
                own = _own_columns(self.here, named, hit, self.replica)
                yield {
                    name: _read_column(hit["metadata"], fields) if fields else own[name]
                    for name, fields in self.columns.items()
                }


def _show_results(
    here: CommandContext,
    query: Mapping[str, Any],
    columns: Mapping[str, tuple[str, ...]],
    replica: str,
    *,
    limit: int | None,
) -> None:
    table = here.answer.chosen == "table"
    most = TERMINAL_ROWS if limit is None and table else limit
    found = _Results(here, query, columns, replica, most)
    rows = list(found.rows()) if table else found.rows()
    shown = tuple(columns) or ("uuid", "version")
    here.show_rows(rows, shown, empty="No bundle matches.", limit=most)
    if isinstance(rows, list) and rows:
        more = "; --limit shows more" if found.total > len(rows) else ""
        here.note(f"{len(rows)} of {found.total} bundles{more}")


def _own_columns(
    here: CommandContext, named: Reference, hit: Mapping[str, Any], replica: str
) -> dict[str, Any]:
    files = hit["metadata"].get("manifest", {}).get("files", [])
    return {
        "uuid": named.uuid,
        "version": named.version,
        "count": len(files),
        "size": sum(entry["size"] for entry in files),
        "page": here.page_url(f"/bundles/{named.uuid}{page_query(named, replica)}"),
    }


def _read_column(document: Any, fields: Sequence[str]) -> Any:
    """The value of the fields: one as it is, several as their different texts."""
    values = [value for field in fields for value in read_field(document, field)]
    found = list(dict.fromkeys(str(value) for value in values if value is not None))
    if len(found) == 1:
        return next(value for value in values if value is not None)
    return ", ".join(found) if found else None


def _take_results(
    here: CommandContext,
    query: Mapping[str, Any],
    replica: str,
    *,
    limit: int | None,
    manifest: Path | None,
    directory: Path | None,
) -> None:
    if manifest and not manifest.absolute().parent.is_dir():
        raise Misused(f"there is no directory {manifest.parent}")
    if directory:
        check_report_fields(here, SearchReport)
    found = [
        hit["bundle_fqid"]
        for hit in islice(here.client.items("post_search", replica=replica, es_query=query), limit)
    ]
    if not found:
        raise NotFound("no bundle matches")
    if manifest:
        lines = _write_manifest(here, manifest, found, replica)
        bundles = format_count(len(found), "bundle")
        here.note(f"{manifest} lists {format_count(lines, 'file')} of {bundles}.")
        words = ["store", "download-manifest", "--manifest", str(manifest), "--replica", replica]
        here.note(f"To download them: {shlex.join(words)}")
        return
    assert directory is not None
    with open_progress(enabled=not here.quiet, what="download") as bar:
        options = DownloadOptions(replica, directory=directory, tell=bar)
        report = downloads.download_several(here.client, found, options=options)
    show_download(here, report, f"of {format_count(report.bundles, 'bundle')} in {directory}")


def _write_manifest(here: CommandContext, path: Path, found: Sequence[str], replica: str) -> int:
    text = io.StringIO(newline="")
    table = csv.writer(text, delimiter="\t", lineterminator="\n")
    table.writerow(MANIFEST_COLUMNS)
    count = 0
    for fqid in found:
        named = parse_reference(fqid, "bundle")
        pages = here.client.pages(
            "get_bundle", uuid=named.uuid, version=named.version, replica=replica
        )
        for entry in (entry for page in pages for entry in page["bundle"]["files"]):
            row = {
                "bundle_uuid": named.uuid,
                "bundle_version": named.version,
                "file_name": entry["name"],
                "file_uuid": entry["uuid"],
                "file_version": entry["version"],
                "file_sha256": entry["sha256"],
                "file_size": entry["size"],
            }
            table.writerow([row[name] for name in MANIFEST_COLUMNS])
            count += 1
    write_atomically(path, text.getvalue().encode())
    return count


def _search_page(
    said: str, filters: Sequence[tuple[str, str]], names: FieldNames | None, replica: str
) -> str:
    pairs = [("q", said)] if said else []
    for field, value in filters:
        fields = _resolve(names, field)
        if len(fields) > 1:
            raise Misused(f"the page takes one field: {', '.join(fields)}")
        whole = fields[0].replace("%", "%25").replace(":", "%3A")
        pairs.append(("filter", f"{whole}:{value}"))
    pairs += [("replica", replica)] if replica != "aws" else []
    return "/search" + (f"?{urlencode(pairs)}" if pairs else "")
