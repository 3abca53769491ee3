"""Ask the store for the files of a bundle, or for one file, with presigned URLs."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from store_client.errors import Damaged, Misused
from store_client.identifiers import check_uuid, is_sha256, parse_version
from store_client.transfer.streams import RemoteFile

if TYPE_CHECKING:
    import httpx


class StoreCalls(Protocol):
    """What downloads need of a Client."""

    def call(self, name: str, /, **arguments: Any) -> Any: ...

    def pages(self, name: str, /, **arguments: Any) -> Iterator[Any]: ...

    def stream(
        self, name: str, /, **arguments: Any
    ) -> "AbstractContextManager[httpx.Response]": ...

    def sends(self, url: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class BundleListing:
    """A bundle version with its files."""

    uuid: str
    version: str
    files: tuple[RemoteFile, ...]

    @property
    def fqid(self) -> str:
        """The name of its directory."""
        return f"{self.uuid}.{self.version}"


def list_bundle(
    store: StoreCalls,
    replica: str,
    uuid: str,
    *,
    version: str = "",
    presigned: bool = True,
) -> BundleListing:
    """List the files of a bundle, by default with URLs; one request for each 500 files."""
    files: list[RemoteFile] = []
    found = uuid, version
    wanted = {"version": version or None, "presignedurls": presigned or None}
    for page in store.pages("get_bundle", uuid=uuid, replica=replica, **wanted):
        try:
            shown = page["bundle"]
            found = check_identity(shown)
            files += [_parse_entry(line) for line in shown["files"]]
        except (KeyError, TypeError, ValueError, Misused) as error:
            raise Damaged(f"the answer about bundle {uuid} is not a bundle") from error
    if len({one.name for one in files}) < len(files):
        raise Damaged(f"the store says that bundle {uuid} has two files of one name")
    return BundleListing(*found, tuple(files))


def find_file(store: StoreCalls, replica: str, uuid: str, *, version: str = "") -> RemoteFile:
    """Find a file; its name is its uuid and version."""
    answer = store.call("get_file", uuid=uuid, replica=replica, version=version or None)
    try:
        headers = {name.lower(): str(value) for name, value in answer["headers"].items()}
        found = RemoteFile(
            uuid=uuid,
            version=headers["x-store-version"],
            name=f"{uuid}.{headers['x-store-version']}",
            sha256=headers["x-store-sha256"].lower(),
            size=int(headers["x-store-size"]),
            url=str(answer["location"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"the answer about file {uuid} is not a file") from error
    return _check_file(found)


def renew_url(store: StoreCalls, replica: str, wanted: RemoteFile) -> str:
    """Request a new presigned URL; Damaged if the content has changed."""
    found = find_file(store, replica, wanted.uuid, version=wanted.version)
    if found.sha256 != wanted.sha256:
        raise Damaged(f"{wanted.name}: the store has a SHA-256 of {found.sha256} for it")
    if found.size != wanted.size:
        raise Damaged(f"{wanted.name} has {found.size} bytes, not {wanted.size}")
    return found.url


def check_identity(shown: Mapping[str, Any]) -> tuple[str, str]:
    """Check uuid and version, which become a directory's name; Misused if invalid."""
    uuid = check_uuid(str(shown["uuid"]), "uuid")
    parse_version(str(shown["version"]))
    return uuid, str(shown["version"])


def _parse_entry(line: Mapping[str, Any]) -> RemoteFile:
    found = RemoteFile(
        uuid=str(line["uuid"]),
        version=str(line["version"]),
        name=str(line["name"]),
        sha256=str(line["sha256"]).lower(),
        size=int(line["size"]),
        indexed=bool(line["indexed"]),
        url=str(line.get("url") or ""),
    )
    return _check_file(found)


def _check_file(wanted: RemoteFile) -> RemoteFile:
    if not is_sha256(wanted.sha256) or wanted.size < 0:
        raise Damaged(f"the store says of {wanted.name!r} what no file has")
    return wanted
