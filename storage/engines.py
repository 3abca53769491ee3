"""The engines that the settings' URLs may name; each is imported when it is opened.

Only this module has imports inside functions: a process that serves folders never loads the
clients of S3, Google Cloud Storage, OpenSearch or Redis.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from storage.blobs.clients import Limits, Reader
from storage.catalog import Catalog, revisions
from storage.protocols import BlobStore, Lender, Notices, SearchIndex, Source
from storage.rates import Rates


@runtime_checkable
class CloudBucket(BlobStore, Protocol):
    """A bucket in a cloud, where the same account can reach other buckets."""

    def sibling(self, name: str) -> BlobStore:
        """Another bucket of this cloud; NotFound, or Forbidden where it cannot be written."""


def open_s3_bucket(url: str, limits: Limits, *, tagged: bool) -> BlobStore:
    """The bucket of an `s3://` URL."""
    from storage.blobs.s3 import open_bucket

    return open_bucket(url, limits, tagged=tagged)


def open_gcs_bucket(url: str, limits: Limits) -> BlobStore:
    """The bucket of a `gs://` URL."""
    from storage.blobs.gcs import open_bucket

    return open_bucket(url, limits)


def open_s3_lender(url: str, limits: Limits, role: str) -> Lender:
    """Issues temporary credentials of a role for an `s3://` bucket."""
    from storage.blobs.confined_s3 import open_lender

    return open_lender(url, limits, role)


def open_gcs_lender(url: str, limits: Limits, lifetime_s: int) -> Lender | None:
    """Issues downscoped tokens for a `gs://` bucket; None where they would outlive `lifetime_s`."""
    from storage.blobs.confined_gcs import LIFE_S, open_lender

    return open_lender(url, limits) if lifetime_s >= LIFE_S else None


def open_s3_reader(limits: Limits) -> Reader[Any]:
    """What reads depositors' objects in S3."""
    from storage.blobs.s3_client import open_reader

    return open_reader(limits)


def open_s3_source(bucket: str, key: str, reader: Callable[[], Reader[Any]]) -> Source:
    """A depositor's object in S3."""
    from storage.blobs.source_s3 import S3Source

    return S3Source(bucket, key, reader)


def open_gcs_reader(limits: Limits) -> Reader[Any]:
    """A client that reads depositors' objects in Google Cloud Storage."""
    from storage.blobs.gcs_client import open_reader

    return open_reader(limits)


def open_gcs_source(bucket: str, key: str, client: Callable[[], Any]) -> Source:
    """A depositor's object in Google Cloud Storage."""
    from storage.blobs.source_gcs import GcsSource

    return GcsSource(bucket, key, client)


def open_opensearch(
    url: str, replica: str, *, time_limit_s: float, field_limit: int
) -> SearchIndex:
    """A replica's index in OpenSearch."""
    from storage.search.opensearch import open_index

    return open_index(url, replica, time_limit_s=time_limit_s, field_limit=field_limit)


def open_embedded_search(path: Path, *, time_limit_s: float, field_limit: int) -> SearchIndex:
    """A replica's index in a SQLite file."""
    from storage.search.embedded import EmbeddedIndex

    return EmbeddedIndex(path, time_limit_s=time_limit_s, field_limit=field_limit)


def open_redis_notices(url: str) -> Notices:
    """Notices between all processes of one Redis."""
    from storage.notices_redis import RedisNotices

    return RedisNotices(url)


def open_redis_rates(url: str) -> Rates:
    """Token buckets that all processes of one Redis share."""
    from storage.rates_redis import RedisRates

    return RedisRates(url)


def open_mailer(host: str, port: int, sender: str) -> Callable[[str, str, str], None]:
    """Sends mail through an SMTP server: recipient, subject, body."""
    from storage.mail import Mailer

    return Mailer(host, port, sender)


def migrate(catalog: Catalog) -> str:
    """Bring the catalog's tables up to date, with Alembic if they are not; their revision."""
    if revisions.current(catalog) == revisions.expected():
        return revisions.expected()
    from storage.catalog.migrate import upgrade

    return upgrade(catalog)
