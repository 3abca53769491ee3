"""How people name objects: `UUID`, `UUID.VERSION`, the address of a page, or a DRS id.

Files are named `store://bundle/UUID[.VERSION][/NAME]` or `store://file/UUID`. NAME stands as it is,
without percent-encoding: `store://bundle/UUID/50% done?.txt`.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from store_client.errors import Misused
from store_client.identifiers import REPLICAS, is_uuid, is_version, parse_version, quote_text
from store_client.names import name_fault

HINT = "give UUID, UUID.VERSION, or the URL of its page"
_IN_PATH = re.compile(
    r"/(?P<noun>bundle|file|collection|subscription|area)s?/(?P<name>[^/]+)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Reference:
    """An object of a store; version and replica are "" if the text does not say them."""

    uuid: str
    version: str = ""
    replica: str = ""

    def __str__(self) -> str:
        return f"{self.uuid}.{self.version}" if self.version else self.uuid


def parse_reference(text: str, noun: str) -> Reference:
    """Parse a name of a bundle, file and so on; Misused if it names nothing or another thing."""
    said = text.strip()
    if "://" not in said:
        return _parse_name(said, noun)
    try:
        found = urlsplit(said)
    except ValueError:
        raise Misused(f"{noun}: {quote_text(text)} is not a URL", hint=HINT) from None
    if found.scheme == "drs":
        return _parse_name(unquote(found.path.lstrip("/") or found.netloc), noun)
    place = _IN_PATH.search(found.path)
    if found.scheme not in ("http", "https") or place is None:
        raise Misused(f"{noun}: {quote_text(text)} is not the URL of a {noun}", hint=HINT)
    if place["noun"].lower() != noun:
        raise Misused(f"{quote_text(text)} is a {place['noun'].lower()}, not a {noun}")
    named = _parse_name(unquote(place["name"]), noun)
    query = parse_qs(found.query)
    version = query.get("version", [named.version])[-1]
    replica = query.get("replica", [""])[-1]
    if version:
        parse_version(version)
    if replica and replica not in REPLICAS:
        raise Misused(f"{noun}: there is no replica {quote_text(replica)}")
    return Reference(named.uuid, version, replica)


def _parse_name(text: str, noun: str) -> Reference:
    uuid, dot, version = text.partition(".")
    if not is_uuid(uuid):
        raise Misused(f"{noun}: {quote_text(text)} is not a uuid", hint=HINT)
    if dot:
        parse_version(version)
    return Reference(uuid.lower(), version)


def read_references(lines: Iterable[str], noun: str) -> Iterator[Reference]:
    """Yield the objects of lines: names, a table, or what `store` wrote as JSON.

    Tables are separated by tabs or commas. With a heading, id and version are in the columns that
    it names; without one they are the first two. Misused names the line.
    """
    counted = _CountedLines(lines)
    try:
        yield from _parse_lines(counted, noun)
    except Misused as error:
        raise Misused(f"line {counted.number}: {error}", hint=error.hint) from None
    except UnicodeDecodeError:
        raise Misused(f"{noun}: the list is not UTF-8 text") from None


class _CountedLines:
    """Lines that are not empty, with the number of the latest."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.number = 0
        self._lines = iter(lines)

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.number += 1
            said = line.strip(" \r\n").removeprefix("\ufeff")
            if said.strip():
                yield said  # a first cell may be empty

    def read_rest(self) -> str:
        """All that follows; the number stays."""
        return "".join(self._lines)


def _parse_lines(lines: _CountedLines, noun: str) -> Iterator[Reference]:
    heading: Sequence[str] | None = None
    for line in lines:
        if line.startswith("["):
            for item in _parse_json(line + lines.read_rest(), noun):
                yield _parse_record(item, noun)
        elif line.startswith("{"):
            yield _parse_record(_parse_json(line, noun), noun)
        elif heading is None:
            cells = _split_line(line.strip())
            heading = () if set(cells).isdisjoint(_id_columns(noun)) else cells
            if not heading:
                yield _parse_cells(cells, noun)
        elif heading:
            yield _parse_record(dict(zip(heading, _split_line(line), strict=False)), noun)
        else:
            yield _parse_cells(_split_line(line.strip()), noun)


def _split_line(line: str) -> list[str]:
    separator = "\t" if "\t" in line else ","
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator))]
    except csv.Error:  # a cell is too long
        return [line]


def _id_columns(noun: str) -> tuple[str, ...]:
    return (f"{noun}_uuid", f"{noun}_fqid", "uuid", noun)


def _parse_cells(cells: Sequence[str], noun: str) -> Reference:
    """The object of a row without a heading; further columns may be anything."""
    named = parse_reference(cells[0], noun)
    if named.version or len(cells) < 2 or not is_version(cells[1]):
        return named
    return Reference(named.uuid, cells[1], named.replica)


def _parse_json(text: str, noun: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Misused(f"{noun}: {quote_text(text)} is not JSON", hint=HINT) from None


def _parse_record(record: Any, noun: str) -> Reference:
    """The object that a row, or an object of JSON, names by its columns."""
    if isinstance(record, str):
        return parse_reference(record, noun)
    if not isinstance(record, Mapping):
        raise Misused(f"{noun}: {quote_text(str(record))} has no id", hint=HINT)
    column = next((name for name in _id_columns(noun) if record.get(name)), "")
    if not column:
        columns = ", ".join(_id_columns(noun))
        raise Misused(f"{noun}: there is no id", hint=f"it is looked for in the columns {columns}")
    named = parse_reference(str(record[column]), noun)
    version = record.get(f"{noun}_version") or record.get("version")
    if named.version or not version:
        return named
    parse_version(str(version))
    return Reference(named.uuid, str(version), named.replica)


SCHEME = "store://"
BUNDLE, FILE = "bundle", "file"
LOCATION_HINT = (
    "give store://bundle/UUID/NAME, store://bundle/UUID.VERSION/NAME or store://file/UUID"
)


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A bundle, a file or folder in it, or a file by its own uuid.

    `version` is "" for the latest; `name` is "" for the bundle itself.
    """

    kind: str
    uuid: str
    version: str = ""
    name: str = ""

    @property
    def fqid(self) -> str:
        """Uuid and version, as far as they are given."""
        return f"{self.uuid}.{self.version}" if self.version else self.uuid

    def __str__(self) -> str:
        return f"{SCHEME}{self.kind}/{self.fqid}" + (f"/{self.name}" if self.name else "")


def parse_location(text: str) -> StoreLocation:
    """Parse an address; Misused if it names nothing."""
    kind, _, rest = text.removeprefix(SCHEME).partition("/")
    fqid, _, name = rest.partition("/")
    if kind not in (BUNDLE, FILE) or not fqid:
        raise Misused(f"{text!r} is not an address in a store", hint=LOCATION_HINT)
    uuid, dot, version = fqid.partition(".")
    if not is_uuid(uuid):
        raise Misused(f"{text!r}: {uuid!r} is not a uuid", hint=LOCATION_HINT)
    if dot:
        parse_version(version)
    name = name.rstrip("/")
    if name and kind == FILE:
        raise Misused(f"{text!r}: a file has no files in it", hint=LOCATION_HINT)
    wrong = name_fault(name) if name else None
    if wrong is not None:
        raise Misused(f"{text!r}: {wrong}", hint=LOCATION_HINT)
    return StoreLocation(kind, uuid.lower(), version, name)
