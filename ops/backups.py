"""The commands `backup` and `restore`."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from config import Settings
from ops.commands import open_stores, read_secret_key
from ops.output import CommandOutput, OutputTable, prints_output
from pipelines.recovery import backups, epochs
from pipelines.recovery.backups import (
    begin_backup_epoch,
    make_backup_name,
    remove_old_backups,
    save_backup,
)
from storage.backup_targets import FolderTarget, derive_backup_keys, open_backup_target
from storage.catalog import Catalog, now_us, revisions
from storage.engines import migrate_catalog, parse_folder_url
from storage.errors import AlreadyExists, NotFoundError
from storage.protocols import BackupTarget
from storage.stores import Stores

ACCOUNT_TABLES = ("accounts", "memberships", "passwords", "clients", "consents", "service_keys")
"""Tables of who may do what."""
RESTORED_ACCOUNTS_NOTICE = (
    "Users and rights came back as they were on {made}: {tables}. Users who were removed, disabled,"
    " taken out of a group or given another password since then may have access again. Check"
    " `ops users list`, `ops clients list`, `ops service-accounts list` and /v1/audit."
)
LOGINS_ENDED_NOTICE = "All logins have ended, in browsers and of applications: people log in again."


def _derive_keys(settings: Settings) -> list[str]:
    return derive_backup_keys((read_secret_key(settings), *settings.secret_keys[1:]))


# Backup


@click.command()
@click.argument("target", metavar="FILE|URL")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    help="Delete all but the latest of this number from the folder or bucket.",
)
@click.pass_obj
@prints_output
def backup(settings: Settings, target: str, keep: int | None) -> CommandOutput:
    """Write what no bucket can restore.

    It saves users and rights, subscriptions, deliveries, replays, tasks, checkouts, upload areas
    and idempotent responses, as one state of the catalog, while the store runs. Keep
    STORE_SECRET_KEY (or secrets/ of the home) too: without it the secrets cannot be decrypted.

    FILE is a new file. With a URL (file:///FOLDER, s3://BUCKET, gs://BUCKET) the backup gets a name
    with its time. What was written is read again and compared with its checksum.

    The backup starts a new epoch, so the store notices if an older dump is restored.
    """
    if "://" not in target and keep is not None:
        raise click.UsageError("--keep is for URLs: a file has no others beside it.")
    stores = open_stores(settings)
    if "://" in target:
        place = open_backup_target(settings, target)
        with stores.catalog.read() as tx:
            name, shown = make_backup_name(now_us(tx)), target
    else:
        file = Path(target)
        place, name, shown = FolderTarget(file.parent), file.name, target
        if file.exists():
            raise click.ClickException(f"{file} exists; a backup never replaces a file.")
    counts = _save_backup(stores, place, name, shown, _derive_keys(settings)[0])
    begin_backup_epoch(stores)
    removed = remove_old_backups(place, keep=keep) if keep is not None else []
    value = {
        "name": name,
        "tables": OutputTable("Backed up", ("table", "rows"), sorted(counts.items())),
        "removed": removed,
    }
    text = f"{name} was read again and is complete."
    if warning := _warn_of_home(settings, target):
        value["warning"] = warning
        text += f" {warning}"
    if removed:
        text += f" {len(removed)} older backups were removed."
    return CommandOutput(value, text)


def _warn_of_home(settings: Settings, target: str) -> str:
    """Return a warning for a backup in the store's home, which a loss of the disk takes too."""
    if "://" in target and not target.startswith("file://"):
        return ""
    file = Path(parse_folder_url("backups", target) if "://" in target else target)
    if not file.resolve().is_relative_to(settings.home.resolve()):
        return ""
    return (
        f"It is in the home of the store ({settings.home}), beside the catalog: keep a copy"
        " elsewhere, or it is lost with this disk."
    )


def _save_backup(
    stores: Stores, place: BackupTarget, name: str, shown: str, key: str
) -> dict[str, int]:
    try:
        return save_backup(stores, place, name, key=key)
    except AlreadyExists as error:
        raise click.ClickException(f"{shown} exists; a backup never replaces a file.") from error
    except OSError as error:
        raise click.ClickException(f"{shown} cannot be written: {error.strerror}") from error


# Restore


@contextmanager
def _open_backup(settings: Settings, source: str) -> Iterator[tuple[str, BinaryIO]]:
    """Open a backup; of a URL the latest."""
    if "://" not in source:
        file = Path(source)
        with FolderTarget(file.parent).open(file.name) as opened:
            yield source, opened
        return
    place = open_backup_target(settings, source)
    names = place.list_names()
    if not names:
        raise NotFoundError(f"There is no backup at {source}.")
    with place.open(names[-1]) as opened:
        yield names[-1], opened


@click.command()
@click.argument("source", metavar="FILE|URL")
@click.option("--verify", is_flag=True, help="Restore into a scratch catalog that is thrown away.")
@click.pass_obj
@prints_output
def restore(settings: Settings, source: str, verify: bool) -> CommandOutput:
    """Restore from a backup what the catalog lacks.

    Run `migrate`, and `rebuild catalog` if needed, before. Existing rows stay, so the command can
    be repeated and adds only what is missing. A damaged file, or one of another STORE_SECRET_KEY,
    changes nothing. Of a URL (file:///FOLDER, s3://BUCKET, gs://BUCKET) the latest backup is taken.

    Users who were removed, disabled, taken out of a group or given another password after the
    backup may have access again. So all logins end, in browsers and of applications. Check the
    users and rights that came back.

    With --verify nothing of this store changes: use it to find out whether a backup is good.
    """
    keys = _derive_keys(settings)
    with _open_backup(settings, source) as (name, file):
        if verify:
            return _verify_backup(name, file, keys)
        return _restore_backup(open_stores(settings), file, keys)


def _verify_backup(name: str, file: BinaryIO, keys: Sequence[str]) -> CommandOutput:
    with (
        tempfile.TemporaryDirectory(prefix="store-verify-") as folder,
        closing(Catalog(f"sqlite:///{folder}/catalog.sqlite")) as scratch,
    ):
        migrate_catalog(scratch)
        made, rows = _restore_rows(scratch, file, keys)
    lost = sum(one[1] - one[2] for one in rows)
    text = f"{name} of {made} is complete and can be restored."
    if lost:
        text += f" {lost} of its rows belong to data that `rebuild catalog` brings back first."
    return CommandOutput({"name": name, "made": made, "restored": _build_table(rows)}, text)


def _restore_rows(
    catalog: Catalog, file: BinaryIO, keys: Sequence[str]
) -> tuple[str, list[tuple[str, int, int]]]:
    key, *former = keys
    made = backups.check_backup(file, key=key, former=former).made
    restored = backups.restore_backup(catalog, file, key=key, former=former)
    return made, [(one.table, one.rows, one.added) for one in restored]


def _build_table(rows: list[tuple[str, int, int]]) -> OutputTable:
    return OutputTable("Restored", ("table", "rows in the file", "added"), rows)


def _restore_backup(stores: Stores, file: BinaryIO, keys: Sequence[str]) -> CommandOutput:
    if revisions.read_current_revision(stores.catalog) != revisions.expected_revision():
        raise click.ClickException("Run `python -m ops migrate` first.")
    made = backups.check_backup(file, key=keys[0], former=keys[1:]).made
    # First: whatever comes back, and wherever this is interrupted, no old login meets it.
    epochs.end_all_sessions(stores, "restore", backup=made)
    _, rows = _restore_rows(stores.catalog, file, keys)
    notices = [
        f"The backup is of {made}. Later subscriptions, pauses and deliveries are not in it:"
        " subscribers can replay the events since then."
    ]
    came_back = [
        f"{table} ({added})" for table, _, added in rows if added and table in ACCOUNT_TABLES
    ]
    if came_back:
        notices.append(RESTORED_ACCOUNTS_NOTICE.format(made=made, tables=", ".join(came_back)))
    notices.append(LOGINS_ENDED_NOTICE)
    return CommandOutput({"made": made, "restored": _build_table(rows)}, "\n".join(notices))
