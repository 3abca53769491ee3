"""A curator's part of the tour: a private collection of what was deposited."""

import time
import uuid
from typing import Any

from ops.demo.bundles import JSON
from ops.demo.depositing import Deposited, new_version
from ops.demo.progress import REPLICAS
from ops.demo.service import Service

PATIENCE_S = 60.0


def links(chosen: Deposited) -> list[dict[str, str]]:
    """A bundle, one of its files and, if there is one, the JSON of a metadata file."""
    uuid_, _, version = chosen.fqid.partition(".")
    placed = chosen.placed
    found = [
        {"type": "bundle", "uuid": uuid_, "version": version},
        {"type": "file", "uuid": placed[0].uuid, "version": version},
    ]
    metadata = [one for one in placed if one.file.indexed and one.file.content_type == JSON]
    if metadata:
        found.append({"type": "metadata", "uuid": metadata[0].uuid, "version": version, "path": ""})
    return found


def collect(service: Service, contents: list[dict[str, str]]) -> tuple[str, dict[str, str]]:
    """Write a collection into aws; its uuid and version."""
    ident, version = str(uuid.uuid4()), new_version()
    service.call(
        "PUT",
        "/collections",
        params={"uuid": ident, "version": version, "replica": "aws"},
        json={
            "name": "Demonstration",
            "description": "What the *demonstration* deposited.",
            "details": {},
            "contents": [*contents, contents[0]],
        },
    )
    return ident, {"version": version}


def shown(service: Service, ident: str, params: dict[str, str]) -> list[Any]:
    """What each replica shows of it, once it is there."""
    deadline = time.monotonic() + PATIENCE_S
    found: list[Any] = []
    for replica in REPLICAS:
        while True:
            answer = service.try_once(
                "GET", f"/collections/{ident}", params={**params, "replica": replica}
            )
            if answer.status_code != 404 or time.monotonic() > deadline:
                break
            time.sleep(0.3)
        found.append(answer.json().get("contents"))
    return found
