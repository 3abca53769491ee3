"""What the store says about the files of an area: of one, and of all as a table in a file."""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store_client.areas import asking
from store_client.client import Client
from store_client.errors import Misused
from store_client.replacing import replaced

COLUMNS = ("name", "size", "content_type", "status", "validation", "cause")
SUMS = ("sha1", "sha256", "crc32c", "s3_etag")
ALL = (*COLUMNS, *SUMS, "url")


@dataclass(frozen=True, slots=True)
class Status:
    """How far the store has come with one file."""

    name: str
    checksum: str
    validation: str
    cause: str
    checksums: Mapping[str, str] | None


def status(client: Client, uuid: str, name: str) -> Status:
    """Of the file of that name."""
    summed = asking.checksum(client, uuid, name)
    valid = asking.validation(client, uuid, name)
    cause = summed.get("cause") or valid.get("cause") or ""
    return Status(name, summed["status"], valid["status"], cause, summed.get("checksums"))


def row(found: Mapping[str, Any]) -> dict[str, Any]:
    """A file of the listing in one line, with nothing for what is not known."""
    sums = found.get("checksums") or {}
    plain = {name: _or_nothing(found.get(name)) for name in (*COLUMNS, "url")}
    summed = {name: _or_nothing(sums.get(name)) for name in SUMS}
    return {name: {**plain, **summed}[name] for name in ALL}


def write(path: Path, files: Iterable[Mapping[str, Any]]) -> int:
    """Put the table in place of what was there, at one instant; how many files it has.

    Separated by commas when the name ends with .csv, else by tabs.
    """
    text = io.StringIO()
    separator = "," if path.name.lower().endswith(".csv") else "\t"
    table = csv.DictWriter(text, ALL, delimiter=separator, lineterminator="\n")
    table.writeheader()
    count = 0
    for found in files:
        table.writerow(row(found))
        count += 1
    try:
        replaced(path, lambda temporary: temporary.write_bytes(text.getvalue().encode()))
    except OSError as error:
        raise Misused(f"cannot write {path}: {error.strerror or error}") from error
    return count


def _or_nothing(value: Any) -> Any:
    return "" if value is None else value
