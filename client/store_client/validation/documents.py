"""Validate metadata documents: well-formed JSON, and by schemas.

Faults of syntax have line and column, those of schemas a JSON pointer.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from store_client.checksums import MB
from store_client.validation.findings import WARNING, Finding
from store_client.validation.schemas import NO_SCHEMAS, SchemaSet

MAX_METADATA = 32 * MB
"""Bytes of a metadata file that the store looks into; it names larger ones in a bundle's errors."""
DETAILED_BYTES = 4 * MB
"""Largest document of which more than the first fault of a schema is listed, and whose own schema
is looked for."""
MAX_FAULTS = 1000
"""Faults of one kind, or of one schema, of a document that are listed."""
# Possessive: a text of megabytes would otherwise take a hundred times its size.
_TEXT = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_CONSTANT = re.compile(rf"{_TEXT}|(NaN|-?Infinity)")
_NAME = re.compile(rf"({_TEXT})\s*+:|{_TEXT}|[{{}}]")


def validate_document(
    name: str,
    data: bytes,
    schemas: SchemaSet = NO_SCHEMAS,
    *,
    path: Path | None = None,
    shown: str = "",
) -> list[Finding]:
    """Validate one document.

    path: where it lies; schemas that it names itself are found from there.
    shown: its name in findings, by default its name.
    """
    shown = shown or name
    if len(data) > MAX_METADATA:
        return oversized_findings(name, schemas, shown=shown)
    # A parsed value takes many times the size of its text.
    keep = schemas.has_rule(name) or (schemas.local and len(data) <= DETAILED_BYTES)
    reader = _JsonReader(keep)
    if faults := _find_syntax_faults(shown, data, reader):
        return faults
    applying, found = schemas.find_for(name, reader.value, path=path, shown=shown)
    if applying and reader.unreadable:
        return [*found, *(Finding(shown, message) for message in reader.unreadable)]
    most = MAX_FAULTS if len(data) <= DETAILED_BYTES else 1
    for schema in applying:
        try:
            faulty = schema.find_faults(reader.value, most=most)
        except UnicodeEncodeError:
            return [*found, Finding(shown, "half of a surrogate pair stands alone")]
        found += [Finding(shown, message, pointer=pointer) for pointer, message in faulty]
    return found


def validate_file(name: str, path: Path, schemas: SchemaSet, *, shown: str = "") -> list[Finding]:
    """Validate the document in a file; as `validate_document`."""
    try:
        if path.stat().st_size > MAX_METADATA:
            return oversized_findings(name, schemas, shown=shown)
        data = path.read_bytes()
    except OSError as error:
        return [Finding(shown or name, f"cannot be read: {error.strerror}")]
    return validate_document(name, data, schemas, path=path, shown=shown)


def _find_syntax_faults(shown: str, data: bytes, reader: "_JsonReader") -> list[Finding]:
    """Read JSON into the reader, and return what is wrong with it."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return [Finding(shown, "not UTF-8", line=line, column=column)]
    try:
        reader.read(text)
    except json.JSONDecodeError as error:
        message = error.msg.removesuffix(" at")
        return [Finding(shown, message, line=error.lineno, column=error.colno)]
    except RecursionError:
        return [Finding(shown, "nested too deeply")]
    found: list[Finding] = []
    for is_there, find in ((reader.repeats, _find_repeated), (reader.constants, _find_constants)):
        if is_there:
            found += islice(find(shown, text), MAX_FAULTS)
    return found


def oversized_findings(name: str, schemas: SchemaSet, *, shown: str = "") -> list[Finding]:
    """What a metadata file means that is larger than the store looks into."""
    limit = f"larger than {MAX_METADATA // MB} MiB"
    if schemas.has_rule(name):
        return [Finding(shown or name, f"{limit}: it cannot be validated")]
    return [Finding(shown or name, f"{limit}: the store does not search it", WARNING)]


@dataclass(slots=True)
class _JsonReader:
    """Reads JSON, and notes what Python takes but the store does not.

    keep: whether the value is wanted; else it takes little memory.
    """

    keep: bool
    value: Any = None
    repeats: bool = False
    constants: bool = False
    unreadable: list[str] = field(default_factory=list)
    """What keeps the store from validating a value that is JSON nevertheless."""

    def read(self, text: str) -> None:
        """Read a text into `value`."""
        self.value = json.loads(
            text,
            parse_int=self._parse_integer,
            parse_float=self._parse_float,
            parse_constant=self._note_constant,
            object_pairs_hook=self._make_object,
        )

    def _make_object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any] | None:
        found = dict(pairs)
        self.repeats = self.repeats or len(found) < len(pairs)
        return found if self.keep else None

    def _note_constant(self, constant: str) -> None:
        self.constants = True

    def _parse_integer(self, digits: str) -> int:
        try:
            return int(digits)
        except ValueError:
            self.unreadable.append(f"an integer has {len(digits)} digits")
            return 0

    def _parse_float(self, digits: str) -> float:
        found = float(digits)
        if found in (float("inf"), float("-inf")):
            self.unreadable.append(f"the number {digits[:40]} is too large")
        return found


def _find_repeated(shown: str, text: str) -> Iterator[Finding]:
    """Names that an object of a JSON text gives again: readers keep different values."""
    seen: list[set[str]] = []
    lines = _LineCounter(text)
    for found in _NAME.finditer(text):
        if found[0] == "{":
            seen.append(set())
        elif found[0] == "}":
            seen.pop()
        elif found[1]:
            name = json.loads(found[1])
            if name in seen[-1]:
                line, column = lines.find(found.start())
                message = f"the name {found[1]} is given twice in one object"
                yield Finding(shown, message, line=line, column=column)
            seen[-1].add(name)


def _find_constants(shown: str, text: str) -> Iterator[Finding]:
    lines = _LineCounter(text)
    for found in _CONSTANT.finditer(text):
        if found[1]:
            line, column = lines.find(found.start())
            yield Finding(shown, f"{found[1]} is not JSON", line=line, column=column)


@dataclass(slots=True)
class _LineCounter:
    """Lines and columns of places in a text that are asked for in order."""

    text: str
    _place: int = 0
    _line: int = 1
    _begin: int = 0
    """Where the line begins."""

    def find(self, place: int) -> tuple[int, int]:
        """Line and column, from 1, of a place after the one before."""
        self._line += self.text.count("\n", self._place, place)
        self._begin = max(self._begin, self.text.rfind("\n", self._place, place) + 1)
        self._place = place
        return self._line, place - self._begin + 1
