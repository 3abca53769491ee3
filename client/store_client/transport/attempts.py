"""One request until it has an answer: what is tried again, after how long, and what is not."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from store_client.errors import Conflict, NotFound, StoreError, TimedOut, Unreachable
from store_client.transport.headers import retry_after
from store_client.transport.limits import LARGEST_ANSWER
from store_client.transport.origins import Origin, downgrade, origin, resolved, shown, trusted
from store_client.transport.policy import TOO_MANY, TRY_AGAIN, Policy
from store_client.transport.refusals import phrase, refusal
from store_client.transport.sending import Broken, Sent
from store_client.transport.tokens import Tokens

if TYPE_CHECKING:
    import httpx

    from store_client.transport.wire import Wire

log = logging.getLogger(__name__)

MOVED = frozenset({301, 308})
"""Followed with the same method and body."""
CALLERS = frozenset({302, 303, 304, 307})
"""The caller's to judge."""
AFTER_SILENCE_S = 1.0
"""Waited when a route leads to itself and does not say when."""
BRIEF_S = 0.5
"""A wait that is none: an endless walk with such waits would be a flood."""
UNAUTHORIZED = 401
AUTHORIZATION = "authorization"

TokensOf = Callable[[str], Tokens | None]
"""Whose token may be shown to a URL."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that may be sent several times."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: Callable[[], bytes | Iterable[bytes]] | None = None
    repeatable: bool = False
    authorize: bool = True
    limit: int | None = LARGEST_ANSWER
    """Bytes of the answer's body; None: any."""
    whole: bool = True
    """Read the body before it counts as answered."""


class Attempts:
    """The attempts at one request. `known` are origins that answered before, and grows."""

    def __init__(
        self, policy: Policy, sleep: Callable[[float], None], *, known: set[Origin]
    ) -> None:
        self._policy = policy
        self._sleep = sleep
        self._known = known
        self._retries = 0
        self._moves = 0
        self._moved_s = 0.0
        self._token: str | None = None
        self._renewed = False
        self._doubt = False

    def answered(self, wire: "Wire", asked: Asked, tokens_of: TokensOf) -> "httpx.Response":
        """The answer, of a status below 300 or a redirect that is the caller's. StoreError."""
        while True:
            tokens = tokens_of(asked.url) if asked.authorize else None
            try:
                answer = self._once(wire, asked, tokens)
                status = answer.status_code
                if status < 300 or status in CALLERS:
                    return answer
                wire.read(answer)
            except Broken as error:
                self._after_break(asked, error)
                continue
            if status in MOVED:
                asked = self._moved(asked, answer)
            elif not self._renewing(answer, tokens):
                self._after_refusal(asked, answer)

    def _once(self, wire: "Wire", asked: Asked, tokens: Tokens | None) -> "httpx.Response":
        headers = dict(asked.headers)
        if tokens is None or _has(headers, AUTHORIZATION):
            self._token = None
        elif not self._renewed:
            self._token = tokens.bearer()
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        content = None if asked.content is None else asked.content()
        began = time.monotonic()
        answer = wire.begin(Sent(asked.method, asked.url, headers, content, asked.limit))
        self._known.add(origin(asked.url))
        if asked.whole:
            wire.read(answer)
        spent = time.monotonic() - began
        status = answer.status_code
        log.debug("%s %s: %s after %.3f s", asked.method, shown(asked.url), status, spent)
        return answer

    def _renewing(self, answer: "httpx.Response", tokens: Tokens | None) -> bool:
        """Whether there is another token to show, once."""
        if answer.status_code != UNAUTHORIZED or self._renewed or not (tokens and self._token):
            return False
        another = tokens.renewed(self._token)
        if another is None or another == self._token:
            return False
        self._token, self._renewed = another, True
        return True

    def _after_refusal(self, asked: Asked, answer: "httpx.Response") -> None:
        """Wait, if it may be otherwise then; else raise what it means."""
        status = answer.status_code
        again = status == TOO_MANY or (status in TRY_AGAIN and asked.repeatable)
        said = retry_after(answer.headers)
        bearable = said is None or said <= self._policy.retry_after_cap_s
        if not (again and bearable and self._retries < len(self._policy.waits_s)):
            raise self._doubted(refusal(answer))
        usual = self._policy.waits_s[self._retries]
        self._wait(asked, f"{status} {phrase(status)}", said or usual)

    def _doubted(self, error: StoreError) -> StoreError:
        """What is refused now may be what an attempt did whose answer was lost."""
        if self._doubt and isinstance(error, NotFound | Conflict):
            error.hint = f"{error.hint}; an attempt before, whose answer was lost, may have done it"
        return error

    def _after_break(self, asked: Asked, error: Broken) -> None:
        self._doubt = self._doubt or error.sent
        again = asked.repeatable or not error.sent
        if error.lasting or not again or self._retries >= self._most(asked, error):
            tried = f" ({self._retries + 1} attempts)" if self._retries else ""
            raise Unreachable(f"{error}{tried}", hint=error.hint) from error
        self._wait(asked, str(error), self._policy.waits_s[self._retries])

    def _most(self, asked: Asked, error: Broken) -> int:
        most = len(self._policy.waits_s)
        strange = origin(asked.url) not in self._known
        return min(most, self._policy.unknown_retries) if strange else most

    def _wait(self, asked: Asked, why: str, seconds: float) -> None:
        self._retries += 1
        place = f"{asked.method} {shown(asked.url)}"
        log.warning("%s; %s again in %g s (retry %d)", why, place, seconds, self._retries)
        self._sleep(seconds)

    def _moved(self, asked: Asked, answer: "httpx.Response") -> Asked:
        """Where to ask next, after the wait that was asked for."""
        target = resolved(asked.url, answer.headers.get("Location", ""))
        _check(asked, target)
        said = retry_after(answer.headers)
        if said is None:
            said = AFTER_SILENCE_S if target == asked.url else 0.0
        self._retries = 0
        self._moves += said < BRIEF_S
        self._moved_s += said
        if self._moves > self._policy.redirects:
            raise StoreError(f"{shown(target)} leads from one address to the next without an end")
        if self._moved_s > self._policy.redirected_s:
            raise TimedOut(f"{shown(target)} is not ready yet", hint="try again later")
        if said:
            log.info("%s is not ready yet; asked again in %g s", shown(target), said)
            self._sleep(said)
        return replace(asked, url=target, headers=_carried(asked, target))


def _check(asked: Asked, target: str) -> None:
    """Only to where the request may go as it is."""
    try:
        away = origin(target) != origin(asked.url)
        unsafe = downgrade(asked.url, target)
    except ValueError as error:
        raise StoreError(f"{shown(asked.url)} leads nowhere: {error}") from error
    if unsafe or (away and asked.content is not None and origin(target)[1] != _host(asked)):
        raise StoreError(
            f"{shown(asked.url)} leads to {shown(target)}, which is not followed",
            hint="if that is the store, use its URL: store login --url URL",
        )


def _carried(asked: Asked, target: str) -> Mapping[str, str]:
    """The headers without a token that a caller put there, when somebody else would see it."""
    if trusted(target, {origin(asked.url)}):
        return asked.headers
    return {name: value for name, value in asked.headers.items() if name.lower() != AUTHORIZATION}


def _host(asked: Asked) -> str:
    return origin(asked.url)[1]


def _has(headers: Mapping[str, str], name: str) -> bool:
    return any(one.lower() == name for one in headers)
