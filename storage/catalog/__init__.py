"""The catalog: SQL behind functions that take a transaction (`Tx`)."""

from storage.catalog.engine import Catalog
from storage.catalog.sql import Tx, now_us

__all__ = ["Catalog", "Tx", "now_us"]
