"""What a download is told: where to, which files, how stubbornly, by how many at once."""

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from store_client.errors import Misused
from store_client.telling import SILENCE, Tell

NUM_RETRIES = 10
MIN_DELAY_S = 0.25
"""Of the failure quota (Download rules)."""
JOBS = 8
MOST_JOBS = 64
CACHE = ".store"
"""The cache directory, created in the current one (Download rules)."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True)
class Filters:
    """Which files of a bundle are wanted: case-sensitive shell patterns on their names."""

    metadata: str | None = None
    data: str | None = None
    no_metadata: bool = False
    no_data: bool = False

    def check(self) -> None:
        """Misused when a kind is filtered and left out at once."""
        if self.no_metadata and self.metadata is not None:
            raise Misused("no_metadata cannot be combined with metadata_filter")
        if self.no_data and self.data is not None:
            raise Misused("no_data cannot be combined with data_filter")

    def want(self, name: str, *, indexed: bool) -> bool:
        """Whether a file passes; one that is `indexed` is metadata."""
        left_out, pattern = (
            (self.no_metadata, self.metadata) if indexed else (self.no_data, self.data)
        )
        return not left_out and fnmatchcase(name, "*" if pattern is None else pattern)


@dataclass(frozen=True, slots=True)
class Options:
    """The rest. `directory` is where bundles are laid out, `cache` where all bytes go."""

    replica: str
    directory: Path = field(default_factory=Path)
    cache: Path = field(default_factory=lambda: Path(CACHE))
    num_retries: int = NUM_RETRIES
    min_delay_s: float = MIN_DELAY_S
    jobs: int = JOBS
    dry_run: bool = False
    tell: Tell = SILENCE

    def check(self) -> None:
        """Misused for what cannot be."""
        if self.replica not in ("aws", "gcp"):
            raise Misused(f"{self.replica!r} is no replica", hint="choose aws or gcp")
        if self.num_retries < 0:
            raise Misused("num_retries must not be negative")
        if not 0 <= self.min_delay_s <= 3600:
            raise Misused("min_delay_seconds must be 0 to 3600")
        if not 1 <= self.jobs <= MOST_JOBS:
            raise Misused(f"jobs must be 1 to {MOST_JOBS}")


def checked_uuid(text: str, what: str) -> str:
    """A uuid in lower case; Misused when it is none."""
    if not _UUID.fullmatch(text):
        raise Misused(f"{text!r} is no uuid", hint=f"give the {what} as 8-4-4-4-12 hex digits")
    return text.lower()
