"""Keys that conditions ask for, of the principal and of the request, and how they are spelled.
Those of the principal are the variables of policies, too.
"""

from collections.abc import Mapping
from types import MappingProxyType

USER_EMAIL = "store:user_email"
GROUPS = "store:groups"
ROLES = "store:roles"
VARIABLES = (USER_EMAIL, GROUPS, ROLES)
"""What is known of the principal."""
LISTS = frozenset({GROUPS, ROLES})
"""Variables that have many values: a pattern matches if it does with one of them."""

SOURCE_IP = "store:SourceIp"
SECURE_TRANSPORT = "store:SecureTransport"
CURRENT_TIME = "store:CurrentTime"
EPOCH_TIME = "store:EpochTime"
USER_AGENT = "store:UserAgent"
TOKEN_ISSUE_TIME = "store:TokenIssueTime"
ISSUER = "store:Issuer"

OF_REQUESTS = (
    *(SOURCE_IP, SECURE_TRANSPORT, CURRENT_TIME, EPOCH_TIME),
    *(USER_AGENT, TOKEN_ISSUE_TIME, ISSUER),
)
"""What is known of a request when it is judged, besides who asks."""

ANY_KEY = "*"
"""Stands for all keys, where a decision depends on more of them than are worth naming."""

OURS = "store:"
AS_IN_AWS = (SOURCE_IP, SECURE_TRANSPORT, CURRENT_TIME, EPOCH_TIME, USER_AGENT, TOKEN_ISSUE_TIME)
"""Keys that mean with `aws:` before them what they mean in IAM: both spellings are one key."""

_SAME: Mapping[str, str] = MappingProxyType(
    {f"aws:{key.removeprefix(OURS)}".lower(): key.lower() for key in AS_IN_AWS}
)


def spelled(key: str) -> str:
    """The one spelling of a key, whose case does not count."""
    lower = key.lower()
    return _SAME.get(lower, lower)
