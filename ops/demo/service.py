"""The store as its users reach it: over HTTP, with a token, patient where it asks for patience."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

PAGE = 500
PATIENCE_S = 180.0
CONNECTIONS = 64
"""More than the threads of a drill: who watches must not wait for who deposits."""
BUSY = frozenset({429, 503, 504})

Content = Callable[[], bytes | Iterable[bytes]]


class Refused(Exception):
    """The store answered otherwise than it should; the text says what."""

    def __init__(self, response: httpx.Response) -> None:
        request = response.request
        super().__init__(
            f"{request.method} {request.url.path}: {response.status_code} {response.text[:400]}"
        )
        self.status = response.status_code
        self.problem = _json(response)


@dataclass(frozen=True)
class Service:
    """A client of one store, for many threads."""

    http: httpx.Client
    patience_s: float = PATIENCE_S

    @classmethod
    def open(cls, api: str, token: str, *, patience_s: float = PATIENCE_S) -> "Service":
        """A client that keeps its connections, and asks again for so long."""
        limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
        timeout = httpx.Timeout(120.0, connect=10.0)
        headers = {"Authorization": f"Bearer {token}"}
        return cls(
            httpx.Client(
                base_url=f"{api}/v1",
                headers=headers,
                limits=limits,
                timeout=timeout,
                trust_env=False,
            ),
            patience_s,
        )

    def try_once(self, method: str, path: str, **request: Any) -> httpx.Response:
        """One answer, whatever it is."""
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
        """An answer with an accepted status; what may succeed later is tried again.

        `content` makes the body anew for every attempt.
        """
        deadline = time.monotonic() + self.patience_s
        while True:
            body = {} if content is None else {"content": content()}
            response = self._attempt(method, path, deadline, {**request, **body})
            if response is None:
                continue
            if response.status_code in ok:
                return response
            if not _later(response) or time.monotonic() > deadline:
                raise Refused(response)
            time.sleep(_pause(response))

    def _attempt(
        self, method: str, path: str, deadline: float, request: Mapping[str, Any]
    ) -> httpx.Response | None:
        """None when the connection broke and there is time for another attempt."""
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
        """Every item of a paged answer, by its Link headers."""
        body = {} if json is None else {"json": json}
        response = self.call(method, path, params=params, **body)
        while True:
            yield from response.json()[key]
            following = response.links.get("next")
            if following is None:
                return
            response = self.call(method, following["url"], **body)

    # What the demonstration does --------------------------------------------------------------

    def listed(self, replica: str) -> set[str]:
        """FQIDs of every bundle of a replica."""
        params = {"replica": replica, "per_page": PAGE}
        items = self.pages("GET", "/bundles/all", key="bundles", params=params)
        return {f"{item['uuid']}.{item['version']}" for item in items}

    def found(self, replica: str, es_query: Mapping[str, Any]) -> set[str]:
        """FQIDs of every bundle that a search finds."""
        params = {"replica": replica, "per_page": PAGE}
        items = self.pages(
            "POST", "/search", key="results", params=params, json={"es_query": dict(es_query)}
        )
        return {item["bundle_fqid"] for item in items}

    def manifest(self, replica: str, fqid: str) -> list[dict[str, Any]]:
        """All file entries of a bundle."""
        uuid, _, version = fqid.partition(".")
        params = {"replica": replica, "version": version, "per_page": PAGE}
        response = self.call("GET", f"/bundles/{uuid}", params=params)
        entries: list[dict[str, Any]] = list(response.json()["bundle"]["files"])
        while (following := response.links.get("next")) is not None:
            response = self.call("GET", following["url"])
            entries += response.json()["bundle"]["files"]
        return entries

    def read(self, replica: str, uuid: str, version: str) -> bytes:
        """The bytes of a file, by the redirect that the store gives."""
        params = {"replica": replica, "version": version}
        response = self.call(
            "GET", f"/files/{uuid}", params=params, ok=frozenset({200}), follow_redirects=True
        )
        return response.content


def _later(response: httpx.Response) -> bool:
    """Whether the store itself says that it may go well later."""
    if response.status_code in BUSY:
        return True
    return response.status_code == 409 and _json(response).get("code") == "file_pending"


def _pause(response: httpx.Response) -> float:
    told = response.headers.get("Retry-After", "")
    return min(float(told), 10.0) if told.isdigit() else 0.5


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
