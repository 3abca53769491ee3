"""Real metadata as documents, from the folder that STORE_REAL_DATA names."""

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.documents import build_shape_descriptor, document_key
from storage.search.documents import flatten_document

VARIABLE = "STORE_REAL_DATA"


def documents() -> list[dict[str, Any]]:
    """Every experiment and every row of runs as a document; skips the test where there are none."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} names no folder with real metadata")
    contents = [*_experiments(Path(folder)), *_runs(Path(folder))]
    return [_document(number, files) for number, files in enumerate(contents)]


def _experiments(folder: Path) -> Iterator[dict[str, list[Any]]]:
    for experiment in sorted((folder / "bundles").iterdir()):
        paths = sorted(experiment.glob("*.json"))
        yield {document_key(path.name): [json.loads(path.read_bytes())] for path in paths}


def _runs(folder: Path) -> Iterator[dict[str, list[Any]]]:
    for table in sorted((folder / "runs").glob("*.tsv")):
        with table.open(encoding="utf-8", newline="") as rows:
            for row in csv.DictReader(rows, delimiter="\t"):
                yield {"run_json": [{name: _typed(cell) for name, cell in row.items()}]}


def _typed(cell: str | None) -> Any:
    if not cell:
        return None
    return int(cell) if cell.isdecimal() else cell


def _document(number: int, files: dict[str, list[Any]]) -> dict[str, Any]:
    # Numbers scattered over uuids, and a few bundles to a version, so that the order has work.
    uuid = f"{number * 2654435761 % 2**32:08x}-0000-4000-8000-{number:012x}"
    info = {"uuid": uuid, "version": f"2026-01-01T{number // 7:06d}.000000Z"}
    return {"bundle_info": info, "files": files, "shape_descriptor": build_shape_descriptor(files)}


def vocabulary(documents: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Words and whole values that occur, and the names of fields."""
    values: set[str] = set()
    fields: set[str] = set()
    for document in documents:
        flat = flatten_document(document)
        fields.update(flat.paths())
        fields.update(f"{path}.keyword" for path in flat.strings)
        for path, texts in flat.strings.items():
            values.update(flat.word_positions(path))
            values.update(text for text in texts if len(text) < 60)
        values.update(str(number) for path in flat.numbers for number in flat.numbers[path])
    return sorted(value for value in values if value), sorted(fields)
