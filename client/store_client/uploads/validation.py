"""Validate what an upload would send: planned files, and the bundles of a table."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from store_client.client import Client
from store_client.content_types import METADATA, is_metadata
from store_client.errors import Misused, NotAllowed, StoreError, Unreachable, name_os_errors
from store_client.uploads.options import UploadOptions
from store_client.uploads.plan import PlannedFile
from store_client.uploads.table import (
    RenderedBundle,
    TableRow,
    find_name_faults,
    read_template,
    render_plainly,
    scan_table,
)
from store_client.validation.documents import (
    MAX_METADATA,
    oversized_findings,
    validate_document,
    validate_file,
)
from store_client.validation.findings import (
    Finding,
    InvalidFiles,
    ValidationReport,
    sort_findings,
)
from store_client.validation.schemas import NO_SCHEMAS, SchemaSet, fetch_rules

log = logging.getLogger(__name__)

_SHOWN = 5
"""Lines that one finding names."""
_HINT = "correct it, or upload it as it is: --allow-invalid-json"
_SCHEMA_HINT = (
    "correct it: `store validate` lists all findings; --no-validate leaves it to the store"
)


def validate_planned(
    client: Client,
    options: UploadOptions,
    files: Sequence[tuple[str, PlannedFile]],
    *,
    missing: Collection[PlannedFile] | None = None,
) -> None:
    """Validate the metadata of an upload; InvalidFiles lists everything that is wrong.

    files: with their names in findings.
    missing: those that are to be sent, all by default; the others are JSON already.
    """
    metadata = [(shown, one) for shown, one in files if one.indexed]
    if options.allow_invalid_json or not metadata:
        return
    # A dry run asks nothing of the store.
    schemas = SchemaSet() if options.dry_run else _open_schemas(client)
    sent = None if missing is None else {one.name for one in missing}
    findings: list[Finding] = []
    for shown, one in metadata:
        if sent is None or one.name in sent or schemas.has_rule(one.entry_name):
            findings += _validate_file(one, schemas, shown)
    if errors := [one for one in findings if one.severity == "error"]:
        by_schema = any(one.pointer is not None for one in errors)
        raise InvalidFiles(errors, hint=_SCHEMA_HINT if by_schema else _HINT)


def _open_schemas(client: Client) -> SchemaSet:
    """The schemas of the store; it validates by itself where it does not list them."""
    try:
        return SchemaSet(fetch_rules(client.session))
    except Unreachable:
        raise
    except StoreError as error:
        if not isinstance(error, NotAllowed):
            log.warning("validated without the schemas of the store: %s", error)
        return SchemaSet()


def _validate_file(one: PlannedFile, schemas: SchemaSet, shown: str) -> list[Finding]:
    if one.file.size > MAX_METADATA:
        return oversized_findings(one.entry_name, schemas, shown=shown)
    path = Path(one.file.path)
    with name_os_errors(f"read {path}", Misused):
        data = path.read_bytes()
    return validate_document(one.entry_name, data, schemas, path=path, shown=shown)


def validate_table(
    path: Path,
    schemas: SchemaSet = NO_SCHEMAS,
    *,
    template: Path | None = None,
    folder: Path | None = None,
    indexed: Sequence[str] = METADATA,
) -> ValidationReport:
    """Find everything that is wrong with a table whose rows are to become bundles.

    template: as for an upload; Misused if it is none, or names columns that the table lacks.
    folder: where the files are, by default beside the table.
    """
    rows, findings = scan_table(path)
    before = schemas.validated
    bundles: list[RenderedBundle] = []
    if rows:
        shape = read_template(template, tuple(rows[0].cells)) if template else None
        for row in rows:
            try:
                where = folder or path.parent
                bundles.append(shape.render(row, where) if shape else render_plainly(row, where))
            except Misused as error:
                findings.append(_row_finding(path, row, str(error)))
    findings += _find_repeated_labels(path, bundles)
    seen: set[Path] = set()
    for one in bundles:
        for found in _validate_bundle(one, schemas, indexed, seen):
            findings.append(found if found.path else replace(found, path=str(path), line=one.line))
    return ValidationReport(
        sort_findings(findings), len(rows), validated=schemas.validated - before
    )


def _row_finding(path: Path, row: TableRow, message: str) -> Finding:
    """A finding of an error that names the line."""
    said = message.removeprefix(f"line {row.line}").lstrip(",: ")
    return Finding(str(path), said, line=row.line)


def _find_repeated_labels(path: Path, bundles: Iterable[RenderedBundle]) -> Iterator[Finding]:
    """One finding for each bundle that several rows make."""
    lines = defaultdict[str, list[int]](list)
    for one in bundles:
        lines[one.label].append(one.line)
    for label, found in lines.items():
        if len(found) > 1:
            shown = ", ".join(map(str, found[:_SHOWN])) + (", …" if len(found) > _SHOWN else "")
            message = (
                f"{len(found)} rows are bundle {label!r}: lines {shown}; the member"
                ' "bundle" of a template names a column that differs'
            )
            yield Finding(str(path), message, line=found[1])


def _validate_bundle(
    one: RenderedBundle, schemas: SchemaSet, indexed: Sequence[str], seen: set[Path]
) -> Iterator[Finding]:
    """What is wrong with the bundle of a row; findings without a path are of the table.

    seen: files that were validated with another row.
    """
    for fault in find_name_faults((*one.documents, *one.files)):
        yield Finding("", fault)
    for name, data in one.documents.items():
        if is_metadata(name, indexed):
            for found in validate_document(name, data, schemas):
                yield replace(found, path="", message=f"{found.message} (in {name})")
    for name, path in one.files.items():
        if not path.is_file():
            yield Finding("", f"{name}: there is no file {path}")
        elif is_metadata(name, indexed) and path not in seen:
            seen.add(path)
            yield from validate_file(name, path, schemas, shown=str(path))
