"""Downscoped Google tokens for one prefix of a bucket."""

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

from storage.blobs.clients import CloudLimits, PerProcess, parse_bucket_url
from storage.blobs.gcs_client import GcsServer
from storage.errors import Unavailable
from storage.protocols import Credentials

TOKEN_LIFETIME_S: Final = 3600
"""An exchanged token lives as long as its source token; a shorter life cannot be requested."""
ROLE: Final = "inRole:roles/storage.objectUser"
"""Replacing an object needs permission to delete it; the condition excludes the bucket itself."""
_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
_GOOGLE_DOMAIN: Final = ".googleapis.com"


def make_access_boundary(bucket: str, prefix: str) -> downscoped.CredentialAccessBoundary:
    """Return what a token may do: objects below the prefix. Requires uniform bucket access."""
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


def open_gcs_issuer(url: str, limits: CloudLimits) -> "GcsCredentialIssuer | None":
    """Return the issuer for a `gs://` bucket without any request; None for other servers than
    Google's."""
    name, server = parse_bucket_url(url, "gs", GcsServer)
    if server.endpoint and not _is_google_endpoint(server.endpoint):
        return None
    source = PerProcess(
        lambda: google.auth.default(scopes=_SCOPES, quota_project_id=server.project)[0]
    )
    return GcsCredentialIssuer(name, source, partial(Request(), timeout=limits.read_s))


def _is_google_endpoint(endpoint: str) -> bool:
    parts = urlsplit(endpoint)
    return parts.scheme == "https" and (parts.hostname or "").endswith(_GOOGLE_DOMAIN)


@dataclass(frozen=True, slots=True)
class GcsCredentialIssuer:
    """See CredentialIssuer. `send` sends requests to Google, as its libraries do."""

    bucket: str
    source: Callable[[], Any] = field(repr=False)
    send: Callable[..., Any] = field(repr=False)

    def issue_credentials(self, prefix: str, *, name: str, expires_s: int) -> Credentials:
        """See CredentialIssuer; fetches a fresh token and exchanges it.

        Google's log names our account, not `name`.
        """
        try:
            exchanged = downscoped.Credentials(  # type: ignore[no-untyped-call]
                self.source(), make_access_boundary(self.bucket, prefix)
            )
            exchanged.refresh(self.send)
        except GoogleAuthError as error:
            # Its text may repeat the answer.
            message = type(error).__name__
            raise Unavailable(f"Google issued no token for upload areas: {message}") from error
        if exchanged.token is None or exchanged.expiry is None:
            raise Unavailable("Google issued no token for upload areas: the response has none")
        words = {"bucket": self.bucket, "prefix": prefix, "access_token": exchanged.token}
        return Credentials("gs", words, exchanged.expiry.replace(tzinfo=UTC).timestamp())
