"""Previews of files: text, JSON, tables, Markdown and small images, from the first bytes.

The kind is judged by content; the declared type and the name only choose between kinds of text.
Depositors are not trusted: HTML, SVG and XML are text here.
"""

import csv
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from pipelines import documents, failover
from storage import keys
from storage.errors import DomainError
from storage.model import FileVersion, Replica
from storage.stores import Stores

PREVIEW_BYTES_MAX = 256 * 1024
"""Bytes that a preview reads, of an image all or none."""
TABLE_ROWS_MAX = 100
TABLE_COLUMNS_MAX = 50
CELL_CHARS_MAX = 200
JSON_CHARS_MAX = 512 * 1024
CONTROL_SHARE_MAX = 0.02
"""Share of control characters above which bytes are not shown as text."""

PreviewKind = Literal["text", "json", "table", "markdown", "image", "none"]

_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_GZIP = b"\x1f\x8b"
_ALLOWED_CONTROLS = frozenset("\t\n\r\f\x1b")


@dataclass(frozen=True, slots=True)
class Preview:
    """What may be shown of a file; `note` says what is left out, or why nothing is shown."""

    kind: PreviewKind
    text: str = ""
    rows: tuple[tuple[str, ...], ...] = ()
    image: bytes = b""
    media_type: str = ""
    note: str = ""


def build_preview(stores: Stores, replica: Replica, file: FileVersion, name: str = "") -> Preview:
    """Return the preview of a file, from the other replica if this one's copy is damaged.

    Raise Damaged, NotFoundError or Unavailable if no replica has its bytes.
    """
    if file.size == 0:
        return Preview("none", note="The file is empty.")
    content = _read_beginning(stores, replica, file)
    return render_preview(content, file.size, file.content_type, name)


def _read_beginning(stores: Stores, replica: Replica, file: FileVersion) -> bytes:
    """Return the first bytes of a file; those of a small one are verified."""
    sha256 = file.checksums.sha256
    if file.size <= PREVIEW_BYTES_MAX:
        return failover.read_blob(stores, replica, sha256)
    served = failover.choose_blob_replica(stores, replica, file)
    try:
        return _read_range(stores, served, keys.blob_key(sha256))
    except DomainError:
        return _read_range(stores, failover.other_replica(served), keys.blob_key(sha256))


def _read_range(stores: Stores, replica: Replica, key: str) -> bytes:
    return b"".join(stores.replicas[replica].read(key, length=PREVIEW_BYTES_MAX))


# Rendering ---------------------------------------------------------------------------------


def render_preview(content: bytes, size: int, content_type: str, name: str = "") -> Preview:
    """Return the preview of the first bytes of a file of `size` bytes."""
    media_type = _find_image_type(content)
    if media_type:
        if len(content) < size:
            return Preview("none", note=f"Images above {_kib()} KiB are not shown.")
        return Preview("image", image=content, media_type=media_type)
    is_whole, lower = len(content) >= size, name.lower()
    if content.startswith(_GZIP):
        content, is_whole = _inflate(content, is_whole)
        lower = lower.removesuffix(".gz")
    text = _decode_text(content, is_whole)
    if text is None:
        return Preview("none", note="The content is binary.")
    note = "" if is_whole else f"The first {_kib()} KiB."
    return _render_text(text, is_whole, _choose_format(content_type, lower), note)


def _kib() -> int:
    return PREVIEW_BYTES_MAX // 1024


def _find_image_type(content: bytes) -> str | None:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if content.startswith(magic)), None)


def _inflate(content: bytes, is_whole: bool) -> tuple[bytes, bool]:
    """Return the first bytes of a gzip file, and whether they are all of its first member."""
    inflater = zlib.decompressobj(wbits=31)
    try:
        data = inflater.decompress(content, PREVIEW_BYTES_MAX)
    except zlib.error:
        return content, is_whole
    return data, is_whole and inflater.eof and not inflater.unused_data


def _decode_text(content: bytes, is_whole: bool) -> str | None:
    """Return UTF-8 text, without a character that is cut off; None for other bytes."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if is_whole or error.start < len(content) - 3:
            return None
        text = content[: error.start].decode("utf-8-sig")
    if "\x00" in text:
        return None
    controls = sum(1 for letter in text if letter < " " and letter not in _ALLOWED_CONTROLS)
    return text if controls <= len(text) * CONTROL_SHARE_MAX else None


def _choose_format(content_type: str, name: str) -> str:
    """Return the format that the declared type or the ending of the name says."""
    declared = content_type.partition(";")[0].strip().lower()
    formats = {
        "json": (("application/json", "application/ld+json"), (".json", ".jsonld", ".geojson")),
        "csv": (("text/csv",), (".csv",)),
        "tsv": (("text/tab-separated-values",), (".tsv", ".tab", ".bed", ".gtf")),
        "markdown": (("text/markdown",), (".md", ".markdown")),
    }
    for form, (types, endings) in formats.items():
        if declared in types or name.endswith(endings):
            return form
    return "text"


def _render_text(text: str, is_whole: bool, form: str, note: str) -> Preview:
    if form == "json" and is_whole:
        return _render_json(text)
    if form in ("csv", "tsv"):
        table = _render_table(text, is_whole, "\t" if form == "tsv" else ",", note)
        return table or Preview("text", text, note=note)
    if form == "markdown":
        return Preview("markdown", text, note=note)
    return Preview("text", text, note=note)


def _render_json(text: str) -> Preview:
    """Return indented JSON; text that is no JSON as it is."""
    try:
        value, _ = documents.parse_metadata(text.encode(errors="replace"))
    except documents.UnreadableMetadata as error:
        return Preview("text", text, note=f"This is no valid JSON: {error}.")
    parts: list[str] = []
    room = JSON_CHARS_MAX
    # Indentation may take many times the size of the text.
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
        room -= len(part)
        if room < 0:
            return Preview("text", text, note="Shown as stored: indented it would be too large.")
        parts.append(part)
    return Preview("json", "".join(parts))


def _render_table(text: str, is_whole: bool, delimiter: str, note: str) -> Preview | None:
    """Return the first rows of a table; None if it cannot be read as one."""
    lines = text.splitlines(keepends=True)
    if not is_whole and len(lines) > 1:
        lines.pop()
    try:
        rows = list(islice(_read_rows(lines, delimiter), TABLE_ROWS_MAX + 1))
    except csv.Error:
        return None
    if not rows:
        return None
    notes = [note]
    if len(rows) > TABLE_ROWS_MAX:
        notes = [f"The first {TABLE_ROWS_MAX} rows."]
    if any(len(row) > TABLE_COLUMNS_MAX for row in rows):
        notes.append(f"The first {TABLE_COLUMNS_MAX} columns.")
    shown = tuple(tuple(map(_shorten, row[:TABLE_COLUMNS_MAX])) for row in rows[:TABLE_ROWS_MAX])
    return Preview("table", rows=shown, note=" ".join(filter(None, notes)))


def _read_rows(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    # Tab-separated values have no quoting.
    dialect = csv.excel_tab() if delimiter == "\t" else csv.excel()
    if delimiter == "\t":
        dialect.quoting = csv.QUOTE_NONE
    return (row for row in csv.reader(lines, dialect) if row)


def _shorten(cell: str) -> str:
    return cell if len(cell) <= CELL_CHARS_MAX else cell[: CELL_CHARS_MAX - 1] + "…"
