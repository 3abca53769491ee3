"""Backups of what no bucket can restore: one file, made of one state of the catalog.

Lines of JSON, compressed: a header, a row a line, and at the end how many there are and their
checksum. A file is read through before anything of it is restored; restoring again adds nothing.
"""

import base64
import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, BinaryIO

import orjson

from pipelines.formats import version_at
from storage.catalog import keeping, now_us, refilling, revisions
from storage.errors import Conflict, Damaged, Invalid
from storage.stores import Stores

FORMAT = "store-backup/1"
BYTES = "base64"
LINE_BYTES = 64 * 1024 * 1024
"""No row is longer."""


@dataclass(frozen=True, slots=True)
class Header:
    """Of which time, tables and secret a backup is."""

    made: str
    revision: str
    key: str


@dataclass(frozen=True, slots=True)
class Brought:
    """Rows of a table in the file, and how many of them were not there."""

    table: str
    rows: int
    added: int


def write(stores: Stores, target: BinaryIO, *, key: str) -> dict[str, int]:
    """Write all of it from one consistent view; how many rows of each table. `key` tells the
    store's secret from another without giving it away."""
    revision = revisions.current(stores.catalog)
    counts: dict[str, int] = {}
    digest = hashlib.sha256()
    with gzip.GzipFile(fileobj=target, mode="wb", mtime=0) as packed, stores.catalog.read() as tx:
        head = {"format": FORMAT, "made": version_at(now_us(tx)), "revision": revision, "key": key}
        _put(packed, digest, head)
        for table, row in keeping.read(tx):
            _put(packed, digest, [table, row])
            counts[table] = counts.get(table, 0) + 1
        last = {"rows": sum(counts.values()), "sha256": digest.hexdigest()}
        packed.write(orjson.dumps(last) + b"\n")
    return counts


def _put(packed: gzip.GzipFile, digest: Any, value: Any) -> None:
    line = orjson.dumps(value, default=_bytes) + b"\n"
    digest.update(line)
    packed.write(line)


def _bytes(value: Any) -> dict[str, str]:
    if not isinstance(value, bytes | memoryview):
        raise TypeError(type(value).__name__)
    return {BYTES: base64.b64encode(value).decode()}


def check(source: BinaryIO, *, key: str) -> Header:
    """Read a file through; Damaged or Invalid when it is no whole backup, Conflict when it is one
    of another store's secret, or of a later version."""
    digest, count, header = hashlib.sha256(), 0, None
    last: Any = None
    with _unpacked(source) as lines:
        for line in lines:
            if header is None:
                header = _header(line, key)
            elif last is None and line.startswith(b"["):
                _row(line)
                count += 1
            elif last is None:
                last = orjson.loads(line)
                continue
            else:
                raise Damaged("The backup goes on after its end.")
            digest.update(line)
    if header is None or last != {"rows": count, "sha256": digest.hexdigest()}:
        raise Damaged("The backup is cut off or damaged: its checksum is another.")
    return header


@contextmanager
def _unpacked(source: BinaryIO) -> Iterator[Iterator[bytes]]:
    try:
        with gzip.GzipFile(fileobj=source, mode="rb") as packed:
            yield iter(lambda: packed.readline(LINE_BYTES), b"")
    except (EOFError, zlib.error, orjson.JSONDecodeError, OSError) as error:
        raise Damaged("The file is no backup, or is cut off or damaged.") from error


def _header(line: bytes, key: str) -> Header:
    told = orjson.loads(line)
    if not isinstance(told, dict) or "format" not in told:
        raise Invalid("The file is no backup of a store.")
    if told["format"] != FORMAT:
        raise Conflict(f"This version reads {FORMAT}, not {told['format']}.")
    if not all(isinstance(told.get(name), str) for name in ("made", "revision", "key")):
        raise Damaged("The header of the backup lacks something.")
    if told["key"] != key:
        raise Conflict("The backup was made with another STORE_SECRET_KEY: set that one.")
    if told["revision"] > revisions.expected():
        raise Conflict("The backup was made by a later version of the store.")
    return Header(told["made"], told["revision"], told["key"])


def restore(stores: Stores, opened: Callable[[], BinaryIO], *, key: str) -> Iterator[Brought]:
    """Add what the catalog lacks, a batch in each unit of work; done again after a death."""
    with opened() as source:
        check(source, key=key)
    with opened() as source, _unpacked(source) as lines:
        next(lines)
        rows = (value for value in map(_row, lines) if value is not None)
        tables = {kept.name: kept for kept in keeping.TABLES}
        for name, group in groupby(rows, lambda row: row[0]):
            if name not in tables:
                raise Conflict(f"The backup has rows of '{name}', which this version has not.")
            yield _brought(stores, tables[name], (row for _, row in group))


def _row(line: bytes) -> tuple[str, Mapping[str, Any]] | None:
    value = orjson.loads(line)
    if not isinstance(value, list):
        return None
    try:
        table, row = value
        return str(table), {name: _plain(one) for name, one in row.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Damaged("The backup has a row that is none.") from error


def _plain(value: Any) -> Any:
    return base64.b64decode(value[BYTES], validate=True) if isinstance(value, dict) else value


def _brought(stores: Stores, kept: keeping.Kept, rows: Iterator[Mapping[str, Any]]) -> Brought:
    count = added = 0
    while batch := list(islice(rows, keeping.PAGE)):
        unknown = sorted({name for row in batch for name in row} - kept.columns)
        if unknown:
            raise Conflict(f"The backup's {kept.name} have more than this version's: {unknown}.")
        try:
            with stores.catalog.write() as tx, refilling.trial(tx):
                added += kept.restore(tx, batch)
        except (KeyError, TypeError) as error:
            raise Damaged(f"A row of the backup's {kept.name} lacks what it must have.") from error
        count += len(batch)
    return Brought(kept.name, count, added)
