"""Decide what a principal may do, from policies in the catalog, with a cache."""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from auth import builtin_roles
from auth.accounts import MAX_CONTEXT_KEYS
from auth.builtin_roles import load_policy
from auth.policies.evaluator import (
    EMPTY_CONTEXT,
    AttachedPolicy,
    CompiledPolicies,
    Decision,
    Reason,
)
from auth.policies.keys import ANY_KEY, GROUPS, ROLES, USER_EMAIL
from auth.policies.patterns import Value
from auth.settings import AuthSettings
from storage.catalog import Catalog, Tx, accounts, oauth
from storage.catalog.accounts import AccountKey, EffectiveAccount
from storage.errors import Forbidden
from storage.model import Principal, normalize_identity


@dataclass(frozen=True, slots=True)
class EffectivePermissions:
    """Effective groups, roles and policies of a principal; includes `user_default` always."""

    enabled: bool
    groups: tuple[str, ...]
    roles: tuple[str, ...]
    compiled: CompiledPolicies


def load_permissions(
    tx: Tx, email: str, claimed_groups: Collection[str], rights: AuthSettings
) -> EffectivePermissions:
    """Load the permissions of a principal with these claimed groups; one query."""
    entries = list_effective_entries(tx, email, claimed_groups, rights)
    users = [one for one in entries if one.kind == "user"]
    groups = _ids_of_kind(entries, "group")
    roles = _ids_of_kind(entries, "role")
    return EffectivePermissions(
        enabled=all(one.status == "enabled" for one in users),
        groups=groups,
        roles=roles,
        compiled=CompiledPolicies(
            list(_list_attached_policies(entries, rights.deployment)),
            {USER_EMAIL: email, GROUPS: groups, ROLES: roles},
        ),
    )


def list_effective_entries(
    tx: Tx, email: str, claimed_groups: Collection[str], rights: AuthSettings
) -> list[EffectiveAccount]:
    """List the accounts whose policies apply to a principal, and roles from settings; one query."""
    claimed = {*claimed_groups, builtin_roles.USER_DEFAULT}
    entries = accounts.list_effective_accounts(tx, email, claimed)
    for role in _roles_from_settings(email, claimed_groups, rights):
        via = builtin_roles.USER_DEFAULT if role == builtin_roles.USER_DEFAULT else ""
        entries.append(EffectiveAccount("role", via, role, "enabled", None))
    return entries


def _roles_from_settings(
    email: str, claimed: Collection[str], rights: AuthSettings
) -> Iterator[str]:
    """Yield the roles that come from settings, whatever the accounts say."""
    yield builtin_roles.USER_DEFAULT
    if not set(claimed).isdisjoint(rights.ingest_groups):
        yield builtin_roles.STORE_INGEST
    if email in map(normalize_identity, rights.administrators) or not set(claimed).isdisjoint(
        rights.admin_groups
    ):
        yield builtin_roles.STORE_ADMIN


def _ids_of_kind(entries: Iterable[EffectiveAccount], kind: str) -> tuple[str, ...]:
    return tuple(sorted({one.id for one in entries if one.kind == kind}))


def _list_attached_policies(
    entries: Iterable[EffectiveAccount], deployment: str
) -> Iterator[AttachedPolicy]:
    """Yield each policy once, with the first of its sources."""
    seen: set[AccountKey] = set()
    for one in entries:
        name = AccountKey(one.kind, one.id)
        policy = None if name in seen else load_policy(name, one.policy, deployment)
        seen.add(name)
        if policy is not None:
            via = f"group {one.via}, " if one.via else ""
            yield AttachedPolicy(f"{via}{one.kind} {one.id}", policy)


DISABLED_DECISION = Decision(allowed=False, reason="disabled")
REASONS_BY_SEVERITY: tuple[Reason, ...] = ("disabled", "explicit_deny", "implicit_deny", "allow")


@dataclass(frozen=True, slots=True)
class ResourceDecision:
    """The decision for one action on one resource."""

    action: str
    resource: str
    decision: Decision
    depends_on: frozenset[str] = frozenset()
    """Context keys that the decision depends on; only set by `evaluate`."""
    anywhere: bool = False
    """Whether the action is allowed on any resource at all; only set by `evaluate`."""


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """Whether all actions are allowed on all resources; `reason` is the most severe."""

    allowed: bool
    reason: Reason
    results: tuple[ResourceDecision, ...]


@dataclass
class LocalDecisionPoint:
    """Decides for many threads; caches compiled policies of one version of the accounts."""

    catalog: Catalog
    rights: AuthSettings
    _cached: OrderedDict[tuple[str, frozenset[str]], EffectivePermissions] = field(
        default_factory=OrderedDict, init=False
    )
    """By e-mail address and claimed groups."""
    _version: int = field(default=-1, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def decide(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: Mapping[str, Value] = EMPTY_CONTEXT,
    ) -> AccessDecision:
        """Decide every action on every resource; Forbidden if there are too many groups."""
        return decide_all(self.find_permissions(principal), actions, resources, context)

    def evaluate(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: Mapping[str, Value],
    ) -> tuple[AccessDecision, str]:
        """Decide with the context keys of each decision; also return the policy version."""
        with self.catalog.read() as tx:
            # Read the version first: it may be older than the permissions, never newer.
            name, version = self._version_name(tx), accounts.read_change_count(tx)
            found = self._cached_permissions(principal, version)
            if found is None:
                found = self._load_permissions(tx, principal, version)
        decided = decide_all(found, actions, resources, context)
        anywhere = {
            action: found.enabled and found.compiled.could_allow(action) for action in actions
        }
        results = tuple(
            _explain_decision(found, one, anywhere[one.action]) for one in decided.results
        )
        return replace(decided, results=results), name

    def version(self) -> str:
        """Return the policy version; while it is unchanged, all decisions and grants hold."""
        with self.catalog.read() as tx:
            return self._version_name(tx)

    def could_allow(self, principal: Principal, action: str) -> bool:
        """Whether there is anything at all that the action is allowed on."""
        found = self.find_permissions(principal)
        return found.enabled and found.compiled.could_allow(action)

    def is_enabled(self, principal: Principal) -> bool:
        """Return whether the principal is not disabled."""
        return self.find_permissions(principal).enabled

    def find_permissions(self, principal: Principal) -> EffectivePermissions:
        """Return current permissions: one version check, and one more query after a change."""
        version = self.catalog.run_query(accounts.read_change_count)
        found = self._cached_permissions(principal, version)
        if found is None:
            with self.catalog.read() as tx:
                found = self._load_permissions(tx, principal, version)
        return found

    def _load_permissions(self, tx: Tx, principal: Principal, version: int) -> EffectivePermissions:
        """Load permissions, which may be newer than the version, never older."""
        found = load_permissions(tx, principal.email, principal.groups, self.rights)
        with self._lock:
            # A slow reader must not replace newer permissions. After a restore the counter may be
            # lower, but then all processes restart.
            if version < self._version:
                return found
            if version > self._version:
                self._cached.clear()
                self._version = version
            self._cached[principal.email, principal.groups] = found
            while len(self._cached) > self.rights.decisions_kept:
                self._cached.popitem(last=False)
        return found

    def _version_name(self, tx: Tx) -> str:
        changes, revocations = accounts.read_change_count(tx), oauth.read_revocation_count(tx)
        return f"{changes}-{revocations}-{self._fingerprint}"

    @cached_property
    def _fingerprint(self) -> str:
        """Hash of the settings and built-in policies that decisions depend on."""
        by = self.rights
        built_in = builtin_roles.built_in_statements(by.deployment)
        values = [by.deployment, by.administrators, by.ingest_groups, by.admin_groups, built_in]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    def _cached_permissions(
        self, principal: Principal, version: int
    ) -> EffectivePermissions | None:
        key = (principal.email, principal.groups)
        with self._lock:
            if version != self._version or key not in self._cached:
                return None
            self._cached.move_to_end(key)
            return self._cached[key]


def decide_all(
    found: EffectivePermissions,
    actions: Sequence[str],
    resources: Sequence[str],
    context: Mapping[str, Value] = EMPTY_CONTEXT,
) -> AccessDecision:
    """Decide every action on every resource by a principal's policies."""
    pairs = [(action, resource) for action in actions for resource in resources]
    if not found.enabled:
        results = [ResourceDecision(*pair, DISABLED_DECISION) for pair in pairs]
    else:
        decide = found.compiled.decide
        results = [ResourceDecision(*pair, decide(*pair, context)) for pair in pairs]
    return combine_decisions(tuple(results))


def combine_decisions(results: tuple[ResourceDecision, ...]) -> AccessDecision:
    """Combine single decisions: the most severe reason; without decisions, nothing is allowed."""
    found = {one.decision.reason for one in results}
    reason: Reason = next((one for one in REASONS_BY_SEVERITY if one in found), "implicit_deny")
    return AccessDecision(bool(results) and reason == "allow", reason, results)


def _explain_decision(
    found: EffectivePermissions, one: ResourceDecision, anywhere: bool
) -> ResourceDecision:
    keys = frozenset[str]()
    if found.enabled:
        keys = found.compiled.context_keys(one.action, one.resource)
    if len(keys) > MAX_CONTEXT_KEYS:
        keys = frozenset({ANY_KEY})
    return replace(one, depends_on=keys, anywhere=anywhere)


class DecisionPoint(Protocol):
    """Decides by policies, locally or by a remote service."""

    def decide(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: Mapping[str, Value],
    ) -> AccessDecision:
        """Decide every action on every resource in this context."""

    def could_allow(self, principal: Principal, action: str) -> bool:
        """Return whether the action is allowed on any resource at all."""

    def is_enabled(self, principal: Principal) -> bool:
        """Return whether the principal is not disabled."""


def require_allowed(
    deciding: DecisionPoint,
    principal: Principal,
    action: str,
    resources: Sequence[str],
    context: Mapping[str, Value],
) -> None:
    """Raise Forbidden with the reason unless the action is allowed on all resources."""
    decision = deciding.decide(principal, [action], resources, context)
    if not decision.allowed:
        raise Forbidden(f"{_explain_denial(decision, action)} ({decision.reason}).")


def _explain_denial(decision: AccessDecision, action: str) -> str:
    if decision.reason == "disabled":
        return "This user is disabled"
    if decision.reason == "explicit_deny":
        return f"A policy denies {action} here"
    role = builtin_roles.find_sufficient_role(action)
    return f"You need the role {role}: no policy allows {action} here"


def require_enabled(deciding: DecisionPoint, principal: Principal) -> None:
    """Raise Forbidden if the principal is disabled."""
    if not deciding.is_enabled(principal):
        raise Forbidden("This user is disabled.")
