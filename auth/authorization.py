"""Actions and resources that each operation of the store requires.

Pipelines check ownership, because only they know the owner.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from string import Formatter
from types import MappingProxyType

from auth.decisions import DecisionPoint, require_allowed, require_enabled
from auth.policies.patterns import Value
from storage.errors import Forbidden, Invalid, Unauthorized
from storage.model import Principal

CHECKOUT_ELSEWHERE = "post_bundles_checkout_elsewhere"
"""Required in addition if a checkout names a `destination`."""
ARCHIVE = "get_bundle_archive"
DRS_READS = frozenset({"get_drs_object", "get_drs_access"})
FILE_AND_BUNDLE_READS = frozenset({"get_bundle", "get_file"})
"""A store that closes one of them closes archives and DRS objects, too, which show the same."""

RESOURCES: Mapping[str, str] = MappingProxyType(
    {
        "get_bundles_all": "bundles/*",
        "get_bundle": "bundles/{uuid}.{version}",
        ARCHIVE: "bundles/{uuid}.{version}",
        "put_bundle": "bundles/{uuid}.{version}",
        "patch_bundle": "bundles/{uuid}.{version}",
        "delete_bundle": "bundles/{uuid}.{version}",
        "get_schemas": "schemas/*",
        "post_bundles_checkout": "bundles/{uuid}.{version}",
        CHECKOUT_ELSEWHERE: "bundles/{uuid}.{version}",
        "get_bundles_checkout": "checkouts/{checkout_job_id}",
        "put_file": "files/{uuid}.{version}",
        "put_files": "files/{uuid}.{version}",
        "get_file": "files/{uuid}.{version}",
        "head_file": "files/{uuid}.{version}",
        "get_file_bundles": "files/{uuid}.{version}",
        "get_task": "tasks/{task_id}",
        "get_collections": "collections/*",
        "put_collection": "collections/{uuid}.{version}",
        "get_collection": "collections/{uuid}.{version}",
        "patch_collection": "collections/{uuid}.{version}",
        "delete_collection": "collections/{uuid}.{version}",
        "post_search": "bundles/*",
        "post_search_facets": "bundles/*",
        "get_search_fields": "bundles/*",
        "get_events": "events/*",
        "get_event": "events/{uuid}",
        "get_events_feed": "events/*",
        "get_subscriptions": "subscriptions/*",
        "put_subscription": "subscriptions/*",
        "dry_run_subscription": "subscriptions/*",
        "get_subscription": "subscriptions/{uuid}",
        "delete_subscription": "subscriptions/{uuid}",
        "get_deliveries": "subscriptions/{uuid}",
        "get_delivery": "subscriptions/{uuid}",
        "retry_delivery": "subscriptions/{uuid}",
        "resend_delivery": "subscriptions/{uuid}",
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
        "put_area_files": "areas/{uuid}",
        "post_area_file": "areas/{uuid}",
        "post_area_credentials": "areas/{uuid}",
        "post_area_upload": "areas/{uuid}",
        "get_area_upload": "areas/{uuid}",
        "put_area_part": "areas/{uuid}",
        "post_area_part": "areas/{uuid}",
        "post_area_upload_complete": "areas/{uuid}",
        "delete_area_upload": "areas/{uuid}",
        "get_area_checksum": "areas/{uuid}",
        "get_area_checksums": "areas/{uuid}",
        "get_area_validate": "areas/{uuid}",
        "get_area_validations": "areas/{uuid}",
        "get_drs_service_info": "service/drs",
        "get_drs_object": "objects/{object_id}",
        "get_drs_access": "objects/{object_id}",
        "get_health": "service/health",
        "get_replication": "service/replication",
        "get_integrity": "service/integrity",
        "get_metrics": "service/metrics",
        "retry_jobs": "service/jobs",
    }
)
"""The resource of each operation; `{name}` is a parameter of the request, `*` if it is missing."""

OPEN_OPERATIONS: frozenset[str] = frozenset(
    {
        # Specification, Authentication 3: reads, search, checkout, subscription listing are open
        *("get_bundles_all", "get_bundle", "get_file", "head_file", "get_file_bundles", "get_task"),
        ARCHIVE,
        "get_drs_service_info",
        *DRS_READS,
        *("post_bundles_checkout", "get_bundles_checkout", "post_search"),
        *("post_search_facets", "get_search_fields", "get_schemas"),
        *("get_events", "get_event", "get_events_feed", "get_subscriptions"),
        # The service itself
        *("get_health", "get_replication", "get_integrity"),
    }
)
"""Operations without a token or authorization, unless the settings close them."""
NEVER_CLOSED: frozenset[str] = frozenset({"get_health"})
"""Monitoring has no token."""

SUBSCRIBING_OPERATIONS: frozenset[str] = frozenset({"put_subscription", "dry_run_subscription"})
"""Operations that require an authorized domain, too (specification, Authentication 1)."""

VERSIONED_READS: Mapping[str, str] = MappingProxyType(
    {
        "get_bundle": "bundle",
        ARCHIVE: "bundle",
        "post_bundles_checkout": "bundle",
        CHECKOUT_ELSEWHERE: "bundle",
        "get_file": "file",
        "head_file": "file",
        "get_collection": "collection",
    }
)
"""Reads that default to the latest version; authorization is for the version that is read."""


BULK_OPERATIONS = frozenset({"put_files"})
"""Operations that are authorized for each item of their body."""
_SHARED_ACTIONS: Mapping[str, str] = MappingProxyType(
    {"put_files": "put_file", "put_area_files": "put_area_file"}
)
"""Operations that require the action of another operation."""


@cache
def action_name(operation: str) -> str:
    """Return the action of an operation: `store:PutBundle` for `put_bundle`."""
    words = _SHARED_ACTIONS.get(operation, operation).split("_")
    return "store:" + "".join(word.capitalize() for word in words)


def resource_arn(operation: str, deployment: str, named: Mapping[str, str]) -> str:
    """Return the ARN of an operation's resource, from the request's parameters."""
    fields = {field: named.get(field) or "*" for field in _RESOURCE_FIELDS[operation]}
    resource = RESOURCES[operation].format_map(fields)
    return f"arn:store:{deployment}:{named.get('replica') or '*'}:{resource}"


_RESOURCE_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        operation: tuple(field for _, field, _, _ in Formatter().parse(template) if field)
        for operation, template in RESOURCES.items()
    }
)


def describe_requirement(
    operation: str, open_operations: Collection[str] = OPEN_OPERATIONS
) -> str | None:
    """Describe what an operation requires of its caller; None if it is open."""
    if operation in open_operations:
        return None
    domain = (
        " and an e-mail address of an authorized domain"
        if operation in SUBSCRIBING_OPERATIONS
        else ""
    )
    return f"a token with permission {action_name(operation)}{domain}"


def parse_closed_operations(names: Collection[str]) -> frozenset[str]:
    """Parse the open operations that the settings close; `*` means all."""
    if "*" in names:
        return OPEN_OPERATIONS - NEVER_CLOSED
    unknown = sorted(set(names) - (OPEN_OPERATIONS - NEVER_CLOSED))
    if unknown:
        raise Invalid(f"STORE_CLOSED_OPERATIONS: not an open operation: {unknown[0]}")
    closed = frozenset(names)
    return closed if closed.isdisjoint(FILE_AND_BUNDLE_READS) else closed | {ARCHIVE} | DRS_READS


def list_open_operations(closed_operations: Collection[str]) -> frozenset[str]:
    """Return the operations without a token; Invalid if the settings close unknown operations."""
    return OPEN_OPERATIONS - parse_closed_operations(closed_operations)


@dataclass(frozen=True)
class StoreAuthorizer:
    """Authorizes operations of the store."""

    decisions: DecisionPoint
    deployment: str
    authorized_domains: Collection[str] = ()
    closed_operations: Collection[str] = ()

    @cached_property
    def open(self) -> frozenset[str]:
        """Operations without a token; Invalid if the settings close unknown operations."""
        return list_open_operations(self.closed_operations)

    def wants(self, operation: str) -> str | None:
        """Describe what an operation requires of its caller; None if it is open."""
        return describe_requirement(operation, self.open)

    def may(self, principal: Principal | None, operation: str) -> bool:
        """Return False only if `require` fails for every resource."""
        if principal is None or operation in self.open:
            return operation in self.open
        if operation in SUBSCRIBING_OPERATIONS and not self._is_of_authorized_domain(principal):
            return False
        return self.decisions.could_allow(principal, action_name(operation))

    def require(
        self,
        principal: Principal | None,
        operation: str,
        named: Mapping[str, str],
        context: Mapping[str, Value],
    ) -> None:
        """Raise Unauthorized if a token is missing, Forbidden if the operation is not allowed.

        Disabled users are rejected even by open operations.
        """
        self.require_each(principal, operation, [named], context)

    def require_each(
        self,
        principal: Principal | None,
        operation: str,
        named: Sequence[Mapping[str, str]],
        context: Mapping[str, Value],
    ) -> None:
        """Do the same for several resources, all of which must be allowed."""
        if principal is None:
            if operation not in self.open:
                raise Unauthorized(f"{operation} needs {self.wants(operation)}")
            return
        if operation in self.open:
            require_enabled(self.decisions, principal)
            return
        arns = [resource_arn(operation, self.deployment, one) for one in named]
        require_allowed(self.decisions, principal, action_name(operation), arns, context)
        if operation in SUBSCRIBING_OPERATIONS and not self._is_of_authorized_domain(principal):
            raise Forbidden(f"{operation} needs {self.wants(operation)}")

    def find_allowed(
        self,
        principal: Principal | None,
        operation: str,
        named: Sequence[Mapping[str, str]],
        context: Mapping[str, Value],
    ) -> list[bool]:
        """Return for each of several resources whether it is allowed, to list only those."""
        if operation in self.open:
            is_enabled = principal is None or self.decisions.is_enabled(principal)
            return [is_enabled] * len(named)
        if principal is None or not named:
            return [False] * len(named)
        arns = [resource_arn(operation, self.deployment, one) for one in named]
        decided = self.decisions.decide(principal, [action_name(operation)], arns, context)
        return [one.decision.allowed for one in decided.results]

    def require_enabled(self, email: str) -> None:
        """Raise Forbidden if the user is disabled."""
        require_enabled(self.decisions, Principal(email, frozenset()))

    def _is_of_authorized_domain(self, principal: Principal) -> bool:
        """Return whether the e-mail domain is authorized; an empty list allows any."""
        _, at, domain = principal.email.rpartition("@")
        authorized = {name.lower() for name in self.authorized_domains}
        return not authorized or (bool(at) and domain.lower() in authorized)
