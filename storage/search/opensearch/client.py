"""OpenSearch client: requests, errors, and combinators for its query DSL."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from opensearchpy import OpenSearch
from opensearchpy.exceptions import ConnectionError as Unreachable
from opensearchpy.exceptions import ConnectionTimeout, OpenSearchException, TransportError

from storage.blobs.clients import PerProcess
from storage.errors import DomainError, Invalid, NotFoundError, TimeLimitExceeded, Unavailable

OpenSearchReply = dict[str, Any]

RETRY_AFTER_S = 5
RETRIES = 2
CONNECTIONS = 32
# On top of the engine's own time limit, which it checks only now and then.
CLIENT_GRACE_S = 5.0
# Error types, with various statuses, of a search that the engine cancelled.
TIMEOUT_TEXT = re.compile("Time exceeded|Cancellation timeout")
NO_STATUSES: Collection[int] = ()


class EngineFullError(Unavailable):
    """The engine is overloaded."""


class RequestTooLargeError(Invalid):
    """A request exceeds the engine's size limit."""


class OpenSearchEngine:
    """One OpenSearch cluster; usable from any thread and in a forked child."""

    def __init__(
        self,
        url: str,
        login: tuple[str, str] = ("", ""),
        ca_file: str | None = None,
        *,
        time_limit_s: float,
    ) -> None:
        self.time_limit_s = time_limit_s
        options: dict[str, Any] = {"ca_certs": ca_file} if ca_file else {}
        self._client = PerProcess(
            lambda: OpenSearch(
                [url],
                http_auth=login if login[0] else None,
                timeout=time_limit_s + CLIENT_GRACE_S,
                max_retries=RETRIES,
                # All requests are idempotent: writes carry our own version numbers.
                retry_on_timeout=False,
                retry_on_status=(),
                pool_maxsize=CONNECTIONS,
                **options,
            )
        )

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        ignore: Collection[int] = NO_STATUSES,
        timeout_s: float | None = None,
        **parameters: str,
    ) -> OpenSearchReply:
        """Send a request; responses with a status in `ignore` are returned.

        NotFoundError if the path does not exist.
        """
        try:
            answer = self._client().transport.perform_request(
                method, path, params=parameters, body=body, timeout=timeout_s, ignore=ignore
            )
        except OpenSearchException as error:
            raise translate_error(error) from error
        if not isinstance(answer, dict):
            # A proxy may have sent it: read as a result it would mean that nothing exists.
            raise _make_unavailable(f"{path}: the response is no JSON object")
        return answer

    def search(self, index: str, body: Mapping[str, Any], filter_path: str) -> OpenSearchReply:
        """Search within the time limit; TimeLimitExceeded rather than partial results."""
        limit = f"{max(1, int(self.time_limit_s * 1000))}ms"
        answer = self.request(
            "POST",
            f"/{index}/_search",
            {**body, "track_total_hits": True, "timeout": limit},
            allow_partial_search_results="false",
            cancel_after_time_interval=limit,
            filter_path=f"timed_out,{filter_path}",
        )
        if not {"timed_out", "hits"} <= answer.keys():
            raise Unavailable("The search engine sent a malformed search response.")
        if answer["timed_out"]:
            raise TimeLimitExceeded(f"the search took longer than {self.time_limit_s:g} s")
        return answer

    def close(self) -> None:
        """Close this process's connections."""
        self._client().close()


def translate_error(error: OpenSearchException) -> DomainError:
    """Translate the engine's error."""
    if isinstance(error, ConnectionTimeout):
        return TimeLimitExceeded("The search engine took longer than it may.")
    if isinstance(error, Unreachable) or not isinstance(error, TransportError):
        return _make_unavailable(str(error))
    if TIMEOUT_TEXT.search(json.dumps(error.info, default=str)):
        return TimeLimitExceeded("The search took longer than it may.")
    return _translate_status(error.status_code, find_reason(error.info))


def _translate_status(status: int | str, said: str) -> DomainError:
    match status:
        case 400:
            refused = f"The search engine refused this: {said}"
            return Invalid(refused, code="elasticsearch_bad_request")
        case 404:
            return NotFoundError(said)
        case 408 | 504:
            return TimeLimitExceeded(f"The search engine took longer than it may: {said}")
        case 413:
            return RequestTooLargeError(f"The search engine takes no request of this size: {said}")
        case 429:
            return EngineFullError(
                f"The search engine is full: {said}", retry_after_s=RETRY_AFTER_S
            )
    return _make_unavailable(f"{status} {said}")


def _make_unavailable(said: str) -> Unavailable:
    detail = f"The search engine cannot be used now: {said}"
    return Unavailable(detail, retry_after_s=RETRY_AFTER_S)


def find_reason(info: Any) -> str:
    """Return the innermost cause in an error response."""
    found = info.get("error", info) if isinstance(info, Mapping) else info
    while isinstance(found, Mapping):
        causes = found.get("root_cause") or ()
        inner = found.get("caused_by") or (causes[0] if causes else None)
        if not isinstance(inner, Mapping) or inner == found:
            return f"{found.get('type', '')}: {found.get('reason', '')}".strip(": ")
        found = inner
    return str(found)


Dsl = dict[str, Any]

MATCH_ALL_QUERY: Dsl = {"match_all": {}}
MATCH_NONE_QUERY: Dsl = {"match_none": {}}


def match_every(parts: Sequence[Dsl]) -> Dsl:
    """Match all of these queries."""
    kept = [part for part in parts if part != MATCH_ALL_QUERY]
    if MATCH_NONE_QUERY in kept:
        return MATCH_NONE_QUERY
    if len(kept) < 2:
        return kept[0] if kept else MATCH_ALL_QUERY
    return {"bool": {"filter": kept}}


def match_some(parts: Sequence[Dsl], least: int = 1) -> Dsl:
    """Match at least `least` of these queries."""
    kept = [part for part in parts if part not in (MATCH_ALL_QUERY, MATCH_NONE_QUERY)]
    least -= list(parts).count(MATCH_ALL_QUERY)
    if least <= 0:
        return MATCH_ALL_QUERY
    if least >= len(kept):
        return match_every(kept) if least == len(kept) else MATCH_NONE_QUERY
    return {"bool": {"should": kept, "minimum_should_match": least}}


def exclude_matches(wanted: Dsl, forbidden: Dsl) -> Dsl:
    """Match the first query but not the second."""
    if forbidden == MATCH_NONE_QUERY or wanted == MATCH_NONE_QUERY:
        return wanted
    if forbidden == MATCH_ALL_QUERY:
        return MATCH_NONE_QUERY
    return {"bool": {"filter": [wanted], "must_not": [forbidden]}}
