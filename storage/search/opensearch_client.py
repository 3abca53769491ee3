"""Requests to OpenSearch: one client a process, bounded in time and number, errors in our words."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from opensearchpy import OpenSearch
from opensearchpy.exceptions import (
    ConnectionError as Unreachable,
)
from opensearchpy.exceptions import (
    ConnectionTimeout,
    OpenSearchException,
    TransportError,
)

from storage.blobs.clients import PerProcess
from storage.errors import Invalid, NotFound, StoreError, TimedOut, Unavailable

Answer = dict[str, Any]

RETRY_AFTER_S = 5
RETRIES = 2
CONNECTIONS = 32
# Beyond the engine's own time limit, which it looks at now and then only.
GRACE_S = 5.0
# What the engine says, with various statuses, when it stopped a search by itself.
TOO_LATE = re.compile("Time exceeded|Cancellation timeout")
NONE_IGNORED: Collection[int] = ()


class FullError(Unavailable):
    """The engine has too much to do just now."""


class OversizedError(Invalid):
    """A request that is larger than the engine takes."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an engine is and who we are to it."""

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    authority: str | None = None


class Engine:
    """One OpenSearch; usable from any thread, and in a forked child."""

    def __init__(self, place: Place, *, time_limit_s: float) -> None:
        self.time_limit_s = time_limit_s
        self._client = PerProcess(lambda: _client(place, time_limit_s + GRACE_S))

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        ignore: Collection[int] = NONE_IGNORED,
        timeout_s: float | None = None,
        **parameters: str,
    ) -> Answer:
        """Ask; the answers to statuses in `ignore` come back like good ones. NotFound when what the
        path names is not there."""
        try:
            answer = self._client().transport.perform_request(
                method, path, params=parameters, body=body, timeout=timeout_s, ignore=ignore
            )
        except OpenSearchException as error:
            raise translated(error) from error
        if not isinstance(answer, dict):
            # Of a proxy, for example: read as an answer it would mean that nothing is there.
            raise _unavailable(f"{path} is answered for by something else")
        return answer

    def close(self) -> None:
        """Close the connections of this process."""
        self._client().close()


def _client(place: Place, timeout_s: float) -> OpenSearch:
    secure: dict[str, Any] = {"ca_certs": place.authority} if place.authority else {}
    return OpenSearch(
        [place.url],
        http_auth=(place.user, place.password) if place.user else None,
        timeout=timeout_s,
        max_retries=RETRIES,
        # Every request may be repeated: writes have versions of our own.
        retry_on_timeout=False,
        retry_on_status=(),
        pool_maxsize=CONNECTIONS,
        **secure,
    )


def translated(error: OpenSearchException) -> StoreError:
    """The engine's error in our words."""
    if isinstance(error, ConnectionTimeout):
        return TimedOut("The search engine took longer than it may.")
    if isinstance(error, Unreachable) or not isinstance(error, TransportError):
        return _unavailable(str(error))
    if TOO_LATE.search(json.dumps(error.info, default=str)):
        return TimedOut("The search took longer than it may.")
    return _of_status(error.status_code, reason(error.info))


def _of_status(status: int | str, said: str) -> StoreError:
    match status:
        case 400:
            refused = f"The search engine refused this: {said}"
            return Invalid(refused, code="elasticsearch_bad_request")
        case 404:
            return NotFound(said)
        case 408 | 504:
            return TimedOut(f"The search engine took longer than it may: {said}")
        case 413:
            return OversizedError(f"The search engine takes no request of this size: {said}")
        case 429:
            return FullError(f"The search engine is full: {said}", retry_after_s=RETRY_AFTER_S)
    return _unavailable(f"{status} {said}")


def _unavailable(said: str) -> Unavailable:
    detail = f"The search engine cannot be used now: {said}"
    return Unavailable(detail, retry_after_s=RETRY_AFTER_S)


def reason(info: Any) -> str:
    """The innermost cause that the engine gives."""
    found = info.get("error", info) if isinstance(info, Mapping) else info
    while isinstance(found, Mapping):
        causes = found.get("root_cause") or ()
        inner = found.get("caused_by") or (causes[0] if causes else None)
        if not isinstance(inner, Mapping) or inner == found:
            return f"{found.get('type', '')}: {found.get('reason', '')}".strip(": ")
        found = inner
    return str(found)
