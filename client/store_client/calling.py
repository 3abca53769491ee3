"""One call of an operation: arguments as a request, and its answer as a value."""

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from store_client.content import Content, content_of
from store_client.definition.checking import checked
from store_client.definition.operation import Operation, Parameter
from store_client.errors import Damaged, Misused, StoreError
from store_client.transport.origins import shown
from store_client.transport.session import Session

if TYPE_CHECKING:
    import httpx

HARMLESS = frozenset(
    {"post_search", "post_area", "dry_run_subscription", "post_v1_policies_evaluate"}
)
"""Operations that are POST and may be sent twice."""
ONCE = frozenset({"put_subscription", "put_subscription_secret"})
"""Operations that are PUT and do something each time."""
CONTENT_KEY = "X-OpenAPI-Paginated-Content-Key"


@dataclass(frozen=True, slots=True)
class Call:
    """One request for an operation."""

    operation: Operation
    url: str
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Mapping[str, Any] | list[Any] | None = None
    form: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: Content | None = None

    def asked(self) -> dict[str, Any]:
        """For a session's `ask` and `pages`."""
        operation = self.operation
        return {
            "params": self.params,
            "json": self.json,
            "content": self.form,
            "headers": self.headers,
            "repeatable": _repeatable(operation),
            # What hands out tokens is not shown one that it did not ask for.
            "authorize": operation.service == "store" or operation.token != "no",
        }


def call_of(operation: Operation, arguments: Mapping[str, Any]) -> Call:
    """The request that arguments make; Misused."""
    rest = dict(arguments)
    headers = _headers(operation, rest.pop("headers", None))
    given = checked(operation, rest)
    body = {one.name: given[one.name] for one in operation.placed("body") if one.name in given}
    url = operation.url
    for one in operation.placed("path"):
        url = url.replace(f"{{{one.name}}}", _in_path(one, given[one.name]))
    query = {one.name: given[one.name] for one in operation.placed("query") if one.name in given}
    if operation.upload:
        return Call(
            operation, url, query, headers=headers, content=content_of(body.get("content", b""))
        )
    if operation.form:
        form = urlencode({name: _in_form(value) for name, value in body.items()}).encode()
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return Call(operation, url, query, form=form, headers={**kind, **headers})
    return Call(operation, url, query, json=_json(operation, body), headers=headers)


def answered(session: Session, call: Call) -> Any:
    """What a call gives."""
    method = call.operation.method
    if call.content is None:
        return _value_of(session.ask(method, call.url, **call.asked()), call.operation)
    content = call.content
    headers = {"Content-Type": "application/octet-stream", **call.headers}
    with session.stream(
        method,
        call.url,
        params=call.params,
        headers=headers,
        content=content.pieces,
        size=content.size,
        repeatable=None if content.again else False,
    ) as answer:
        answer.read()
        return _value_of(answer, call.operation)


def _value_of(answer: "httpx.Response", operation: Operation) -> Any:
    """The body; of a HEAD the headers, of a redirect where it leads and the headers."""
    headers = dict(answer.headers)
    if answer.has_redirect_location:
        return {"location": answer.headers["Location"], "headers": headers}
    if answer.request.method == "HEAD":
        return headers
    if not answer.content:
        return None
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return _parsed(answer)
    if kind == "text/html" and operation.service == "store":
        raise StoreError(
            f"{shown(str(answer.url))} answers with a page, which no store does",
            hint="is the URL right, or is there something between that wants a login?",
        )
    return answer.text if kind.startswith("text/") else answer.content


def pages_of(session: Session, call: Call) -> Iterator[tuple[Any, str]]:
    """The body of each page, and where its items are."""
    for answer in session.pages(call.operation.method, call.url, **call.asked()):
        page = _value_of(answer, call.operation)
        yield page, answer.headers.get(CONTENT_KEY) or call.operation.paged


def items_of(page: Any, key: str) -> list[Any]:
    """The items of one page; `key` may lead through objects, as `bundle.files`."""
    found = page
    for name in key.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    if not isinstance(found, list):
        raise Damaged(f"a page has no {key}")
    return found


def _repeatable(operation: Operation) -> bool | None:
    """None: as usual for its method."""
    if operation.name in HARMLESS:
        return True
    return False if operation.name in ONCE else None


def _headers(operation: Operation, given: Mapping[str, str] | None) -> dict[str, str]:
    headers = dict(given or {})
    if operation.keyed and not any(name.lower() == "idempotency-key" for name in headers):
        headers["Idempotency-Key"] = uuid.uuid4().hex
    return headers


_SURROGATE = re.compile("[\ud800-\udfff]")


def _in_path(parameter: Parameter, value: Any) -> str:
    text = str(value)
    text = "" if _SURROGATE.search(text) else text
    if not text or any(part in (".", "..") for part in text.split("/")):
        raise Misused(f"{parameter.name}: {value!r} cannot be part of an address")
    # Names of files hold slashes; ids, which say what they look like, do not.
    free = not {"pattern", "format", "enum"} & parameter.schema.keys()
    return quote(text, safe="/" if free else "")


def _in_form(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _json(operation: Operation, body: Mapping[str, Any]) -> Any:
    places = operation.placed("body")
    if [one.name for one in places] == ["body"]:
        return body.get("body")
    return dict(body) if body or any(one.required for one in places) else None


def _parsed(answer: "httpx.Response") -> Any:
    try:
        return answer.json()
    except (ValueError, RecursionError) as error:
        raise Damaged(f"the answer of {shown(str(answer.url))} is no JSON") from error
