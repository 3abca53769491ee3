"""Send one request until it is answered: retries with backoff, redirects and token renewal."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from store_client.errors import Conflict, NotFound, StoreError, TimedOut, Unreachable
from store_client.http.problems import error_from_response, status_phrase
from store_client.http.urls import (
    Origin,
    is_downgrade,
    is_trusted,
    parse_origin,
    resolve_url,
    retry_after,
    strip_query,
)

if TYPE_CHECKING:
    import httpx


RETRYABLE_STATUSES = frozenset({500, 502, 503, 504})
"""Faults of a server that may be gone the next time."""
TOO_MANY_REQUESTS = 429
REPEATABLE_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})
"""Methods that may be sent twice; others may when they carry an `Idempotency-Key`."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Time-outs and retries; the defaults are the service's recommendations."""

    waits_s: tuple[float, ...] = (1, 2, 4, 8, 16)
    """One retry after each."""
    unknown_retries: int = 2
    """Retries where no answer ever came from: a URL that is mistyped should not take half a minute
    to be told so."""
    retries_refused: bool = True
    """Whether to try again where nothing listens and nothing ever answered this session; a person
    at a terminal would rather know at once."""
    retry_after_cap_s: float = 120.0
    """A server that asks for more is not waited for."""
    redirects: int = 20
    """Redirects in a row that ask for no waiting."""
    redirected_s: float = 1200.0
    """Waited for in all, when an answer of 301 says again and again to come back."""
    connect_s: float = 10.0
    read_s: float = 90.0
    """Servers wait up to a minute for work to be done."""
    write_s: float = 90.0
    connections: int = 64


MIB = 1024 * 1024

MAX_ANSWER = 72 * MIB
"""A document of metadata may have 64 MiB, and comes within an event."""
MAX_DEFINITION = 16 * MIB
MAX_SMALL_ANSWER = MIB
"""Of logins, and of errors."""
MAX_JSON_VALUES = 2_000_000
"""Values of JSON in one answer; each costs 60 to 230 bytes of memory."""


class TokenSource(Protocol):
    """Provides tokens; threads share it."""

    def bearer(self) -> str | None:
        """A valid token; None for anonymous requests."""

    def renew(self, refused: str) -> str | None:
        """Another token after one was rejected; None if there is none."""


@dataclass(frozen=True, slots=True)
class StaticToken:
    """One given token."""

    token: str = field(repr=False)

    def bearer(self) -> str | None:
        return self.token

    def renew(self, refused: str) -> str | None:
        """There is no other token."""
        return None


class ConnectionBroken(Exception):
    """No complete response arrived."""

    def __init__(
        self,
        message: str,
        *,
        sent: bool,
        hint: str = "",
        permanent: bool = False,
        refused: bool = False,
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.refused = refused
        """Nothing listens there."""
        self.sent = sent
        """The server may have acted on it."""
        self.permanent = permanent
        """It will not be otherwise the next time."""


log = logging.getLogger(__name__)

FOLLOWED_REDIRECTS = frozenset({301, 308})
"""Redirects that are followed with the same method and body."""
CALLER_REDIRECTS = frozenset({302, 303, 304, 307})
"""Redirects that are returned to the caller."""
AFTER_SILENCE_S = 1.0
"""Waited when a route leads to itself and does not say when."""
BRIEF_S = 0.5
"""Shorter waits count as none, so that a redirect loop ends."""
UNAUTHORIZED = 401
AUTHORIZATION = "authorization"

TokenLookup = Callable[[str], TokenSource | None]
"""Whose token may be shown to a URL."""


@dataclass(frozen=True, slots=True)
class RetryableRequest:
    """A request that may be sent several times."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: Callable[[], bytes | Iterable[bytes]] | None = None
    """Makes the body for each attempt."""
    repeatable: bool = False
    authorize: bool = True
    limit: int | None = MAX_ANSWER
    """Bytes of the answer's body; None: any, for callers that stream it."""
    read_body: bool = True
    """Read the body before it counts as answered."""


class RequestSender(Protocol):
    """A pool of connections, see `http.pool`."""

    def send(self, request: RetryableRequest) -> "httpx.Response": ...

    def read_body(self, answer: "httpx.Response") -> None: ...


class RequestAttempts:
    """The attempts at one request.

    `known` has the origins that answered once, and whether they did in this session.
    """

    def __init__(
        self, policy: RetryPolicy, sleep: Callable[[float], None], *, known: dict[Origin, bool]
    ) -> None:
        self._policy = policy
        self._sleep = sleep
        self._reachable = known
        self._retries = 0
        self._moves = 0
        self._moved_s = 0.0
        self._token: str | None = None
        self._renewed = False
        self._doubt = False

    def send(
        self, wire: "RequestSender", asked: RetryableRequest, tokens_of: TokenLookup
    ) -> "httpx.Response":
        """The response with status 2xx or 3xx that the caller handles. StoreError."""
        while True:
            tokens = tokens_of(asked.url) if asked.authorize else None
            try:
                answer = self._send_once(wire, asked, tokens)
                status = answer.status_code
                if status < 300 or status in CALLER_REDIRECTS:
                    return answer
                wire.read_body(answer)
            except ConnectionBroken as error:
                self._handle_broken_connection(asked, error)
                continue
            if status in FOLLOWED_REDIRECTS:
                asked = self._follow_redirect(asked, answer)
            elif not self._renew_token(answer, tokens):
                self._handle_error_status(asked, answer)

    def _send_once(
        self, wire: "RequestSender", asked: RetryableRequest, tokens: TokenSource | None
    ) -> "httpx.Response":
        headers = dict(asked.headers)
        if tokens is None or AUTHORIZATION in map(str.lower, headers):
            self._token = None
        elif not self._renewed:
            self._token = tokens.bearer()
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        began = time.monotonic()
        answer = wire.send(replace(asked, headers=headers))
        self._reachable[parse_origin(asked.url)] = True
        if asked.read_body:
            wire.read_body(answer)
        spent = time.monotonic() - began
        status = answer.status_code
        log.debug("%s %s: %s after %.3f s", asked.method, strip_query(asked.url), status, spent)
        return answer

    def _renew_token(self, answer: "httpx.Response", tokens: TokenSource | None) -> bool:
        """Renew the token once; whether there is another one."""
        if answer.status_code != UNAUTHORIZED or self._renewed or not (tokens and self._token):
            return False
        another = tokens.renew(self._token)
        if another is None or another == self._token:
            return False
        self._token, self._renewed = another, True
        return True

    def _handle_error_status(self, asked: RetryableRequest, answer: "httpx.Response") -> None:
        """Wait before a retry, or raise the error."""
        status = answer.status_code
        again = status == TOO_MANY_REQUESTS or (status in RETRYABLE_STATUSES and asked.repeatable)
        said = retry_after(answer.headers)
        bearable = said is None or said <= self._policy.retry_after_cap_s
        if not (again and bearable and self._retries < len(self._policy.waits_s)):
            error = error_from_response(answer)
            if self._doubt and isinstance(error, NotFound | Conflict):
                lost = "an earlier attempt, whose answer was lost, may have succeeded"
                error.hint = f"{error.hint}; {lost}"
            raise error
        usual = self._policy.waits_s[self._retries]
        self._wait(asked, f"{status} {status_phrase(status)}", said or usual)

    def _handle_broken_connection(self, asked: RetryableRequest, error: ConnectionBroken) -> None:
        self._doubt = self._doubt or error.sent
        again = asked.repeatable or not error.sent
        most = len(self._policy.waits_s)
        answered = self._reachable.get(parse_origin(asked.url))
        if answered is None:
            most = min(most, self._policy.unknown_retries)
        if error.refused and not answered and not self._policy.retries_refused:
            most = 0
        if error.permanent or not again or self._retries >= most:
            tried = f" ({self._retries + 1} attempts)" if self._retries else ""
            raise Unreachable(f"{error}{tried}", hint=error.hint) from error
        self._wait(asked, str(error), self._policy.waits_s[self._retries])

    def _wait(self, asked: RetryableRequest, why: str, seconds: float) -> None:
        self._retries += 1
        place = f"{asked.method} {strip_query(asked.url)}"
        log.warning("%s; %s again in %g s (retry %d)", why, place, seconds, self._retries)
        self._sleep(seconds)

    def _follow_redirect(
        self, asked: RetryableRequest, answer: "httpx.Response"
    ) -> RetryableRequest:
        """The request to the redirect target, after the requested wait."""
        target = resolve_url(asked.url, answer.headers.get("Location", ""))
        _check_redirect(asked, target)
        said = retry_after(answer.headers)
        if said is None:
            said = AFTER_SILENCE_S if target == asked.url else 0.0
        self._retries = 0
        self._moves += said < BRIEF_S
        self._moved_s += said
        if self._moves > self._policy.redirects:
            raise StoreError(f"{strip_query(target)} redirects too often")
        if self._moved_s > self._policy.redirected_s:
            raise TimedOut(f"{strip_query(target)} is not ready yet", hint="try again later")
        if said:
            log.info("%s is not ready yet; trying again in %g s", strip_query(target), said)
            self._sleep(said)
        headers = asked.headers
        if not is_trusted(target, {parse_origin(asked.url)}):
            headers = {
                name: value for name, value in headers.items() if name.lower() != AUTHORIZATION
            }
        return replace(asked, url=target, headers=headers)


def _check_redirect(asked: RetryableRequest, target: str) -> None:
    """Refuse redirects that would leak the request."""
    try:
        origin, own = parse_origin(target), parse_origin(asked.url)
        unsafe = is_downgrade(asked.url, target)
    except ValueError as error:
        raise StoreError(
            f"{strip_query(asked.url)} redirects to an invalid URL: {error}"
        ) from error
    if unsafe or (asked.content is not None and origin[1] != own[1]):
        raise StoreError(
            f"{strip_query(asked.url)} redirects to {strip_query(target)}, which is not allowed",
            hint="if that is the store, use its URL: store login --url URL",
        )
