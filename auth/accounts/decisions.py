"""Deciding what a principal may do, remembered for as long as no record changes."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from auth.accounts.effective import Effective, effective, logins_version, policy_version
from auth.accounts.limits import CONTEXT_KEYS
from auth.accounts.rights import Rights, settled
from auth.policies.evaluator import NOTHING
from auth.policies.keys import ANY_KEY
from auth.policies.model import Decision, Reason, Value
from storage.catalog import Catalog, Tx
from storage.model import Principal

DISABLED = Decision(allowed=False, reason="disabled")
WORST: tuple[Reason, ...] = ("disabled", "explicit_deny", "implicit_deny", "allow")


@dataclass(frozen=True, slots=True)
class Judged:
    """One action on one resource."""

    action: str
    resource: str
    decision: Decision
    depends_on: frozenset[str] = frozenset()
    """The keys of the context that the decision depends on, where that was asked."""
    anywhere: bool = False
    """Whether there is anything at all that the action is allowed on, where that was asked."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether all of it is allowed; `reason` is the worst of all."""

    allowed: bool
    reason: Reason
    results: tuple[Judged, ...]


Key = tuple[str, frozenset[str]]
"""Somebody and the groups that their token claims."""


@dataclass
class Decisions:
    """Decides for many threads; what was compiled is kept for one version of the records."""

    catalog: Catalog
    rights: Rights
    _kept: OrderedDict[Key, Effective] = field(default_factory=OrderedDict, init=False)
    _version: int = field(default=-1, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def decide(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: Mapping[str, Value] = NOTHING,
    ) -> Verdict:
        """Every action on every resource, all of which must be allowed; Forbidden for somebody of
        more groups than can be judged."""
        return judged(self.of(principal), actions, resources, context)

    def evaluate(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: Mapping[str, Value],
    ) -> tuple[Verdict, str]:
        """The same with what each decision depends on, and the version of policies that it was
        decided by."""
        with self.catalog.read() as tx:
            # Before what it names: a version may be older than what is kept for it, never newer.
            version = self._named(tx)
            found = self._held(tx, principal)
        decided = judged(found, actions, resources, context)
        anywhere = {action: found.enabled and found.compiled.might(action) for action in actions}
        results = tuple(_explained(found, one, anywhere[one.action]) for one in decided.results)
        return replace(decided, results=results), version

    def version(self) -> str:
        """The version of policies: as long as it is the same, so is every decision, and every
        login stands that stood."""
        with self.catalog.read() as tx:
            return self._named(tx)

    def might(self, principal: Principal, action: str) -> bool:
        """Whether there is anything at all that the action is allowed on."""
        found = self.of(principal)
        return found.enabled and found.compiled.might(action)

    def enabled(self, principal: Principal) -> bool:
        """Whether the principal may do anything at all."""
        return self.of(principal).enabled

    def of(self, principal: Principal) -> Effective:
        """What holds for somebody now: one probe, and one query more after each change."""
        version = self.catalog.ask(policy_version)
        found = self._remembered(principal, version)
        if found is None:
            with self.catalog.read() as tx:
                found = self._looked_up(tx, principal, version)
        return found

    def _held(self, tx: Tx, principal: Principal) -> Effective:
        version = policy_version(tx)
        found = self._remembered(principal, version)
        return self._looked_up(tx, principal, version) if found is None else found

    def _looked_up(self, tx: Tx, principal: Principal, version: int) -> Effective:
        """What holds now, which may be newer than the version, never older."""
        found = effective(tx, principal.email, principal.groups, self.rights)
        self._remember((principal.email, principal.groups), version, found)
        return found

    def _named(self, tx: Tx) -> str:
        return f"{policy_version(tx)}-{logins_version(tx)}-{self._settled}"

    @cached_property
    def _settled(self) -> str:
        return settled(self.rights)

    def _remembered(self, principal: Principal, version: int) -> Effective | None:
        key = (principal.email, principal.groups)
        with self._lock:
            if version != self._version or key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key]

    def _remember(self, key: Key, version: int, found: Effective) -> None:
        with self._lock:
            # A slow reader of a former state throws nothing away that is newer. A restored catalog
            # may have counted less far; its processes are started afresh.
            if version < self._version:
                return
            if version > self._version:
                self._kept.clear()
                self._version = version
            self._kept[key] = found
            while len(self._kept) > self.rights.decisions_kept:
                self._kept.popitem(last=False)


def judged(
    found: Effective,
    actions: Sequence[str],
    resources: Sequence[str],
    context: Mapping[str, Value] = NOTHING,
) -> Verdict:
    """What a principal's policies say of every action on every resource."""
    decide = found.compiled.decide if found.enabled else _disabled
    results = tuple(
        Judged(action, resource, decide(action, resource, context))
        for action in actions
        for resource in resources
    )
    return verdict(results)


def verdict(results: tuple[Judged, ...]) -> Verdict:
    """What single answers come to: all of them must allow."""
    reason = _worst(one.decision.reason for one in results)
    return Verdict(bool(results) and reason == "allow", reason, results)


def _explained(found: Effective, one: Judged, anywhere: bool) -> Judged:
    asked = frozenset[str]()
    if found.enabled:
        asked = found.compiled.asks(one.action, one.resource)
    told = asked if len(asked) <= CONTEXT_KEYS else frozenset({ANY_KEY})
    return replace(one, depends_on=told, anywhere=anywhere)


def _disabled(_action: str, _resource: str, _context: Mapping[str, Value]) -> Decision:
    return DISABLED


def _worst(reasons: Iterable[Reason]) -> Reason:
    """Of nothing that was asked nothing is allowed."""
    found = set(reasons)
    return next((reason for reason in WORST if reason in found), "implicit_deny")
