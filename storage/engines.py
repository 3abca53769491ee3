"""Import and open the engines that the settings name.

Only this module has imports inside functions: a process that serves folders never loads the
clients of S3, Google Cloud Storage, OpenSearch or Redis.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from storage.blobs.clients import CloudLimits, SourceReader
from storage.catalog import Catalog, revisions
from storage.protocols import BlobStore, CredentialIssuer, PubSub, SearchIndex, SourceObject
from storage.rate_limits import RateLimiter


@runtime_checkable
class CloudBucket(BlobStore, Protocol):
    """A bucket in a cloud, whose account can reach other buckets."""

    def open_sibling(self, name: str) -> BlobStore:
        """Open another bucket of this cloud; NotFoundError, or Forbidden if it is not writable."""


def open_s3_bucket(url: str, limits: CloudLimits, *, tagged: bool) -> BlobStore:
    """Open the bucket of an `s3://` URL."""
    from storage.blobs.s3 import open_s3_blobs as open_bucket

    return open_bucket(url, limits, tagged=tagged)


def open_gcs_bucket(url: str, limits: CloudLimits) -> BlobStore:
    """Open the bucket of a `gs://` URL."""
    from storage.blobs.gcs import open_gcs_blobs as open_bucket

    return open_bucket(url, limits)


def open_s3_credential_issuer(url: str, limits: CloudLimits, role: str) -> CredentialIssuer:
    """Open an issuer of temporary credentials of a role for an `s3://` bucket."""
    from storage.blobs.s3_credentials import open_s3_issuer as open_lender

    return open_lender(url, limits, role)


def open_gcs_credential_issuer(
    url: str, limits: CloudLimits, lifetime_s: int
) -> CredentialIssuer | None:
    """Open an issuer of downscoped tokens; None if they would outlive `lifetime_s`."""
    from storage.blobs.gcs_credentials import TOKEN_LIFETIME_S as LIFE_S
    from storage.blobs.gcs_credentials import open_gcs_issuer as open_lender

    return open_lender(url, limits) if lifetime_s >= LIFE_S else None


def open_s3_reader(limits: CloudLimits) -> SourceReader[Any]:
    """Open a reader of depositors' objects in S3."""
    from storage.blobs.s3_client import open_s3_source_reader as open_reader

    return open_reader(limits)


def open_s3_source(bucket: str, key: str, reader: Callable[[], SourceReader[Any]]) -> SourceObject:
    """Open a depositor's object in S3."""
    from storage.blobs.s3 import S3Source

    return S3Source(bucket, key, reader)


def open_gcs_reader(limits: CloudLimits) -> SourceReader[Any]:
    """Open a reader of depositors' objects in Google Cloud Storage."""
    from storage.blobs.gcs_client import open_gcs_source_reader as open_reader

    return open_reader(limits)


def open_gcs_source(bucket: str, key: str, client: Callable[[], Any]) -> SourceObject:
    """Open a depositor's object in Google Cloud Storage."""
    from storage.blobs.gcs import GcsSource

    return GcsSource(bucket, key, client)


def open_opensearch_index(
    url: str, replica: str, *, time_limit_s: float, field_limit: int
) -> SearchIndex:
    """Open a replica's index in OpenSearch."""
    from storage.search.opensearch.index import open_opensearch as open_index

    return open_index(url, replica, time_limit_s=time_limit_s, field_limit=field_limit)


def open_embedded_index(path: Path, *, time_limit_s: float, field_limit: int) -> SearchIndex:
    """Open a replica's index in a SQLite file."""
    from storage.search.embedded.index import EmbeddedIndex

    return EmbeddedIndex(path, time_limit_s=time_limit_s, field_limit=field_limit)


def open_redis_pubsub(url: str) -> PubSub:
    """Open publish/subscribe between all processes of one Redis."""
    from storage.pubsub_redis import RedisPubSub as RedisNotices

    return RedisNotices(url)


def open_redis_rate_limiter(url: str) -> RateLimiter:
    """Open token buckets that all processes of one Redis share."""
    from storage.rate_limits_redis import RedisRateLimiter as RedisRates

    return RedisRates(url)


def open_mailer(host: str, port: int, sender: str) -> Callable[[str, str, str], None]:
    """Return a function that sends mail: recipient, subject, body."""
    from storage.mail import Mailer

    return Mailer(host, port, sender)


def migrate_catalog(catalog: Catalog) -> str:
    """Migrate the catalog's tables; return their revision. Loads Alembic only if needed."""
    if revisions.read_current_revision(catalog) == revisions.expected_revision():
        return revisions.expected_revision()
    from storage.catalog.migrate import upgrade

    return upgrade(catalog)
