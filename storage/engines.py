"""Open the engines that the settings name.

Only this module has imports inside functions: a process that serves folders never loads the
clients of S3, Google Cloud Storage, OpenSearch or Redis.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from config import Settings, SettingsError
from storage.blobs.clients import CloudLimits, SourceAccess, SourceReader
from storage.blobs.folder import FolderBlobs
from storage.blobs.signed_urls import UrlSigner
from storage.catalog import Catalog, revisions
from storage.datagrams import open_socket_folder
from storage.encryption import derive_keys
from storage.model import Replica
from storage.protocols import (
    BlobInfo,
    BlobStore,
    CredentialIssuer,
    MetadataSchema,
    PubSub,
    SearchIndex,
    SourceObject,
)
from storage.pubsub import LocalPubSub
from storage.rate_limits import MemoryRateLimiter, RateLimiter
from storage.tracing import Tracer

CREDENTIALS_LIFETIME_S = range(900, 43_200 + 1)
"""Seconds that a role's session in AWS may last."""


@runtime_checkable
class CloudBucket(BlobStore, Protocol):
    """A bucket in a cloud, whose account can reach other buckets."""

    def open_sibling(self, name: str) -> BlobStore:
        """Open another bucket of this cloud; NotFoundError, or Forbidden if it is not writable."""


def cloud_limits(settings: Settings) -> CloudLimits:
    """Return the limits of calls to clouds."""
    return CloudLimits(
        connect_s=settings.cloud_connect_s,
        read_s=settings.cloud_read_s,
        attempts=settings.cloud_attempts,
        connections=settings.cloud_pool,
    )


def open_bucket(settings: Settings, name: str, url: str, *, tagged: bool = False) -> BlobStore:
    """Open a bucket by the scheme of its URL; `name` is its name in URLs and messages."""
    match url.partition("://")[0]:
        case "file":
            key, *former = derive_keys(settings.secret_keys, b"object urls")
            signer = UrlSigner(key, name, former=tuple(former))
            return FolderBlobs(parse_folder_url(name, url), signer)
        case "s3":
            from storage.blobs.s3 import open_s3_blobs

            return open_s3_blobs(url, cloud_limits(settings), tagged=tagged)
        case "gs":
            from storage.blobs.gcs import open_gcs_blobs

            return open_gcs_blobs(url, cloud_limits(settings))
    raise SettingsError(f"bucket {name}: must be a file://, s3:// or gs:// URL (got {url})")


def parse_folder_url(name: str, url: str) -> str:
    """Return the path of a `file://` URL; SettingsError if it names a host."""
    parts = urlsplit(url)
    if parts.netloc:
        raise SettingsError(f"bucket {name}: file:// URL must not name a host (got {url})")
    return unquote(parts.path)


def open_credential_issuer(settings: Settings) -> CredentialIssuer | None:
    """Open the issuer of temporary upload credentials; None if uploads use signed URLs."""
    url, life = settings.areas_url, settings.areas_credentials_s
    scheme = urlsplit(url).scheme
    if life not in CREDENTIALS_LIFETIME_S:
        raise SettingsError("STORE_AREAS_CREDENTIALS_S must be from 900 to 43200")
    if settings.areas_role_arn and scheme != "s3":
        raise SettingsError("STORE_AREAS_ROLE_ARN is for upload areas in an s3:// bucket")
    if settings.areas_role_arn:
        from storage.blobs.s3_credentials import open_s3_issuer

        return open_s3_issuer(url, cloud_limits(settings), settings.areas_role_arn)
    if scheme == "gs" and settings.areas_downscoped:
        from storage.blobs.gcs_credentials import TOKEN_LIFETIME_S, open_gcs_issuer

        if life >= TOKEN_LIFETIME_S:
            return open_gcs_issuer(url, cloud_limits(settings))
    return None


def open_source_reader(scheme: str, limits: CloudLimits, access: SourceAccess) -> SourceReader[Any]:
    """Open a reader of depositors' objects in S3, or in Google Cloud Storage."""
    if scheme == "s3":
        from storage.blobs.s3_client import open_s3_source_reader

        return open_s3_source_reader(limits, access)
    from storage.blobs.gcs_client import open_gcs_source_reader

    return open_gcs_source_reader(limits, access)


def open_source(
    scheme: str, bucket: str, key: str, reader: Callable[[], SourceReader[Any]]
) -> SourceObject:
    """Open a depositor's object."""
    if scheme == "s3":
        from storage.blobs.s3 import S3Source

        return S3Source(bucket, key, lambda: reader().client)
    from storage.blobs.gcs import GcsSource

    return GcsSource(bucket, key, lambda: reader().client)


def list_sources(
    scheme: str, bucket: str, prefix: str, reader: Callable[[], SourceReader[Any]]
) -> Iterator[BlobInfo]:
    """List objects of a source bucket."""
    if scheme == "s3":
        from storage.blobs.s3 import list_s3_sources

        return list_s3_sources(bucket, prefix, lambda: reader().client)
    from storage.blobs.gcs import list_gcs_sources

    return list_gcs_sources(bucket, prefix, lambda: reader().client)


def open_search_index(settings: Settings, replica: Replica) -> SearchIndex:
    """Open a replica's search index: OpenSearch, or a SQLite file in the home folder."""
    seconds, fields = settings.search_timeout_s, settings.search_fields
    if not settings.search_url:
        from storage.search.embedded.index import EmbeddedIndex

        path = settings.home.absolute() / "search" / f"{replica}.sqlite"
        return EmbeddedIndex(path, time_limit_s=seconds, field_limit=fields)
    if urlsplit(settings.search_url).scheme not in ("http", "https"):
        raise SettingsError("STORE_SEARCH_URL: must be an http or https URL")
    from storage.search.opensearch.index import open_opensearch

    return open_opensearch(settings.search_url, replica, time_limit_s=seconds, field_limit=fields)


def open_schemas(settings: Settings) -> Sequence[MetadataSchema]:
    """Open the schemas of metadata; none without the setting."""
    if not settings.metadata_schemas:
        return ()
    from storage.metadata_schemas import open_metadata_schemas

    return open_metadata_schemas(settings.metadata_schemas)


def open_pubsub(settings: Settings) -> PubSub:
    """Open publish/subscribe between all processes of the store."""
    if not settings.redis_url:
        return LocalPubSub(open_socket_folder(settings.home))
    from storage.redis_engines import RedisPubSub

    return RedisPubSub(settings.redis_url)


def open_rate_limiter(settings: Settings) -> RateLimiter | None:
    """Open the rate limiter; None without limits."""
    if not (settings.rate_per_minute or settings.rate_anonymous_per_minute):
        return None
    if not settings.redis_url:
        return MemoryRateLimiter()
    from storage.redis_engines import RedisRateLimiter

    return RedisRateLimiter(settings.redis_url)


def open_tracer(settings: Settings, service: str = "store") -> Tracer:
    """Return the tracer of this process; without a collector it records nothing.

    `service` is the name of the process in traces.
    """
    if not settings.traces_url:
        return Tracer()
    from storage.opentelemetry_traces import CollectorTracer

    return CollectorTracer(settings.traces_url, settings.traces_ratio, service=service)


def open_mailer(settings: Settings) -> Callable[[str, str, str], None] | None:
    """Return a function that sends mail (recipient, subject, body); None without a server."""
    if not settings.smtp_host:
        return None
    from storage.mail import Mailer

    return Mailer(settings.smtp_host, settings.smtp_port, settings.smtp_from)


def migrate_catalog(catalog: Catalog) -> str:
    """Migrate the catalog's tables; return their revision. Loads Alembic only if needed."""
    if revisions.read_current_revision(catalog) == revisions.expected_revision():
        return revisions.expected_revision()
    from storage.catalog.migrate import upgrade

    return upgrade(catalog)


def undo_migrations(catalog: Catalog, revision: str) -> str:
    """Undo the migrations after a revision, so that an earlier release can start again."""
    from storage.catalog.migrate import downgrade

    return downgrade(catalog, revision)
