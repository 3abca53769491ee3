"""Previews of files: the kind by content, bounds, and copies that are damaged."""

import gzip
import json

import pytest

from pipelines import previews
from pipelines.previews import PREVIEW_BYTES_MAX, build_preview, render_preview
from storage import keys
from storage.catalog import files
from storage.errors import DomainError
from storage.stores import Stores
from tests.builders import make_file
from tests.damage import damage

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
LONG = PREVIEW_BYTES_MAX + 1


def rendered(content: bytes, content_type: str = "text/plain", name: str = "", **more: int):
    return render_preview(content, more.get("size", len(content)), content_type, name)


@pytest.mark.parametrize(
    ("content", "content_type", "name", "kind"),
    [
        (b"plain", "application/octet-stream", "", "text"),
        (b"<script>alert(1)</script>", "text/html", "a.html", "text"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml", "a.svg", "text"),
        (b'{"a": [1]}', "application/json", "", "json"),
        (b"a\tb\n1\t2\n", "text/plain", "cells.tsv", "table"),
        (b"# Title", "text/plain", "README.md", "markdown"),
        (PNG, "text/plain", "a.txt", "image"),
        (b"\xff\xd8\xff\xe0" + bytes(9), "text/html", "", "image"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp", "", "image"),
        (b"not a picture", "image/png", "a.png", "text"),
        (bytes(50), "text/plain", "a.txt", "none"),
        (b"\x01\x02\x03\x04", "text/plain", "a.txt", "none"),
        (b"\xc3\x28", "text/plain", "a.txt", "none"),
    ],
)
def test_content_decides_kind(content: bytes, content_type: str, name: str, kind: str) -> None:
    assert rendered(content, content_type, name).kind == kind


def test_json_is_indented_with_exact_integers() -> None:
    shown = rendered(b'{"n": 123456789012345678901234567890, "x": 0.1}', "application/json")
    assert shown.text == '{\n  "n": 123456789012345678901234567890,\n  "x": 0.1\n}'


@pytest.mark.parametrize("content", [b"{", b'{"a": NaN}', b"[" * 5_000])
def test_broken_json_is_shown_as_text_with_reason(content: bytes) -> None:
    shown = rendered(content, "application/json")
    assert (shown.kind, shown.text) == ("text", content.decode())
    assert shown.note.startswith("This is no valid JSON")


def test_indentation_is_bounded() -> None:
    deep = b"[" * 90 + b",".join([b"0"] * 100_000) + b"]" * 90
    shown = rendered(deep, "application/json")
    assert shown.kind == "text"
    assert len(shown.text) == len(deep)


def test_table_has_first_rows_and_columns_of_short_cells() -> None:
    row = "\t".join(["x" * 300] * 60)
    shown = rendered("\n".join([row] * 101).encode(), "text/tab-separated-values", size=LONG * 9)
    assert (len(shown.rows), {len(each) for each in shown.rows}) == (100, {50})
    assert {len(cell) for each in shown.rows for cell in each} == {previews.CELL_CHARS_MAX}
    assert "50 columns" in shown.note
    quoted = rendered(b'a,"b,\nc"\n', "text/csv")
    assert quoted.rows == (("a", "b,\nc"),)


def test_beginning_of_compressed_text_is_shown() -> None:
    lines = b"gene\tcount\n" * 200_000
    shown = rendered(gzip.compress(lines), "application/gzip", "counts.tsv.gz")
    assert shown.kind == "table"
    assert shown.rows[:2] == (("gene", "count"), ("gene", "count"))
    bomb = rendered(gzip.compress(b"x" * 50_000_000), "application/gzip")
    assert (bomb.kind, len(bomb.text)) == ("text", PREVIEW_BYTES_MAX)
    assert rendered(b"\x1f\x8bnot gzip\0").kind == "none"


def test_letter_that_is_cut_off_is_left_out() -> None:
    content = ("x" * (PREVIEW_BYTES_MAX - 1) + "ä").encode()
    shown = rendered(content[:PREVIEW_BYTES_MAX], size=len(content))
    assert shown.text == "x" * (PREVIEW_BYTES_MAX - 1)
    assert shown.note == "The first 256 KiB."


def row_of(stores: Stores, content: bytes, **more):
    fqid = make_file(stores, content, everywhere=True, **more)
    with stores.catalog.read() as tx:
        row = files.find(tx, fqid)
    assert row is not None
    return row


@pytest.mark.parametrize("size", [10, LONG])
def test_damaged_copy_is_read_from_other_replica(stores: Stores, size: int) -> None:
    row = row_of(stores, b"a" * size)
    key = keys.blob_key(row.checksums.sha256)
    damage(stores, "aws", key, "first byte" if size == 10 else "removed")
    shown = build_preview(stores, "aws", row)
    assert shown.text == "a" * min(size, PREVIEW_BYTES_MAX)
    damage(stores, "gcp", key, "removed")
    with pytest.raises(DomainError):
        build_preview(stores, "aws", row)


def test_empty_file_and_large_image_have_no_preview(stores: Stores) -> None:
    assert build_preview(stores, "aws", row_of(stores, b"")).note == "The file is empty."
    large = build_preview(stores, "aws", row_of(stores, PNG + bytes(LONG)))
    assert (large.kind, large.image) == ("none", b"")


def test_json_of_a_document_is_whole(stores: Stores) -> None:
    content = json.dumps({"organism": "Danio rerio"}).encode()
    shown = build_preview(stores, "aws", row_of(stores, content), "sample.json")
    assert json.loads(shown.text) == {"organism": "Danio rerio"}
