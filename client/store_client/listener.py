"""Follow the event feed, let the store decide what a query matches, and forward signed webhooks.

Nothing is created in the store: matches and payloads come from dry runs of a subscription that does
not exist. Connections that break are tried again for ever, without losing or repeating an event.
"""

import asyncio
import json
import logging
import os
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx

from store_client.client import Client
from store_client.errors import Damaged, Misused, Refused, StoreError, TimedOut, Unreachable
from store_client.http.pool import describe_failure, load_tls_context
from store_client.http.retries import TOO_MANY_REQUESTS
from store_client.webhooks import sign

log = logging.getLogger(__name__)

WAIT_S = 20
"""How long the store waits for news before it answers that there is none."""
SHORTEST_WAIT_S = 1.0
"""Between two requests without news, if the store or a proxy does not wait."""
BACKOFF_S = (1, 2, 4, 8, 15)
"""Waits after requests that failed in spite of their retries; the last one is repeated."""
REMEMBERED = 10_000
"""Event ids by which repetitions are recognized after the store was restored."""
MAX_TRIED = 50
"""Events of one dry run; the store takes no more."""
CALLBACK_URL = "http://listener.invalid/"
"""Dry runs need one, and send nothing there; that name exists nowhere (RFC 2606)."""
USER_AGENT = "consortium-store/1"
FORWARD_TIMEOUT_S = 10.0
"""As long as the store waits for a receiver."""
MAX_RECEIVED = 64 * 1024
"""Bytes of a receiver's answer that are read."""

_MEMBERS = ("event_id", "event_type", "bundle_uuid", "bundle_version", "timestamp")
"""Of an event, all of them text."""

T = TypeVar("T")
FeedEvent = Mapping[str, Any]
Sleep = Callable[[float], None]


def call_until_answered(call: Callable[[], T], sleep: Sleep = time.sleep) -> T:
    """Repeat a call until the store answers; an error that will not pass is raised."""
    failures = 0
    while True:
        try:
            return call()
        except (Unreachable, TimedOut, Damaged) as error:
            problem: StoreError = error
        except Refused as error:
            if error.status != TOO_MANY_REQUESTS:
                raise
            problem = error
        wait_s = BACKOFF_S[min(failures, len(BACKOFF_S) - 1)]
        failures += 1
        log.warning("%s; still listening, again in %g s", problem, wait_s)
        sleep(wait_s)


class EventFeed:
    """The events of a replica from a time on, each once, in order."""

    def __init__(self, client: Client, replica: str, *, sleep: Sleep = time.sleep) -> None:
        self._client, self._replica, self._sleep = client, replica, sleep
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._first: Sequence[FeedEvent] = ()
        self._cursor = ""

    def open(self, since: str | None = None) -> None:
        """Fix the place where the feed begins: now, or a time as a version. Does not wait."""
        place = {} if since is None else {"from_date": since}
        self._first, self._cursor = self._read(0, **place)

    def follow(self) -> Iterator[list[FeedEvent]]:
        """Yield events as they happen, for ever."""
        events, waited_s = self._first, SHORTEST_WAIT_S
        while True:
            if fresh := [one for one in events if self._is_new(one)]:
                yield fresh
            elif waited_s < SHORTEST_WAIT_S:
                self._sleep(SHORTEST_WAIT_S - waited_s)
            began = time.monotonic()
            events, self._cursor = call_until_answered(self._read_on, self._sleep)
            waited_s = time.monotonic() - began

    def _read_on(self) -> tuple[Sequence[FeedEvent], str]:
        try:
            return self._read(WAIT_S, after=self._cursor)
        except Refused as error:
            if not (cursor := _restart_cursor(error)) or cursor == self._cursor:
                raise
        log.warning("the store was restored: continuing from where nothing is missed")
        return self._read(WAIT_S, after=cursor)

    def _read(self, wait_s: float, **place: str) -> tuple[Sequence[FeedEvent], str]:
        answer = self._client.call(
            "get_events_feed",
            replica=self._replica,
            headers={"Prefer": f"wait={wait_s}"},
            **place,
        )
        try:
            events, cursor = list(answer["events"]), str(answer["cursor"])
            if not all(isinstance(one[name], str) for one in events for name in _MEMBERS):
                raise TypeError("a member is no text")
        except (KeyError, TypeError) as error:
            raise Damaged("the store's answer is not an event feed") from error
        return events, cursor

    def _is_new(self, event: FeedEvent) -> bool:
        ident = event["event_id"]
        if ident in self._seen:
            return False
        self._seen[ident] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return True


def _restart_cursor(error: Refused) -> str:
    """Return where to continue after the store was restored; "" for other errors."""
    if error.code != "illegal_token":
        return ""
    return parse_qs(urlsplit(error.next_url).query).get("after", [""])[0]


@dataclass(frozen=True, slots=True)
class FeedMatch:
    """An event that a subscription would be notified of, or whose evaluation failed."""

    event: FeedEvent
    payload: Mapping[str, Any] | None
    error: str = ""


@dataclass
class MatchFinder:
    """Asks the store which events a subscription would match, by dry runs."""

    client: Client
    replica: str
    query: Mapping[str, Any]
    """Members of the subscription: `jmespath_query` or `es_query`, and `attachments`."""
    subscription_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """In all payloads; there is no such subscription."""
    sleep: Sleep = time.sleep

    def check(self) -> None:
        """Raise for an invalid query, a missing permission, or a store that is too old."""
        parameters = self.client.operation("dry_run_subscription").parameters
        if "event_ids" not in {one.name for one in parameters}:
            raise StoreError(
                "this store is too old to listen to: its dry runs take no events",
                hint="ask its operators to update it, or create a subscription",
            )
        self._dry_run(bundles=1, payloads=0)

    def find(self, events: Sequence[FeedEvent]) -> Iterator[FeedMatch]:
        """Yield those of the events that match, in their order."""
        left = list(events)
        while left:
            some = left[:MAX_TRIED]
            try:
                tried = partial(self._dry_run, event_ids=[one["event_id"] for one in some])
                # In order; of fewer events if the time runs out.
                results = call_until_answered(tried, self.sleep)
            except Refused as error:
                unknown = _unknown_event(error)
                if unknown is None or unknown >= len(some):
                    raise
                log.warning("the store was restored, and does not have an event any more")
                del left[unknown]
                continue
            for event, result in zip(some, results, strict=False):
                if result.get("matches") or result.get("error"):
                    yield FeedMatch(event, result.get("payload"), str(result.get("error") or ""))
            # The time of a dry run may end before the last event, or within the first one.
            if not results:
                yield FeedMatch(some[0], None, "The query failed: it takes too long.")
            left = left[len(results) or 1 :]

    def _dry_run(self, **tried: Any) -> list[Mapping[str, Any]]:
        answer = self.client.call(
            "dry_run_subscription",
            replica=self.replica,
            callback_url=CALLBACK_URL,
            subscription_id=self.subscription_id,
            **self.query,
            **tried,
        )
        try:
            results = list(answer["bundles"])
            if not all(map(_is_result, results)):
                raise TypeError("a result has no payload with an id")
        except (KeyError, TypeError) as error:
            raise Damaged("the store's answer is not a dry run") from error
        return results


def _is_result(result: Any) -> bool:
    """Whether it is the result of an event; one that matched has a payload with an id."""
    if not isinstance(result, Mapping):
        return False
    payload = result.get("payload")
    return payload is None or (
        isinstance(payload, Mapping) and isinstance(payload.get("transaction_id"), str)
    )


def _unknown_event(error: Refused) -> int | None:
    """Return the place of an event that the store does not have; None for other errors."""
    pointers = error.problem.get("errors")
    for name in pointers if isinstance(pointers, Mapping) else ():
        if found := re.fullmatch("/event_ids/([0-9]{1,4})", str(name)):
            return int(found[1])
    return None


@dataclass(frozen=True, slots=True)
class ForwardResult:
    """What a receiver answered to a forwarded webhook, or why it did not."""

    status: int | None
    error: str
    seconds: float

    @property
    def is_delivered(self) -> bool:
        """Whether the store would count it as delivered."""
        return self.status is not None and 200 <= self.status < 300


class WebhookForwarder:
    """Sends webhooks as the store would: one attempt, no redirects, 10 seconds.

    A context manager.
    """

    def __init__(
        self, url: str, secret: str, *, key_id: str, timeout_s: float = FORWARD_TIMEOUT_S
    ) -> None:
        self.url = parse_forward_url(url)
        self._secret, self._key_id, self._timeout_s = secret, key_id, timeout_s
        self._runner = asyncio.Runner()
        self._client: httpx.AsyncClient | None = None

    def __enter__(self) -> "WebhookForwarder":
        self._client = httpx.AsyncClient(
            verify=load_tls_context(
                os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
            ),
            # As the store, which also uses no proxy.
            trust_env=False,
            follow_redirects=False,
            timeout=None,
            limits=httpx.Limits(max_keepalive_connections=0),
        )
        # Loads what the time of the first request would otherwise include.
        self._runner.run(anyio.sleep(0))
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._runner.run(self._client.aclose())
        self._runner.close()

    def send(self, payload: Mapping[str, Any]) -> ForwardResult:
        """Send one webhook; errors are part of the result."""
        began = time.monotonic()
        try:
            body = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:
            return ForwardResult(None, "the notification has half of a surrogate pair", 0.0)
        status, error = self._runner.run(self._post(body, payload["transaction_id"]))
        return ForwardResult(status, error, time.monotonic() - began)

    def _build_headers(self, body: bytes, delivery_id: str) -> dict[str, str]:
        return {
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
            "Accept-Encoding": "identity",
            "X-STORE-NOTIFY-ATTEMPT": "1",
            **sign(
                self._secret,
                body,
                delivery_id=delivery_id,
                host=self.url.netloc.decode(),
                target=self.url.raw_path.decode(),
                key_id=self._key_id,
            ),
        }

    async def _post(self, body: bytes, delivery_id: str) -> tuple[int | None, str]:
        """Return the status, or why there is none."""
        if self._client is None:
            raise RuntimeError("the forwarder is not open")
        status: int | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                headers = self._build_headers(body, delivery_id)
                async with self._client.stream(
                    "POST", self.url, content=body, headers=headers
                ) as answer:
                    status = answer.status_code
                    await _read_prefix(answer)
        except TimeoutError:
            error = f"no answer within {self._timeout_s:g} s"
        except httpx.HTTPError as problem:
            error = str(describe_failure(str(self.url), problem))
        except (OSError, UnicodeError) as problem:
            error = f"no connection to {self.url.netloc.decode()}: {problem}"
        else:
            error = ""
        # What goes wrong with the body after the status does not matter, as in the store.
        return (None, error) if status is None else (status, "")


async def _read_prefix(answer: httpx.Response) -> None:
    """Read the beginning of a body, so that receivers are not cut off in the middle of a line."""
    size = 0
    async for piece in answer.aiter_raw():
        size += len(piece)
        if size > MAX_RECEIVED:
            return


def parse_forward_url(url: str) -> httpx.URL:
    """Parse the URL of a receiver; Misused."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise Misused(f"--forward-to: {url!r} is not a URL: {error}") from error
    is_http = parsed.scheme in ("http", "https") and bool(parsed.host)
    if not is_http or not 0 < (parsed.port or 1) < 65_536:
        raise Misused(
            f"--forward-to: must be an http or https URL (got {url!r})",
            hint="for example http://127.0.0.1:9099/notify",
        )
    if parsed.userinfo:
        raise Misused("--forward-to: must not contain a user name or password")
    return parsed
