"""How far a large file has come, so that another run goes on there.

One small file for each in <home>/uploads, named by the store, the area and the name in it; it
counts only while the local file is what it was.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from store_client.areas.reading import Outgoing
from store_client.configuration import Configuration
from store_client.errors import Misused
from store_client.private_files import read_json, remove, write_json


class Journal:
    """What is remembered of one file on its way into one area, by one `way`."""

    def __init__(self, config: Configuration, area: str, *, outgoing: Outgoing, way: str) -> None:
        said = json.dumps([config.url, area, outgoing.name, way])
        self._path = config.uploads / f"area-{hashlib.sha256(said.encode()).hexdigest()[:32]}.json"
        self._of = _look(outgoing)

    def read(self) -> dict[str, Any]:
        """What was kept of this very file; empty when there is nothing."""
        kept = read_json(self._path)
        found = kept.get("kept")
        return found if kept.get("of") == self._of and isinstance(found, dict) else {}

    def keep(self, kept: Mapping[str, Any]) -> None:
        """Remember this instead."""
        write_json(self._path, {"of": self._of, "kept": dict(kept)})

    def drop(self) -> None:
        """Forget it: the file arrived, or what was kept is of no use."""
        remove(self._path)


def _look(outgoing: Outgoing) -> dict[str, Any]:
    """By what a file is known again."""
    try:
        found = Path(outgoing.path).stat()
    except OSError as error:
        raise Misused(f"cannot read {outgoing.path}: {error.strerror or error}") from error
    return {
        "path": str(Path(outgoing.path).absolute()),
        "size": outgoing.size,
        "modified_ns": found.st_mtime_ns,
        "content_type": outgoing.content_type,
    }
