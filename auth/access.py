"""Which operation needs what, by group claims; the policy evaluator will answer the same question.

What an owner alone may do with what is theirs is decided where the owner is known, in pipelines.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from storage.errors import Forbidden, Unauthorized
from storage.model import Principal


class Need(Enum):
    """What an operation asks of the one who calls it."""

    OPEN = "nothing"
    AUTHENTICATED = "a token"
    SUBSCRIBE = "a token with an e-mail address of an authorized domain"
    INGEST = "a token of a group that may ingest"
    ADMIN = "a token of a group that operates the store"


class Rights(Protocol):
    """The part of Settings that gives groups and domains their rights."""

    @property
    def ingest_groups(self) -> tuple[str, ...]: ...
    @property
    def admin_groups(self) -> tuple[str, ...]: ...
    @property
    def authorized_domains(self) -> tuple[str, ...]: ...


CHECKOUT_ELSEWHERE = "post_bundles_checkout.destination"
"""Asked in addition when a checkout names a `destination` of its own."""

NEEDS: Mapping[str, Need] = MappingProxyType(
    {
        # Specification, Authentication 3: reads, search, checkout, subscription listing are open
        "get_bundles_all": Need.OPEN,
        "get_bundle": Need.OPEN,
        "post_bundles_checkout": Need.OPEN,
        CHECKOUT_ELSEWHERE: Need.AUTHENTICATED,
        "get_bundles_checkout": Need.OPEN,
        "get_file": Need.OPEN,
        "head_file": Need.OPEN,
        "get_task": Need.OPEN,
        "post_search": Need.OPEN,
        "get_events": Need.OPEN,
        "get_event": Need.OPEN,
        "get_events_feed": Need.OPEN,
        "get_subscriptions": Need.OPEN,
        # ... writes of bundles and files and all collection operations are not
        "put_bundle": Need.INGEST,
        "patch_bundle": Need.INGEST,
        "delete_bundle": Need.INGEST,
        "put_file": Need.INGEST,
        "get_collections": Need.INGEST,
        "put_collection": Need.INGEST,
        "get_collection": Need.INGEST,
        "patch_collection": Need.INGEST,
        "delete_collection": Need.INGEST,
        # ... subscriptions are owned by who made them; making one takes an authorized domain (1)
        "put_subscription": Need.SUBSCRIBE,
        "get_subscription": Need.AUTHENTICATED,
        "delete_subscription": Need.AUTHENTICATED,
        "get_deliveries": Need.AUTHENTICATED,
        "retry_delivery": Need.AUTHENTICATED,
        "test_subscription": Need.AUTHENTICATED,
        "replay_subscription": Need.AUTHENTICATED,
        "get_replay": Need.AUTHENTICATED,
        "retry_deliveries": Need.AUTHENTICATED,
        "put_subscription_secret": Need.AUTHENTICATED,
        "pause_subscription": Need.AUTHENTICATED,
        "resume_subscription": Need.AUTHENTICATED,
        "dry_run_subscription": Need.SUBSCRIBE,
        # Upload areas
        "post_area": Need.INGEST,
        "head_area": Need.INGEST,
        "get_area": Need.INGEST,
        "patch_area": Need.INGEST,
        "delete_area": Need.INGEST,
        "put_area_file": Need.INGEST,
        "post_area_file": Need.INGEST,
        "post_area_credentials": Need.INGEST,
        "get_area_checksum": Need.INGEST,
        "get_area_checksums": Need.INGEST,
        "get_area_validate": Need.INGEST,
        "get_area_validations": Need.INGEST,
        # The service itself
        "get_health": Need.OPEN,
        "get_replication": Need.OPEN,
        "get_metrics": Need.ADMIN,
    }
)


def require(principal: Principal | None, operation: str, rights: Rights) -> None:
    """Return if the principal may; else Unauthorized without a token, Forbidden with one."""
    if may(principal, operation, rights):
        return
    refusal = Unauthorized if principal is None else Forbidden
    raise refusal(f"{operation} needs {NEEDS[operation].value}")


def may(principal: Principal | None, operation: str, rights: Rights) -> bool:
    """Whether the principal may."""
    need = NEEDS[operation]
    return need is Need.OPEN or (principal is not None and _MEETS[need](principal, rights))


def _may_subscribe(principal: Principal, rights: Rights) -> bool:
    """Whether the e-mail's domain is on the list; an empty list admits any identity."""
    _, at, domain = principal.email.rpartition("@")
    authorized = {name.lower() for name in rights.authorized_domains}
    return not authorized or (bool(at) and domain.lower() in authorized)


def _may_ingest(principal: Principal, rights: Rights) -> bool:
    return not principal.groups.isdisjoint(rights.ingest_groups)


def _may_operate(principal: Principal, rights: Rights) -> bool:
    return not principal.groups.isdisjoint(rights.admin_groups)


_MEETS: Mapping[Need, Callable[[Principal, Rights], bool]] = {
    Need.AUTHENTICATED: lambda principal, rights: True,
    Need.SUBSCRIBE: _may_subscribe,
    Need.INGEST: _may_ingest,
    Need.ADMIN: _may_operate,
}
