"""Where a file waits until the store has taken it in: what every such place does."""

from dataclasses import dataclass
from typing import Protocol

from store_client.checksums import Checksums
from store_client.upload.journal import Unfinished
from store_client.upload.walking import Local


@dataclass(frozen=True, slots=True)
class Item:
    """A file that is to become this file version."""

    file: Local
    content_type: str
    uuid: str
    version: str


@dataclass(frozen=True, slots=True)
class Staged:
    """A file that waits; `url` is what put_file takes."""

    url: str
    checksums: Checksums


class Staging(Protocol):
    """A place where files wait; every method may be called by several threads at once."""

    def stage(self, item: Item) -> Staged:
        """Bring a file there whole, with its content type and checksums; what had arrived of it
        before is not sent again. Damaged when it changes meanwhile."""

    def restate(self, item: Item, staged: Staged) -> bool:
        """The store did not see the checksums: give them in another way; False if there is none."""

    def abandon(self, unfinished: Unfinished) -> None:
        """A file that was under way will not come."""

    def clear(self) -> None:
        """The store took in everything."""


def object_key(prefix: str, item: Item, *, longest: int = 1024) -> str:
    """The key of a file in a bucket: of its version alone, so that nothing is ever replaced."""
    key = f"{prefix}{item.uuid}.{item.version}/{item.file.name}"
    return key if len(key.encode()) <= longest else f"{prefix}{item.uuid}.{item.version}"
