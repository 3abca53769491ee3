"""What each operation of the store asks of its caller: an action on a resource, for policies.

What an owner alone may do with what is theirs is decided where the owner is known, in pipelines.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from string import Formatter
from types import MappingProxyType
from typing import Protocol

from auth.accounts.judging import Deciding, require, require_enabled
from auth.policies.model import Value
from storage.errors import Forbidden, Invalid, Unauthorized
from storage.model import Principal

CHECKOUT_ELSEWHERE = "post_bundles_checkout_elsewhere"
"""Asked in addition when a checkout names a `destination` of its own."""

RESOURCES: Mapping[str, str] = MappingProxyType(
    {
        "get_bundles_all": "bundles/*",
        "get_bundle": "bundles/{uuid}.{version}",
        "put_bundle": "bundles/{uuid}.{version}",
        "patch_bundle": "bundles/{uuid}.{version}",
        "delete_bundle": "bundles/{uuid}.{version}",
        "post_bundles_checkout": "bundles/{uuid}.{version}",
        CHECKOUT_ELSEWHERE: "bundles/{uuid}.{version}",
        "get_bundles_checkout": "checkouts/{checkout_job_id}",
        "put_file": "files/{uuid}.{version}",
        "put_files": "files/{uuid}.{version}",
        "get_file": "files/{uuid}.{version}",
        "head_file": "files/{uuid}.{version}",
        "get_task": "tasks/{task_id}",
        "get_collections": "collections/*",
        "put_collection": "collections/{uuid}.{version}",
        "get_collection": "collections/{uuid}.{version}",
        "patch_collection": "collections/{uuid}.{version}",
        "delete_collection": "collections/{uuid}.{version}",
        "post_search": "bundles/*",
        "get_events": "events/*",
        "get_event": "events/{uuid}",
        "get_events_feed": "events/*",
        "get_subscriptions": "subscriptions/*",
        "put_subscription": "subscriptions/*",
        "dry_run_subscription": "subscriptions/*",
        "get_subscription": "subscriptions/{uuid}",
        "delete_subscription": "subscriptions/{uuid}",
        "get_deliveries": "subscriptions/{uuid}",
        "retry_delivery": "subscriptions/{uuid}",
        "retry_deliveries": "subscriptions/{uuid}",
        "test_subscription": "subscriptions/{uuid}",
        "replay_subscription": "subscriptions/{uuid}",
        "get_replay": "subscriptions/{uuid}",
        "put_subscription_secret": "subscriptions/{uuid}",
        "pause_subscription": "subscriptions/{uuid}",
        "resume_subscription": "subscriptions/{uuid}",
        "post_area": "areas/{uuid}",
        "head_area": "areas/{uuid}",
        "get_area": "areas/{uuid}",
        "patch_area": "areas/{uuid}",
        "delete_area": "areas/{uuid}",
        "put_area_file": "areas/{uuid}",
        "post_area_file": "areas/{uuid}",
        "post_area_credentials": "areas/{uuid}",
        "post_area_upload": "areas/{uuid}",
        "get_area_upload": "areas/{uuid}",
        "put_area_part": "areas/{uuid}",
        "post_area_upload_complete": "areas/{uuid}",
        "delete_area_upload": "areas/{uuid}",
        "get_area_checksum": "areas/{uuid}",
        "get_area_checksums": "areas/{uuid}",
        "get_area_validate": "areas/{uuid}",
        "get_area_validations": "areas/{uuid}",
        "get_health": "service/health",
        "get_replication": "service/replication",
        "get_integrity": "service/integrity",
        "get_metrics": "service/metrics",
    }
)
"""What each operation is on. A name in braces stands for what the request names so, `*` for what it
does not name."""

OPEN: frozenset[str] = frozenset(
    {
        # Specification, Authentication 3: reads, search, checkout, subscription listing are open
        *("get_bundles_all", "get_bundle", "get_file", "head_file", "get_task"),
        *("post_bundles_checkout", "get_bundles_checkout", "post_search"),
        *("get_events", "get_event", "get_events_feed", "get_subscriptions"),
        # The service itself
        *("get_health", "get_replication", "get_integrity"),
    }
)
"""What takes no token and is not judged, unless the settings close it."""
NEVER_CLOSED: frozenset[str] = frozenset({"get_health"})
"""Whatever watches the store has no token."""

SUBSCRIBING: frozenset[str] = frozenset({"put_subscription", "dry_run_subscription"})
"""What takes an identity of an authorized domain, too (specification, Authentication 1)."""

OF_A_VERSION: Mapping[str, str] = MappingProxyType(
    {
        "get_bundle": "bundle",
        "post_bundles_checkout": "bundle",
        CHECKOUT_ELSEWHERE: "bundle",
        "get_file": "file",
        "head_file": "file",
        "get_collection": "collection",
    }
)
"""Reads of the latest version when none is named: judged on the version that is read."""


class StoreRights(Protocol):
    """The part of Settings that says what is asked for at all."""

    @property
    def deployment(self) -> str: ...
    @property
    def authorized_domains(self) -> tuple[str, ...]: ...
    @property
    def closed_operations(self) -> tuple[str, ...]: ...


OF_EACH: Mapping[str, str] = MappingProxyType({"put_files": "put_file"})
"""What does the same to several things: it asks what would be asked for each of them."""


@cache
def action(operation: str) -> str:
    """The action of an operation: `store:PutBundle` of `put_bundle`."""
    words = OF_EACH.get(operation, operation).split("_")
    return "store:" + "".join(word.capitalize() for word in words)


def arn(operation: str, deployment: str, named: Mapping[str, str]) -> str:
    """What an operation is on, with all that a request names."""
    fields = {field: named.get(field) or "*" for field in _FIELDS[operation]}
    resource = RESOURCES[operation].format_map(fields)
    return f"arn:store:{deployment}:{named.get('replica') or '*'}:{resource}"


_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        operation: tuple(field for _, field, _, _ in Formatter().parse(template) if field)
        for operation, template in RESOURCES.items()
    }
)


def wants(operation: str, unasked: Collection[str] = OPEN) -> str | None:
    """What an operation asks of its caller, in words; None when it is asked of nobody."""
    if operation in unasked:
        return None
    more = " and is of an authorized domain" if operation in SUBSCRIBING else ""
    return f"a token that is allowed {action(operation)}{more}"


def closed(names: Collection[str]) -> frozenset[str]:
    """The open operations that want a token all the same; `*` names them all."""
    if "*" in names:
        return OPEN - NEVER_CLOSED
    unknown = sorted(set(names) - (OPEN - NEVER_CLOSED))
    if unknown:
        raise Invalid(f"STORE_CLOSED_OPERATIONS names what is not an open operation: {unknown[0]}")
    return frozenset(names)


@dataclass(frozen=True)
class Access:
    """Who may do what in the store."""

    deciding: Deciding
    rights: StoreRights

    @cached_property
    def open(self) -> frozenset[str]:
        """What takes no token; Invalid when the settings close what is not open."""
        return OPEN - closed(self.rights.closed_operations)

    def wants(self, operation: str) -> str | None:
        """What it asks of its caller, in words; None when it is open."""
        return wants(operation, self.open)

    def may(self, principal: Principal | None, operation: str) -> bool:
        """False only where `require` refuses whatever the request names."""
        if principal is None or operation in self.open:
            return operation in self.open
        return self._of_domain(principal, operation) and self.deciding.might(
            principal, action(operation)
        )

    def require(
        self,
        principal: Principal | None,
        operation: str,
        named: Mapping[str, str],
        context: Mapping[str, Value],
    ) -> None:
        """Return if the principal may, as things are; Unauthorized without a token where one is
        wanted, else Forbidden. What a principal who is disabled shows is refused everywhere."""
        self.require_each(principal, operation, [named], context)

    def require_each(
        self,
        principal: Principal | None,
        operation: str,
        named: Sequence[Mapping[str, str]],
        context: Mapping[str, Value],
    ) -> None:
        """The same of an operation on several things, all of which must be allowed."""
        if principal is None:
            if operation not in self.open:
                raise Unauthorized(f"{operation} needs {self.wants(operation)}")
        elif operation not in self.open:
            self._judge(principal, operation, named, context)
        else:
            require_enabled(self.deciding, principal)

    def require_enabled(self, email: str) -> None:
        """Return unless the user of that address is disabled: what was given to them, and shows no
        token, is refused then, too; Forbidden."""
        require_enabled(self.deciding, Principal(email, frozenset()))

    def _judge(
        self,
        principal: Principal,
        operation: str,
        named: Sequence[Mapping[str, str]],
        context: Mapping[str, Value],
    ) -> None:
        on = [arn(operation, self.rights.deployment, one) for one in named]
        require(self.deciding, principal, action(operation), on, context)
        if not self._of_domain(principal, operation):
            raise Forbidden(f"{operation} needs {self.wants(operation)}")

    def _of_domain(self, principal: Principal, operation: str) -> bool:
        """Whether the e-mail's domain is on the list; an empty list admits any identity."""
        authorized = {name.lower() for name in self.rights.authorized_domains}
        if operation not in SUBSCRIBING or not authorized:
            return True
        _, at, domain = principal.email.rpartition("@")
        return bool(at) and domain.lower() in authorized
