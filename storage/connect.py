"""Open the stores that the settings describe."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sqlalchemy import make_url

from config import Settings, SettingsError
from storage import engines
from storage.blobs.clients import CloudLimits
from storage.blobs.folder import FolderBlobs
from storage.blobs.plain_folder import PlainFolder
from storage.blobs.signed_urls import UrlSigner
from storage.blobs.sources import SourceSettings, UrlSources
from storage.cache import ByteCache
from storage.catalog import Catalog
from storage.circuit_breaker import CircuitBreaker
from storage.datagrams import open_socket_folder
from storage.encryption import derive_key
from storage.errors import NotFoundError
from storage.model import MIN_SECRET_LENGTH, REPLICAS, Replica
from storage.protocols import BlobStore, CredentialIssuer, PubSub, SearchIndex
from storage.pubsub import LocalPubSub
from storage.rate_limits import MemoryRateLimiter, RateLimiter
from storage.stores import Stores
from storage.writability import WriteProbes, write_file, write_scratch

CREDENTIALS_LIFETIME_S = range(900, 43_200 + 1)
"""Seconds that a role's session in AWS may last."""
PROBE_PREFIX = "probe/"
"""A prefix without objects."""


def connect(settings: Settings, *, notices: PubSub | None = None) -> Stores:
    """Open every store; call it after forking. SettingsError for unusable settings."""
    _check_secret(settings)
    home = settings.home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    areas_url = settings.areas_url or (home / "areas").as_uri()
    areas = _open_bucket(settings, "areas", areas_url, tagged=True)
    replicas: dict[Replica, BlobStore] = {
        replica: _open_bucket(settings, replica, settings.bucket(replica)) for replica in REPLICAS
    }
    search = {replica: _open_search_index(settings, home, replica) for replica in REPLICAS}
    checkouts = {
        replica: _open_checkout_bucket(settings, replica, replicas[replica]) for replica in REPLICAS
    }
    catalog = open_catalog(settings)
    return Stores(
        replicas=replicas,
        areas=areas,
        checkouts=checkouts,
        catalog=catalog,
        search=search,
        pubsub=notices or open_pubsub(settings),
        sources=_open_sources(settings, replicas, areas),
        open_destination=_make_destination_opener(home, replicas),
        documents=ByteCache(settings.document_cache_bytes),
        base_url=settings.external_url or settings.internal_url,
        max_query_steps=settings.jmespath_visits,
        search_fields=settings.search_fields,
        copy_parallel=settings.copy_parallel,
        send_mail=_open_mailer(settings),
        circuit_breaker=_make_circuit_breaker(replicas, search),
        rate_limiter=open_rate_limiter(settings),
        write_probes=WriteProbes(
            {
                **_make_folder_probes(settings, {"areas": areas, **_name_buckets(replicas)}),
                "catalog": catalog.probe,
            }
        ),
        credential_issuer=_open_credential_issuer(settings),
    )


def _make_circuit_breaker(
    replicas: Mapping[Replica, BlobStore], search: Mapping[Replica, SearchIndex]
) -> CircuitBreaker:
    """Build the probes of buckets and search.

    Buckets are probed by a listing, since a HEAD of an absent key also succeeds in an unmounted
    folder, and before any failure, since URLs into a bucket that is down can still be signed.
    """
    return CircuitBreaker(
        {f"bucket.{replica}": partial(_probe_bucket, blobs) for replica, blobs in replicas.items()},
        {f"search.{replica}": index.ping for replica, index in search.items()},
    )


def make_catalog_probes(settings: Settings, catalog: Catalog) -> WriteProbes:
    """Return the write probes of a process without buckets."""
    probes = {name: partial(write_file, folder) for name, folder in _list_catalog_folders(settings)}
    return WriteProbes({**probes, "catalog": catalog.probe})


def _list_catalog_folders(settings: Settings) -> list[tuple[str, Path]]:
    folders = [("home", settings.home.absolute())]
    catalog = make_url(settings.catalog)
    if catalog.get_backend_name() == "sqlite" and catalog.database:
        folders.append(("catalog's folder", Path(catalog.database).parent))
    return folders


def _make_folder_probes(
    settings: Settings, buckets: Mapping[str, BlobStore]
) -> dict[str, Callable[[], None]]:
    """Return a probe of each folder that takes writes; cloud buckets have none."""
    folders = dict(_list_catalog_folders(settings))
    if not settings.search_url:
        folders["search"] = settings.home.absolute() / "search"
        folders["search"].mkdir(exist_ok=True)
    for name, bucket in buckets.items():
        if isinstance(bucket, FolderBlobs):
            folders[name] = bucket.temporary_folder
    probes = {name: partial(write_file, folder) for name, folder in folders.items()}
    # Not resolved here: without space for temporary files there is no such folder.
    return {**probes, "scratch": write_scratch}


def _name_buckets(replicas: Mapping[Replica, BlobStore]) -> dict[str, BlobStore]:
    return {f"bucket.{replica}": bucket for replica, bucket in replicas.items()}


def _probe_bucket(blobs: BlobStore) -> None:
    next(iter(blobs.list(PROBE_PREFIX)), None)


def open_pubsub(settings: Settings) -> PubSub:
    """Open publish/subscribe between all processes of the store."""
    if settings.redis_url:
        return engines.open_redis_pubsub(settings.redis_url)
    return LocalPubSub(open_socket_folder(settings.home))


def open_rate_limiter(settings: Settings) -> RateLimiter | None:
    """Open the rate limiter; None without limits."""
    if not (settings.rate_per_minute or settings.rate_anonymous_per_minute):
        return None
    return (
        engines.open_redis_rate_limiter(settings.redis_url)
        if settings.redis_url
        else MemoryRateLimiter()
    )


def _check_secret(settings: Settings) -> None:
    if len(settings.secret_key) < MIN_SECRET_LENGTH:
        raise SettingsError(f"STORE_SECRET_KEY must have at least {MIN_SECRET_LENGTH} characters")


def open_catalog(settings: Settings) -> Catalog:
    """Open the catalog alone; SettingsError without a secret."""
    _check_secret(settings)
    return Catalog(
        settings.catalog,
        connections=settings.catalog_connections,
        overflow=settings.catalog_overflow,
        wait_s=settings.catalog_wait_s,
    )


def _cloud_limits(settings: Settings) -> CloudLimits:
    return CloudLimits(
        connect_s=settings.cloud_connect_s,
        read_s=settings.cloud_read_s,
        attempts=settings.cloud_attempts,
        connections=settings.cloud_pool,
    )


def _open_bucket(settings: Settings, name: str, url: str, *, tagged: bool = False) -> BlobStore:
    match url.partition("://")[0]:
        case "file":
            key = derive_key(settings.secret_key.encode(), b"object urls")
            return FolderBlobs(_parse_folder_url(name, url), UrlSigner(key, name))
        case "s3":
            return engines.open_s3_bucket(url, _cloud_limits(settings), tagged=tagged)
        case "gs":
            return engines.open_gcs_bucket(url, _cloud_limits(settings))
    raise SettingsError(f"bucket {name}: must be a file://, s3:// or gs:// URL (got {url})")


def _open_credential_issuer(settings: Settings) -> CredentialIssuer | None:
    """Open the issuer of temporary upload credentials; None if uploads use signed URLs."""
    scheme, life = urlsplit(settings.areas_url).scheme, settings.areas_credentials_s
    if life not in CREDENTIALS_LIFETIME_S:
        raise SettingsError("STORE_AREAS_CREDENTIALS_S must be from 900 to 43200")
    if settings.areas_role_arn and scheme != "s3":
        raise SettingsError("STORE_AREAS_ROLE_ARN is for upload areas in an s3:// bucket")
    if settings.areas_role_arn:
        return engines.open_s3_credential_issuer(
            settings.areas_url, _cloud_limits(settings), settings.areas_role_arn
        )
    if scheme == "gs" and settings.areas_downscoped:
        return engines.open_gcs_credential_issuer(settings.areas_url, _cloud_limits(settings), life)
    return None


def _parse_folder_url(name: str, url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc:
        raise SettingsError(f"bucket {name}: file:// URL must not name a host (got {url})")
    return unquote(parts.path)


def _open_search_index(settings: Settings, home: Path, replica: Replica) -> SearchIndex:
    seconds, fields = settings.search_timeout_s, settings.search_fields
    if not settings.search_url:
        path = home / "search" / f"{replica}.sqlite"
        return engines.open_embedded_index(path, time_limit_s=seconds, field_limit=fields)
    if urlsplit(settings.search_url).scheme not in ("http", "https"):
        raise SettingsError("STORE_SEARCH_URL: must be an http or https URL")
    return engines.open_opensearch_index(
        settings.search_url, replica, time_limit_s=seconds, field_limit=fields
    )


def _open_sources(
    settings: Settings, replicas: Mapping[Replica, BlobStore], areas: BlobStore
) -> UrlSources:
    return UrlSources(
        SourceSettings(
            areas=areas,
            external_bases=_external_bases(settings),
            staging_roots=settings.staging_roots,
            own_buckets=tuple(replicas.values()),
            limits=_cloud_limits(settings),
        )
    )


def _external_bases(settings: Settings) -> tuple[str, ...]:
    """Return every base URL under which the API may have issued the URL of an uploaded file."""
    loopback = [f"http://{host}:{settings.port}" for host in ("127.0.0.1", "localhost", "[::1]")]
    host_bases = [
        f"{scheme}://{host}" for host in settings.allowed_hosts for scheme in ("http", "https")
    ]
    named = [settings.external_url] if settings.external_url else []
    return (*named, settings.internal_url, *loopback, *host_bases)


def _open_checkout_bucket(settings: Settings, replica: Replica, bucket: BlobStore) -> BlobStore:
    """Open the bucket of checkouts, beside the replica so that bytes need not pass through us.

    Plain files if the replica is a folder, else a bucket, by default the replica's own.
    """
    named = settings.checkout_bucket(replica)
    if not isinstance(bucket, FolderBlobs):
        if urlsplit(named).scheme == "file":
            raise SettingsError(f"a checkout folder needs a folder as replica: {named}")
        return _open_bucket(settings, f"checkout {replica}", named) if named else bucket
    folder = (settings.home.absolute() / "checkouts" / replica).as_uri()
    return PlainFolder(Path(_parse_folder_url(f"checkout {replica}", named or folder)))


def _make_destination_opener(
    home: Path, replicas: Mapping[Replica, BlobStore]
) -> Callable[[Replica, str], BlobStore]:
    """Return a function that opens a requester's bucket in the replica's cloud.

    For folders these are existing folders beside the checkout area.
    """

    def destination(replica: Replica, name: str) -> BlobStore:
        bucket = replicas[replica]
        if isinstance(bucket, engines.CloudBucket):
            return bucket.open_sibling(name)
        root = home / "checkouts" / "destinations" / replica / name
        if not root.is_dir():
            raise NotFoundError(f"Bucket {name} does not exist in replica {replica}.")
        return PlainFolder(root)

    return destination


def _open_mailer(settings: Settings) -> Callable[[str, str, str], None] | None:
    if not settings.smtp_host:
        return None
    return engines.open_mailer(settings.smtp_host, settings.smtp_port, settings.smtp_from)
