"""A session with one store: base URL, tokens, redirects, retries and pages."""

import contextlib
import importlib
import json as jsons
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from store_client.errors import Damaged, Misused, StoreError
from store_client.http.retries import (
    MAX_ANSWER,
    REPEATABLE_METHODS,
    RequestAttempts,
    RetryableRequest,
    RetryPolicy,
    TokenSource,
)
from store_client.http.urls import (
    Origin,
    is_trusted,
    next_link,
    parse_origin,
    resolve_url,
    strip_query,
    upgrade_origin,
)

if TYPE_CHECKING:
    import httpx

    from store_client.http.pool import ConnectionPool


class HttpSession:
    """HTTP requests to one store; threads share it."""

    def __init__(
        self,
        base_url: str,
        *,
        tokens: TokenSource | None = None,
        policy: RetryPolicy = RetryPolicy(),  # noqa: B008
        sleep: Callable[[float], None] = time.sleep,
        transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        self.base_url = base_url
        self.tokens = tokens
        self.policy = policy
        self.object_type: type[dict[str, Any]] = dict
        """What JSON objects of answers are decoded as."""
        self._sleep = sleep
        self._transport = transport
        self._origins = {parse_origin(base_url)}
        self._reachable: dict[Origin, bool] = {}
        self._lock = threading.Lock()
        self._wire: ConnectionPool | None = None

    def __enter__(self) -> "HttpSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def mark_reachable(self, url: str) -> None:
        """Note that an origin answered before, so that more retries are made."""
        self._reachable.setdefault(parse_origin(url), False)

    def trust(self, url: str) -> None:
        """Send tokens to that origin, too, unless it is less secure than the store."""
        found = parse_origin(url)
        if found[0] == "https" or parse_origin(self.base_url)[0] == "http":
            self._origins = self._origins | {found}

    def is_own(self, url: str) -> bool:
        """Whether a URL leads to the store, which gets tokens."""
        return is_trusted(url, self._origins)

    def request(
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
        limit: int = MAX_ANSWER,
    ) -> "httpx.Response":
        """Send a request; the response of status 2xx or 3xx with its body.

        StoreError for any other status or no response; Damaged if the body has more than `limit`
        bytes.
        """
        kind = {} if json is None else {"Content-Type": "application/json"}
        body = content if json is None else _encode_json(json)
        asked = RetryableRequest(
            method=method.upper(),
            url=self._url(url, params),
            headers={**kind, **(headers or {})},
            content=None if body is None else lambda: body,
            repeatable=_is_repeatable(method, headers, repeatable),
            authorize=authorize,
            limit=limit,
        )
        return self._send(asked)

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
        authorize: bool = True,
        repeatable: bool | None = None,
        limit: int | None = MAX_ANSWER,
        retry: bool = True,
    ) -> "Iterator[httpx.Response]":
        """Send a request, and let the caller read the body; by default retried until it begins.

        `content` makes the body for each attempt. Unreachable if the body breaks off; Damaged
        beyond `limit` bytes, where None means any.
        """
        length = {} if size is None else {"Content-Length": str(size)}
        asked = RetryableRequest(
            method=method.upper(),
            url=self._url(url, params),
            headers={**length, **(headers or {})},
            content=content if content is None or size is None else _check_length(content, size),
            repeatable=_is_repeatable(method, headers, repeatable),
            authorize=authorize,
            limit=limit,
            read_body=False,
        )
        with self._connections().stream_body(self._send(asked, retry=retry)) as answer:
            yield answer

    def pages(self, method: str, url: str, **asked: Any) -> "Iterator[httpx.Response]":
        """Yield every page by following the next links."""
        answer = self.request(method, url, **asked)
        seen = {str(answer.url)}
        yield answer
        asked.pop("params", None)
        while following := self._next_page(answer):
            if following in seen:
                raise StoreError(f"the pages of {strip_query(following)} form a loop")
            seen.add(following)
            answer = self.request(method, following, **asked)
            yield answer

    def close(self) -> None:
        """Close all connections; a later request opens new ones."""
        with self._lock:
            wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _send(self, asked: RetryableRequest, *, retry: bool = True) -> "httpx.Response":
        policy = self.policy if retry else replace(self.policy, waits_s=())
        attempts = RequestAttempts(policy, self._sleep, known=self._reachable)
        return attempts.send(self._connections(), asked, self._tokens_for)

    def _tokens_for(self, url: str) -> TokenSource | None:
        """The tokens that may be sent to a URL."""
        return self.tokens if self.is_own(url) else None

    def _next_page(self, answer: "httpx.Response") -> str | None:
        here = str(answer.url)
        link = next_link(answer.headers)
        if link is None:
            if answer.status_code == 206:
                raise Damaged(f"more pages follow {strip_query(here)}, and no link says where")
            return None
        following = resolve_url(here, link)
        # A proxy that terminates TLS may not have reported it to the server.
        if upgrade_origin(_parse_page_origin(following)) != upgrade_origin(
            _parse_page_origin(here)
        ):
            raise StoreError(
                f"the next page of {strip_query(here)} is on another host:"
                f" {strip_query(following)}",
                hint="the store's external URL may be wrong: use that URL, or tell the operators",
            )
        return here.partition("://")[0] + following[following.index("://") :]

    def _url(self, url: str, params: Mapping[str, Any] | None) -> str:
        whole = (
            url if url.startswith(("http://", "https://")) else f"{self.base_url}/{url.lstrip('/')}"
        )
        values = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in (params or {}).items()
            if value is not None
        }
        if not values:
            return whole
        try:
            return f"{whole}{'&' if '?' in whole else '?'}{urlencode(values, doseq=True)}"
        except UnicodeError as error:
            raise Misused(f"this cannot be part of a URL: {error}") from error

    def _connections(self) -> "ConnectionPool":
        with self._lock:
            if self._wire is None:
                module = importlib.import_module("store_client.http.pool")
                self._wire = module.ConnectionPool(self.policy, self._transport)
            return self._wire


def _parse_page_origin(url: str) -> tuple[str, str, int]:
    try:
        return parse_origin(url)
    except ValueError as error:
        raise StoreError(f"the link to the next page is invalid: {error}") from error


def _is_repeatable(method: str, headers: Mapping[str, str] | None, said: bool | None) -> bool:
    if said is not None:
        return said
    keyed = any(name.lower() == "idempotency-key" for name in headers or {})
    return keyed or method.upper() in REPEATABLE_METHODS


def _check_length(
    content: Callable[[], Iterable[bytes]], size: int
) -> Callable[[], Iterable[bytes]]:
    """Damaged if the body has another length than announced."""

    def pieces() -> Iterator[bytes]:
        left = size
        for piece in content():
            left -= len(piece)
            if left < 0:
                break
            yield piece
        if left:
            raise Damaged(
                f"the content has {'more' if left < 0 else 'fewer'} bytes than announced ({size})",
                hint="it changed during the upload: try again",
            )

    return pieces


def _encode_json(value: Any) -> bytes:
    try:
        return jsons.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Misused(f"this cannot be sent as JSON: {error}") from error
