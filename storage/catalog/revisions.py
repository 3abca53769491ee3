"""Schema revision of the catalog's tables, and the one this code needs; without Alembic."""

from functools import cache
from pathlib import Path

from sqlalchemy import inspect, text

from storage.catalog.engine import Catalog
from storage.errors import StoreError

FOLDER = Path(__file__).parent / "migrations"
NEWER = (
    "The catalog is at revision {revision}, which this release does not know: use the release that"
    " migrated it, or a later one."
)


def current(catalog: Catalog) -> str:
    """The revision of the catalog's tables; empty before the first migration."""
    with catalog.read() as tx:
        if not inspect(tx).has_table("alembic_version"):
            return ""
        return tx.execute(text("SELECT version_num FROM alembic_version")).scalar() or ""


def is_known(revision: str) -> bool:
    """Whether this code has that revision, or one that follows it."""
    return not revision or revision in _revisions()


def require_known(catalog: Catalog) -> None:
    """StoreError when a newer release migrated the catalog."""
    revision = current(catalog)
    if not is_known(revision):
        raise StoreError(NEWER.format(revision=revision))


def expected() -> str:
    """The revision that this code is written for."""
    return _revisions()[-1]


@cache
def _revisions() -> tuple[str, ...]:
    """All revisions in order; each file begins with its own."""
    names = (path.name for path in (FOLDER / "versions").glob("*.py"))
    return tuple(sorted(name.partition("_")[0] for name in names))
