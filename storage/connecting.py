"""Building the stores from the settings: the one place that knows which engine is in use."""

from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from config.settings import Settings, SettingsError
from storage.blobs.local import LocalBlobs
from storage.blobs.plain import PlainFolder
from storage.blobs.signing import UrlSigner
from storage.blobs.sources import Sources, SourceSettings
from storage.cache import ByteCache
from storage.catalog import Catalog
from storage.errors import NotFound
from storage.mail import Mailer
from storage.model import REPLICAS, Replica
from storage.notices import RedisNotices
from storage.protocols import BlobStore, Notices, SearchIndex
from storage.sealing import MIN_SECRET, derive
from storage.search.embedded import EmbeddedIndex
from storage.stores import Stores


def connect(settings: Settings, *, notices: Notices | None = None) -> Stores:
    """Open every store; call it after forking. SettingsError for what cannot be opened so."""
    if len(settings.secret_key) < MIN_SECRET:
        raise SettingsError(f"STORE_SECRET_KEY must have at least {MIN_SECRET} characters")
    home = settings.home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    areas = _bucket(settings, "areas", (home / "areas").as_uri())
    replicas: dict[Replica, BlobStore] = {
        replica: _bucket(settings, replica, settings.bucket(replica)) for replica in REPLICAS
    }
    return Stores(
        replicas=replicas,
        areas=areas,
        checkouts={replica: _checkouts(home, replica) for replica in REPLICAS},
        catalog=Catalog(settings.catalog),
        search={replica: _search(settings, home, replica) for replica in REPLICAS},
        notices=notices or RedisNotices(settings.redis_url),
        sources=_sources(settings, replicas, areas),
        destination=_destinations(home),
        documents=ByteCache(settings.document_cache_bytes),
        base_url=settings.external_url or settings.internal_url,
        query_steps=settings.jmespath_visits,
        checkout_parallel=settings.checkout_parallel,
        mail=_mailer(settings),
    )


def _bucket(settings: Settings, name: str, url: str) -> BlobStore:
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc:
        raise SettingsError(f"no engine for bucket {name}: {url}")
    key = derive(settings.secret_key.encode(), b"object urls")
    return LocalBlobs(unquote(parts.path), UrlSigner(key, name))


def _search(settings: Settings, home: Path, replica: Replica) -> SearchIndex:
    if settings.search_url:
        raise SettingsError(f"no engine for search: {settings.search_url}")
    return EmbeddedIndex(
        home / "search" / f"{replica}.sqlite",
        time_limit_s=settings.search_timeout_s,
        field_limit=settings.search_fields,
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


def _checkouts(home: Path, replica: Replica) -> BlobStore:
    """Plain files, for people and their programs to read."""
    return PlainFolder(home / "checkouts" / replica)


def _destinations(home: Path) -> Callable[[Replica, str], BlobStore]:
    """Buckets of requesters: on folders, those that somebody made beside the checkout area."""

    def destination(replica: Replica, name: str) -> BlobStore:
        root = home / "checkouts" / "destinations" / replica / name
        if not root.is_dir():
            raise NotFound(f"There is no bucket {name} in replica {replica}.")
        return PlainFolder(root)

    return destination


def _mailer(settings: Settings) -> Callable[[str, str, str], None] | None:
    if not settings.smtp_host:
        return None
    return Mailer(settings.smtp_host, settings.smtp_port, settings.smtp_from)
