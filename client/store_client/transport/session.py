"""The session: one store's base URL, whose token is shown, and patience.

Redirects, retries and pages are dealt with here; what goes over the wire, one module below.
"""

import contextlib
import importlib
import json as jsons
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from store_client.errors import Damaged, Misused, StoreError
from store_client.transport.attempts import Asked, Attempts
from store_client.transport.headers import next_link
from store_client.transport.limits import LARGEST_ANSWER
from store_client.transport.origins import Origin, origin, resolved, secured, shown, trusted
from store_client.transport.policy import REPEATABLE, Policy
from store_client.transport.tokens import Tokens

__all__ = ["Policy", "Session", "Tokens"]

if TYPE_CHECKING:
    import httpx

    from store_client.transport.wire import Wire


class Session:
    """Asks one store; many threads share it."""

    def __init__(
        self,
        base_url: str,
        *,
        tokens: Tokens | None = None,
        policy: Policy = Policy(),  # noqa: B008
        sleep: Callable[[float], None] = time.sleep,
        transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        self.base_url = base_url
        self.tokens = tokens
        self.policy = policy
        self._sleep = sleep
        self._transport = transport
        self._origins = {origin(base_url)}
        self._known: set[Origin] = set()
        self._lock = threading.Lock()
        self._wire: Wire | None = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def met(self, url: str) -> None:
        """That origin answered before, so that it is worth some patience."""
        self._known.add(origin(url))

    def trust(self, url: str) -> None:
        """Show tokens to that origin, too; never where it is not encrypted and the store is."""
        found = origin(url)
        if found[0] == "https" or origin(self.base_url)[0] == "http":
            self._origins = self._origins | {found}

    def ask(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
        authorize: bool = True,
        limit: int = LARGEST_ANSWER,
    ) -> "httpx.Response":
        """The answer with its body, of status 2xx or a redirect that is the caller's to judge.

        StoreError for every other answer, and when there is none; Damaged when its body has more
        than `limit` bytes.
        """
        kind = {} if json is None else {"Content-Type": "application/json"}
        body = content if json is None else _as_json(json)
        asked = Asked(
            method=method.upper(),
            url=self._url(url, params),
            headers={**kind, **(headers or {})},
            content=None if body is None else lambda: body,
            repeatable=_repeatable(method, headers, repeatable),
            authorize=authorize,
            limit=limit,
        )
        return self._answered(asked)

    @contextlib.contextmanager
    def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        content: Callable[[], Iterable[bytes]] | None = None,
        size: int | None = None,
        content_type: str | None = None,
        authorize: bool = True,
        repeatable: bool | None = None,
        limit: int | None = LARGEST_ANSWER,
    ) -> "Iterator[httpx.Response]":
        """An answer whose body is still to be read; it is tried again only until that begins.

        `content` makes the body anew for each attempt. Unreachable, from the block, when the body
        breaks off; Damaged beyond `limit` bytes. None is for bodies that are not kept in memory.
        """
        length = {} if size is None else {"Content-Length": str(size)}
        kind = {} if content_type is None else {"Content-Type": content_type}
        asked = Asked(
            method=method.upper(),
            url=self._url(url, params),
            headers={**length, **kind, **(headers or {})},
            content=content if content is None or size is None else _measured(content, size),
            repeatable=_repeatable(method, headers, repeatable),
            authorize=authorize,
            limit=limit,
            whole=False,
        )
        with self._open().reading(self._answered(asked)) as answer:
            yield answer

    def pages(self, method: str, url: str, **asked: Any) -> "Iterator[httpx.Response]":
        """Every page, by the links that lead from one to the next."""
        answer = self.ask(method, url, **asked)
        seen = {str(answer.url)}
        yield answer
        asked.pop("params", None)
        while following := self._following(answer):
            if following in seen:
                raise StoreError(f"the pages of {shown(following)} lead in a circle")
            seen.add(following)
            answer = self.ask(method, following, **asked)
            yield answer

    def close(self) -> None:
        """End all connections; a request after that makes new ones."""
        with self._lock:
            wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _answered(self, asked: Asked) -> "httpx.Response":
        attempts = Attempts(self.policy, self._sleep, known=self._known)
        return attempts.answered(self._open(), asked, self._shown_to)

    def _shown_to(self, url: str) -> Tokens | None:
        """Whose tokens are shown there."""
        return self.tokens if trusted(url, self._origins) else None

    def _following(self, answer: "httpx.Response") -> str | None:
        here = str(answer.url)
        link = next_link(answer.headers)
        if link is None:
            if answer.status_code == 206:
                raise Damaged(f"more pages follow {shown(here)}, and no link says where")
            return None
        following = resolved(here, link)
        # A proxy that ends TLS may not have told the server so.
        if secured(_origin(following)) != secured(_origin(here)):
            raise StoreError(
                f"the next page of {shown(here)} is on another host: {shown(following)}",
                hint="the store's external URL may be set wrongly: use that one, or tell them",
            )
        return here.partition("://")[0] + following[following.index("://") :]

    def _url(self, url: str, params: Mapping[str, Any] | None) -> str:
        whole = (
            url if url.startswith(("http://", "https://")) else f"{self.base_url}/{url.lstrip('/')}"
        )
        told = {name: value for name, value in (params or {}).items() if value is not None}
        if not told:
            return whole
        return f"{whole}{'&' if '?' in whole else '?'}{_as_query(told)}"

    def _open(self) -> "Wire":
        with self._lock:
            if self._wire is None:
                module = importlib.import_module("store_client.transport.wire")
                self._wire = module.Wire(self.policy, self._transport)
            return self._wire


def _origin(url: str) -> tuple[str, str, int]:
    try:
        return origin(url)
    except ValueError as error:
        raise StoreError(f"a page's link is none: {error}") from error


def _repeatable(method: str, headers: Mapping[str, str] | None, said: bool | None) -> bool:
    if said is not None:
        return said
    keyed = any(name.lower() == "idempotency-key" for name in headers or {})
    return keyed or method.upper() in REPEATABLE


def _measured(content: Callable[[], Iterable[bytes]], size: int) -> Callable[[], Iterable[bytes]]:
    """Damaged, in place of a broken connection, when a file changes while it is sent."""

    def pieces() -> Iterator[bytes]:
        left = size
        for piece in content():
            left -= len(piece)
            if left < 0:
                break
            yield piece
        if left:
            raise Damaged(
                f"what is sent has {'more' if left < 0 else 'less'} than the {size} bytes it had",
                hint="it changed meanwhile: try again when it does not",
            )

    return pieces


def _as_json(value: Any) -> bytes:
    try:
        return jsons.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Misused(f"this cannot be sent as JSON: {error}") from error


def _as_query(params: Mapping[str, Any]) -> str:
    try:
        return urlencode(_plain(params), doseq=True)
    except UnicodeError as error:
        raise Misused(f"this cannot be part of an address: {error}") from error


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """Booleans as the service spells them."""
    spelled = {True: "true", False: "false"}
    return {
        name: spelled[value] if isinstance(value, bool) else value for name, value in params.items()
    }
