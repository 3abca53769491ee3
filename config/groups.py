"""Groups of settings: the tables of the settings file, and the parts of the reference."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache

from config.settings import Settings


@dataclass(frozen=True)
class SettingGroup:
    """A table of the settings file; it has the settings from `first` to the next group's first."""

    table: str
    title: str
    first: str


GROUPS = (
    SettingGroup("locations", "Locations", "home"),
    SettingGroup("engines", "Engines, chosen by URL", "replica_aws"),
    SettingGroup("connections", "Connections to the engines", "cloud_connect_s"),
    SettingGroup("secrets", "Secrets", "secret_key"),
    SettingGroup("http", "HTTP", "max_body_bytes"),
    SettingGroup("web", "Web pages", "web_name"),
    SettingGroup("identity", "Identity", "issuers"),
    SettingGroup("authorization", "Remote authorization service", "policies_url"),
    SettingGroup(
        "tokens", "Tokens of the authorization service for applications", "web_redirect_uris"
    ),
    SettingGroup("logins", "Logins at the authorization service", "local_logins"),
    SettingGroup("sources", "Sources and destinations", "staging_roots"),
    SettingGroup("mail", "Mail about checkouts", "smtp_host"),
    SettingGroup("quotas", "Quotas", "quotas"),
    SettingGroup("jobs", "Jobs", "max_claims"),
    SettingGroup("metadata", "Metadata", "metadata_schemas"),
    SettingGroup("notifications", "Notifications", "delivery_delays_s"),
    SettingGroup("logs", "Logs", "log_level"),
    SettingGroup("traces", "Traces", "traces_url"),
)


@cache
def tables_by_setting() -> dict[str, str]:
    """Return the table of each setting."""
    return {name: group.table for group, names in list_groups() for name in names}


def list_groups() -> Iterator[tuple[SettingGroup, list[str]]]:
    """Yield each group with the names of its settings, in their order."""
    names = [item.name for item in fields(Settings)]
    starts = [names.index(group.first) for group in GROUPS]
    for group, start, end in zip(GROUPS, starts, [*starts[1:], len(names)], strict=True):
        yield group, names[start:end]
