"""Built-in groups and roles, and the stored policies of all others."""

import json
from functools import lru_cache
from typing import Any

from auth.policies.grammar import AccessPolicy, parse_policy
from storage.catalog.accounts import AccountKey, AccountKind, Membership
from storage.errors import DamagedObjectError, Invalid

USER_DEFAULT = "user_default"
STORE_INGEST = "store_ingest"
STORE_ADMIN = "store_admin"
BUILT_IN_ROLES = (USER_DEFAULT, STORE_INGEST, STORE_ADMIN)

DEFAULT_GROUP = AccountKey("group", USER_DEFAULT)
DEFAULT_ROLE = AccountKey("role", USER_DEFAULT)
USER_EMAIL_VARIABLE = "${store:user_email}"

READ_ACTIONS = (
    *("GetBundlesAll", "GetBundle", "GetBundleArchive"),
    *("PostBundlesCheckout", "GetBundlesCheckout", "PostBundlesCheckoutElsewhere"),
    *("GetFile", "HeadFile", "GetFileBundles", "GetTask", "PostSearch"),
    *("PostSearchFacets", "GetSearchFields", "GetSchemas"),
    *("GetEvents", "GetEvent", "GetEventsFeed", "GetReplication"),
    "GetIntegrity",
    *("GetDrsServiceInfo", "GetDrsObject", "GetDrsAccess"),
)
SUBSCRIPTION_ACTIONS = (
    *("GetSubscriptions", "PutSubscription", "GetSubscription", "DeleteSubscription"),
    *("GetDeliveries", "GetDelivery", "RetryDelivery", "ResendDelivery", "TestSubscription"),
    *("ReplaySubscription", "GetReplay"),
    *("RetryDeliveries", "PutSubscriptionSecret", "PauseSubscription", "ResumeSubscription"),
    "DryRunSubscription",
)
"""The pipelines check who owns a subscription."""
WRITE_ACTIONS = (
    *("PutBundle", "PatchBundle", "DeleteBundle", "PutFile"),
    *("GetCollections", "PutCollection", "GetCollection", "PatchCollection", "DeleteCollection"),
    *("PostArea", "HeadArea", "GetArea", "PatchArea", "DeleteArea", "PutAreaFile", "PostAreaFile"),
    *("PostAreaCredentials", "GetAreaChecksum", "GetAreaChecksums"),
    *("GetAreaValidate", "GetAreaValidations"),
    *("PostAreaUpload", "GetAreaUpload", "PutAreaPart", "PostAreaPart"),
    *("PostAreaUploadComplete", "DeleteAreaUpload"),
)
PROFILE_ACTIONS = (
    "GetUser",
    "GetUserOwns",
    "GetUserGroups",
    "GetUserRoles",
    "PostPoliciesEvaluate",
)


def is_built_in(name: AccountKey) -> bool:
    """Return whether deletion and policy changes are refused."""
    return name in (DEFAULT_GROUP, *(AccountKey("role", role) for role in BUILT_IN_ROLES))


def is_permanent_membership(membership: Membership) -> bool:
    """Return whether it cannot end: `user_default` has all users and its role."""
    return membership.of == DEFAULT_GROUP or membership == Membership(DEFAULT_GROUP, DEFAULT_ROLE)


@lru_cache(maxsize=64)
def built_in_policy(kind: AccountKind, name: str, deployment: str) -> AccessPolicy | None:
    """Return the policy of a built-in role of this deployment; None for other records."""
    if kind != "role" or name not in BUILT_IN_ROLES:
        return None
    statements = built_in_statements(deployment)[name]
    return parse_policy({"Version": "2012-10-17", "Statement": statements})


def built_in_statements(deployment: str) -> dict[str, list[dict[str, Any]]]:
    """Return the statements of every built-in role."""
    store = [f"arn:store:{deployment}:*"]
    profile = [f"arn:auth:{deployment}:*:user/{USER_EMAIL_VARIABLE}"]
    return {
        USER_DEFAULT: [
            _allow_statement("Reads", "store", READ_ACTIONS, store),
            _allow_statement("OwnSubscriptions", "store", SUBSCRIPTION_ACTIONS, store),
            _allow_statement("OwnProfile", "auth", PROFILE_ACTIONS, profile),
        ],
        STORE_INGEST: [_allow_statement("Writes", "store", WRITE_ACTIONS, store)],
        STORE_ADMIN: [{"Sid": "Everything", "Effect": "Allow", "Action": ["*"], "Resource": ["*"]}],
    }


@lru_cache(maxsize=256)
def find_sufficient_role(action: str) -> str:
    """Return the built-in role with the fewest permissions that has an action everywhere.

    It is never `user_default`, which everyone has."""
    writes = built_in_statements("")[STORE_INGEST]
    return STORE_INGEST if any(action in one["Action"] for one in writes) else STORE_ADMIN


def _allow_statement(
    sid: str, service: str, names: tuple[str, ...], resources: list[str]
) -> dict[str, Any]:
    actions = [f"{service}:{name}" for name in names]
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources}


def load_policy(name: AccountKey, text: str | None, deployment: str) -> AccessPolicy | None:
    """Load a built-in or stored policy; DamagedObjectError if it is unreadable.

    Ignoring it instead would allow what it denies."""
    if is_built_in(name):
        return built_in_policy(name.kind, name.id, deployment)
    if text is None:
        return None
    try:
        return _parse_policy_text(text)
    except (Invalid, ValueError) as error:
        raise DamagedObjectError(
            f"The policy of {name.kind} {name.id} cannot be understood."
        ) from error


@lru_cache(maxsize=1024)
def _parse_policy_text(text: str) -> AccessPolicy:
    """Cached: principals share roles."""
    return parse_policy(json.loads(text), stored=True)


def is_same_policy(one: str | None, other: str | None) -> bool:
    """Compare two documents, ignoring the order of members; 1 is not true."""
    return one == other or (
        one is not None and other is not None and _sort_members(one) == _sort_members(other)
    )


def _sort_members(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)
