"""Schema revision of the catalog's tables, and the one this code requires; without Alembic."""

from functools import cache
from pathlib import Path

from sqlalchemy import inspect, text

from storage.catalog.engine import Catalog
from storage.errors import DomainError

MIGRATIONS_FOLDER = Path(__file__).parent / "migrations"
NEWER_REVISION = (
    "The catalog is at revision {revision}, which this release does not know: use the release that"
    " migrated it, or a later one."
)


def read_current_revision(catalog: Catalog) -> str:
    """Return the revision of the catalog's tables; empty before the first migration."""
    with catalog.read() as tx:
        if not inspect(tx).has_table("alembic_version"):
            return ""
        return tx.execute(text("SELECT version_num FROM alembic_version")).scalar() or ""


def is_known_revision(revision: str) -> bool:
    """Return whether this code includes a revision; an empty one is known."""
    return not revision or revision in _list_revisions()


def is_older_revision(revision: str) -> bool:
    """Return whether tables of this revision must be migrated for this code."""
    return revision != expected_revision() and is_known_revision(revision)


def require_known_revision(catalog: Catalog) -> None:
    """Raise DomainError when a newer release migrated the catalog."""
    revision = read_current_revision(catalog)
    if not is_known_revision(revision):
        raise DomainError(NEWER_REVISION.format(revision=revision))


def expected_revision() -> str:
    """Return the revision that this code requires."""
    return _list_revisions()[-1]


@cache
def _list_revisions() -> tuple[str, ...]:
    """Return all revisions in order; file names begin with them."""
    names = (path.name for path in (MIGRATIONS_FOLDER / "versions").glob("*.py"))
    return tuple(sorted(name.partition("_")[0] for name in names))
