"""The catalog's tables. Times (`_us`) are microseconds since 1970 UTC by the catalog's clock.

Text keys compare by byte (listings are in byte order), so PostgreSQL gets COLLATE "C".
"""

from storage.catalog.tables import accounts, event_log, jobs, versions
from storage.catalog.tables.base import metadata

__all__ = ["accounts", "event_log", "jobs", "metadata", "versions"]
