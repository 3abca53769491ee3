"""Open the stores that the settings describe."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy import make_url

from config import Settings, SettingsError
from storage import engines
from storage.blobs.clients import AMBIENT_ACCESS, SourceAccess
from storage.blobs.folder import FolderBlobs
from storage.blobs.plain_folder import PlainFolder
from storage.blobs.sources import SourceSettings, UrlSources
from storage.cache import ByteCache
from storage.catalog import Catalog
from storage.catalog.quotas import DefaultQuotas, Limits
from storage.circuit_breaker import CircuitBreaker
from storage.errors import NotFoundError
from storage.model import MIN_SECRET_LENGTH, REPLICAS, Replica
from storage.protocols import BlobStore, PubSub
from storage.stores import Stores
from storage.timing import time_bucket, time_search_index
from storage.writability import WriteProbe, WriteProbes, probe_bucket, write_file, write_scratch

DOCUMENT_IDLE_S = 600.0
"""A bundle's document is read when it is indexed, matched and delivered, mostly within seconds."""


def connect(
    settings: Settings,
    *,
    notices: PubSub | None = None,
    source_access: SourceAccess = AMBIENT_ACCESS,
) -> Stores:
    """Open every store; call it after forking. SettingsError for unusable settings."""
    check_secrets(settings)
    home = settings.home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    areas_url = settings.areas_url or (home / "areas").as_uri()
    areas = engines.open_bucket(settings, "areas", areas_url, tagged=True)
    replicas: dict[Replica, BlobStore] = {
        replica: engines.open_bucket(settings, replica, settings.bucket(replica))
        for replica in REPLICAS
    }
    search = {replica: engines.open_search_index(settings, replica) for replica in REPLICAS}
    for name, bucket in (("areas", areas), *replicas.items()):
        time_bucket(bucket, name)
    for replica, index in search.items():
        time_search_index(index, replica)
    checkouts = {
        replica: _open_checkout_bucket(settings, replica, replicas[replica]) for replica in REPLICAS
    }
    catalog = open_catalog(settings)
    named = {f"bucket.{replica}": bucket for replica, bucket in replicas.items()}
    return Stores(
        replicas=replicas,
        areas=areas,
        checkouts=checkouts,
        catalog=catalog,
        search=search,
        pubsub=notices or engines.open_pubsub(settings),
        sources=_open_sources(settings, areas, replicas, source_access),
        open_destination=_make_destination_opener(home, replicas),
        documents=ByteCache(settings.document_cache_bytes, max_idle_s=DOCUMENT_IDLE_S),
        base_url=settings.external_url or settings.internal_url,
        max_query_steps=settings.jmespath_visits,
        search_fields=settings.search_fields,
        copy_parallel=settings.copy_parallel,
        send_mail=engines.open_mailer(settings),
        # Search is probed only after a failure: its use shows its state.
        circuit_breaker=CircuitBreaker(
            {name: partial(probe_bucket, bucket) for name, bucket in named.items()},
            {f"search.{replica}": index.ping for replica, index in search.items()},
        ),
        rate_limiter=engines.open_rate_limiter(settings),
        write_probes=make_write_probes(settings, catalog, {"areas": areas, **named}),
        credential_issuer=engines.open_credential_issuer(settings),
        metadata_schemas=engines.open_schemas(settings),
        tracer=engines.open_tracer(settings),
        quotas=read_default_quotas(settings),
    )


def read_default_quotas(settings: Settings) -> DefaultQuotas | None:
    """Return the default quotas; None if quotas are not enforced."""
    defaults = DefaultQuotas(
        Limits(settings.quota_bytes or None, settings.quota_files or None),
        Limits(settings.group_quota_bytes or None, settings.group_quota_files or None),
    )
    return defaults if settings.quotas or any(map(any, defaults)) else None


def _open_sources(
    settings: Settings,
    areas: BlobStore,
    replicas: Mapping[Replica, BlobStore],
    access: SourceAccess,
) -> UrlSources:
    return UrlSources(
        SourceSettings(
            areas=areas,
            external_bases=_external_bases(settings),
            staging_roots=settings.staging_roots,
            own_buckets=tuple(replicas.values()),
            limits=engines.cloud_limits(settings),
            access=access,
        )
    )


def make_write_probes(
    settings: Settings, catalog: Catalog, buckets: Mapping[str, BlobStore] | None = None
) -> WriteProbes:
    """Return probes of the catalog and of each folder that takes writes.

    Cloud buckets have none; `buckets` is None in a process that opens none.
    """
    home, url = settings.home.absolute(), make_url(settings.catalog)
    folders = {"home": home}
    if url.get_backend_name() == "sqlite" and url.database:
        folders["catalog's folder"] = Path(url.database).parent
    probes: dict[str, WriteProbe] = {"catalog": catalog.probe}
    if buckets is not None:
        # Not resolved here: without space for temporary files there is no such folder.
        probes["scratch"] = write_scratch
        if not settings.search_url:
            folders["search"] = home / "search"
            folders["search"].mkdir(exist_ok=True)
    for name, bucket in (buckets or {}).items():
        if isinstance(bucket, FolderBlobs):
            folders[name] = bucket.temporary_folder
    return WriteProbes(
        {**{name: partial(write_file, folder) for name, folder in folders.items()}, **probes}
    )


def check_secrets(settings: Settings) -> None:
    """SettingsError if a key is too short."""
    names = ("STORE_SECRET_KEY", "STORE_SECRET_KEY_PREVIOUS")
    for name, secret in zip(names, settings.secret_keys, strict=False):
        if len(secret) < MIN_SECRET_LENGTH:
            raise SettingsError(f"{name} must have at least {MIN_SECRET_LENGTH} characters")


def open_catalog(settings: Settings) -> Catalog:
    """Open the catalog alone; SettingsError without a secret."""
    check_secrets(settings)
    return Catalog(
        settings.catalog,
        connections=settings.catalog_connections,
        overflow=settings.catalog_overflow,
        wait_s=settings.catalog_wait_s,
        read_url=settings.catalog_read_url,
        max_lag_s=settings.catalog_read_max_lag_s,
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
        return engines.open_bucket(settings, f"checkout {replica}", named) if named else bucket
    folder = (settings.home.absolute() / "checkouts" / replica).as_uri()
    return PlainFolder(Path(engines.parse_folder_url(f"checkout {replica}", named or folder)))


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
