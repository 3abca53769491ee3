"""Groups and roles that are always there. Their policies are here, not in the records, so that they
name this deployment and come with each release.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from auth.policies.model import Policy, parse
from storage.catalog.accounts import Kind, Name
from storage.catalog.memberships import Membership

USER_DEFAULT = "user_default"
STORE_INGEST = "store_ingest"
STORE_ADMIN = "store_admin"

EVERYBODY = Name("group", USER_DEFAULT)
DEFAULT_ROLE = Name("role", USER_DEFAULT)
OWN = "${store:user_email}"

READS = (
    *("GetBundlesAll", "GetBundle", "PostBundlesCheckout", "GetBundlesCheckout"),
    "PostBundlesCheckoutElsewhere",
    *("GetFile", "HeadFile", "GetTask", "PostSearch"),
    *("GetEvents", "GetEvent", "GetEventsFeed", "GetReplication"),
    "GetIntegrity",
)
SUBSCRIPTIONS = (
    *("GetSubscriptions", "PutSubscription", "GetSubscription", "DeleteSubscription"),
    *("GetDeliveries", "RetryDelivery", "TestSubscription", "ReplaySubscription", "GetReplay"),
    *("RetryDeliveries", "PutSubscriptionSecret", "PauseSubscription", "ResumeSubscription"),
    "DryRunSubscription",
)
"""Whose a subscription is, the store asks itself."""
WRITES = (
    *("PutBundle", "PatchBundle", "DeleteBundle", "PutFile"),
    *("GetCollections", "PutCollection", "GetCollection", "PatchCollection", "DeleteCollection"),
    *("PostArea", "HeadArea", "GetArea", "PatchArea", "DeleteArea", "PutAreaFile", "PostAreaFile"),
    *("PostAreaCredentials", "GetAreaChecksum", "GetAreaChecksums"),
    *("GetAreaValidate", "GetAreaValidations"),
    *("PostAreaUpload", "GetAreaUpload", "PutAreaPart", "PostAreaUploadComplete"),
    "DeleteAreaUpload",
)
PROFILE = ("GetUser", "GetUserOwns", "GetUserGroups", "GetUserRoles", "PostPoliciesEvaluate")


def is_built_in(name: Name) -> bool:
    """Whether it may be neither deleted nor given another policy."""
    return name in (EVERYBODY, *(Name("role", role) for role in _ROLES))


def is_fixed(membership: Membership) -> bool:
    """Whether it may not be ended: everybody is in `user_default`, which has its role."""
    return membership.of == EVERYBODY or membership == Membership(EVERYBODY, DEFAULT_ROLE)


@lru_cache(maxsize=64)
def policy(kind: Kind, name: str, deployment: str) -> Policy | None:
    """The policy of a built-in record of this deployment; None for what has none of its own."""
    if kind != "role" or name not in _ROLES:
        return None
    return parse({"Version": "2012-10-17", "Statement": _ROLES[name](deployment)})


def documents(deployment: str) -> Mapping[str, Any]:
    """The statements of all built-in roles of this deployment."""
    return {name: statements(deployment) for name, statements in _ROLES.items()}


def _allow(sid: str, actions: list[str], resources: list[str]) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources}


def _store(names: tuple[str, ...]) -> list[str]:
    return [f"store:{name}" for name in names]


def _user_default(deployment: str) -> list[dict[str, Any]]:
    profile = f"arn:auth:{deployment}:*:user/{OWN}"
    return [
        _allow("Reads", _store(READS), [f"arn:store:{deployment}:*"]),
        _allow("OwnSubscriptions", _store(SUBSCRIPTIONS), [f"arn:store:{deployment}:*"]),
        _allow("OwnProfile", [f"auth:{name}" for name in PROFILE], [profile]),
    ]


def _store_ingest(deployment: str) -> list[dict[str, Any]]:
    return [_allow("Writes", _store(WRITES), [f"arn:store:{deployment}:*"])]


def _store_admin(_deployment: str) -> list[dict[str, Any]]:
    return [_allow("Everything", ["*"], ["*"])]


_ROLES: Mapping[str, Any] = {
    USER_DEFAULT: _user_default,
    STORE_INGEST: _store_ingest,
    STORE_ADMIN: _store_admin,
}
