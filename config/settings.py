"""All operator settings: one frozen dataclass, filled from STORE_* variables.

Field `foo_s` is read from `STORE_FOO_S`. Unknown `STORE_*` variables and bad values prevent the
start with an error that names them. The specification's limits are not settings: see
`pipelines/limits.py`.
"""

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from config.parsing import find_out_of_bounds, is_origin, parse_value
from config.providers import PROVIDER_MEMBERS, ProviderSettings

PREFIX = "STORE_"
IGNORED_VARIABLES = frozenset({"STORE_REAL_DATA"})
IGNORED_PREFIXES = ("STORE_TEST_", "STORE_CLIENT_")
"""Variables for the tests, the demo and the client, not the store."""


class SettingsError(Exception):
    """A setting is unknown or has an invalid value; the message names it."""


def _setting(default: Any, about: str) -> Any:
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True)
class Settings:
    """All settings, with their defaults for the embedded store."""

    # Locations
    home: Path = _setting(Path(".store-home"), "folder that holds everything of an embedded store")
    deployment: str = _setting("local", "name of this deployment, the domain of its administrator")
    host: str = _setting("127.0.0.1", "address the HTTP servers listen on")
    port: int = _setting(8000, "port of the API; the authorization service takes the next one")
    external_url: str = _setting("", "base of absolute URLs, without /v1; empty: from the request")
    auth_external_url: str = _setting(
        "", "base URL of the authorization service; empty: next port of host"
    )
    allowed_hosts: tuple[str, ...] = _setting(
        (), "Host headers believed when no external URL is set"
    )

    # Engines, chosen by URL
    replica_aws: str = _setting("", "bucket of replica aws; empty: file://<home>/replicas/aws")
    replica_gcp: str = _setting("", "bucket of replica gcp; empty: file://<home>/replicas/gcp")
    areas_url: str = _setting("", "bucket of the upload areas; empty: file://<home>/areas")
    areas_role_arn: str = _setting(
        "",
        "role whose credentials on S3, confined to one upload area, are lent; empty: signed URLs",
    )
    areas_downscoped: bool = _setting(
        True, "lend tokens confined to one upload area on Google's buckets; false: URLs are signed"
    )
    areas_credentials_s: int = _setting(
        3600, "life of what is lent or signed for an upload area, 900 to 43200 seconds"
    )
    checkout_aws: str = _setting("", "bucket of aws checkouts; empty: the replica's, or a folder")
    checkout_gcp: str = _setting("", "bucket of gcp checkouts; empty: the replica's, or a folder")
    catalog_url: str = _setting("", "SQLAlchemy URL; empty: SQLite in <home>/catalog.sqlite")
    search_url: str = _setting("", "search engine; empty: embedded, in <home>/search")
    redis_url: str = _setting(
        "", "queue and notices of a store of several workers; empty: one worker, without Redis"
    )

    # Connections to the engines
    cloud_connect_s: float = _setting(5.0, "time to connect to a bucket's cloud, seconds")
    cloud_read_s: float = _setting(60.0, "longest silence of a bucket's cloud, seconds")
    cloud_attempts: int = _setting(5, "tries of one call to a bucket's cloud")
    cloud_connections: int = _setting(
        0, "connections of one process to one bucket's cloud; 0: as many as a worker's copies"
    )
    catalog_connections: int = _setting(20, "connections of one process to the catalog")
    catalog_overflow: int = _setting(10, "more of them while many are busy, closed afterwards")
    catalog_wait_s: float = _setting(30.0, "longest wait for one of them, seconds")

    # Secrets; empty: created in <home>/secrets with mode 0600 at first start
    secret_key: str = _setting("", "signs cursors and local URLs, encrypts secrets at rest")

    # HTTP
    max_body_bytes: int = _setting(128 * 1024 * 1024, "largest JSON body, bytes")
    max_json_depth: int = _setting(100, "deepest nesting of a JSON body")
    max_upload_bytes: int = _setting(5 * 1024**4, "largest body of an upload into an area, bytes")
    api_processes: int = _setting(1, "gunicorn processes of the API")
    api_threads: int = _setting(
        32, "requests that one API process works on at once; those that wait do not count"
    )
    api_connections: int = _setting(
        1000, "connections that one process of either HTTP service holds at once"
    )
    api_waits: int = _setting(512, "requests that may wait for workers at once in one API process")
    request_head_s: float = _setting(
        20.0, "time in which a request's line and headers must arrive, seconds"
    )
    request_min_bytes_s: float = _setting(
        500.0, "minimum rate of a request's body and of its answer, bytes a second"
    )
    request_patience_s: float = _setting(
        30.0, "how long a client may be behind that rate before it is disconnected, seconds"
    )
    wait_s: float = _setting(10.0, "how long a request waits for work by default, seconds")
    wait_cap_s: float = _setting(60.0, "longest wait that `Prefer: wait` may ask for, seconds")
    pending_wait_s: float = _setting(15.0, "how long a bundle waits for its pending files, seconds")
    feed_streams: int = _setting(8, "live feeds that one API process streams at once")
    client_streams: int = _setting(4, "how many of those one client may have; 0: all")
    client_waits: int = _setting(
        128, "requests of one client that may wait in one API process; 0: as many as may at all"
    )
    feed_life_s: float = _setting(60.0, "longest life of one such stream, seconds")
    feed_heartbeat_s: float = _setting(15.0, "longest silence on one, seconds")
    signed_url_s: int = _setting(3600, "life of a presigned URL, seconds")
    direct_file_urls: bool = _setting(False, "allow direct URLs on a file:// replica")
    read_only: bool = _setting(False, "refuse every write with 503 read_only")
    rate_per_minute: int = _setting(0, "requests a minute of one principal; 0: any number")
    rate_burst: int = _setting(100, "requests that one principal may make at once")
    rate_anonymous_per_minute: int = _setting(
        0, "the same of one address without a token; 0: any number"
    )
    rate_anonymous_burst: int = _setting(100, "the same at once")
    proxies: int = _setting(
        0, "proxies before both services, whose X-Forwarded-For and -Proto are believed"
    )
    cors_origins: tuple[str, ...] = _setting(
        (), "origins whose pages may read answers; `*`: all; empty: none"
    )
    ops_port: int = _setting(0, "separate port for /metrics; 0: /metrics wants an operator's token")

    idempotency_keep_days: int = _setting(
        7, "how long an Idempotency-Key is answered like the first time, days"
    )

    # Identity
    issuers: Mapping[str, str] = field(
        default_factory=dict,
        metadata={"about": "accepted issuers to the URLs of their keys; empty: our own service"},
    )
    audiences: tuple[str, ...] = _setting(("store",), "accepted token audiences")
    token_algorithms: tuple[str, ...] = _setting(
        ("RS256", "ES256"), "accepted signature algorithms"
    )
    service_token_s: int = _setting(
        3600, "longest life of a token that a service account signs, seconds"
    )
    keys_refresh_s: int = _setting(3600, "age at which cached keys are fetched again, seconds")
    keys_cooldown_s: int = _setting(30, "least time between two fetches of keys, seconds")
    ingest_groups: tuple[str, ...] = _setting(
        ("store_ingest", "store_admin"), "groups that may write files, bundles and areas"
    )
    admin_groups: tuple[str, ...] = _setting(("store_admin",), "groups that operate the store")
    administrators: tuple[str, ...] = _setting(
        (), "e-mail addresses that may do everything, whatever the records say"
    )
    decisions_kept: int = _setting(
        1000, "principals whose rights one process remembers until a record changes"
    )
    authorized_domains: tuple[str, ...] = _setting(
        (), "e-mail domains that may subscribe; empty: any"
    )
    closed_operations: tuple[str, ...] = _setting(
        (), "open operations, by name, that want a token and are judged; *: all but get_health"
    )

    # Remote authorization service
    policies_url: str = _setting(
        "", "base URL of the service that decides; empty: in process, by the catalog's records"
    )
    policies_credentials: str = _setting(
        "", "credentials file of the service account that this store asks it as"
    )
    policies_check_ms: int = _setting(
        0, "how old the version of policies may be that a decision is kept for; 0: asked each time"
    )
    policies_timeout_s: float = _setting(2.0, "time limit of one answer of that service, seconds")
    policies_kept: int = _setting(10_000, "decisions of that service that one process remembers")

    # Tokens of the authorization service for applications
    web_redirect_uris: tuple[str, ...] = _setting(
        (), "where people come back to the store's own web pages, client store-web"
    )
    code_s: int = _setting(60, "life of an authorization code, seconds")
    access_token_s: int = _setting(3_600, "life of an access token, seconds")
    refresh_idle_s: int = _setting(2_592_000, "how long a refresh token may lie unused, seconds")
    grant_s: int = _setting(
        31_536_000, "how long refresh tokens may follow one another after one login, seconds"
    )
    refresh_grace_s: int = _setting(
        10, "how long a used refresh token gives its successor again, seconds; 0: never"
    )
    device_code_s: int = _setting(600, "how long a device waits for its code's person, seconds")
    device_poll_s: int = _setting(5, "least time between two questions of a device, seconds")

    # Logins at the authorization service
    local_logins: bool = _setting(True, "users of `ops users` may log in with a password")
    providers: Mapping[str, ProviderSettings] = field(
        default_factory=dict,
        metadata={"about": f"other providers to log in with: name to {PROVIDER_MEMBERS}, as JSON"},
    )
    provider_secrets: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "about": "names of providers to client secrets; else <home>/secrets/provider-<name>"
        },
    )
    provider_timeout_s: float = _setting(10.0, "time limit of one answer of a provider, seconds")
    default_client: str = _setting(
        "", "client whose page a log-out ends at when it names none; empty: our own page"
    )
    login_s: int = _setting(900, "how long a login that was begun may take, seconds")
    session_s: int = _setting(43_200, "longest life of a browser's session, seconds")
    session_idle_s: int = _setting(3_600, "how long a session may lie idle, seconds")
    password_min: int = _setting(12, "least characters of a password")
    password_memory_kib: int = _setting(65_536, "memory that hashing one password takes, KiB")
    password_passes: int = _setting(3, "passes over that memory")
    password_lanes: int = _setting(4, "lanes of one pass")
    passwords_at_once: int = _setting(2, "passwords that one process hashes at once")
    lockout_after: int = _setting(
        5, "failed logins of an account from one address before each next one from there waits"
    )
    lockout_address_after: int = _setting(50, "the same of one address, whatever the account")
    lockout_account_after: int = _setting(
        100, "the same of one account from all unknown browsers; such waits are 60 s at most"
    )
    lockout_cap_s: int = _setting(900, "longest such wait; it begins at 1 and doubles, seconds")
    logins_keep_days: int = _setting(
        90, "how long the audit log tells of logins, failures and log-outs, days; 0: for ever"
    )
    login_rate_per_minute: int = _setting(
        60, "requests to login pages a minute of one address; 0: any number"
    )
    login_rate_burst: int = _setting(60, "the same at once")
    token_rate_per_minute: int = _setting(
        240, "requests for tokens a minute of one address; 0: any number"
    )
    token_rate_burst: int = _setting(120, "the same at once")

    # Sources and destinations
    staging_roots: tuple[str, ...] = _setting((), "folders that file:// sources may come from")
    checksum_prefixes: tuple[str, ...] = _setting(("store-",), "prefixes of declared checksums")
    checkout_destinations: tuple[str, ...] = _setting(
        (), "bucket patterns that checkouts may go to"
    )
    checkout_keep_days: int = _setting(14, "how long copies in the checkout area are kept, days")
    copy_parallel: int = _setting(16, "copies in flight of one bundle or checkout")

    # Mail about checkouts; empty host: disabled
    smtp_host: str = _setting("", "SMTP server for checkout mails")
    smtp_port: int = _setting(25, "its port")
    smtp_from: str = _setting("store@localhost", "sender of checkout mails")

    # Jobs
    max_claims: int = _setting(5, "claims of one to-do row before it is parked")
    refill_rows: int = _setting(256, "due rows that the clock keeps in each queue")
    tick_s: float = _setting(1.0, "how often the clock looks for due rows, seconds")
    sequencer_s: float = _setting(0.05, "least time between two numberings of events, seconds")
    journal_s: float = _setting(3.0, "how often numbered events are journalled, seconds")
    sweep_s: int = _setting(900, "time between replication sweeps, seconds")
    reservation_grace_s: int = _setting(30, "age at which a sweep completes a reservation, seconds")
    blob_grace_s: int = _setting(
        86_400, "time from when nothing refers to some bytes until they are deleted, seconds"
    )
    epoch_s: int = _setting(60, "time between two marks of the epoch, seconds")
    scrub_bytes_s: int = _setting(
        8 * 1024 * 1024, "bytes a second that the scrub reads at most; 0: no scrub"
    )
    scrub_bytes_day: int = _setting(
        100 * 1024**3, "bytes a day that the scrub reads at most, of both replicas; 0: no scrub"
    )
    scrub_period_days: float = _setting(
        30.0, "every stored object is verified again within this time, days"
    )
    worker_threads: int = _setting(
        8, "threads of one worker process; embedded: half as many for each of four groups of queues"
    )
    worker_poll_ms: int = _setting(
        25, "longest pause between two looks into Redis while messages come, ms"
    )

    # Metadata
    document_cache_bytes: int = _setting(64 * 1024 * 1024, "documents kept by a worker, bytes")
    search_fields: int = _setting(10_000, "most fields of one document in the search index")
    search_timeout_s: float = _setting(10.0, "time limit of one search, seconds")
    jmespath_visits: int = _setting(1_000_000, "steps that one JMESPath evaluation may take")

    # Notifications
    delivery_delays_s: tuple[float, ...] = _setting(
        (0, 60, 600, 3600, 21600, 60540, 86400, 86400, 86400, 86400, 86400, 86400),
        "delay before each attempt, seconds; their number is the number of attempts",
    )
    delivery_timeout_s: float = _setting(10.0, "time to connect and answer, seconds")
    delivery_in_flight: int = _setting(
        1000,
        "requests in flight in one process that delivers; half of them to new or failing ones",
    )
    delivery_threads: int = _setting(
        64,
        "threads in which one process begins to serve endpoints; slow receivers keep none of them,"
        " and half as many failing endpoints are tried at once",
    )
    delivery_retry_after_cap_s: float = _setting(86400.0, "longest Retry-After honoured, seconds")
    delivery_body_bytes: int = _setting(1024, "bytes kept of a receiver's answer")
    allow_private_callbacks: bool = _setting(
        None,
        "SSRF guard: unless true, callbacks and providers at loopback and private addresses are"
        " refused; unset: true only where STORE_HOST is a loopback address",
    )
    subscriptions_per_user: int = _setting(100, "subscriptions one owner may have")
    disable_after_s: float = _setting(
        604_800.0, "nothing but failures for so long disables a subscription, seconds; 0: never"
    )
    delivery_keep_days: int = _setting(
        30, "how long deliveries are kept that were made, superseded or cancelled, days"
    )
    undelivered_keep_days: int = _setting(
        90, "how long deliveries are kept that were given up, or are held back, days; 0: for ever"
    )
    secret_overlap_cap_s: int = _setting(
        604_800, "longest time that a subscription's former secret signs too, seconds"
    )
    dry_run_s: float = _setting(10.0, "time limit of one dry run of a subscription, seconds")

    # Log
    log_level: str = _setting("INFO", "DEBUG, INFO, WARNING or ERROR")

    def __post_init__(self) -> None:
        # Paths are appended to these, so drop a trailing slash.
        for name in ("external_url", "auth_external_url"):
            object.__setattr__(self, name, getattr(self, name).rstrip("/"))
        for origin in self.cors_origins:
            if origin != "*" and not is_origin(origin):
                raise SettingsError(
                    f'STORE_CORS_ORIGINS: "{origin}" must be * or an origin such as'
                    " https://portal.example, as browsers send it: in lower case, without a path"
                    " and without the default port"
                )
        if self.allow_private_callbacks is None:
            object.__setattr__(self, "allow_private_callbacks", _is_loopback(self.host))

    @property
    def worker_metrics(self) -> Path:
        """Folder of the metrics of this machine's workers."""
        return self.home.absolute() / "worker-metrics"

    @property
    def internal_url(self) -> str:
        """The API's URL on this machine."""
        return f"http://{self.host}:{self.port}"

    @property
    def auth_url(self) -> str:
        """Base URL of the authorization service, which is also the issuer of its tokens."""
        return self.auth_external_url or f"http://{self.host}:{self.port + 1}"

    def bucket(self, replica: str) -> str:
        """Return the URL of a bucket."""
        url: str = getattr(self, f"replica_{replica}")
        return url or (self.home.absolute() / "replicas" / replica).as_uri()

    @property
    def cloud_pool(self) -> int:
        """Connections of one process to a cloud, by default one for each parallel copy."""
        return self.cloud_connections or self.worker_threads * self.copy_parallel

    def checkout_bucket(self, replica: str) -> str:
        """Return the URL of a replica's checkout bucket; empty if not set."""
        return {"aws": self.checkout_aws, "gcp": self.checkout_gcp}[replica]

    @property
    def catalog(self) -> str:
        """The catalog's URL."""
        return self.catalog_url or f"sqlite:///{self.catalog_file}"

    @property
    def catalog_file(self) -> Path:
        """File of the catalog, if `catalog_url` is not set."""
        return self.home.absolute() / "catalog.sqlite"


def _is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_ignored(key: str) -> bool:
    return key in IGNORED_VARIABLES or key.startswith(IGNORED_PREFIXES)


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Load settings; SettingsError names an unknown or invalid variable."""
    hints = typing.get_type_hints(Settings)
    names = {PREFIX + item.name.upper(): item.name for item in fields(Settings)}
    variables = (
        {key: raw for key, raw in environ.items() if key.startswith(PREFIX)} if environ else {}
    )
    variables = {key: raw for key, raw in variables.items() if key in names or not _is_ignored(key)}
    unknown = sorted(variables.keys() - names.keys())
    if unknown:
        raise SettingsError(f"unknown setting {', '.join(unknown)}")
    values = {}
    for key, raw in variables.items():
        try:
            values[names[key]] = parse_value(hints[names[key]], raw)
        except (ValueError, TypeError) as error:
            raise SettingsError(f"{key}: {error}") from error
    settings = Settings(**values)
    for name, error_text in find_out_of_bounds(vars(settings)).items():
        raise SettingsError(f"{PREFIX}{name.upper()}: {error_text}")
    return settings
