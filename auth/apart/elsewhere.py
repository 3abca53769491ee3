"""Deciding by an authorization service that is elsewhere, remembered for one version of policies.

A decision that is remembered holds as long as the service is at the version that it was made by:
that is asked each time, or as seldom as an operator allows. What is not remembered is asked itself,
which is one question, too. So is what depends on the address, or the time, of a request that is not
as that of the remembered one was.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from auth.accounts.decisions import Decisions, Judged, Verdict, verdict
from auth.accounts.judging import Deciding
from auth.accounts.rights import Rights
from auth.apart.connections import Connections
from auth.apart.own_tokens import OwnTokens
from auth.apart.policy_service import PolicyService, Service
from auth.policies.evaluator import NOTHING
from auth.policies.keys import ANY_KEY, spelled
from auth.policies.model import Value
from storage.catalog import Catalog
from storage.errors import Invalid
from storage.model import Principal

ANY_ACTION, ANY_RESOURCE = "store:GetHealth", "service/health"
"""Whether somebody may do anything at all is said in every answer, whatever is asked; and what may
be done anywhere, whatever it is asked of."""

NOBODY = Principal("nobody@invalid", frozenset())

Context = Mapping[str, Value]


class Key(NamedTuple):
    """What a decision is about."""

    email: str
    groups: frozenset[str]
    grant: str | None
    action: str
    resource: str


@dataclass(frozen=True, slots=True)
class Remembered:
    """A decision, and all of the context that it depends on."""

    judged: Judged
    seen: tuple[object, ...]

    def holds(self, context: Context) -> bool:
        """Whether it is the decision for this context, too."""
        keys = self.judged.depends_on
        return not keys or (ANY_KEY not in keys and _seen(context, keys) == self.seen)


def _seen(context: Context, keys: frozenset[str]) -> tuple[object, ...]:
    # 1, 1.0 and true are alike to Python; policies tell them apart.
    return tuple((type(value), value) for value in map(_spelled(context).get, sorted(keys)))


def _spelled(context: Context) -> Context:
    return {spelled(key): value for key, value in context.items()}


class Kept:
    """Decisions of one version of policies, the least used forgotten first; of those that depend on
    the context the last one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[Key, Remembered] = OrderedDict()
        self._version: str | None = None
        self._asked_at = float("-inf")
        self._lock = threading.Lock()

    def knows(self, keys: Sequence[Key], context: Context) -> bool:
        """Whether all of it was decided for this context, by whichever version."""
        with self._lock:
            return self._has(keys, context)

    def recent(self, since: float) -> str | None:
        """The version, if it was asked for after that."""
        with self._lock:
            return self._version if self._asked_at > since else None

    def learn(self, version: str, asked_at: float) -> None:
        """The service was at this version at some time after it was asked. An answer that was
        asked for before another one that is known already tells nothing new."""
        with self._lock:
            if asked_at <= self._asked_at:
                return
            if version != self._version:
                # Not only a greater one: a service that was restored has gone back.
                self._held.clear()
            self._version, self._asked_at = version, asked_at

    def get(self, keys: Sequence[Key], context: Context, version: str) -> tuple[Judged, ...] | None:
        """What was decided by this version for this context; None unless that is all of it."""
        with self._lock:
            if version != self._version or not self._has(keys, context):
                return None
            for key in keys:
                self._held.move_to_end(key)
            return tuple(self._held[key].judged for key in keys)

    def put(
        self, keys: Sequence[Key], decided: Sequence[Judged], context: Context, version: str
    ) -> None:
        """Remember what was decided by this version, unless another one is known of by now."""
        found = [Remembered(one, _seen(context, one.depends_on)) for one in decided]
        with self._lock:
            if version != self._version:
                return
            self._held.update(zip(keys, found, strict=True))
            while len(self._held) > self._most:
                self._held.popitem(last=False)

    def _has(self, keys: Sequence[Key], context: Context) -> bool:
        found = map(self._held.get, keys)
        return all(one is not None and one.holds(context) for one in found)


@dataclass(frozen=True)
class Elsewhere:
    """A `Deciding`; for many threads. A version may be so many seconds old."""

    service: Service
    kept: Kept
    check_s: float = 0.0
    clock: Callable[[], float] = field(default=time.monotonic)

    def decide(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: Context = NOTHING,
    ) -> Verdict:
        """Every action on every resource, as things are; Unavailable when nobody can tell,
        Unauthorized for who came by a login that is over."""
        who = (principal.email, principal.groups, principal.grant)
        keys = [Key(*who, action, resource) for action in actions for resource in resources]
        if self.kept.knows(keys, context):
            decided = self.kept.get(keys, context, self._version())
            if decided is not None:
                return verdict(decided)
        asked_at = self.clock()
        found, version = self.service.evaluate(principal, actions, resources, context)
        self.kept.learn(version, asked_at)
        self.kept.put(keys, found.results, context, version)
        return found

    def might(self, principal: Principal, action: str) -> bool:
        """Whether there is anything at all that the action is allowed on."""
        return self.decide(principal, [action], [ANY_RESOURCE]).results[0].anywhere

    def enabled(self, principal: Principal) -> bool:
        """Whether the principal may do anything at all."""
        return self.decide(principal, [ANY_ACTION], [ANY_RESOURCE]).reason != "disabled"

    def ping(self) -> str:
        """A word on the service; Unavailable when it cannot be asked, or does not let us."""
        _, version = self.service.evaluate(NOBODY, [ANY_ACTION], [ANY_RESOURCE], NOTHING)
        return f"policies of version {version}"

    def _version(self) -> str:
        asked_at = self.clock()
        known = self.kept.recent(asked_at - self.check_s) if self.check_s > 0 else None
        if known is not None:
            return known
        version = self.service.version()
        self.kept.learn(version, asked_at)
        return version


class PolicySettings(Rights, Protocol):
    """The part of Settings that says where it is decided who may do what."""

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


def deciding(settings: PolicySettings, catalog: Catalog) -> Deciding:
    """Who decides for this store: its catalog's records, or the service that the settings name."""
    if not settings.policies_url:
        return Decisions(catalog, settings)
    url = settings.policies_url.rstrip("/")
    if not _is_base(url):
        raise Invalid("STORE_POLICIES_URL is not the base URL of a service")
    if settings.auth_url not in settings.issuers:
        # Else groups in its people's tokens would count as those of a foreign issuer do.
        raise Invalid(
            "With STORE_POLICIES_URL, STORE_AUTH_EXTERNAL_URL is the issuer of that service, and"
            " STORE_ISSUERS names it with the address of its keys"
        )
    tokens = OwnTokens(Path(settings.policies_credentials))
    # Of the threads that serve requests some are left to those that have nothing to ask.
    connections = Connections(
        connections=max(1, settings.api_threads // 2), timeout_s=settings.policies_timeout_s
    )
    return Elsewhere(
        PolicyService(url, tokens, connections),
        Kept(settings.policies_kept),
        settings.policies_check_ms / 1000,
    )


def _is_base(url: str) -> bool:
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    plain = parts.username is None and not parts.query and not parts.fragment
    return named and plain and parts.scheme in ("https", "http") and url.isprintable()
