"""The number of fields of a document, held to the limit of the search index file by file."""

from collections.abc import Mapping
from typing import Any

from pipelines.finding.metadata import Unreadable
from storage.query.analysis import flatten

_ERRORS = [{"file": "f", "path": "p", "reason": "r"}]
"""A document may come to report errors, also after its files were counted."""


class FieldCount:
    """The distinct fields of a document to which metadata files are added one by one."""

    def __init__(self, document: Mapping[str, Any], limit: int) -> None:
        """Count what the document has without any file: all entries have the same members."""
        manifest = document["manifest"]
        one = {**manifest, "files": manifest["files"][:1]}
        self._limit = limit
        self._fields = _paths({**document, "manifest": one, "errors": _ERRORS})
        self._at_most = len(self._fields)
        self._uncounted: list[tuple[str, Any]] = []

    def add(self, key: str, value: Any, content: bytes) -> None:
        """Add a file, or raise Unreadable where the document would have too many fields.

        Each field has a colon in the file, so that most documents are never counted exactly.
        """
        colons = content.count(b":") + 1
        if self._at_most + colons <= self._limit:
            self._at_most += colons
            self._uncounted.append((key, value))
            return
        self._count()
        own = _paths({"files": {key: value}})
        fresh = own - self._fields
        if len(self._fields) + len(fresh) > self._limit:
            raise Unreadable(
                f"has {len(own)} fields, with which the document has more than {self._limit}"
            )
        self._fields |= fresh
        self._at_most = len(self._fields)

    def _count(self) -> None:
        """Replace the upper bound by the exact number."""
        for key, value in self._uncounted:
            self._fields |= _paths({"files": {key: value}})
        self._uncounted.clear()
        self._at_most = len(self._fields)


def _paths(document: Mapping[str, Any]) -> set[str]:
    return set(flatten(document).paths())
