"""Turn a call of an API operation into an HTTP request, and its response into a value."""

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import quote, urlencode

from store_client.definition.arguments import check_arguments
from store_client.definition.openapi import ApiOperation, OperationParameter
from store_client.errors import Damaged, Misused, StoreError, name_os_errors
from store_client.http.session import HttpSession
from store_client.http.urls import strip_query

if TYPE_CHECKING:
    import httpx

CHUNK_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class RequestContent:
    """A request body as chunks; `size` is None if unknown."""

    chunks: Callable[[], Iterable[bytes]]
    size: int | None
    replayable: bool = True


def open_content(given: Any) -> RequestContent:
    """Open bytes, a Path, a binary file or a function that yields chunks; Misused."""
    if isinstance(given, bytes | bytearray | memoryview):
        whole = bytes(given)
        return RequestContent(lambda: (whole,) if whole else (), len(whole))
    if isinstance(given, Path):
        with name_os_errors(f"read {given}", Misused):
            size = given.stat().st_size
        return RequestContent(lambda: _read_path(given), size)
    if hasattr(given, "read"):
        return _file_content(given)
    if callable(given):
        return RequestContent(cast(Callable[[], Iterable[bytes]], given), None)
    raise Misused(
        f"content: must be bytes, a path or an open file (got {type(given).__name__})",
        hint='encode text first: content="...".encode()',
    )


def _read_path(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from _read_chunks(file)


def _file_content(file: BinaryIO) -> RequestContent:
    """The content of an open file from its position; sent once if it cannot seek."""
    if not file.seekable():
        return RequestContent(lambda: _read_chunks(file), None, replayable=False)
    start = file.tell()
    size = file.seek(0, 2) - start
    file.seek(start)

    def pieces() -> Iterator[bytes]:
        file.seek(start)
        return _read_chunks(file)

    return RequestContent(pieces, size)


def _read_chunks(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(CHUNK_SIZE):
        if not isinstance(piece, bytes):
            raise Misused("content: the file must be open for bytes", hint='open it with "rb"')
        yield piece


REPEATABLE = {
    **dict.fromkeys(
        (
            *("post_search", "post_search_facets", "post_area", "dry_run_subscription"),
            "post_v1_policies_evaluate",
        ),
        True,
    ),
    **dict.fromkeys(("put_subscription", "put_subscription_secret"), False),
}
"""Operations of POST that may be sent twice, and of PUT that do something each time."""
CONTENT_KEY = "X-OpenAPI-Paginated-Content-Key"


@dataclass(frozen=True, slots=True)
class OperationCall:
    """One request for an operation."""

    operation: ApiOperation
    url: str
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Mapping[str, Any] | list[Any] | None = None
    form: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: RequestContent | None = None

    def request_arguments(self) -> dict[str, Any]:
        """Arguments for `request` and `pages` of a session."""
        operation = self.operation
        return {
            "params": self.params,
            "json": self.json,
            "content": self.form,
            "headers": self.headers,
            # None: by the method.
            "repeatable": REPEATABLE.get(operation.name),
            # The authorization service gets a token only where it asks for one.
            "authorize": operation.service == "store" or operation.token != "no",
        }


def build_call(operation: ApiOperation, arguments: Mapping[str, Any]) -> OperationCall:
    """Build the request for an operation with these arguments; Misused."""
    rest = dict(arguments)
    headers = dict(rest.pop("headers", None) or {})
    if operation.keyed and not any(name.lower() == "idempotency-key" for name in headers):
        headers["Idempotency-Key"] = uuid.uuid4().hex
    given = check_arguments(operation, rest)
    places: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "body": {}}
    url = operation.url
    for one in operation.parameters:
        if one.name in given:
            places[one.place][one.name] = given[one.name]
        if one.place == "path":
            url = url.replace(f"{{{one.name}}}", _quote_path_value(one, given[one.name]))
    query, body = places["query"], places["body"]
    if operation.upload:
        return OperationCall(
            operation, url, query, headers=headers, content=open_content(body.get("content", b""))
        )
    if operation.form:
        texts = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in body.items()
        }
        form = urlencode(texts).encode()
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return OperationCall(operation, url, query, form=form, headers={**kind, **headers})
    return OperationCall(operation, url, query, json=_json_body(operation, body), headers=headers)


def execute_call(session: HttpSession, call: OperationCall) -> Any:
    """Send the request, and decode the response."""
    method = call.operation.method
    if call.content is None:
        return _decode_response(
            session.request(method, call.url, **call.request_arguments()),
            call.operation,
            session.object_type,
        )
    content = call.content
    headers = {"Content-Type": "application/octet-stream", **call.headers}
    with session.stream(
        method,
        call.url,
        params=call.params,
        headers=headers,
        content=content.chunks,
        size=content.size,
        repeatable=None if content.replayable else False,
    ) as answer:
        answer.read()
        return _decode_response(answer, call.operation, session.object_type)


def _decode_response(
    answer: "httpx.Response", operation: ApiOperation, object_type: type[dict[str, Any]]
) -> Any:
    """The body; for HEAD the headers, for a redirect its location and headers."""
    headers = dict(answer.headers)
    if answer.has_redirect_location:
        return {"location": answer.headers["Location"], "headers": headers}
    if answer.request.method == "HEAD":
        return headers
    if not answer.content:
        return None
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return answer.json(object_hook=None if object_type is dict else object_type)
        except (ValueError, RecursionError) as error:
            raise Damaged(f"the answer of {strip_query(str(answer.url))} is not JSON") from error
    if kind == "text/html" and operation.service == "store":
        raise StoreError(
            f"{strip_query(str(answer.url))} answered with an HTML page, which is not from a store",
            hint="check the URL, and whether a proxy requires a login",
        )
    return answer.text if kind.startswith("text/") else answer.content


def iterate_pages(session: HttpSession, call: OperationCall) -> Iterator[tuple[Any, str]]:
    """The body of each page, and the key of its items."""
    for answer in session.pages(call.operation.method, call.url, **call.request_arguments()):
        page = _decode_response(answer, call.operation, session.object_type)
        yield page, answer.headers.get(CONTENT_KEY) or call.operation.paged


def page_items(page: Any, key: str) -> list[Any]:
    """The items of a page; `key` may be nested, as `bundle.files`."""
    found = page
    for name in key.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    if not isinstance(found, list):
        raise Damaged(f"a page has no {key}")
    return found


_SURROGATE = re.compile("[\ud800-\udfff]")


def _quote_path_value(parameter: OperationParameter, value: Any) -> str:
    text = str(value)
    text = "" if _SURROGATE.search(text) else text
    if not text or any(part in (".", "..") for part in text.split("/")):
        raise Misused(f"{parameter.name}: {value!r} cannot be part of a URL")
    # Names of files hold slashes; ids, which say what they look like, do not.
    free = not {"pattern", "format", "enum"} & parameter.schema.keys()
    return quote(text, safe="/" if free else "")


def _json_body(operation: ApiOperation, body: Mapping[str, Any]) -> Any:
    members = [one for one in operation.parameters if one.place == "body"]
    if [one.name for one in members] == ["body"]:
        return body.get("body")
    return dict(body) if body or any(one.required for one in members) else None
