"""Condition keys and policy variables, and their canonical spelling."""

from collections.abc import Mapping
from types import MappingProxyType

USER_EMAIL = "store:user_email"
GROUPS = "store:groups"
ROLES = "store:roles"
VARIABLES = (USER_EMAIL, GROUPS, ROLES)
"""Variables of the principal."""
LIST_VARIABLES = frozenset({GROUPS, ROLES})
"""Variables with many values: a pattern matches if any value does."""

SOURCE_IP = "store:SourceIp"
SECURE_TRANSPORT = "store:SecureTransport"
CURRENT_TIME = "store:CurrentTime"
EPOCH_TIME = "store:EpochTime"
USER_AGENT = "store:UserAgent"
TOKEN_ISSUE_TIME = "store:TokenIssueTime"
ISSUER = "store:Issuer"

REQUEST_KEYS = (
    *(SOURCE_IP, SECURE_TRANSPORT, CURRENT_TIME, EPOCH_TIME),
    *(USER_AGENT, TOKEN_ISSUE_TIME, ISSUER),
)
"""Condition keys of a request, besides the principal."""

ANY_KEY = "*"
"""Stands for all keys, if a decision depends on too many to list."""

STORE_PREFIX = "store:"
AWS_KEYS = (SOURCE_IP, SECURE_TRANSPORT, CURRENT_TIME, EPOCH_TIME, USER_AGENT, TOKEN_ISSUE_TIME)
"""Keys that may also have IAM's prefix `aws:`; both spellings are the same key."""

_AWS_ALIASES: Mapping[str, str] = MappingProxyType(
    {f"aws:{key.removeprefix(STORE_PREFIX)}".lower(): key.lower() for key in AWS_KEYS}
)


def normalize_key(key: str) -> str:
    """Return the canonical spelling of a key; ignores case."""
    lower = key.lower()
    return _AWS_ALIASES.get(lower, lower)
