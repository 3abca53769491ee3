"""The bytes of an answer as they come; of a file, those that the answer leads to.

A file is compared with its checksum while it is written: an exit code of 0 says that it is whole.
"""

import hashlib
import importlib
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from store_client.cli import output
from store_client.errors import Damaged

if TYPE_CHECKING:
    import httpx

    from store_client.calling import Call
    from store_client.client import Client
    from store_client.definition import Operation

SHA256 = "X-STORE-SHA256"


def write(client: "Client", operation: "Operation", given: dict[str, Any], *, pages: bool) -> None:
    """Write the answer to standard output; of several pages one after another, a line each."""
    calling: Any = importlib.import_module("store_client.calling")
    call: Call = calling.call_of(operation, given)
    if pages:
        for page in client.session.pages(operation.method, call.url, **call.asked()):
            output.raw(page.content.rstrip(b"\n") + b"\n")
    elif call.content is not None:
        output.raw(output.as_json(calling.answered(client.session, call)).encode())
    else:
        answer = client.session.ask(operation.method, call.url, **call.asked())
        _write_one(client, operation, answer)


def _write_one(client: "Client", operation: "Operation", answer: "httpx.Response") -> None:
    if SHA256 in answer.headers and answer.is_redirect and operation.method == "GET":
        _write_file(client, answer)
    else:
        output.raw(answer.content)


def _write_file(client: "Client", answer: "httpx.Response") -> None:
    """StoreError when it breaks off, Damaged when it is another one than it should be."""
    digest = hashlib.sha256()
    place = urljoin(str(answer.url), answer.headers["Location"])
    plain = {"Accept-Encoding": "identity"}
    with client.session.stream("GET", place, headers=plain, authorize=False, limit=None) as content:
        for block in content.iter_raw():
            digest.update(block)
            output.raw(block)
    if digest.hexdigest() != answer.headers[SHA256].lower():
        raise Damaged(
            "what was written is not the file: its checksum is another one",
            hint="throw it away and try again; `store download` does so by itself",
        )
