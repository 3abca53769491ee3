"""An operation as its view declares it: one decorator holds all that the definition says of it.
The operations of both applications are declared so.

The decorated function becomes an `Operation`; its name is the operation's name in the
specification, its docstring the summary.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flask import Response
from marshmallow import Schema

from api.asking import Asked, B, Q
from api.schemas.common import NoQuery
from api.services import Services
from api.throttle import client
from api.waiting import Preference, preference, seconds
from pipelines.repeating import Repeatable
from storage import json_codec
from storage.errors import Invalid
from storage.stores import Stores

SMALL_BODY = 1024 * 1024
"""Bytes that are plenty for every body but a manifest. Open operations read theirs from anybody,
and JSON takes many times its size in memory."""

PATH_PARAMETER = re.compile(r"{(\w+)}")

MAX_KEY = 255
"""Characters of an Idempotency-Key."""


@dataclass(frozen=True)
class Call(Asked[Services, Q, B]):
    """One request to the storage API, loaded and authorized."""

    @property
    def stores(self) -> Stores:
        """The open stores."""
        return self.services.stores

    @property
    def uuid(self) -> str:
        """The uuid in the path."""
        return self.path["uuid"]

    @property
    def client(self) -> str:
        """Whose limits count for this request."""
        return client(self.request, self.services.settings.proxies, self.principal)

    @property
    def prefer(self) -> Preference:
        """What the request says about waiting."""
        return preference(self.request.headers.get("Prefer"))

    def wait_s(self, default_s: float) -> float:
        """How long this request may wait for work."""
        cap_s = self.services.settings.wait_cap_s
        return seconds(self.prefer, default_s=default_s, cap_s=cap_s)

    def repeatable(self, digest: str) -> Repeatable | None:
        """What its Idempotency-Key, if it has one, makes of a request that asks for this."""
        key = self.request.headers.get("Idempotency-Key")
        if key is None:
            return None
        if not 0 < len(key) <= MAX_KEY or not key.isascii() or not key.isprintable():
            said = f"It must have 1 to {MAX_KEY} printable ASCII characters."
            raise Invalid(f"Idempotency-Key: {said}", errors={"Idempotency-Key": [said]})
        return Repeatable(self.who.email, key, digest)

    def send(self, todo: Any) -> None:
        """Start what a write left to be done."""
        self.services.chains.send(todo, self.request_id)


View = Callable[[Any], Response]
"""From an application's own `Call` to the answer."""


@dataclass(frozen=True)
class Answer:
    """One documented answer: what it means, its body and its headers."""

    about: str
    schema: type[Schema] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    page: bool = False
    """Whether its body is a page for a person."""


@dataclass(frozen=True, eq=False)
class Operation:
    """What is declared of an operation, and the view that carries it out."""

    name: str
    method: str
    path: str
    tag: str
    summary: str
    view: View
    query: Schema
    body: Schema | None
    answers: Mapping[int, Answer]
    about: str = ""
    errors: tuple[int, ...] = ()
    paged: str = ""
    """Name of the member that holds a page's items."""
    form: type[Schema] | None = None
    """The body is a form or JSON, read by the view."""
    upload: bool = False
    """The body is bytes, streamed by the view."""
    body_optional: bool = False
    max_body_bytes: int | None = SMALL_BODY
    """Largest JSON body; None: what the settings allow."""
    decode: Callable[[bytes], Any] | None = None
    """Decodes a body that may be large in one typed pass; None where the general reader must say
    what is wrong with it."""
    aliases: tuple[str, ...] = ()
    """Further paths that are answered too, undocumented."""
    query_from_body: tuple[str, ...] = ()
    """Query parameters that are taken from the body when the query has none."""
    body_from_query: tuple[str, ...] = ()
    """Body members that are taken from the query when the body has none."""
    once: bool = False
    """Whether a body is refused that has a member twice."""
    identified: bool = True
    """Whether the `Authorization` header is a bearer token; else the view alone looks at it."""
    counted: bool = True
    """Whether its requests count against the sender's rate."""
    while_read_only: bool = False
    """Whether it is served while the store is read-only, although its method is no read's: it
    changes nothing, or nothing that a backup keeps."""
    acts: bool = False
    """Whether it is a GET that does something, so that no HEAD stands for it."""

    @property
    def path_parameters(self) -> list[str]:
        """Names of what the path holds, in their order."""
        return PATH_PARAMETER.findall(self.path)

    @property
    def writes(self) -> bool:
        """Whether it changes anything, and so is refused while the store is read-only."""
        return not self.while_read_only and self.method not in ("GET", "HEAD")


def operation(
    method: str,
    path: str,
    *,
    tag: str,
    answers: Mapping[int, Answer],
    query: type[Schema] = NoQuery,
    body: type[Schema] | None = None,
    name: str = "",
    **more: Any,
) -> Callable[[View], Operation]:
    """Declare the decorated view; `more` are further members of `Operation`. Only a name that is
    none in Python is given."""

    def declare(view: View) -> Operation:
        return Operation(
            name=name or getattr(view, "__name__", ""),
            method=method,
            path=path,
            tag=tag,
            summary=(view.__doc__ or "").strip(),
            view=view,
            query=query(),
            body=body() if body else None,
            answers=answers,
            **more,
        )

    return declare


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer; `orjson.Fragment` passes JSON through unread."""
    body = json_codec.encode(value)
    return Response(body, status, headers=dict(headers or {}), mimetype="application/json")


def redirect(location: str, status: int, headers: Mapping[str, str]) -> Response:
    """An empty answer that points elsewhere."""
    return Response(b"", status, headers={"Location": location, **headers}, mimetype="text/plain")
