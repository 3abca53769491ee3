"""Open the stores that the settings describe; `storage.engines` imports what they name."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sqlalchemy import make_url

from config.settings import Settings, SettingsError
from storage import engines
from storage.availability import Availability
from storage.blobs.clients import Limits
from storage.blobs.local import LocalBlobs
from storage.blobs.plain import PlainFolder
from storage.blobs.signing import UrlSigner
from storage.blobs.sources import Sources, SourceSettings
from storage.cache import ByteCache
from storage.catalog import Catalog
from storage.datagrams import office
from storage.errors import NotFound
from storage.model import MIN_SECRET, REPLICAS, Replica
from storage.notices import LocalNotices
from storage.protocols import BlobStore, Lender, Notices, SearchIndex
from storage.rates import MemoryRates, Rates
from storage.sealing import derive
from storage.stores import Stores
from storage.writability import WriteProbes, write_file, write_scratch

LOAN_S = range(900, 43_200 + 1)
"""Seconds that a session of a role in AWS may last."""
PROBED = "probe/"
"""Nothing lies there."""


def connect(settings: Settings, *, notices: Notices | None = None) -> Stores:
    """Open every store; call it after forking. SettingsError for what cannot be opened so."""
    _check_secret(settings)
    home = settings.home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    areas_url = settings.areas_url or (home / "areas").as_uri()
    areas = _bucket(settings, "areas", areas_url, tagged=True)
    replicas: dict[Replica, BlobStore] = {
        replica: _bucket(settings, replica, settings.bucket(replica)) for replica in REPLICAS
    }
    search = {replica: _search(settings, home, replica) for replica in REPLICAS}
    checkouts = {replica: _checkouts(settings, replica, replicas[replica]) for replica in REPLICAS}
    catalog = open_catalog(settings)
    return Stores(
        replicas=replicas,
        areas=areas,
        checkouts=checkouts,
        catalog=catalog,
        search=search,
        notices=notices or open_notices(settings),
        sources=_sources(settings, replicas, areas),
        destination=_destinations(home, replicas),
        documents=ByteCache(settings.document_cache_bytes),
        base_url=settings.external_url or settings.internal_url,
        query_steps=settings.jmespath_visits,
        search_fields=settings.search_fields,
        copy_parallel=settings.copy_parallel,
        mail=_mailer(settings),
        availability=_availability(replicas, search),
        rates=open_rates(settings),
        probes=WriteProbes(
            {
                **_folder_probes(settings, {"areas": areas, **_by_name(replicas)}),
                "catalog": catalog.probe,
            }
        ),
        lender=_lender(settings),
    )


def _availability(
    replicas: Mapping[Replica, BlobStore], search: Mapping[Replica, SearchIndex]
) -> Availability:
    """What tells whether a part answers. A listing, because a folder that is gone, say unmounted,
    is as good at lacking an object as one that is there; and before anything fails, because a URL
    into a bucket that is down can be signed as ever."""
    return Availability(
        {f"bucket.{replica}": partial(_looked_into, blobs) for replica, blobs in replicas.items()},
        {f"search.{replica}": index.ping for replica, index in search.items()},
    )


def catalog_probes(settings: Settings, catalog: Catalog) -> WriteProbes:
    """The write probes of a process that has no buckets."""
    probes = {name: partial(write_file, folder) for name, folder in _catalog_folders(settings)}
    return WriteProbes({**probes, "catalog": catalog.probe})


def _catalog_folders(settings: Settings) -> list[tuple[str, Path]]:
    folders = [("home", settings.home.absolute())]
    catalog = make_url(settings.catalog)
    if catalog.get_backend_name() == "sqlite" and catalog.database:
        folders.append(("catalog's folder", Path(catalog.database).parent))
    return folders


def _folder_probes(
    settings: Settings, buckets: Mapping[str, BlobStore]
) -> dict[str, Callable[[], None]]:
    """A probe of each folder that takes writes; buckets of a cloud have none."""
    folders = dict(_catalog_folders(settings))
    if not settings.search_url:
        folders["search"] = settings.home.absolute() / "search"
        folders["search"].mkdir(exist_ok=True)
    for name, bucket in buckets.items():
        if isinstance(bucket, LocalBlobs):
            folders[name] = bucket.temporaries
    probes = {name: partial(write_file, folder) for name, folder in folders.items()}
    # Not looked for here: without room for temporary files there is no such folder.
    return {**probes, "scratch": write_scratch}


def _by_name(replicas: Mapping[Replica, BlobStore]) -> dict[str, BlobStore]:
    return {f"bucket.{replica}": bucket for replica, bucket in replicas.items()}


def _looked_into(blobs: BlobStore) -> None:
    next(iter(blobs.list(PROBED)), None)


def open_notices(settings: Settings) -> Notices:
    """Wake-up calls between all processes of the store."""
    if settings.redis_url:
        return engines.open_redis_notices(settings.redis_url)
    return LocalNotices(office(settings.home))


def open_rates(settings: Settings) -> Rates | None:
    """What counts requests; None where their number is not limited."""
    if not (settings.rate_per_minute or settings.rate_anonymous_per_minute):
        return None
    return engines.open_redis_rates(settings.redis_url) if settings.redis_url else MemoryRates()


def _check_secret(settings: Settings) -> None:
    if len(settings.secret_key) < MIN_SECRET:
        raise SettingsError(f"STORE_SECRET_KEY must have at least {MIN_SECRET} characters")


def open_catalog(settings: Settings) -> Catalog:
    """The catalog alone; SettingsError without a secret to make keys from."""
    _check_secret(settings)
    return Catalog(
        settings.catalog,
        connections=settings.catalog_connections,
        overflow=settings.catalog_overflow,
        wait_s=settings.catalog_wait_s,
    )


def _limits(settings: Settings) -> Limits:
    return Limits(
        connect_s=settings.cloud_connect_s,
        read_s=settings.cloud_read_s,
        attempts=settings.cloud_attempts,
        connections=settings.cloud_pool,
    )


def _bucket(settings: Settings, name: str, url: str, *, tagged: bool = False) -> BlobStore:
    match url.partition("://")[0]:
        case "file":
            key = derive(settings.secret_key.encode(), b"object urls")
            return LocalBlobs(_folder(name, url), UrlSigner(key, name))
        case "s3":
            return engines.open_s3_bucket(url, _limits(settings), tagged=tagged)
        case "gs":
            return engines.open_gcs_bucket(url, _limits(settings))
    raise SettingsError(f"no engine for bucket {name}: {url}")


def _lender(settings: Settings) -> Lender | None:
    """Who lends credentials of the areas' own engine; None: URLs are signed."""
    scheme, life = urlsplit(settings.areas_url).scheme, settings.areas_credentials_s
    if life not in LOAN_S:
        raise SettingsError("STORE_AREAS_CREDENTIALS_S must be from 900 to 43200")
    if settings.areas_role_arn and scheme != "s3":
        raise SettingsError("STORE_AREAS_ROLE_ARN is for upload areas in an s3:// bucket")
    if settings.areas_role_arn:
        return engines.open_s3_lender(
            settings.areas_url, _limits(settings), settings.areas_role_arn
        )
    if scheme == "gs" and settings.areas_downscoped:
        return engines.open_gcs_lender(settings.areas_url, _limits(settings), life)
    return None


def _folder(name: str, url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc:
        raise SettingsError(f"no engine for bucket {name}, which is on another machine: {url}")
    return unquote(parts.path)


def _search(settings: Settings, home: Path, replica: Replica) -> SearchIndex:
    seconds, fields = settings.search_timeout_s, settings.search_fields
    if not settings.search_url:
        path = home / "search" / f"{replica}.sqlite"
        return engines.open_embedded_search(path, time_limit_s=seconds, field_limit=fields)
    if urlsplit(settings.search_url).scheme not in ("http", "https"):
        raise SettingsError("no engine for search: STORE_SEARCH_URL is neither http nor https")
    return engines.open_opensearch(
        settings.search_url, replica, time_limit_s=seconds, field_limit=fields
    )


def _sources(
    settings: Settings, replicas: Mapping[Replica, BlobStore], areas: BlobStore
) -> Sources:
    return Sources(
        SourceSettings(
            areas=areas,
            external_bases=_bases(settings),
            staging_roots=settings.staging_roots,
            own=tuple(replicas.values()),
            limits=_limits(settings),
        )
    )


def _bases(settings: Settings) -> tuple[str, ...]:
    """Every base URL under which the API may have handed out the URL of an uploaded file."""
    loopback = [f"http://{host}:{settings.port}" for host in ("127.0.0.1", "localhost", "[::1]")]
    believed = [
        f"{scheme}://{host}" for host in settings.allowed_hosts for scheme in ("http", "https")
    ]
    named = [settings.external_url] if settings.external_url else []
    return (*named, settings.internal_url, *loopback, *believed)


def _checkouts(settings: Settings, replica: Replica, bucket: BlobStore) -> BlobStore:
    """Beside the bytes, so that they need not pass through us: plain files, for people and their
    programs to read, where the replica is a folder; else a bucket, by default the replica's own."""
    named = settings.checkout_bucket(replica)
    if not isinstance(bucket, LocalBlobs):
        if urlsplit(named).scheme == "file":
            raise SettingsError(f"a checkout folder wants a folder as replica: {named}")
        return _bucket(settings, f"checkout {replica}", named) if named else bucket
    folder = (settings.home.absolute() / "checkouts" / replica).as_uri()
    return PlainFolder(Path(_folder(f"checkout {replica}", named or folder)))


def _destinations(
    home: Path, replicas: Mapping[Replica, BlobStore]
) -> Callable[[Replica, str], BlobStore]:
    """Buckets of requesters, in the replica's cloud; on folders, those that somebody made beside
    the checkout area."""

    def destination(replica: Replica, name: str) -> BlobStore:
        bucket = replicas[replica]
        if isinstance(bucket, engines.CloudBucket):
            return bucket.sibling(name)
        root = home / "checkouts" / "destinations" / replica / name
        if not root.is_dir():
            raise NotFound(f"There is no bucket {name} in replica {replica}.")
        return PlainFolder(root)

    return destination


def _mailer(settings: Settings) -> Callable[[str, str, str], None] | None:
    if not settings.smtp_host:
        return None
    return engines.open_mailer(settings.smtp_host, settings.smtp_port, settings.smtp_from)
