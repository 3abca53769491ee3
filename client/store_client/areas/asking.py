"""What is asked of the server about upload areas, one function a request.

What the answers are used for is the business of the modules beside this one.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from store_client.client import Client
from store_client.errors import Damaged

CHECKSUMMED, FAILED = "CHECKSUMMED", "FAILED"
UNDER_WAY = ("SCHEDULED", "CHECKSUMMING")
UNLOCKED = "UNLOCKED"


def area_path(uuid: str) -> str:
    """The path of an area."""
    return f"/v1/area/{uuid}"


def file_path(uuid: str, name: str, *, under: str = "files") -> str:
    """The path of a file in it; its slashes stay slashes."""
    return f"{area_path(uuid)}/{under}/{quote(name, safe='/')}"


def open_area(client: Client, uuid: str) -> str:
    """Open an area, or find it opened before; its URI."""
    # Opening it again answers the same, so that it may be asked again.
    answer = client.session.ask("POST", area_path(uuid), repeatable=True)
    return str(answer.json()["uri"])


def state(client: Client, uuid: str) -> str:
    """UNLOCKED, LOCKED or DELETING; NotFound when there is none."""
    return str(client.session.ask("HEAD", area_path(uuid)).headers.get("X-STORE-STATE", UNLOCKED))


def pages(client: Client, uuid: str, *, per_page: int = 0) -> Iterator[Mapping[str, Any]]:
    """What lies in an area, page after page: `uri`, `state` and `files`."""
    params = {"per_page": str(per_page)} if per_page else None
    for answer in client.session.pages("GET", area_path(uuid), params=params):
        yield answer.json()


def files(client: Client, uuid: str) -> Iterator[Mapping[str, Any]]:
    """Every file of an area."""
    for page in pages(client, uuid):
        yield from page["files"]


def checksum(client: Client, uuid: str, name: str) -> Mapping[str, Any]:
    """`status`, `checksums` and `cause` of a file."""
    return _of_file(client, f"{area_path(uuid)}/checksum", name)


def validation(client: Client, uuid: str, name: str) -> Mapping[str, Any]:
    """`status` and `cause` of a file's validation."""
    return _of_file(client, f"{area_path(uuid)}/validate", name)


def arrived(client: Client, uuid: str, name: str, *, said: Mapping[str, Any]) -> str:
    """Tell that a file came by other means, and what it should be; the status."""
    path = file_path(uuid, name)
    answer = client.session.ask("POST", path, json=dict(said), repeatable=True)
    return str(answer.json()["status"])


def put(
    client: Client,
    path: str,
    *,
    blocks: Callable[[], Iterable[bytes]],
    size: int,
    content_type: str,
    params: Mapping[str, Any] | None = None,
) -> Mapping[str, Any]:
    """Send bytes; what the server says it has. Damaged when it cannot be heard to the end."""
    with client.session.stream(
        "PUT", path, content=blocks, size=size, content_type=content_type, params=params
    ) as response:
        try:
            response.read()
            found: Mapping[str, Any] = response.json()
        except (importlib.import_module("httpx").HTTPError, ValueError) as error:
            raise Damaged(f"the answer to PUT {path} broke off") from error
    return found


def credentials(client: Client, uuid: str, names: Sequence[str] = ()) -> dict[str, Any]:
    """Temporary ones, confined to the area; with names, for those where each has its URL."""
    body = {"filenames": list(names)} if names else None
    path = f"{area_path(uuid)}/credentials"
    found: dict[str, Any] = client.session.ask("POST", path, json=body, repeatable=True).json()
    return found


def _of_file(client: Client, path: str, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = client.session.ask("GET", path, params={"filename": name}).json()
    return found
