"""The commands `backup` and `restore`, for what no bucket can restore."""

import os
from contextlib import suppress
from pathlib import Path

import click
from rich.console import Console

from config import Settings
from ops import commands
from ops.commands import open_stores, print_table
from pipelines.recovery import backups, epochs
from storage.catalog import revisions, store_state
from storage.encryption import derive_key
from storage.errors import DomainError, Unavailable
from storage.stores import Stores

ACCOUNT_TABLES = ("accounts", "memberships", "passwords", "clients", "consents", "service_keys")
"""Tables of who may do what."""
RESTORED_ACCOUNTS_NOTICE = (
    "Users and rights came back as they were on {made}: {tables}. Users who were removed, disabled,"
    " taken out of a group or given another password since then may have access again. Check"
    " `ops users list`, `ops clients list`, `ops service-accounts list` and /v1/audit."
)
LOGINS_ENDED_NOTICE = "All logins have ended, in browsers and of applications: people log in again."

_KEY_PURPOSE, _KEY_BYTES = b"backups", 16


def _derive_backup_key(settings: Settings) -> str:
    """Tells one secret from another; nothing is signed or sealed with it."""
    return derive_key(commands.read_secret_key(settings).encode(), _KEY_PURPOSE, _KEY_BYTES).hex()


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.pass_obj
def backup(settings: Settings, file: Path) -> None:
    """Write to FILE what no bucket can restore.

    That is subscriptions with their sealed secrets, deliveries and their schedules, attempts,
    replays, tasks, checkouts, upload areas and answers to repeated requests: one state of the
    catalog, while the store runs. Keep STORE_SECRET_KEY (or secrets/ of the home) elsewhere, but
    keep it: without it those secrets cannot be opened.

    An epoch begins afterwards: a copy of the whole catalog that was made before is found out when
    it is restored.
    """
    if file.exists():
        raise click.ClickException(f"{file} exists; a backup never replaces a file.")
    stores = open_stores(settings)
    try:
        counts = _write_backup(stores, file, _derive_backup_key(settings))
        _begin_epoch(stores)
    except DomainError as error:
        raise click.ClickException(error.detail) from error
    print_table(Console(), "Backed up", ("table", "rows"), sorted(counts.items()))


def _write_backup(stores: Stores, file: Path, key: str) -> dict[str, int]:
    """The file has its name only once it is whole and on the disk."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as target:
            counts = backups.write_backup(stores, target, key=key)
            target.flush()
            os.fsync(target.fileno())
        os.link(draft, file)
    except FileExistsError as error:
        raise click.ClickException(f"{file} exists; a backup never replaces a file.") from error
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    return counts


def _begin_epoch(stores: Stores) -> None:
    with stores.catalog.read() as tx:
        if store_state.read_value(tx, store_state.EPOCH_IN_DOUBT_KEY) is not None:
            return
    try:
        epochs.advance_epoch(stores)
    except Unavailable as error:
        click.echo(f"No epoch begins now: {error.detail}", err=True)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.pass_obj
def restore(settings: Settings, file: Path) -> None:
    """Bring back from FILE what the catalog lacks of a `backup`.

    Into a catalog that is empty or was rebuilt; run `migrate`, and `rebuild catalog`, before. What
    is there stays as it is, so that restoring again, or after an interruption, adds only what is
    missing. Nothing is changed by a file that is damaged or of another STORE_SECRET_KEY.

    Users who were removed, disabled, taken out of a group or given another password after the
    backup may have access again. So all logins end, in browsers and of applications. Check the
    users and rights that came back.
    """
    stores = open_stores(settings)
    key = _derive_backup_key(settings)
    rows = []
    try:
        if revisions.read_current_revision(stores.catalog) != revisions.expected_revision():
            raise click.ClickException("Run `python -m ops migrate` first.")
        with file.open("rb") as source:
            made = backups.check_backup(source, key=key).made
        # First: whatever comes back, and wherever this is interrupted, no old login meets it.
        epochs.end_all_sessions(stores, "restore", backup=made)
        for one in backups.restore_backup(stores, lambda: file.open("rb"), key=key):
            rows.append((one.table, one.rows, one.added))
    except DomainError as error:
        raise click.ClickException(error.detail) from error
    print_table(Console(), "Restored", ("table", "rows in the file", "added"), rows)
    click.echo(
        f"The backup is of {made}. Later subscriptions, pauses and deliveries are not in it:"
        " subscribers can replay the events since then."
    )
    came_back = [
        f"{table} ({added})" for table, _, added in rows if added and table in ACCOUNT_TABLES
    ]
    if came_back:
        click.echo(RESTORED_ACCOUNTS_NOTICE.format(made=made, tables=", ".join(came_back)))
    click.echo(LOGINS_ENDED_NOTICE)
