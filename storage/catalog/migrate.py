"""Bringing the catalog's tables to what this code expects. Forward only.

A revision that holds up those who use a large table says so in `locks`: which, and for how long.
"""

import logging
import sys
from tempfile import TemporaryDirectory
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from storage.catalog.engine import Catalog, Tx
from storage.catalog.revisions import FOLDER, current, expected
from storage.catalog.schema import metadata

log = logging.getLogger(__name__)

PATIENCE_S = 10
_LOCK = 6_401_771_202_611
"""Any number, the same in every process."""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    return config


def upgrade(catalog: Catalog) -> str:
    """Run what is outstanding, all or nothing; returns the revision that is reached."""
    config = _config()
    with catalog.write() as tx:
        _alone(tx)
        for revision, locks in _locking(config, tx):
            log.warning("migration %s locks %s", revision, locks)
        config.attributes["connection"] = tx
        command.upgrade(config, "head")
    return current(catalog)


def _alone(tx: Tx) -> None:
    """One process migrates, the others wait and then find nothing to do. For a table that somebody
    reads for long it gives up: all that came later would queue behind it."""
    if tx.dialect.name != "sqlite":
        tx.execute(text("SET LOCAL lock_timeout TO 0"))
        tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        tx.execute(text(f"SET LOCAL lock_timeout TO '{PATIENCE_S}s'"))


def _locking(config: Config, tx: Tx) -> list[tuple[str, str]]:
    """What of the outstanding holds up those who use a table that is large by now."""
    reached = MigrationContext.configure(tx).get_current_revision()
    if reached is None:
        return []
    scripts = ScriptDirectory.from_config(config).iterate_revisions("head", reached)
    told = [(script.revision, getattr(script.module, "locks", "")) for script in scripts]
    return [(revision, locks) for revision, locks in reversed(told) if locks]


def differences(catalog: Catalog) -> list[Any]:
    """How the tables differ from the schema that this code is written for."""
    with catalog.read() as tx:
        return list(compare_metadata(MigrationContext.configure(tx), metadata))


def draft(catalog: Catalog, message: str) -> None:
    """Write a new migration from what differs between the tables and the schema, to be edited."""
    config = _config()
    with catalog.write() as tx:
        config.attributes["connection"] = tx
        command.revision(config, message=message, autogenerate=True, rev_id=_next())


def _next() -> str:
    return f"{int(expected() or 0) + 1:04d}"


def main(message: str) -> None:
    """Draft a migration against an empty catalog that all former ones were applied to."""
    with TemporaryDirectory() as folder:
        catalog = Catalog(f"sqlite:///{folder}/catalog.sqlite")
        upgrade(catalog)
        draft(catalog, message)
        catalog.close()


if __name__ == "__main__":
    main(sys.argv[1])
