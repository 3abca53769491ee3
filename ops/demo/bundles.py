"""What is deposited: bundles of files whose bytes are generated or read when they are needed."""

import json
import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

JSON = "application/json"
_NAMESPACE = uuid.UUID("6f1c2a54-0d0c-4f0e-9d7b-6a3b3c0f5e11")
_NUMBERED = re.compile(r"_\d+(?=_json$)")


@dataclass(frozen=True)
class SampleFile:
    """One file; `blocks` gives its bytes anew at every call."""

    name: str
    content_type: str
    size: int
    blocks: Callable[[], Iterable[bytes]]
    indexed: bool = False


@dataclass(frozen=True)
class SampleBundle:
    """One bundle; its label names it in what people read."""

    label: str
    files: tuple[SampleFile, ...]

    @property
    def uuid(self) -> str:
        """The same for the same label, so that two runs deposit the same bundle."""
        return str(uuid.uuid5(_NAMESPACE, self.label))

    def file_uuid(self, name: str) -> str:
        """The uuid of one of its files."""
        return str(uuid.uuid5(_NAMESPACE, f"{self.label}/{name}"))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def metadata(self) -> dict[str, list[Any]]:
        """The parsed metadata files under the keys that the index gives them."""
        found: dict[str, list[Any]] = {}
        for file in self.files:
            if file.indexed and file.content_type.startswith(JSON):
                key = _NUMBERED.sub("", file.name.replace(".", "_"))
                found.setdefault(key, []).append(json.loads(b"".join(file.blocks())))
        return found


def held(name: str, content_type: str, data: bytes, *, indexed: bool = False) -> SampleFile:
    """A file whose bytes are at hand."""
    return SampleFile(name, content_type, len(data), lambda: (data,), indexed)


def metadata_file(name: str, content: Any, content_type: str = JSON) -> SampleFile:
    """A file of metadata, indexed."""
    data = json.dumps(content, indent=2, ensure_ascii=False).encode()
    return held(name, content_type, data, indexed=True)
