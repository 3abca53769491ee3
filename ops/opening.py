"""What an operator's command works on: the open stores of this home, and the replicas it named."""

from dataclasses import replace

from config import Settings
from ops import tokens
from storage.catalog import Catalog, migrate
from storage.connecting import connect
from storage.errors import StoreError
from storage.model import REPLICAS, Replica
from storage.stores import Stores

OLDER = "The catalog's tables are not those of this release: `python -m ops migrate` first."
NEWER = (
    "The catalog is at revision {revision}, which this release does not know: use the release that"
    " migrated it, or a later one."
)


def open_catalog(settings: Settings) -> Catalog:
    """The catalog, if its tables are those of this release; else StoreError."""
    catalog = Catalog(settings.catalog)
    require_release(catalog)
    return catalog


def require_release(catalog: Catalog) -> None:
    """StoreError when the catalog's tables are of an older or a newer release."""
    require_known(catalog)
    if migrate.current(catalog) != migrate.expected():
        raise StoreError(OLDER)


def require_known(catalog: Catalog) -> None:
    """StoreError when a newer release migrated the catalog."""
    revision = migrate.current(catalog)
    if not migrate.is_known(revision):
        raise StoreError(NEWER.format(revision=revision))


def opened(settings: Settings) -> Stores:
    """The stores, with the secret that this home keeps."""
    stores = connect(replace(settings, secret_key=tokens.secret_key(settings)))
    require_release(stores.catalog)
    return stores


def chosen(replica: str | None) -> list[Replica]:
    """The replica of that name, or all."""
    return [name for name in REPLICAS if replica in (None, name)]
