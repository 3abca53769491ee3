"""Tokens of Google that reach below one prefix of a bucket: our own, exchanged for one within a
credential access boundary. What is allowed then is what both our account and the boundary allow.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import google.auth
from google.auth import downscoped
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import Request

from storage.blobs.clients import Limits, PerProcess
from storage.blobs.gcs_client import Server
from storage.blobs.urls import taken_apart
from storage.errors import Unavailable
from storage.protocols import Loan

LIFE_S: Final = 3600
"""An exchanged token lives as long as the one it was made of, which is made for that: nobody can
ask for less."""
ROLE: Final = "inRole:roles/storage.objectUser"
"""Replacing an object wants leave to delete it; of the bucket itself the condition grants nothing,
no listing either."""
_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
_GOOGLES: Final = ".googleapis.com"


def boundary(bucket: str, prefix: str) -> downscoped.CredentialAccessBoundary:
    """What a token may do: objects below the prefix. Buckets want uniform access for it to hold."""
    below = f"projects/_/buckets/{bucket}/objects/{prefix}"
    condition = downscoped.AvailabilityCondition(  # type: ignore[no-untyped-call]
        f"resource.name.startsWith('{below}')", title="one upload area"
    )
    rule = downscoped.AccessBoundaryRule(  # type: ignore[no-untyped-call]
        available_resource=f"//storage.googleapis.com/projects/_/buckets/{bucket}",
        available_permissions=[ROLE],
        availability_condition=condition,
    )
    return downscoped.CredentialAccessBoundary([rule])  # type: ignore[no-untyped-call]


def open_lender(url: str, limits: Limits) -> "GcsLender | None":
    """Who exchanges tokens for a `gs://` bucket; nobody is asked yet. None when the bucket is not
    Google's, where nobody would understand them."""
    name, options = taken_apart(url, "gs", frozenset(Server.__slots__))
    server = Server(**options)
    if server.endpoint and not _is_googles(server.endpoint):
        return None
    source = PerProcess(
        lambda: google.auth.default(scopes=_SCOPES, quota_project_id=server.project)[0]
    )
    return GcsLender(name, source, partial(Request(), timeout=limits.read_s))


def _is_googles(endpoint: str) -> bool:
    parts = urlsplit(endpoint)
    return parts.scheme == "https" and (parts.hostname or "").endswith(_GOOGLES)


@dataclass(frozen=True, slots=True)
class GcsLender:
    """See Lender. `send` takes requests to Google, as its libraries make them."""

    bucket: str
    source: Callable[[], Any] = field(repr=False)
    send: Callable[..., Any] = field(repr=False)

    def lend(self, prefix: str, *, name: str, expires_s: int) -> Loan:
        """See Lender; two calls: a fresh token of our own, which is not to have lived already, and
        its exchange. Google's log names our account, not `name`."""
        try:
            exchanged = downscoped.Credentials(  # type: ignore[no-untyped-call]
                self.source(), boundary(self.bucket, prefix)
            )
            exchanged.refresh(self.send)
        except GoogleAuthError as error:
            # Its text may repeat the answer.
            said = type(error).__name__
            raise Unavailable(f"Google gives no token for upload areas: {said}") from error
        if exchanged.token is None or exchanged.expiry is None:
            raise Unavailable("Google gives no token for upload areas: its answer has none")
        words = {"bucket": self.bucket, "prefix": prefix, "access_token": exchanged.token}
        return Loan("gs", words, exchanged.expiry.replace(tzinfo=UTC).timestamp())
