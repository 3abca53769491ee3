"""A file that is wanted, and how a store is asked about it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from store_client.download.options import checked_uuid
from store_client.errors import Damaged, Misused
from store_client.versions import parse_version

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Store(Protocol):
    """What downloads ask of a Client."""

    def call(self, name: str, /, **arguments: Any) -> Any:
        """One operation's answer."""

    def pages(self, name: str, /, **arguments: Any) -> Iterator[Any]:
        """The answers of all its pages."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file version; `url` is where its bytes are for a while, "" when nobody asked yet."""

    uuid: str
    version: str
    name: str
    sha256: str
    size: int
    indexed: bool = False
    url: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A bundle version with its files."""

    uuid: str
    version: str
    files: tuple[Wanted, ...]

    @property
    def fqid(self) -> str:
        """What its directory is called."""
        return f"{self.uuid}.{self.version}"


def bundle(store: Store, replica: str, uuid: str, *, version: str | None = None) -> Listed:
    """All files of a bundle with URLs of their bytes: one request for each 500 of them."""
    named = {"version": version} if version else {}
    files: list[Wanted] = []
    found = uuid, version or ""
    for page in store.pages("get_bundle", uuid=uuid, replica=replica, presignedurls=True, **named):
        try:
            shown = page["bundle"]
            found = named_safely(shown)
            files += [_entry(line) for line in shown["files"]]
        except (KeyError, TypeError, ValueError, Misused) as error:
            raise Damaged(f"the answer about bundle {uuid} is no bundle") from error
    if len({one.name for one in files}) < len(files):
        raise Damaged(f"the store says that bundle {uuid} has two files of one name")
    return Listed(*found, tuple(files))


def file(store: Store, replica: str, uuid: str, *, version: str | None = None) -> Wanted:
    """A file by itself; its name is what it is known by."""
    named = {"version": version} if version else {}
    answer = store.call("get_file", uuid=uuid, replica=replica, **named)
    try:
        headers = _lowered(answer["headers"])
        found = Wanted(
            uuid=uuid,
            version=headers["x-store-version"],
            name=f"{uuid}.{headers['x-store-version']}",
            sha256=headers["x-store-sha256"].lower(),
            size=int(headers["x-store-size"]),
            url=str(answer["location"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"the answer about file {uuid} is not that of a file") from error
    return _checked(found)


def renewed(store: Store, replica: str, wanted: Wanted) -> str:
    """Another URL of the same bytes; Damaged when the store has other ones now."""
    found = file(store, replica, wanted.uuid, version=wanted.version or None)
    if found.sha256 != wanted.sha256:
        raise Damaged(f"{wanted.name}: the store has a SHA-256 of {found.sha256} for it")
    if found.size != wanted.size:
        raise Damaged(f"{wanted.name} has {found.size} bytes, not {wanted.size}")
    return found.url


def named_safely(shown: Mapping[str, Any]) -> tuple[str, str]:
    """Uuid and version of what a store tells of, which become a directory's name; Misused when
    they are none."""
    uuid = checked_uuid(str(shown["uuid"]), "uuid")
    parse_version(str(shown["version"]))
    return uuid, str(shown["version"])


def _entry(line: Mapping[str, Any]) -> Wanted:
    found = Wanted(
        uuid=str(line["uuid"]),
        version=str(line["version"]),
        name=str(line["name"]),
        sha256=str(line["sha256"]).lower(),
        size=int(line["size"]),
        indexed=bool(line["indexed"]),
        url=str(line.get("url") or ""),
    )
    return _checked(found)


def _checked(wanted: Wanted) -> Wanted:
    if not _SHA256.fullmatch(wanted.sha256) or wanted.size < 0:
        raise Damaged(f"the store says of {wanted.name!r} what no file has")
    return wanted


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): str(value) for name, value in headers.items()}


def named(wanted: Wanted, name: str) -> Wanted:
    """The same file under another name."""
    return replace(wanted, name=name)
