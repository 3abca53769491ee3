"""A store's HTTP API for tests: a token, retries of what may succeed later, and paging."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

PAGE_SIZE = 500
RETRY_FOR_S = 180.0
MAX_CONNECTIONS = 64
"""More than the threads of a drill: who watches must not wait for who deposits."""
RETRIED = frozenset({429, 503, 504})
MATCH_ALL: Mapping[str, dict[str, object]] = {"query": {"match_all": {}}}

Content = Callable[[], bytes | Iterable[bytes]]


class UnexpectedAnswer(Exception):
    """The store answered with a status that the caller does not accept."""

    def __init__(self, response: httpx.Response) -> None:
        request = response.request
        super().__init__(
            f"{request.method} {request.url.path}: {response.status_code} {response.text[:400]}"
        )
        self.status = response.status_code
        self.problem = _problem(response)


@dataclass(frozen=True)
class ApiClient:
    """A client of one store, safe to share between threads."""

    http: httpx.Client
    retry_for_s: float = RETRY_FOR_S

    @classmethod
    def open(cls, api: str, token: str, *, retry_for_s: float = RETRY_FOR_S) -> "ApiClient":
        """Create a client that keeps its connections open."""
        limits = httpx.Limits(
            max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS
        )
        http = httpx.Client(
            base_url=f"{api}/v1",
            headers={"Authorization": f"Bearer {token}"},
            limits=limits,
            timeout=httpx.Timeout(120.0, connect=10.0),
            trust_env=False,
        )
        return cls(http, retry_for_s)

    def send_once(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send a request without retries; return the answer, whatever its status."""
        return self.http.request(method, path, **request)

    def call(
        self,
        method: str,
        path: str,
        *,
        content: Content | None = None,
        ok: frozenset[int] = frozenset({200, 201, 202, 206}),
        **request: Any,
    ) -> httpx.Response:
        """Send a request, again while it may succeed later; UnexpectedAnswer if it does not.

        `content` makes the body anew for every attempt.
        """
        deadline = time.monotonic() + self.retry_for_s
        while True:
            body = {} if content is None else {"content": content()}
            response = self._send(method, path, deadline, {**request, **body})
            if response is None:
                continue
            if response.status_code in ok:
                return response
            if not _is_retryable(response) or time.monotonic() > deadline:
                raise UnexpectedAnswer(response)
            time.sleep(_retry_delay_s(response))

    def _send(
        self, method: str, path: str, deadline: float, request: Mapping[str, Any]
    ) -> httpx.Response | None:
        """Send once; return None if the connection broke and there is time for a retry."""
        try:
            return self.http.request(method, path, **request)
        except httpx.TransportError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
            return None

    def pages(
        self, method: str, path: str, *, key: str, params: Mapping[str, Any], json: Any = None
    ) -> Iterator[Any]:
        """Iterate over the items of all pages, by their Link headers."""
        body = {} if json is None else {"json": json}
        response = self.call(method, path, params=params, **body)
        while True:
            items = response.json()
            for name in key.split("."):
                items = items[name]
            yield from items
            following = response.links.get("next")
            if following is None:
                return
            response = self.call(method, following["url"], **body)

    def list_bundles(self, replica: str) -> set[str]:
        """List the FQIDs of all bundles of a replica."""
        params = {"replica": replica, "per_page": PAGE_SIZE}
        items = self.pages("GET", "/bundles/all", key="bundles", params=params)
        return {f"{item['uuid']}.{item['version']}" for item in items}

    def search(self, replica: str, es_query: Mapping[str, Any]) -> set[str]:
        """Search for bundles; return their FQIDs."""
        params = {"replica": replica, "per_page": PAGE_SIZE}
        body = {"es_query": dict(es_query)}
        items = self.pages("POST", "/search", key="results", params=params, json=body)
        return {item["bundle_fqid"] for item in items}

    def read_manifest(self, replica: str, fqid: str) -> list[dict[str, Any]]:
        """Read all file entries of a bundle."""
        uuid, _, version = fqid.partition(".")
        params = {"replica": replica, "version": version, "per_page": PAGE_SIZE}
        return list(self.pages("GET", f"/bundles/{uuid}", key="bundle.files", params=params))

    def read_file(self, replica: str, uuid: str, version: str) -> bytes:
        """Read a file through the redirect that the store answers with."""
        params = {"replica": replica, "version": version}
        response = self.call(
            "GET", f"/files/{uuid}", params=params, ok=frozenset({200}), follow_redirects=True
        )
        return response.content


def _is_retryable(response: httpx.Response) -> bool:
    if response.status_code in RETRIED:
        return True
    return response.status_code == 409 and _problem(response).get("code") == "file_pending"


def _retry_delay_s(response: httpx.Response) -> float:
    header = response.headers.get("Retry-After", "")
    return min(float(header), 10.0) if header.isdigit() else 0.5


def _problem(response: httpx.Response) -> dict[str, Any]:
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
