"""Upgrade and downgrade the catalog's tables with Alembic, and draft new migrations.

A revision that locks a large table names it in `locks`, with the duration.
"""

import logging
import sys
from tempfile import TemporaryDirectory

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from storage.catalog.engine import Catalog
from storage.catalog.revisions import MIGRATIONS_FOLDER, expected_revision, read_current_revision
from storage.catalog.sql import Tx
from storage.errors import Invalid

log = logging.getLogger(__name__)

LOCK_TIMEOUT_S = 10
_ADVISORY_LOCK = 6_401_771_202_611
"""Arbitrary, but the same in every process."""


def _alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS_FOLDER))
    return config


def upgrade(catalog: Catalog) -> str:
    """Run outstanding migrations, all or none; return the revision reached."""
    config = _alembic_config()
    with catalog.write() as tx:
        _lock_migrations(tx)
        for revision, locks in _list_locks(config, tx):
            log.warning("migration %s locks %s", revision, locks)
        config.attributes["connection"] = tx
        command.upgrade(config, "head")
    return read_current_revision(catalog)


def downgrade(catalog: Catalog, revision: str) -> str:
    """Undo the migrations after a revision, all or none; return the revision reached.

    Raise Invalid if one of them cannot be undone, or no such revision is in the past.
    """
    config = _alembic_config()
    scripts = ScriptDirectory.from_config(config)
    with catalog.write() as tx:
        _lock_migrations(tx)
        current = MigrationContext.configure(tx).get_current_revision() or ""
        past = {script.revision for script in scripts.iterate_revisions(current or None, "base")}
        if revision not in past:
            raise Invalid(f"The catalog never was at revision {revision}: it is at {current}.")
        for script in scripts.iterate_revisions(current, revision):
            if not hasattr(script.module, "downgrade"):
                raise Invalid(
                    f"Migration {script.revision} cannot be undone: restore a backup instead."
                )
        config.attributes["connection"] = tx
        command.downgrade(config, revision)
    return read_current_revision(catalog)


def _lock_migrations(tx: Tx) -> None:
    """Let one process migrate; the others wait and then find nothing to do.

    It gives up on a table that is read for long, since all later queries would queue behind it.
    """
    if tx.dialect.name != "sqlite":
        tx.execute(text("SET LOCAL lock_timeout TO 0"))
        tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        tx.execute(text(f"SET LOCAL lock_timeout TO '{LOCK_TIMEOUT_S}s'"))


def _list_locks(config: Config, tx: Tx) -> list[tuple[str, str]]:
    """Return what the outstanding revisions lock, if the catalog is not new."""
    reached = MigrationContext.configure(tx).get_current_revision()
    if reached is None:
        return []
    scripts = ScriptDirectory.from_config(config).iterate_revisions("head", reached)
    locks_by_revision = [
        (script.revision, getattr(script.module, "locks", "")) for script in scripts
    ]
    return [(revision, locks) for revision, locks in reversed(locks_by_revision) if locks]


def draft_revision(catalog: Catalog, message: str) -> None:
    """Draft a migration from the differences between the tables and the schema, for editing."""
    config = _alembic_config()
    number = f"{int(expected_revision() or 0) + 1:04d}"
    with catalog.write() as tx:
        config.attributes["connection"] = tx
        command.revision(config, message=message, autogenerate=True, rev_id=number)


def main(message: str) -> None:
    """Draft a migration against an empty catalog with all earlier ones applied."""
    with TemporaryDirectory() as folder:
        catalog = Catalog(f"sqlite:///{folder}/catalog.sqlite")
        upgrade(catalog)
        draft_revision(catalog, message)
        catalog.close()


if __name__ == "__main__":
    main(sys.argv[1])
