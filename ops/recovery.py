"""The commands `backup`, `restore`, `rebuild`, `reconcile` and `fingerprint`."""

import os
import time
from contextlib import suppress
from pathlib import Path

import click

from config import Settings
from ops.commands import open_stores, read_secret_key, select_replicas
from ops.output import CommandOutput, OutputTable, prints_output
from pipelines import search
from pipelines.formats import new_uuid
from pipelines.recovery import backups, epochs
from pipelines.recovery import rebuild as recovery_rebuild
from pipelines.recovery import reconcile as recovery_reconcile
from pipelines.recovery.bucket_reader import RebuildTally
from pipelines.search import ReindexProgress
from storage.catalog import now_us, recovery, revisions, store_state
from storage.encryption import derive_key
from storage.errors import Unavailable
from storage.model import REPLICAS, Replica
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
RESTORED_NOTICE = (
    "Users and rights are as they were when the catalog was copied: repeat what was revoked"
    " since then (`ops users`, `ops clients`, `ops service-accounts`, /v1/audit)."
)
_POLL_S, _REPORT_S, _STALLED_S = 0.3, 5.0, 30.0


def _derive_backup_key(settings: Settings) -> str:
    """Tells one secret from another; nothing is signed or sealed with it."""
    return derive_key(read_secret_key(settings).encode(), _KEY_PURPOSE, _KEY_BYTES).hex()


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.pass_obj
@prints_output
def backup(settings: Settings, file: Path) -> CommandOutput:
    """Write to FILE what no bucket can restore.

    It saves users and rights, subscriptions, deliveries, replays, tasks, checkouts, upload areas
    and idempotent responses, as one state of the catalog, while the store runs. Keep
    STORE_SECRET_KEY (or secrets/ of the home) too: without it the secrets cannot be decrypted.

    The backup starts a new epoch, so the store notices if an older dump is restored.
    """
    if file.exists():
        raise click.ClickException(f"{file} exists; a backup never replaces a file.")
    stores = open_stores(settings)
    counts = _write_backup(stores, file, _derive_backup_key(settings))
    with stores.catalog.write() as tx:
        store_state.write_value(tx, store_state.LAST_BACKUP_KEY, str(now_us(tx)))
    _begin_epoch(stores)
    return CommandOutput(OutputTable("Backed up", ("table", "rows"), sorted(counts.items())))


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
@prints_output
def restore(settings: Settings, file: Path) -> CommandOutput:
    """Restore from FILE what the catalog lacks.

    Run `migrate`, and `rebuild catalog` if needed, before. Existing rows stay, so the command can
    be repeated and adds only what is missing. A damaged file, or one of another STORE_SECRET_KEY,
    changes nothing.

    Users who were removed, disabled, taken out of a group or given another password after the
    backup may have access again. So all logins end, in browsers and of applications. Check the
    users and rights that came back.
    """
    stores = open_stores(settings)
    key = _derive_backup_key(settings)
    rows = []
    if revisions.read_current_revision(stores.catalog) != revisions.expected_revision():
        raise click.ClickException("Run `python -m ops migrate` first.")
    with file.open("rb") as source:
        made = backups.check_backup(source, key=key).made
    # First: whatever comes back, and wherever this is interrupted, no old login meets it.
    epochs.end_all_sessions(stores, "restore", backup=made)
    for one in backups.restore_backup(stores, lambda: file.open("rb"), key=key):
        rows.append((one.table, one.rows, one.added))
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
    restored = OutputTable("Restored", ("table", "rows in the file", "added"), rows)
    return CommandOutput({"made": made, "restored": restored}, "\n".join(notices))


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show whether they agree.")
@click.pass_obj
@prints_output
def reconcile(settings: Settings, dry_run: bool) -> CommandOutput:
    """Add to the catalog what only the buckets have.

    Run it after a catalog was restored or rebuilt, or a bucket replaced. Writes are accepted again
    when it has finished. It sends no notifications. Invalid objects stay where they are: the log
    names each with the reason. All logins end if the catalog is of another time than the buckets.
    """
    stores = open_stores(settings)
    reason = epochs.check_epoch(stores)
    agreement = reason or "Catalog and buckets are of one epoch."
    if dry_run:
        return CommandOutput({"agree": reason is None, "reason": reason}, agreement)
    restored = epochs.is_catalog_restored(stores)
    merged = recovery_reconcile.reconcile_catalog(stores)
    rows = [(one.kind, one.replica, one.known, one.imported, one.refused) for one in merged]
    columns = ("kind", "replica", "known", "taken in", "refused")
    return CommandOutput(
        {
            "agree": reason is None,
            "reason": reason,
            "restored": restored,
            "reconciled": OutputTable("Reconciled", columns, rows),
        },
        f"{LOGINS_ENDED_NOTICE} {RESTORED_NOTICE}" if restored else "",
        before=agreement,
    )


@click.group()
def rebuild() -> None:
    """Rebuild the search index or the catalog."""


@rebuild.command(name="index")
@click.option("--replica", type=click.Choice(REPLICAS), help="Only this one.")
@click.option(
    "--force", is_flag=True, help="Use it despite dead jobs; their documents are missing."
)
@click.pass_obj
@prints_output
def rebuild_index(settings: Settings, replica: str | None, force: bool) -> CommandOutput:
    """Write a new search index from the catalog, then search it.

    The store runs meanwhile: searches use the old index, new documents go to both, and no
    notification is sent again. If it is interrupted, run it again: it resumes. Documents that the
    engine refused are tried once more.
    """
    stores = open_stores(settings)
    built: dict[str, str] = {}
    for name in select_replicas(replica):
        built[name] = search.begin_reindex(stores, name)
        click.echo(f"{name}: building {built[name]}", err=True)
        _watch_rebuild(stores, name, force=force)
    text = "\n".join(f"{name}: the new index is searched" for name in built)
    return CommandOutput(built, text)


def _watch_rebuild(stores: Stores, name: Replica, *, force: bool) -> None:
    reported = moved = time.monotonic()
    before = ReindexProgress(0, 0, 0)
    while not (now := search.advance_reindex(stores, name, force=force)).done:
        if now != before:
            before, moved = now, time.monotonic()
        if now.all_requested and now.dead and not now.waiting and not force:
            raise click.ClickException(
                f"{name}: {now.dead} rows are parked, the old index is still searched. See"
                " `python -m ops dead list`, mend the cause, `python -m ops dead retry`, and"
                " run this again; or --force."
            )
        if time.monotonic() > reported + _REPORT_S:
            reported = time.monotonic()
            still = reported > moved + _STALLED_S
            hint = ": nothing moves, do the workers and the clock run?" if still else ""
            click.echo(f"{name}: {now.requested} asked for, {now.waiting} wait{hint}", err=True)
        time.sleep(_POLL_S)


@rebuild.command(name="catalog")
@click.option(
    "--from", "replica", type=click.Choice(REPLICAS), required=True, help="The bucket to read."
)
@click.pass_obj
@prints_output
def rebuild_catalog(settings: Settings, replica: Replica) -> CommandOutput:
    """Fill an empty catalog from one bucket alone.

    Run `migrate` before, `reconcile` after: docs/operations.md, "When something is lost".
    Files, bundles, collections, tombstones, purges and journalled events are as they were. Damaged
    and foreign objects are reported and left. If it is interrupted, run it again: it resumes.
    Subscriptions, deliveries, checkouts and tasks are in no bucket: `restore` brings them back.
    """
    tallies: list[RebuildTally] = []
    try:
        for tally in recovery_rebuild.rebuild_catalog(
            open_stores(settings), replica, token=new_uuid()
        ):
            tallies.append(tally)
            click.echo(
                f"{tally.kind}: {tally.imported} taken in, {tally.known} known before", err=True
            )
    except Unavailable as error:
        raise click.ClickException(f"{error.detail} Nothing is lost: run it again.") from error
    rows = [(one.kind, one.known, one.imported, one.refused) for one in tallies]
    refused = [pair for one in tallies for pair in one.named]
    return CommandOutput(
        {
            "rebuilt": OutputTable("Rebuilt", ("kind", "known", "taken in", "refused"), rows),
            "refused": OutputTable(
                "Refused, some of it", ("object", "why"), refused, hidden_if_empty=True
            ),
        },
        "The store is read-only until you have run `python -m ops reconcile`.",
    )


@click.command(name="fingerprint")
@click.option("--replica", type=click.Choice(REPLICAS), help="Only this one.")
@click.pass_obj
@prints_output
def print_fingerprint(settings: Settings, replica: str | None) -> CommandOutput:
    """Print digests of what the catalog knows.

    One for each part of each replica. Two catalogs with the same data print the same digests, for
    example a lost one and the rebuilt one.
    """
    stores = open_stores(settings)
    rows = []
    for name in select_replicas(replica):
        with stores.catalog.read() as tx:
            rows += [
                (name, one.name, one.rows, one.sha256)
                for one in recovery.compute_fingerprint(tx, name)
            ]
    return CommandOutput(OutputTable("Fingerprint", ("replica", "part", "rows", "sha256"), rows))
