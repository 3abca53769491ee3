"""The command validate."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from store_client.cli.context import CommandContext, command
from store_client.cli.nouns import table_options
from store_client.cli.terminal import escape_line
from store_client.content_types import METADATA
from store_client.errors import Misused, NotAllowed, StoreError
from store_client.http.retries import RetryPolicy
from store_client.progress import format_count, format_size

if TYPE_CHECKING:
    from store_client.validation.findings import ValidationReport
    from store_client.validation.schemas import SchemaSet

_QUICK = RetryPolicy(waits_s=(), connect_s=5, read_s=30)
"""The store's schemas are asked for once: without them validation continues."""
ABOUT = """Validate a folder, or a table whose rows become bundles, before you upload it.

Finds metadata that is not JSON, with line and column; metadata that does not satisfy its JSON
Schema, with the JSON pointer of the value; names that the store refuses; broken links and files
that cannot be read. Warns of empty files, equal files, and names that differ only in case.

Schemas are those of the store, of --schema, and local files that a document names as
"describedBy" or "$schema". Nothing is fetched from elsewhere.
"""
MORE = """\b
Examples:
  store validate sample/
  store validate sample/ --schema specimen.json --no-store
  store validate sample/ --schema 'assay_*.json=schemas/assay.json'
  store validate study/ --each-folder
  store validate --table runs.tsv --template run.json
Exit codes: 0 without errors, also if there are warnings; 2 with errors.
In a pipe each finding is a line of JSON.
"""


@command("validate", help=ABOUT, epilog=MORE, as_answer=True)
@click.argument(
    "directory", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option("--each-folder", is_flag=True, help="Each folder becomes a bundle.")
@table_options
@click.option(
    "--schema",
    "schema",
    multiple=True,
    metavar="[PATTERN=]FILE",
    help="JSON Schema of all metadata, or of files whose names match; may be repeated.",
)
@click.option(
    "--schemas",
    "schema_folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of schemas that documents name by file name or $id.",
)
@click.option("--no-store", is_flag=True, help="Do not ask the store for its schemas.")
@click.option(
    "--indexed",
    multiple=True,
    metavar="PATTERN",
    default=METADATA,
    show_default=True,
    help="Names of metadata files; may be repeated.",
)
def validate(
    here: CommandContext,
    directory: Path | None,
    each_folder: bool,
    table: Path | None,
    template: Path | None,
    data_dir: Path | None,
    schema: tuple[str, ...],
    schema_folder: Path | None,
    no_store: bool,
    indexed: tuple[str, ...],
) -> None:
    if (directory is None) == (table is None):
        raise Misused("name one directory, or one --table", hint="store validate DIRECTORY")
    if (template or data_dir) and not table:
        raise Misused("--template and --data-dir are for a --table")
    if each_folder and table:
        raise Misused("--each-folder is for a directory, not for a --table")
    schemas = _open_schemas(here, schema, schema_folder, no_store=no_store)
    report: ValidationReport
    if table:
        tables: Any = importlib.import_module("store_client.uploads.validation")
        report = tables.validate_table(
            table, schemas, template=template, folder=data_dir, indexed=indexed
        )
    else:
        folders: Any = importlib.import_module("store_client.validation.folders")
        check = folders.validate_each_folder if each_folder else folders.validate_folder
        report = check(directory, schemas, indexed=indexed)
    _show_report(here, report, "row" if table else "file")


def _open_schemas(
    here: CommandContext, given: tuple[str, ...], folder: Path | None, *, no_store: bool
) -> "SchemaSet":
    module: Any = importlib.import_module("store_client.validation.schemas")
    rules = module.parse_rules(given, folder)
    if not no_store:
        http: Any = importlib.import_module("store_client.http.session")
        tokens = here.client.session.tokens
        try:
            with http.HttpSession(here.config.url, tokens=tokens, policy=_QUICK) as session:
                rules += module.fetch_rules(session)
        except NotAllowed:
            here.note("The store shows its schemas only to users who are logged in: not used.")
        except StoreError as error:
            here.note(f"Validated without the schemas of the store: {error}")
    found: SchemaSet = module.SchemaSet(rules, folder)
    return found


def _show_report(here: CommandContext, report: "ValidationReport", unit: str) -> None:
    """Write the findings, note their sum, and fail if there are errors."""
    if here.answer.chosen == "table" and not here.answer.form:
        for one in report.findings:
            click.echo(escape_line(str(one)))
    else:
        columns = importlib.import_module("store_client.validation.findings").COLUMNS
        here.show_rows((one.as_json() for one in report.findings), columns)
    size = f" ({format_size(report.size)})" if report.size else ""
    errors, warnings = report.count("error"), report.count("warning")
    here.note(
        f"{format_count(report.files, unit)}{size},"
        f" {format_count(report.validated, 'document')} validated by schemas:"
        f" {format_count(errors, 'error')}, {format_count(warnings, 'warning')}"
    )
    if errors:
        paths = len({one.path for one in report.errors})
        raise Misused(f"{format_count(errors, 'error')} in {format_count(paths, 'file')}")
