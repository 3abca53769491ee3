"""What operator commands share: stores, replicas and the store's secret."""

from dataclasses import replace
from datetime import UTC, datetime

import click

from auth.login.users import parse_user_email
from auth.secret_files import SECRETS_FOLDER, STORE_SECRET_NAME, load_secret
from auth.tokens.issuance import administrator_email
from config import Settings
from ops.home import require_writable
from storage.blobs.clients import AMBIENT_ACCESS, SourceAccess
from storage.catalog import Catalog, revisions
from storage.connect import connect
from storage.encryption import instance_id
from storage.errors import DomainError, Invalid
from storage.model import REPLICAS, Replica
from storage.stores import Stores


def read_secret_key(settings: Settings) -> str:
    """The store's secret: the operator's, else the one that this home keeps."""
    return load_secret(settings.home, given=settings.secret_key).decode()


def find_instance_id(settings: Settings) -> str | None:
    """Which store this home is; None when no store was ever started in it."""
    kept = settings.home / SECRETS_FOLDER / STORE_SECRET_NAME
    if not settings.secret_key and not kept.exists():
        return None
    return instance_id(read_secret_key(settings).encode())


def parse_owner(settings: Settings, owner: str | None) -> str:
    """Return the address that `--owner` names, by default the administrator's."""
    owner = administrator_email(settings) if owner is None else owner
    try:
        return parse_user_email(owner)
    except Invalid as error:
        raise click.BadParameter(f"{error.detail} (got {owner})", param_hint="--owner") from error


OUTDATED_CATALOG = (
    "The catalog's tables are not those of this release: `python -m ops migrate` first."
)
MISSING_STORE = (
    "There is no store in {home} ({file} is missing): set STORE_HOME, or make an empty catalog"
    " with `python -m ops migrate`."
)


def require_home(settings: Settings) -> None:
    """DomainError where the home has no catalog (SQLite would make an empty one there), OSError
    where it takes no files."""
    if settings.catalog_url:
        return
    if settings.home.exists():
        require_writable(settings.home)
    if not settings.catalog_file.exists():
        raise DomainError(MISSING_STORE.format(home=settings.home, file=settings.catalog_file.name))


def open_catalog(settings: Settings) -> Catalog:
    """The catalog, if its tables are those of this release; else DomainError."""
    require_home(settings)
    catalog = Catalog(settings.catalog)
    require_release(catalog)
    return catalog


def require_release(catalog: Catalog) -> None:
    """DomainError when the catalog's tables are of an older or a newer release."""
    revisions.require_known_revision(catalog)
    if revisions.read_current_revision(catalog) != revisions.expected_revision():
        raise DomainError(OUTDATED_CATALOG)


def open_stores(settings: Settings, source_access: SourceAccess = AMBIENT_ACCESS) -> Stores:
    """The stores, with the secret that this home keeps."""
    require_home(settings)
    keyed = replace(settings, secret_key=read_secret_key(settings))
    stores = connect(keyed, source_access=source_access)
    require_release(stores.catalog)
    return stores


def select_replicas(replica: str | None) -> list[Replica]:
    """The replica of that name, or all."""
    return [name for name in REPLICAS if replica in (None, name)]


def format_time(us: int) -> str:
    """Format microseconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="seconds")
