"""Bringing the catalog's tables to what this code expects. Forward only."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from storage.catalog.engine import Catalog
from storage.catalog.schema import metadata

FOLDER = Path(__file__).parent / "migrations"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    return config


def upgrade(catalog: Catalog) -> str:
    """Run what is outstanding, all or nothing; returns the revision that is reached."""
    config = _config()
    with catalog.write() as tx:
        config.attributes["connection"] = tx
        command.upgrade(config, "head")
    return current(catalog)


def current(catalog: Catalog) -> str:
    """The revision of the catalog's tables; empty before the first migration."""
    with catalog.read() as tx:
        return MigrationContext.configure(tx).get_current_revision() or ""


def expected() -> str:
    """The revision that this code is written for."""
    return ScriptDirectory.from_config(_config()).get_current_head() or ""


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
