"""Remote authorization: decisions by an authorization service over HTTP, with a cache.

A response must match its request exactly; anything else counts as unavailable.

A cached decision is valid while the service's policy version is unchanged. The version is fetched
for every decision, or at most every `check_s` seconds. A cache miss asks for the decision itself,
which also is one request. Decisions that depend on the context are cached for that context only.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec
import orjson
from joserfc import jwt

from auth.accounts import MAX_CLAIMED_GROUPS, MAX_CONTEXT_KEYS
from auth.decisions import (
    AccessDecision,
    ResourceDecision,
    combine_decisions,
)
from auth.http_client import HttpClient
from auth.policies.evaluator import EMPTY_CONTEXT, Decision, Reason
from auth.policies.keys import ANY_KEY, normalize_key
from auth.policies.patterns import Value
from auth.service_accounts import (
    SERVICE_ACCOUNT_ALGORITHM,
    ServiceAccountIdentity,
    parse_credentials,
)
from auth.tokens.verification import TOKEN_REVOKED
from storage.errors import Forbidden, Invalid, Unauthorized, Unavailable
from storage.model import Principal
from storage.tracing import Attribute, Span, Tracer, current_traceparent

TOKEN_LIFE_S = 120
"""Short, which limits the damage of a leaked token."""
RENEW_BEFORE_S = 60
"""Tokens are renewed so long before they expire, because clocks differ."""


# Cached, because loading a key takes longer than signing.
_parse_account = lru_cache(maxsize=1)(parse_credentials)


class StoreTokenSigner:
    """Signs tokens for many threads; reads the file each time, so that a new key takes effect."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._cached: tuple[str, float] | None = None
        """The token, and when it expires."""
        try:
            self._read_account()
        except Unavailable as error:
            raise Invalid(f"STORE_POLICIES_CREDENTIALS: {error.detail}") from error

    def current(self) -> str:
        """Return a token with some lifetime left; Unavailable if the file cannot be read."""
        cached, now = self._cached, self._clock()
        # The upper bound renews tokens of the future after the clock was set back.
        if cached is None or not RENEW_BEFORE_S <= cached[1] - now <= TOKEN_LIFE_S:
            cached = self._cached = self._sign_token(now)
        return cached[0]

    def forget(self) -> None:
        """Drop the cached token, after the service has rejected it."""
        self._cached = None

    def _sign_token(self, now: float) -> tuple[str, float]:
        account, issued = self._read_account(), int(now)
        claims = {
            "iss": account.email,
            "sub": account.email,
            "email": account.email,
            "aud": account.audience,
            "iat": issued,
            "exp": issued + TOKEN_LIFE_S,
        }
        header = {"typ": "JWT", "alg": SERVICE_ACCOUNT_ALGORITHM, "kid": account.kid}
        token = jwt.encode(header, claims, account.key, algorithms=[SERVICE_ACCOUNT_ALGORITHM])
        return token, issued + TOKEN_LIFE_S

    def _read_account(self) -> ServiceAccountIdentity:
        try:
            return _parse_account(self._path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, Invalid) as error:
            reason = error.detail if isinstance(error, Invalid) else "the file cannot be read"
            raise Unavailable(
                f"The store's service account cannot sign tokens: {reason}"
            ) from error


RETRY_S = 2
LONGEST_RETRY_S = 60
MAX_VERSION = 128
MAX_SOURCE_TEXT = 4_096
"""Characters of `source` and `statement` in a response."""
MAX_CONTEXT_KEY_LENGTH = 256
"""Characters of a context key."""
MAX_ANSWER_BYTES = 32 * 1024
"""Bytes of a response, plus as many for each decision in it."""
INVALID_ANSWER = "sent an invalid response"

SourceText = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SOURCE_TEXT)]
ContextKey = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CONTEXT_KEY_LENGTH)]


class VersionAnswer(msgspec.Struct, frozen=True):
    """Response about the version of policies."""

    policy_version: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_VERSION)]


class ResultAnswer(msgspec.Struct, frozen=True):
    """One action on one resource, in a response."""

    action: str
    resource: str
    result: bool
    reason: Reason
    source: SourceText | None
    statement: SourceText | None
    depends_on: Annotated[list[ContextKey], msgspec.Meta(max_length=MAX_CONTEXT_KEYS)]
    anywhere: bool

    def is_consistent(self) -> bool:
        """Return whether result, reason and `anywhere` agree."""
        return self.result is (self.reason == "allow") and (self.anywhere or not self.result)


class EvaluationAnswer(VersionAnswer, frozen=True):
    """Response to an evaluation."""

    evaluation_results: list[ResultAnswer]
    result: bool
    reason: Reason
    grant_stands: bool | None


A = TypeVar("A", VersionAnswer, EvaluationAnswer)


@dataclass(frozen=True)
class PolicyServiceClient:
    """Client of the authorization service, with tokens of the store's service account."""

    url: str
    tokens: StoreTokenSigner
    http: HttpClient
    tracer: Tracer = field(default_factory=Tracer)

    def version(self) -> str:
        """Return the current policy version; raise Unavailable."""
        answer = self._request("GET", "/v1/policies/version", b"", MAX_ANSWER_BYTES)
        return _parse_answer(VersionAnswer, answer).policy_version

    def evaluate(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: Mapping[str, Value],
    ) -> tuple[AccessDecision, str]:
        """Decide every action on every resource; return the decisions and their policy version.

        Unavailable without a valid response, Unauthorized if the principal's grant was revoked,
        Forbidden if the principal has too many groups.
        """
        if len(principal.groups) > MAX_CLAIMED_GROUPS:
            raise Forbidden(f"Too many groups: the limit is {MAX_CLAIMED_GROUPS}.")
        question = {
            "principal": principal.email,
            "groups": sorted(principal.groups),
            "action": list(actions),
            "resource": list(resources),
            "context": dict(context),
            "grant": principal.grant,
        }
        pairs = [(action, resource) for action in actions for resource in resources]
        max_bytes = MAX_ANSWER_BYTES * (1 + len(pairs))
        answer = self._request("POST", "/v1/policies/evaluate", orjson.dumps(question), max_bytes)
        evaluation = _parse_answer(EvaluationAnswer, answer)
        decision = _check_evaluation(evaluation, pairs, principal.grant)
        # Only a response that is valid throughout may reject a token.
        if evaluation.grant_stands is False:
            raise Unauthorized(TOKEN_REVOKED)
        return decision, evaluation.policy_version

    def _request(self, method: str, path: str, body: bytes, max_bytes: int) -> bytes:
        headers = {"Authorization": f"Bearer {self.tokens.current()}"}
        if body:
            headers["Content-Type"] = "application/json"
        span = self._start_span()
        if span.traceparent:
            headers["traceparent"] = span.traceparent
        try:
            answer = self.http.request(method, self.url + path, headers, body, max_bytes=max_bytes)
        except Unavailable as error:
            _end_span(span, method, path, None)
            cause = type(error.__cause__).__name__
            raise _unavailable_error(f"does not answer: {cause}") from error
        _end_span(span, method, path, answer.status)
        if answer.status == 401:
            self.tokens.forget()
        if answer.status != 200:
            account = " to the store's service account" if answer.status in (401, 403) else ""
            text = answer.retry_after
            seconds = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else RETRY_S
            retry_after_s = min(max(seconds, 1), LONGEST_RETRY_S)
            raise _unavailable_error(f"answers {answer.status}{account}", retry_after_s)
        return answer.body

    def _start_span(self) -> Span:
        traceparent = current_traceparent()
        return self.tracer.start("client", traceparent) if traceparent else Span()


def _end_span(span: Span, method: str, path: str, status: int | None) -> None:
    """Record a question to the service; `status` is None if there was no answer."""
    attributes: dict[str, Attribute] = {"http.request.method": method, "http.route": path}
    if status is not None:
        attributes["http.response.status_code"] = status
    span.end(f"{method} {path}", attributes, failed=status != 200)


def _parse_answer(kind: type[A], body: bytes) -> A:
    try:
        return msgspec.convert(orjson.loads(body), type=kind)
    except (msgspec.ValidationError, ValueError) as error:
        raise _unavailable_error(INVALID_ANSWER) from error


def _check_evaluation(
    answer: EvaluationAnswer, pairs: Sequence[tuple[str, str]], grant: str | None
) -> AccessDecision:
    """Return the decision; Unavailable if the response does not match the request."""
    results = answer.evaluation_results
    decision = combine_decisions(
        tuple(
            ResourceDecision(
                one.action,
                one.resource,
                Decision(one.result, one.reason, one.source, one.statement),
                frozenset(one.depends_on),
                one.anywhere,
            )
            for one in results
        )
    )
    if (
        [(one.action, one.resource) for one in results] != pairs
        or not all(one.is_consistent() for one in results)
        or (answer.result, answer.reason) != (decision.allowed, decision.reason)
        or (answer.grant_stands is None) is not (grant is None)
    ):
        raise _unavailable_error(INVALID_ANSWER)
    return decision


def _unavailable_error(reason: str, retry_after_s: int = RETRY_S) -> Unavailable:
    return Unavailable(f"The authorization service {reason}", retry_after_s=retry_after_s)


ANY_ACTION, ANY_RESOURCE = "store:GetHealth", "service/health"
"""Asked where only `reason` or `anywhere` of the response matters, which fit any question."""

UNKNOWN_PRINCIPAL = Principal("nobody@invalid", frozenset())


class DecisionKey(NamedTuple):
    """Principal, action and resource of a decision."""

    email: str
    groups: frozenset[str]
    grant: str | None
    action: str
    resource: str


@dataclass(frozen=True, slots=True)
class CachedDecision:
    """A decision and the values of the context keys that it depends on."""

    decision: ResourceDecision
    context_values: tuple[object, ...]

    def applies_to(self, context: Mapping[str, Value]) -> bool:
        """Return whether the decision holds for this context, too."""
        keys = self.decision.depends_on
        return not keys or (
            ANY_KEY not in keys and _context_values(context, keys) == self.context_values
        )


def _context_values(context: Mapping[str, Value], keys: frozenset[str]) -> tuple[object, ...]:
    # With types: 1, 1.0 and True are equal in Python, but not in policies.
    values = {normalize_key(key): value for key, value in context.items()}
    return tuple((type(value), value) for value in map(values.get, sorted(keys)))


class DecisionCache:
    """LRU cache of decisions of one policy version.

    Of decisions that depend on the context, it holds the latest per key.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._decisions: OrderedDict[DecisionKey, CachedDecision] = OrderedDict()
        self._version: str | None = None
        self._asked_at = float("-inf")
        self._lock = threading.Lock()

    def covers(self, keys: Sequence[DecisionKey], context: Mapping[str, Value]) -> bool:
        """Return whether all decisions are cached for this context, whatever their version."""
        with self._lock:
            return self._covers(keys, context)

    def recent_version(self, since: float) -> str | None:
        """Return the version if it was requested after `since`."""
        with self._lock:
            return self._version if self._asked_at > since else None

    def set_version(self, version: str, asked_at: float) -> None:
        """Record the service's version, unless a response to a later request is already known."""
        with self._lock:
            if asked_at <= self._asked_at:
                return
            if version != self._version:
                # Versions are not ordered: a restored service goes back.
                self._decisions.clear()
            self._version, self._asked_at = version, asked_at

    def get(
        self, keys: Sequence[DecisionKey], context: Mapping[str, Value], version: str
    ) -> tuple[ResourceDecision, ...] | None:
        """Return all decisions of this version for this context; None if any is missing."""
        with self._lock:
            if version != self._version or not self._covers(keys, context):
                return None
            for key in keys:
                self._decisions.move_to_end(key)
            return tuple(self._decisions[key].decision for key in keys)

    def put(
        self,
        keys: Sequence[DecisionKey],
        decided: Sequence[ResourceDecision],
        context: Mapping[str, Value],
        version: str,
    ) -> None:
        """Cache decisions of this version, unless the version has changed meanwhile."""
        entries = [
            CachedDecision(each, _context_values(context, each.depends_on)) for each in decided
        ]
        with self._lock:
            if version != self._version:
                return
            self._decisions.update(zip(keys, entries, strict=True))
            while len(self._decisions) > self._max_size:
                self._decisions.popitem(last=False)

    def _covers(self, keys: Sequence[DecisionKey], context: Mapping[str, Value]) -> bool:
        entries = map(self._decisions.get, keys)
        return all(entry is not None and entry.applies_to(context) for entry in entries)


@dataclass(frozen=True)
class RemoteDecisionPoint:
    """A DecisionPoint for many threads; a version is trusted for `check_s` seconds."""

    service: PolicyServiceClient
    cache: DecisionCache
    check_s: float = 0.0
    clock: Callable[[], float] = time.monotonic

    def decide(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: Mapping[str, Value] = EMPTY_CONTEXT,
    ) -> AccessDecision:
        """Decide every action on every resource; raise like `PolicyServiceClient.evaluate`."""
        identity = (principal.email, principal.groups, principal.grant)
        keys = [
            DecisionKey(*identity, action, resource) for action in actions for resource in resources
        ]
        if self.cache.covers(keys, context):
            decided = self.cache.get(keys, context, self._current_version())
            if decided is not None:
                return combine_decisions(decided)
        asked_at = self.clock()
        found, version = self.service.evaluate(principal, actions, resources, context)
        self.cache.set_version(version, asked_at)
        self.cache.put(keys, found.results, context, version)
        return found

    def could_allow(self, principal: Principal, action: str) -> bool:
        """Return whether the action is allowed on any resource at all."""
        return self.decide(principal, [action], [ANY_RESOURCE]).results[0].anywhere

    def is_enabled(self, principal: Principal) -> bool:
        """Return whether the principal is not disabled."""
        return self.decide(principal, [ANY_ACTION], [ANY_RESOURCE]).reason != "disabled"

    def ping(self) -> str:
        """Describe the service for health checks; Unavailable if it does not respond."""
        _, version = self.service.evaluate(
            UNKNOWN_PRINCIPAL, [ANY_ACTION], [ANY_RESOURCE], EMPTY_CONTEXT
        )
        return f"policies of version {version}"

    def _current_version(self) -> str:
        asked_at = self.clock()
        recent = self.cache.recent_version(asked_at - self.check_s) if self.check_s > 0 else None
        if recent is not None:
            return recent
        version = self.service.version()
        self.cache.set_version(version, asked_at)
        return version
