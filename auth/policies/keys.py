"""Keys that conditions ask for: how they are spelled, and which of them every request has."""

from collections.abc import Mapping
from types import MappingProxyType

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
