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
from typing import Any, NamedTuple, Protocol, TypeVar, get_args
from urllib.parse import urlsplit

import orjson
from joserfc import jwt

from auth.accounts import MAX_CLAIMED_GROUPS, MAX_CONTEXT_KEYS
from auth.decisions import (
    AccessDecision,
    DecisionPoint,
    LocalDecisionPoint,
    PermissionSettings,
    ResourceDecision,
    combine_decisions,
)
from auth.http_client import HttpClient, HttpResponse
from auth.policies.evaluator import EMPTY_CONTEXT, Decision, Reason
from auth.policies.keys import ANY_KEY, normalize_key
from auth.policies.patterns import Value
from auth.service_accounts import (
    SERVICE_ACCOUNT_ALGORITHM,
    ServiceAccountIdentity,
    parse_credentials,
)
from auth.tokens.verification import TOKEN_REVOKED
from storage.catalog import Catalog
from storage.errors import Forbidden, Invalid, Unauthorized, Unavailable
from storage.model import Principal

TOKEN_LIFE_S = 120
"""Short, which limits the damage of a leaked token."""
RENEW_BEFORE_S = 60
"""Tokens are renewed so long before they expire, because clocks differ."""


@dataclass(frozen=True)
class _ServiceToken:
    token: str
    ends_s: float


@lru_cache(maxsize=1)
def _parse_account(text: str) -> ServiceAccountIdentity:
    """Parse the credentials; cached, because loading a key takes longer than signing."""
    return parse_credentials(text)


class StoreTokenSigner:
    """Signs tokens for many threads; reads the file each time, so that a new key takes effect."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._cached: _ServiceToken | None = None
        try:
            self._read_account()
        except Unavailable as error:
            raise Invalid(f"STORE_POLICIES_CREDENTIALS: {error.detail}") from error

    def current(self) -> str:
        """Return a token with some lifetime left; Unavailable if the file cannot be read."""
        cached, now = self._cached, self._clock()
        # The upper bound renews tokens of the future after the clock was set back.
        if cached is None or not RENEW_BEFORE_S <= cached.ends_s - now <= TOKEN_LIFE_S:
            cached = self._cached = self._sign_token(now)
        return cached.token

    def forget(self) -> None:
        """Drop the cached token, after the service has rejected it."""
        self._cached = None

    def _sign_token(self, now: float) -> _ServiceToken:
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
        return _ServiceToken(token, issued + TOKEN_LIFE_S)

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
REASONS = frozenset(get_args(Reason))
T = TypeVar("T")


class PolicyQueries(Protocol):
    """An authorization service."""

    def version(self) -> str:
        """Return the current policy version; raise Unavailable."""

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


@dataclass(frozen=True)
class PolicyServiceClient:
    """Client of the authorization service, with tokens of the store's service account."""

    url: str
    tokens: StoreTokenSigner
    http: HttpClient

    def version(self) -> str:
        """See PolicyQueries."""
        return _parse_answer(
            _parse_version, self._request("GET", "/v1/policies/version", b"", MAX_ANSWER_BYTES)
        )

    def evaluate(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: Mapping[str, Value],
    ) -> tuple[AccessDecision, str]:
        """See PolicyQueries."""
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
        return _parse_answer(lambda body: _parse_evaluation(body, pairs, principal.grant), answer)

    def _request(self, method: str, path: str, body: bytes, max_bytes: int) -> bytes:
        headers = {"Authorization": f"Bearer {self.tokens.current()}"}
        if body:
            headers["Content-Type"] = "application/json"
        try:
            answer = self.http.request(method, self.url + path, headers, body, max_bytes=max_bytes)
        except Unavailable as error:
            cause = type(error.__cause__).__name__
            raise _unavailable_error(f"does not answer: {cause}") from error
        if answer.status == 401:
            self.tokens.forget()
        if answer.status != 200:
            account = " to the store's service account" if answer.status in (401, 403) else ""
            raise _unavailable_error(
                f"answers {answer.status}{account}", _parse_retry_after(answer)
            )
        return answer.body


def _parse_answer(parse: Callable[[Mapping[str, Any]], T], body: bytes) -> T:
    try:
        document = orjson.loads(body)
        if isinstance(document, dict):
            return parse(document)
    except (ValueError, LookupError, TypeError) as error:
        raise _unavailable_error("sent an invalid response") from error
    raise _unavailable_error("sent an invalid response")


def _parse_evaluation(
    body: Mapping[str, Any], pairs: Sequence[tuple[str, str]], grant: str | None
) -> tuple[AccessDecision, str]:
    """Parse an evaluation completely before its `grant_stands` is looked at."""
    decision, version = _parse_access_decision(body, pairs), _parse_version(body)
    stands = body["grant_stands"]
    if stands is not (None if grant is None else bool(stands)):
        raise ValueError("does not match the request")
    if stands is False:
        raise Unauthorized(TOKEN_REVOKED)
    return decision, version


def _parse_version(body: Mapping[str, Any]) -> str:
    return _parse_text(body["policy_version"], MAX_VERSION)


def _parse_access_decision(
    body: Mapping[str, Any], pairs: Sequence[tuple[str, str]]
) -> AccessDecision:
    results = body["evaluation_results"]
    if not isinstance(results, list) or len(results) != len(pairs):
        raise ValueError("does not match the request")
    decision = combine_decisions(
        tuple(_parse_resource_decision(*item) for item in zip(results, pairs, strict=True))
    )
    if (body["result"], body["reason"]) != (decision.allowed, decision.reason):
        raise ValueError("inconsistent")
    return decision


def _parse_resource_decision(result: Mapping[str, Any], pair: tuple[str, str]) -> ResourceDecision:
    reason = result["reason"]
    if (result["action"], result["resource"]) != pair or reason not in REASONS:
        raise ValueError("does not match the request")
    if result["result"] is not (reason == "allow"):
        raise ValueError("inconsistent")
    source, statement = (_parse_optional_text(result[member]) for member in ("source", "statement"))
    decision = Decision(result["result"], reason, source, statement)
    return ResourceDecision(
        *pair, decision, _parse_context_keys(result["depends_on"]), _parse_anywhere(result)
    )


def _parse_anywhere(result: Mapping[str, Any]) -> bool:
    anywhere = result["anywhere"]
    if not isinstance(anywhere, bool) or (result["result"] and not anywhere):
        raise ValueError("inconsistent")
    return anywhere


def _parse_context_keys(value: Any) -> frozenset[str]:
    if not isinstance(value, list) or len(value) > MAX_CONTEXT_KEYS:
        raise ValueError("not a list of keys")
    return frozenset(_parse_text(key, MAX_CONTEXT_KEY_LENGTH) for key in value)


def _parse_optional_text(value: Any) -> str | None:
    return None if value is None else _parse_text(value, MAX_SOURCE_TEXT)


def _parse_text(value: Any, max_length: int) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= max_length:
        raise ValueError("not a text")
    return value


def _parse_retry_after(answer: HttpResponse) -> int:
    text = answer.retry_after
    seconds = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else RETRY_S
    return min(max(seconds, 1), LONGEST_RETRY_S)


def _unavailable_error(reason: str, retry_after_s: int = RETRY_S) -> Unavailable:
    return Unavailable(f"The authorization service {reason}", retry_after_s=retry_after_s)


ANY_ACTION, ANY_RESOURCE = "store:GetHealth", "service/health"
"""Asked where only `reason` or `anywhere` of the response matters, which fit any question."""

UNKNOWN_PRINCIPAL = Principal("nobody@invalid", frozenset())

ConditionContext = Mapping[str, Value]


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

    def applies_to(self, context: ConditionContext) -> bool:
        """Return whether the decision holds for this context, too."""
        keys = self.decision.depends_on
        return not keys or (
            ANY_KEY not in keys and _context_values(context, keys) == self.context_values
        )


def _context_values(context: ConditionContext, keys: frozenset[str]) -> tuple[object, ...]:
    # With types: 1, 1.0 and True are equal in Python, but not in policies.
    return tuple(
        (type(value), value) for value in map(_normalize_context(context).get, sorted(keys))
    )


def _normalize_context(context: ConditionContext) -> ConditionContext:
    return {normalize_key(key): value for key, value in context.items()}


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

    def covers(self, keys: Sequence[DecisionKey], context: ConditionContext) -> bool:
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
        self, keys: Sequence[DecisionKey], context: ConditionContext, version: str
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
        context: ConditionContext,
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

    def _covers(self, keys: Sequence[DecisionKey], context: ConditionContext) -> bool:
        entries = map(self._decisions.get, keys)
        return all(entry is not None and entry.applies_to(context) for entry in entries)


@dataclass(frozen=True)
class RemoteDecisionPoint:
    """A DecisionPoint for many threads; a version is trusted for `check_s` seconds."""

    service: PolicyQueries
    cache: DecisionCache
    check_s: float = 0.0
    clock: Callable[[], float] = field(default=time.monotonic)

    def decide(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: ConditionContext = EMPTY_CONTEXT,
    ) -> AccessDecision:
        """Decide every action on every resource; raise like PolicyQueries.evaluate."""
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


class DecisionPointSettings(PermissionSettings, Protocol):
    """The part of Settings that selects the decision point."""

    @property
    def policies_url(self) -> str: ...
    @property
    def policies_credentials(self) -> str: ...
    @property
    def policies_check_ms(self) -> int: ...
    @property
    def policies_timeout_s(self) -> float: ...
    @property
    def policies_kept(self) -> int: ...
    @property
    def api_threads(self) -> int: ...
    @property
    def auth_url(self) -> str: ...
    @property
    def issuers(self) -> Mapping[str, str]: ...


def open_decision_point(settings: DecisionPointSettings, catalog: Catalog) -> DecisionPoint:
    """Open the decision point that the settings select: the catalog or a remote service."""
    if not settings.policies_url:
        return LocalDecisionPoint(catalog, settings)
    url = settings.policies_url.rstrip("/")
    if not _is_base_url(url):
        raise Invalid("STORE_POLICIES_URL: must be an http or https base URL")
    if settings.auth_url not in settings.issuers:
        # Otherwise groups in its tokens would count like those of a foreign issuer.
        raise Invalid(
            "With STORE_POLICIES_URL, STORE_AUTH_EXTERNAL_URL is the issuer of that service, and"
            " STORE_ISSUERS names it with the address of its keys"
        )
    tokens = StoreTokenSigner(Path(settings.policies_credentials))
    # Half of the threads stay free for requests that need no decision of the service.
    http = HttpClient(settings.policies_timeout_s, connections=max(1, settings.api_threads // 2))
    return RemoteDecisionPoint(
        PolicyServiceClient(url, tokens, http),
        DecisionCache(settings.policies_kept),
        settings.policies_check_ms / 1000,
    )


def _is_base_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    plain = parts.username is None and not parts.query and not parts.fragment
    return named and plain and parts.scheme in ("https", "http") and url.isprintable()
