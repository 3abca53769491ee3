"""What an operator's command works on: the open stores of this home, and the replicas it named."""

from dataclasses import replace

from config import Settings
from ops import tokens
from ops.home import require_writable
from storage.catalog import Catalog, revisions
from storage.connecting import connect
from storage.errors import StoreError
from storage.model import REPLICAS, Replica
from storage.stores import Stores

OLDER = "The catalog's tables are not those of this release: `python -m ops migrate` first."
ABSENT = (
    "There is no store in {home} ({file} is missing): set STORE_HOME, or make an empty catalog"
    " with `python -m ops migrate`."
)


def require_home(settings: Settings) -> None:
    """StoreError where the home has no catalog (SQLite would make an empty one there), OSError
    where it takes no files."""
    if settings.catalog_url:
        return
    if settings.home.exists():
        require_writable(settings.home)
    if not settings.catalog_file.exists():
        raise StoreError(ABSENT.format(home=settings.home, file=settings.catalog_file.name))


def open_catalog(settings: Settings) -> Catalog:
    """The catalog, if its tables are those of this release; else StoreError."""
    require_home(settings)
    catalog = Catalog(settings.catalog)
    require_release(catalog)
    return catalog


def require_release(catalog: Catalog) -> None:
    """StoreError when the catalog's tables are of an older or a newer release."""
    revisions.require_known(catalog)
    if revisions.current(catalog) != revisions.expected():
        raise StoreError(OLDER)


def opened(settings: Settings) -> Stores:
    """The stores, with the secret that this home keeps."""
    require_home(settings)
    stores = connect(replace(settings, secret_key=tokens.secret_key(settings)))
    require_release(stores.catalog)
    return stores


def chosen(replica: str | None) -> list[Replica]:
    """The replica of that name, or all."""
    return [name for name in REPLICAS if replica in (None, name)]
