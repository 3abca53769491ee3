"""All operator settings: one frozen dataclass, filled from STORE_* variables and a file.

Field `foo_s` is read from `STORE_FOO_S`, or from the table of its group in the file
(`config/loading.py`). Unknown names and bad values prevent the start with an error that names
them. The specification's limits are not settings: see `pipelines/limits.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from config.parsing import (
    PROVIDER_MEMBERS,
    ProviderSettings,
    is_origin,
    is_plain_url,
)

PREFIX = "STORE_"
FILE_VARIABLE = "STORE_SETTINGS_FILE"
"""Names the settings file; only the environment can."""
IGNORED_VARIABLES = frozenset({FILE_VARIABLE, "STORE_REAL_DATA"})
IGNORED_PREFIXES = ("STORE_TEST_", "STORE_CLIENT_")
"""Variables that are no settings: for the tests, the demo and the client."""
SECRET_SETTINGS = ("secret_key", "secret_key_previous", "provider_secrets")
URL_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]+@")
"""The user and the password of a URL."""

POSTGRESQL_SCHEME = "postgresql+psycopg://"


class SettingsError(Exception):
    """A setting is unknown or has an invalid value; the message names it."""


class SettingValueError(SettingsError):
    """The value of one setting is invalid."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{PREFIX}{name.upper()}: {problem}")
        self.name, self.problem = name, problem


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
        (), "accepted Host headers when no external URL is set"
    )

    # Engines, chosen by URL
    replica_aws: str = _setting("", "bucket of replica aws; empty: file://<home>/replicas/aws")
    replica_gcp: str = _setting("", "bucket of replica gcp; empty: file://<home>/replicas/gcp")
    areas_url: str = _setting("", "bucket of the upload areas; empty: file://<home>/areas")
    areas_role_arn: str = _setting(
        "",
        "role for temporary S3 credentials of one upload area; empty: presigned URLs",
    )
    areas_downscoped: bool = _setting(
        True, "issue downscoped tokens for one upload area on Google; false: presigned URLs"
    )
    areas_credentials_s: int = _setting(
        3600, "lifetime of credentials and presigned URLs of upload areas, 900 to 43200 seconds"
    )
    checkout_aws: str = _setting("", "bucket of aws checkouts; empty: the replica's, or a folder")
    checkout_gcp: str = _setting("", "bucket of gcp checkouts; empty: the replica's, or a folder")
    catalog_url: str = _setting("", "SQLAlchemy URL; empty: SQLite in <home>/catalog.sqlite")
    catalog_read_url: str = _setting(
        "", "standby of a catalog on PostgreSQL, for reads that may be a little old"
    )
    search_url: str = _setting("", "search engine; empty: embedded, in <home>/search")
    redis_url: str = _setting("", "Redis for queue and pub/sub; empty: one worker, without Redis")

    # Connections to the engines
    cloud_connect_s: float = _setting(5.0, "time limit for connecting to a bucket's cloud, seconds")
    cloud_read_s: float = _setting(60.0, "read timeout of a bucket's cloud, seconds")
    cloud_attempts: int = _setting(5, "attempts of one call to a bucket's cloud")
    cloud_connections: int = _setting(
        0, "connections per process to one bucket's cloud; 0: as many as a worker's copies"
    )
    catalog_connections: int = _setting(20, "connections per process to the catalog")
    catalog_overflow: int = _setting(
        10, "additional connections while all are busy, closed afterwards"
    )
    catalog_wait_s: float = _setting(30.0, "longest wait for a connection, seconds")
    catalog_read_max_lag_s: float = _setting(
        5.0, "longest time that the standby may be behind while it is read, seconds"
    )

    # Secrets; empty: created in <home>/secrets with mode 0600 at first start
    secret_key: str = _setting(
        "", "key that signs cursors and local URLs and encrypts stored secrets"
    )
    secret_key_previous: str = _setting(
        "",
        "another key that is accepted, while the key is changed by `python -m ops secrets rotate`",
    )

    # HTTP
    max_body_bytes: int = _setting(128 * 1024 * 1024, "largest JSON body, bytes")
    max_json_depth: int = _setting(100, "maximum nesting of a JSON body")
    max_upload_bytes: int = _setting(5 * 1024**4, "largest upload into an area, bytes")
    api_processes: int = _setting(1, "gunicorn processes of the API")
    api_threads: int = _setting(
        32, "concurrent requests per API process; waiting ones do not count"
    )
    api_connections: int = _setting(1000, "connections per process of either HTTP service")
    api_waits: int = _setting(512, "requests per API process that may wait for workers")
    request_head_s: float = _setting(20.0, "time limit for a request's line and headers, seconds")
    request_min_bytes_s: float = _setting(
        500.0, "minimum transfer rate of request and response bodies, bytes a second"
    )
    request_patience_s: float = _setting(
        30.0, "how long a client may be slower before it is disconnected, seconds"
    )
    wait_s: float = _setting(10.0, "default wait of a request for workers, seconds")
    wait_cap_s: float = _setting(60.0, "longest wait by `Prefer: wait`, seconds")
    pending_wait_s: float = _setting(15.0, "how long a bundle waits for its pending files, seconds")
    feed_streams: int = _setting(8, "concurrent live feeds per API process")
    page_streams: int = _setting(
        32, "concurrent web pages with live updates per API process; others reload by themselves"
    )
    client_streams: int = _setting(
        4, "concurrent live feeds, and live web pages, per client; 0: no limit per client"
    )
    archive_streams: int = _setting(8, "concurrent archives of bundles per API process")
    client_archives: int = _setting(
        2, "concurrent archives per client and API process; 0: no limit per client"
    )
    client_waits: int = _setting(
        128, "waiting requests per client and API process; 0: no limit per client"
    )
    feed_life_s: float = _setting(60.0, "longest duration of a live feed or page, seconds")
    feed_heartbeat_s: float = _setting(15.0, "time between heartbeats of a live feed, seconds")
    signed_url_s: int = _setting(3600, "lifetime of a presigned URL, seconds")
    direct_file_urls: bool = _setting(False, "allow direct URLs on a file:// replica")
    read_only: bool = _setting(False, "refuse every write with 503 read_only")
    mirror_of: str = _setting(
        "", "URL of the store that this one mirrors: refuse every write with 403 read_only_mirror"
    )
    rate_per_minute: int = _setting(0, "rate limit per principal, requests a minute; 0: none")
    rate_burst: int = _setting(100, "burst per principal, requests")
    rate_anonymous_per_minute: int = _setting(
        0, "rate limit per address without a token, requests a minute; 0: none"
    )
    rate_anonymous_burst: int = _setting(100, "burst per address without a token, requests")
    proxies: int = _setting(0, "number of trusted proxies that set X-Forwarded-For and -Proto")
    cors_origins: tuple[str, ...] = _setting((), "CORS: allowed origins; `*`: all; empty: none")
    ops_port: int = _setting(0, "separate port for /metrics; 0: /metrics needs an operator's token")
    metrics_port: int = _setting(
        0, "port for /metrics of processes whose home no API process shares; 0: none"
    )
    idempotency_keep_days: int = _setting(
        7, "how long responses for Idempotency-Key are stored, days"
    )

    # Web pages
    web_name: str = _setting("Data store", "name of the consortium or store on the web pages")
    web_about: str = _setting("", "a sentence about the store for its home page")
    web_title_fields: tuple[str, ...] = _setting(
        ("title", "project_title", "project_short_name", "project", "name"),
        "fields whose first value is a bundle's title; a name without dots stands for every"
        " metadata field that ends so",
    )
    web_logo: str = _setting("", "PNG or SVG file with the logo of the web pages")
    web_facets: tuple[str, ...] = _setting(
        (), "fields of the facets beside search results; empty: those that most bundles have"
    )
    web_card_fields: tuple[str, ...] = _setting(
        ("organism", "tissue", "disease"),
        "fields shown with a search result, named like those of titles",
    )
    web_contact: str = _setting(
        "", "e-mail address or URL that pages name for questions and missing permissions"
    )
    data_license: str = _setting(
        "", "license of the deposited data, a URL or a text, for documents that describe bundles"
    )

    # Identity
    issuers: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "about": "accepted issuers with the URLs of their keys; empty: the store's own service"
        },
    )
    audiences: tuple[str, ...] = _setting(("store",), "accepted token audiences")
    token_algorithms: tuple[str, ...] = _setting(
        ("RS256", "ES256"), "accepted signature algorithms"
    )
    service_token_s: int = _setting(3600, "longest lifetime of a service account's token, seconds")
    keys_refresh_s: int = _setting(
        3600, "age at which cached issuer keys are fetched again, seconds"
    )
    keys_cooldown_s: int = _setting(30, "minimum time between two fetches of issuer keys, seconds")
    ingest_groups: tuple[str, ...] = _setting(
        ("store_ingest", "store_admin"), "claimed groups with the role store_ingest"
    )
    admin_groups: tuple[str, ...] = _setting(
        ("store_admin",), "claimed groups with the role store_admin"
    )
    administrators: tuple[str, ...] = _setting(
        (), "e-mail addresses of administrators, in addition to the records"
    )
    decisions_kept: int = _setting(1000, "principals whose rights a process caches")
    authorized_domains: tuple[str, ...] = _setting(
        (), "e-mail domains that may subscribe; empty: any"
    )
    closed_operations: tuple[str, ...] = _setting(
        (), "open operations that require a token and permission; *: all but get_health"
    )

    # Remote authorization service
    policies_url: str = _setting(
        "", "base URL of a remote authorization service; empty: the store's own records"
    )
    policies_credentials: str = _setting(
        "", "credentials file of this store's service account at that service"
    )
    policies_check_ms: int = _setting(
        0, "how long decisions are reused without checking the policy version, ms; 0: never"
    )
    policies_timeout_s: float = _setting(2.0, "time limit of one call to that service, seconds")
    policies_kept: int = _setting(10_000, "remote decisions that a process caches")

    # Tokens of the authorization service for applications
    web_redirect_uris: tuple[str, ...] = _setting((), "redirect URIs of the client store-web")
    code_s: int = _setting(60, "lifetime of an authorization code, seconds")
    access_token_s: int = _setting(3_600, "lifetime of an access token, seconds")
    refresh_idle_s: int = _setting(2_592_000, "lifetime of an unused refresh token, seconds")
    personal_token_s: int = _setting(
        31_536_000, "longest lifetime of a personal token, seconds; 0: none"
    )
    grant_s: int = _setting(31_536_000, "longest time from a login to its last refresh, seconds")
    refresh_grace_s: int = _setting(10, "how long a refresh may be repeated, seconds; 0: never")
    device_code_s: int = _setting(600, "lifetime of a device code, seconds")
    device_poll_s: int = _setting(5, "minimum time between two polls of a device, seconds")

    # Logins at the authorization service
    local_logins: bool = _setting(True, "users of `ops users` may log in with a password")
    providers: Mapping[str, ProviderSettings] = field(
        default_factory=dict,
        metadata={"about": f"OpenID providers to log in with: name to {PROVIDER_MEMBERS}, as JSON"},
    )
    provider_secrets: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "about": "client secrets of providers by name; else <home>/secrets/provider-<name>"
        },
    )
    provider_timeout_s: float = _setting(10.0, "time limit of one call to a provider, seconds")
    default_client: str = _setting(
        "", "client whose page is shown after logout by default; empty: the store's own page"
    )
    login_s: int = _setting(900, "time limit for completing a login, seconds")
    session_s: int = _setting(43_200, "longest duration of a browser session, seconds")
    session_idle_s: int = _setting(3_600, "longest idle time of a browser session, seconds")
    login_link_s: int = _setting(86_400, "lifetime of a one-time login link, seconds; 0: none")
    password_min: int = _setting(12, "minimum length of a password, characters")
    password_memory_kib: int = _setting(65_536, "Argon2id memory per password, KiB")
    password_passes: int = _setting(3, "Argon2id passes")
    password_lanes: int = _setting(4, "Argon2id lanes")
    passwords_at_once: int = _setting(2, "passwords that a process hashes concurrently")
    lockout_after: int = _setting(5, "failed logins of an account at one address before lockout")
    lockout_address_after: int = _setting(50, "failed logins at one address before lockout")
    lockout_account_after: int = _setting(
        100, "failed logins of an account from unknown browsers before lockout of at most 60 s"
    )
    lockout_cap_s: int = _setting(900, "longest lockout, seconds; it begins at 1 and doubles")
    logins_keep_days: int = _setting(
        90, "how long the audit log keeps logins, failures and logouts, days; 0: for ever"
    )
    login_rate_per_minute: int = _setting(
        60, "rate limit of login pages per address, requests a minute; 0: none"
    )
    login_rate_burst: int = _setting(60, "burst of login pages per address, requests")
    token_rate_per_minute: int = _setting(
        240, "rate limit of token endpoints per address, requests a minute; 0: none"
    )
    token_rate_burst: int = _setting(120, "burst of token endpoints per address, requests")

    # Sources and destinations
    staging_roots: tuple[str, ...] = _setting((), "folders allowed for file:// sources")
    checksum_prefixes: tuple[str, ...] = _setting(("store-",), "prefixes of declared checksums")
    checkout_destinations: tuple[str, ...] = _setting(
        (), "allowed destination buckets of checkouts, as patterns"
    )
    checkout_keep_days: int = _setting(14, "how long copies in the checkout area are kept, days")
    copy_parallel: int = _setting(16, "concurrent copies per bundle or checkout")

    # Mail about checkouts; empty host: disabled
    smtp_host: str = _setting("", "SMTP server for checkout mails")
    smtp_port: int = _setting(25, "port of the SMTP server")
    smtp_from: str = _setting("store@localhost", "sender of checkout mails")

    # Quotas
    quotas: bool = _setting(
        False, "enforce the quotas of `ops quotas set`; a default below enforces them, too"
    )
    quota_bytes: int = _setting(0, "default quota of each owner, bytes; 0: none")
    quota_files: int = _setting(0, "default quota of each owner, files; 0: none")
    group_quota_bytes: int = _setting(
        0, "default quota of each group, for its members together, bytes; 0: none"
    )
    group_quota_files: int = _setting(
        0, "default quota of each group, for its members together, files; 0: none"
    )

    # Jobs
    max_claims: int = _setting(5, "claims of a job before it is dead (parked)")
    refill_rows: int = _setting(256, "due jobs that the scheduler keeps in each queue")
    tick_s: float = _setting(1.0, "time between two looks of the scheduler for due jobs, seconds")
    sequencer_s: float = _setting(
        0.05, "minimum time between two runs of the event sequencer, seconds"
    )
    journal_s: float = _setting(3.0, "time between two journals of new events, seconds")
    sweep_s: int = _setting(900, "time between replication sweeps, seconds")
    reservation_grace_s: int = _setting(30, "age at which a sweep completes a reservation, seconds")
    blob_grace_s: int = _setting(
        86_400, "grace period before unreferenced blobs are deleted, seconds"
    )
    epoch_s: int = _setting(60, "time between two epoch marks, seconds")
    scrub_bytes_s: int = _setting(
        8 * 1024 * 1024, "read limit of the scrub, bytes a second; 0: no scrub"
    )
    scrub_bytes_day: int = _setting(
        100 * 1024**3, "read limit of the scrub for both replicas, bytes a day; 0: no scrub"
    )
    scrub_period_days: float = _setting(
        30.0, "time within which every stored object is verified again, days"
    )
    backup_target: str = _setting(
        "", "folder or bucket of scheduled backups, such as file:///FOLDER; empty: none are made"
    )
    backup_every_s: int = _setting(86_400, "age at which a new backup is made, seconds")
    backup_keep: int = _setting(14, "number of latest backups that are kept in the target")
    worker_threads: int = _setting(
        8, "threads per worker process; embedded: half as many for each of four queue groups"
    )
    worker_poll_ms: int = _setting(25, "longest poll interval of Redis while messages arrive, ms")

    # Metadata
    metadata_schemas: str = _setting(
        "",
        "JSON file of patterns of file names and JSON Schemas for the metadata of new bundles;"
        " empty: no validation",
    )
    document_cache_bytes: int = _setting(64 * 1024 * 1024, "document cache of a worker, bytes")
    search_fields: int = _setting(10_000, "maximum number of fields of a search document")
    search_timeout_s: float = _setting(10.0, "time limit of one search, seconds")
    jmespath_visits: int = _setting(1_000_000, "maximum number of steps of one query evaluation")

    # Notifications
    delivery_delays_s: tuple[float, ...] = _setting(
        (0, 60, 600, 3600, 21600, 60540, 86400, 86400, 86400, 86400, 86400, 86400),
        "delay before each attempt, seconds; their number is the number of attempts",
    )
    delivery_timeout_s: float = _setting(10.0, "time limit of one delivery attempt, seconds")
    delivery_in_flight: int = _setting(
        1000,
        "concurrent delivery requests per process; half of them to new or failing endpoints",
    )
    delivery_threads: int = _setting(
        64,
        "threads per process that start to serve endpoints; at most half for failing endpoints",
    )
    delivery_retry_after_cap_s: float = _setting(86400.0, "longest Retry-After honoured, seconds")
    delivery_body_bytes: int = _setting(1024, "bytes stored of a receiver's response")
    allow_private_callbacks: bool = _setting(
        None,
        "SSRF guard: unless true, callbacks and providers at loopback and private addresses are"
        " refused; unset: true only where STORE_HOST is a loopback address",
    )
    subscriptions_per_user: int = _setting(100, "subscriptions per owner")
    disable_after_s: float = _setting(
        604_800.0, "time of failures only after which a subscription is disabled, seconds; 0: never"
    )
    delivery_keep_days: int = _setting(
        30, "how long delivered, superseded and cancelled deliveries are kept, days"
    )
    undelivered_keep_days: int = _setting(
        90, "how long failed and paused deliveries are kept, days; 0: for ever"
    )
    secret_overlap_cap_s: int = _setting(
        604_800, "longest overlap of a subscription's former secret, seconds"
    )
    dry_run_s: float = _setting(10.0, "time limit of one dry run of a subscription, seconds")

    # Logs
    log_level: str = _setting("INFO", "DEBUG, INFO, WARNING or ERROR")
    log_format: str = _setting(
        "auto", "text, json, or auto: text on a terminal, otherwise one JSON object per line"
    )

    # Traces
    traces_url: str = _setting(
        "",
        "OTLP/HTTP endpoint of an OpenTelemetry collector, such as"
        " http://127.0.0.1:4318/v1/traces; empty: no tracing",
    )
    traces_ratio: float = _setting(1.0, "share of requests that are traced, 0 to 1")

    def __post_init__(self) -> None:
        # Paths are appended to these, so drop a trailing slash.
        for name in ("external_url", "auth_external_url"):
            object.__setattr__(self, name, getattr(self, name).rstrip("/"))
        for origin in self.cors_origins:
            if origin != "*" and not is_origin(origin):
                raise SettingValueError(
                    "cors_origins",
                    f'"{origin}" must be * or an origin such as'
                    " https://portal.example, as browsers send it: in lower case, without a path"
                    " and without the default port",
                )
        if not self.data_license.isprintable() or (
            "://" in self.data_license and not is_plain_url(self.data_license)
        ):
            raise SettingValueError(
                "data_license",
                "must be an http or https URL such as"
                " https://creativecommons.org/licenses/by/4.0/, or one line of text",
            )
        self._check_standby()
        if self.traces_url and not is_plain_url(self.traces_url):
            raise SettingValueError(
                "traces_url",
                "must be an http or https URL without user and password (OpenTelemetry's variable"
                " OTEL_EXPORTER_OTLP_HEADERS has headers for the collector)",
            )
        if self.mirror_of and not is_plain_url(self.mirror_of):
            raise SettingValueError(
                "mirror_of", "must be an http or https URL without user and password"
            )
        if self.allow_private_callbacks is None:
            object.__setattr__(self, "allow_private_callbacks", is_loopback(self.host))

    def _check_standby(self) -> None:
        """Refuse a standby without a catalog on PostgreSQL; never repeat a URL: passwords."""
        if not self.catalog_read_url:
            return
        if not self.catalog_read_url.startswith(POSTGRESQL_SCHEME):
            raise SettingValueError("catalog_read_url", f"must begin with {POSTGRESQL_SCHEME}")
        if not self.catalog_url.startswith(POSTGRESQL_SCHEME):
            raise SettingValueError(
                "catalog_read_url",
                "needs a catalog on PostgreSQL: STORE_CATALOG_URL must begin with"
                f" {POSTGRESQL_SCHEME}",
            )

    @property
    def metrics_folder(self) -> Path:
        """Folder in which the processes of this home count metrics."""
        return self.home.absolute() / "metrics"

    @property
    def heartbeats_folder(self) -> Path:
        """Folder in which workers and the scheduler of this home show that they make progress."""
        return self.home.absolute() / "heartbeats"

    @property
    def secret_keys(self) -> tuple[str, ...]:
        """The key that signs and encrypts, and the other one that is accepted, if any."""
        other = self.secret_key_previous
        return (self.secret_key, other) if other else (self.secret_key,)

    @property
    def internal_url(self) -> str:
        """The API's URL on this machine."""
        return f"http://{self.host}:{self.port}"

    @property
    def site_url(self) -> str:
        """Base URL of the web pages and the API."""
        return self.external_url or self.internal_url

    @property
    def pages_redirect_uri(self) -> str:
        """Redirect URI of the web pages."""
        return f"{self.site_url}/login/callback"

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


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
