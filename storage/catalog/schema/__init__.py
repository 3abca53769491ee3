"""The catalog's tables. Times are microseconds since 1970 UTC by the catalog's clock (`_us`).

Text keys compare by byte (listings are in byte order), so PostgreSQL gets COLLATE "C".
"""

from storage.catalog.schema.accounts import accounts, audit, memberships
from storage.catalog.schema.base import metadata
from storage.catalog.schema.collecting import (
    collection_segments,
    collections,
    link_segments,
    owned,
)
from storage.catalog.schema.existing import (
    blob_replicas,
    blobs,
    bundle_segments,
    bundles,
    entries,
    files,
    heads,
    presence,
    segments,
    tombstones,
    uploads,
    visible,
)
from storage.catalog.schema.integrity import damaged_objects, scrubbed, verified_objects
from storage.catalog.schema.journalling import journals, replays
from storage.catalog.schema.logins import passwords, rates, sessions, tries, upstream_logins
from storage.catalog.schema.openid import (
    clients,
    consents,
    device_codes,
    grants,
    refresh_tokens,
)
from storage.catalog.schema.purging import condemned, purge_replicas, purges
from storage.catalog.schema.searching import documents, shapes
from storage.catalog.schema.service_accounts import service_keys
from storage.catalog.schema.staging import area_files, area_uploads, areas
from storage.catalog.schema.telling import attempts, deliveries, endpoints, events, subscriptions
from storage.catalog.schema.working import answers, checkouts, leases, meta, tasks, todo

__all__ = [
    "accounts",
    "answers",
    "area_files",
    "area_uploads",
    "areas",
    "attempts",
    "audit",
    "blob_replicas",
    "blobs",
    "bundle_segments",
    "bundles",
    "checkouts",
    "clients",
    "collection_segments",
    "collections",
    "condemned",
    "consents",
    "damaged_objects",
    "deliveries",
    "device_codes",
    "documents",
    "endpoints",
    "entries",
    "events",
    "files",
    "grants",
    "heads",
    "journals",
    "leases",
    "link_segments",
    "memberships",
    "meta",
    "metadata",
    "owned",
    "passwords",
    "presence",
    "purge_replicas",
    "purges",
    "rates",
    "refresh_tokens",
    "replays",
    "scrubbed",
    "segments",
    "service_keys",
    "sessions",
    "shapes",
    "subscriptions",
    "tasks",
    "todo",
    "tombstones",
    "tries",
    "uploads",
    "upstream_logins",
    "verified_objects",
    "visible",
]
