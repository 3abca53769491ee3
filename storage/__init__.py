"""Every byte that leaves the process: blobs, catalog, search, notices, mail."""

from storage.connecting import connect
from storage.stores import Stores

__all__ = ["Stores", "connect"]
