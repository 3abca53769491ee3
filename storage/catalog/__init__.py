"""The catalog: SQL behind functions that take a unit of work (`Tx`) and answer in our nouns."""

from storage.catalog.engine import Catalog, Tx, now_us

__all__ = ["Catalog", "Tx", "now_us"]
