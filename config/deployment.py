"""Kinds of deployment: which settings depend on them, and which combinations make no sense."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from config.settings import PREFIX, Settings, is_loopback

EMBEDDED, MACHINE, MACHINES = "embedded", "machine", "machines"
KINDS: Mapping[str, str] = MappingProxyType(
    {
        EMBEDDED: "embedded store",
        MACHINE: "one machine with engines",
        MACHINES: "many machines, or a cloud",
    }
)


def find_kind(settings: Settings) -> str:
    """Return the kind that the settings describe, by their queue."""
    if not settings.redis_url:
        return EMBEDDED
    host = urlsplit(settings.redis_url).hostname
    return MACHINE if host is None or is_loopback(host) else MACHINES


def find_conflicts(settings: Settings) -> list[str]:
    """Return combinations of settings that make no sense, also for this kind of deployment."""
    own_accounts = not settings.policies_url and not settings.issuers
    conflicts = (
        (
            settings.ops_port in (settings.port, settings.port + 1),
            "ops_port",
            "is a port of the HTTP services (STORE_PORT and the next one)",
        ),
        (
            bool(settings.metrics_port)
            and settings.metrics_port in (settings.port, settings.port + 1, settings.ops_port),
            "metrics_port",
            "is a port of the HTTP services (STORE_PORT, the next one, or STORE_OPS_PORT)",
        ),
        (
            settings.bucket("aws") == settings.bucket("gcp"),
            "replica_gcp",
            "is the bucket of replica aws, so there would be one copy of the data",
        ),
        (settings.wait_s > settings.wait_cap_s, "wait_s", "is longer than STORE_WAIT_CAP_S"),
        (
            settings.session_idle_s > settings.session_s,
            "session_idle_s",
            "is longer than STORE_SESSION_S",
        ),
        (
            bool(settings.policies_url) != bool(settings.policies_credentials),
            "policies_url",
            "needs STORE_POLICIES_CREDENTIALS, and the other way round",
        ),
        (
            not settings.provider_secrets.keys() <= settings.providers.keys(),
            "provider_secrets",
            "names a provider that is not in STORE_PROVIDERS",
        ),
        (
            own_accounts and not settings.local_logins and not settings.providers,
            "local_logins",
            "is false and STORE_PROVIDERS is empty, so nobody can log in",
        ),
    )
    found = [_name(name) + problem for is_wrong, name, problem in conflicts if is_wrong]
    return found + [*_list_missing_engines(settings)] * (find_kind(settings) == MACHINES)


def _list_missing_engines(settings: Settings) -> Iterator[str]:
    """Yield what several machines cannot share."""
    for name in ("catalog_url", "search_url", "secret_key", "external_url", "auth_external_url"):
        if not getattr(settings, name):
            yield _name(name) + "must be set when Redis is on another machine"
    for name in ("replica_aws", "replica_gcp", "areas_url"):
        url = getattr(settings, name)
        if not url or url.startswith("file://"):
            yield _name(name) + "must be a bucket when Redis is on another machine"
    if settings.external_url.startswith("https://") and settings.proxies == 0:
        yield (
            _name("proxies")
            + "is 0, although STORE_EXTERNAL_URL is served by a proxy: all clients seem to have the"
            " proxy's address"
        )


def _name(name: str) -> str:
    return f"{PREFIX}{name.upper()}: "
