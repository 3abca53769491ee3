"""Requests to the store's API for upload areas, one function each."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from store_client.checksums import MB
from store_client.errors import Damaged, name_answer_errors
from store_client.transfer.engine import MemoryBody

if TYPE_CHECKING:
    import httpx

    from store_client.client import Client

CHECKSUMMED, FAILED = "CHECKSUMMED", "FAILED"
UNDER_WAY = ("SCHEDULED", "CHECKSUMMING")
UNLOCKED = "UNLOCKED"
ONE_BLOCK = MB
"""Bytes of a file up to which it is sent in one block."""


def area_path(uuid: str) -> str:
    return f"/v1/area/{uuid}"


def file_path(uuid: str, name: str, *, under: str = "files") -> str:
    """The path of a file in an area; slashes of its name stay."""
    return f"{area_path(uuid)}/{under}/{quote(name, safe='/')}"


def open_area(client: "Client", uuid: str) -> str:
    """Open an area, which may be open already; its URI."""
    # Opening it again answers the same, so that it may be asked again.
    with name_answer_errors(f"POST {area_path(uuid)}"):
        return str(_post(client, area_path(uuid))["uri"])


def area_state(client: "Client", uuid: str) -> str:
    """UNLOCKED, LOCKED or DELETING; NotFound when there is none."""
    return str(
        client.session.request("HEAD", area_path(uuid)).headers.get("X-STORE-STATE", UNLOCKED)
    )


def area_pages(client: "Client", uuid: str, *, per_page: int = 0) -> Iterator[Mapping[str, Any]]:
    """The pages of an area: `uri`, `state` and `files`."""
    params = {"per_page": str(per_page)} if per_page else None
    for answer in client.session.pages("GET", area_path(uuid), params=params):
        yield answer.json()


def list_area_files(client: "Client", uuid: str) -> Iterator[Mapping[str, Any]]:
    for page in area_pages(client, uuid):
        yield from page["files"]


def get_file_state(
    client: "Client", uuid: str, name: str, *, of: Literal["checksum", "validate"] = "checksum"
) -> Mapping[str, Any]:
    """`status` and `cause` of a file's checksums or validation, and the `checksums`."""
    path, params = f"{area_path(uuid)}/{of}", {"filename": name}
    found: Mapping[str, Any] = client.session.request("GET", path, params=params).json()
    return found


def register_file(client: "Client", uuid: str, name: str, *, said: Mapping[str, Any]) -> str:
    """Register a file that was uploaded directly to the bucket; its status."""
    path = file_path(uuid, name)
    with name_answer_errors(f"POST {path}"):
        return str(_post(client, path, said)["status"])


def put_file(
    client: "Client", uuid: str, name: str, body: MemoryBody, content_type: str
) -> Mapping[str, Any]:
    """Upload a whole file; what the server stored. Damaged when its answer breaks off."""
    path = file_path(uuid, name)
    if len(body) > ONE_BLOCK:
        return _put_blocks(client, path, body, content_type=content_type)
    headers = {"Content-Type": content_type}
    response = client.session.request("PUT", path, content=body.data, headers=headers)
    body.seek(len(body))
    return _parse_stored(response, path)


def put_files(
    client: "Client", uuid: str, files: Sequence[tuple[str, bytes, str]]
) -> Sequence[Mapping[str, Any]]:
    """Upload small files, each a name, its bytes and its type; what the server stored of each."""
    path = f"{area_path(uuid)}/files"
    form = importlib.import_module("httpx").Request(
        "PUT", client.config.url, files=[("file", one) for one in files]
    )
    headers = {"Content-Type": form.headers["Content-Type"]}
    response = client.session.request("PUT", path, content=form.read(), headers=headers)
    with name_answer_errors(f"PUT {path}"):
        return [dict(one) for one in _parse_stored(response, path)["files"]]


def begin_parts(
    client: "Client", uuid: str, name: str, *, body: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Begin an upload in parts, or find one by its `upload_id`; its `part_size` and `parts`."""
    # An upload that was begun twice expires by itself.
    return _post(client, file_path(uuid, name, under="uploads"), body)


def put_part(
    client: "Client", uuid: str, name: str, body: MemoryBody, *, params: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Upload one part, by `upload_id` and `part`; the MD5 that the server computed."""
    path = file_path(uuid, name, under="uploads")
    return _put_blocks(client, path, body, content_type="application/octet-stream", params=params)


def complete_parts(
    client: "Client", uuid: str, name: str, *, body: Mapping[str, Any]
) -> dict[str, Any]:
    """Make one file of the parts of an upload."""
    return _post(client, file_path(uuid, name, under="complete"), body)


def _put_blocks(
    client: "Client",
    path: str,
    body: MemoryBody,
    *,
    content_type: str,
    params: Mapping[str, Any] | None = None,
) -> Mapping[str, Any]:
    with client.session.stream(
        "PUT",
        path,
        content=body.blocks,
        size=len(body),
        headers={"Content-Type": content_type},
        params=params,
    ) as response:
        try:
            response.read()
        except importlib.import_module("httpx").HTTPError as error:
            raise Damaged(f"the answer to PUT {path} broke off") from error
        return _parse_stored(response, path)


def _parse_stored(response: "httpx.Response", path: str) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = response.json()
    except ValueError as error:
        raise Damaged(f"the answer to PUT {path} broke off") from error
    return found


def get_credentials(client: "Client", uuid: str, names: Sequence[str] = ()) -> dict[str, Any]:
    """Temporary upload credentials of the area, or presigned URLs of these files."""
    body = {"filenames": list(names)} if names else None
    return _post(client, f"{area_path(uuid)}/credentials", body)


def _post(client: "Client", path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """POST something that may be sent again; the JSON object of the answer."""
    answer = client.session.request("POST", path, json=body, repeatable=True)
    found: dict[str, Any] = answer.json()
    return found
