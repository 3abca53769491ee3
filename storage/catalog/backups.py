"""Backup and restore of the rows that no bucket can restore.

Rows refer to others by uuids and addresses, never by row ids. Restoring inserts those that do not
exist, together with the jobs for them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Column, ColumnElement, Select, Table, and_, select, tuple_

from storage.catalog import accounts as catalog_accounts
from storage.catalog import deliveries as delivery_rows
from storage.catalog import events, jobs, purges, recovery, sql
from storage.catalog import subscriptions as subscription_rows
from storage.catalog.sql import Tx, now_us
from storage.catalog.tables.accounts import (
    accounts,
    audit,
    clients,
    consents,
    memberships,
    passwords,
    quotas,
    service_keys,
)
from storage.catalog.tables.event_log import attempts, deliveries, endpoints, replays, subscriptions
from storage.catalog.tables.jobs import answers, checkouts, deposits, tasks, todo
from storage.catalog.tables.versions import area_files, areas
from storage.model import FQID, REPLICAS, Job

BackupRows = Sequence[Mapping[str, Any]]


JOB_STEP, JOB_REQUEST_ID = "todo_step", "todo_request_id"
"""Columns of a row with an open job for it: the step, and the request id."""
ROWS_PER_PAGE = 500

_INTERNAL_COLUMNS = {
    "id",
    "endpoint_id",
    "subscription_id",
    "delivery_id",
    "bundle_id",
    "token",
    "lease_us",
}


@dataclass(frozen=True, slots=True)
class BackupTable:
    """A table of a backup; `columns` are the values of its rows."""

    name: str
    query: Select[Any]
    restore: Callable[[Tx, BackupRows], int]

    @property
    def columns(self) -> frozenset[str]:
        """Return the names of the columns."""
        return frozenset(self.query.selected_columns.keys())


def _plain_columns(table: Table, *kept: str) -> list[Column[Any]]:
    return [
        column for column in table.c if column.name not in _INTERNAL_COLUMNS or column.name in kept
    ]


def _join_jobs(query: Select[Any], condition: ColumnElement[bool], *steps: str) -> Select[Any]:
    """Join the open job of one of these steps, if any."""
    more = (todo.c.step.label(JOB_STEP), todo.c.request_id.label(JOB_REQUEST_ID))
    return query.add_columns(*more).outerjoin(todo, and_(todo.c.step.in_(steps), condition))


def _select_with_jobs(table: Table, *steps: str) -> Select[Any]:
    """Select the rows of a table with `id` and `replica`, and the open job of each."""
    condition = (todo.c.replica == table.c.replica) & (todo.c.ref == table.c.id)
    query = select(*_plain_columns(table, "id")).order_by(table.c.id)
    return _join_jobs(query, condition, *steps)


def read_rows(tx: Tx) -> Iterator[tuple[str, dict[str, Any]]]:
    """Iterate over all rows, table by table, in the order of restoring."""
    for kept in BACKUP_TABLES:
        paged = {"yield_per": ROWS_PER_PAGE}
        for row in tx.execute(kept.query, execution_options=paged).mappings():
            yield kept.name, {str(name): value for name, value in row.items()}


def _restore_plain(table: Table, tx: Tx, rows: BackupRows) -> int:
    return sql.insert_missing(tx, table, rows)


def _restore_accounts(table: Table, tx: Tx, rows: BackupRows) -> int:
    catalog_accounts.lock_all(tx)
    added = sql.insert_missing(tx, table, rows)
    if added:
        catalog_accounts.count_change(tx)
    return added


def _restore_areas(table: Table, tx: Tx, rows: BackupRows) -> int:
    return len(_insert_missing(tx, table, rows))


def _find_ids(tx: Tx, ident: Column[Any], name: Column[Any], wanted: set[str]) -> dict[str, int]:
    rows = tx.execute(select(name, ident).where(name.in_(sorted(wanted))))
    return {row[0]: row[1] for row in rows}


def _find_known(tx: Tx, key: Sequence[Column[Any]], rows: BackupRows) -> set[tuple[str, ...]]:
    wanted = [_name_row(row, key) for row in rows]
    return {tuple(row) for row in tx.execute(select(*key).where(tuple_(*key).in_(wanted)))}


def _name_row(row: Mapping[str, Any], key: Sequence[Column[Any]]) -> tuple[str, ...]:
    return tuple(row[column.name] for column in key)


def _insert_missing(
    tx: Tx, table: Table, rows: BackupRows, *names: Column[Any]
) -> list[dict[str, Any]]:
    """Insert missing rows and the jobs for them; return the new rows."""
    key = names or tuple(table.primary_key.columns)
    existing = _find_known(tx, key, rows)
    fresh = [dict(row) for row in rows if _name_row(row, key) not in existing]
    work = [(row.pop(JOB_STEP, None), row.pop(JOB_REQUEST_ID, None), row) for row in fresh]
    sql.insert_missing(tx, table, fresh)
    stored = _find_known(tx, key, fresh)
    for step, request_id, row in work:
        if step is not None and _name_row(row, key) in stored:
            # Jobs of areas belong to no replica.
            job = Job(step, row.get("replica", REPLICAS[0]), "/".join(_name_row(row, key)))
            jobs.insert(tx, [job], request_id=request_id or "", sent=False)
    return [row for row in fresh if _name_row(row, key) in stored]


def _restore_tasks(tx: Tx, rows: BackupRows) -> int:
    """Restore tasks, except those of purged files."""
    fqids = [FQID(row["uuid"], row["version"]) for row in rows]
    purged = purges.filter_purged(tx, "file", sorted(set(fqids)))
    wanted = [row for row, fqid in zip(rows, fqids, strict=True) if fqid not in purged]
    return len(_insert_missing(tx, tasks, wanted))


def _restore_checkouts(tx: Tx, rows: BackupRows) -> int:
    fqids = [FQID(row["uuid"], row["version"]) for row in rows]
    idents = recovery.find_digests(tx, "bundle", sorted(set(fqids)))
    values = [
        {**row, "bundle_id": idents.get(fqid, (0, ""))[0]}
        for row, fqid in zip(rows, fqids, strict=True)
    ]
    return len(_insert_missing(tx, checkouts, values))


def _upsert_endpoints(tx: Tx, rows: BackupRows) -> dict[str, int]:
    return _find_ids(tx, endpoints.c.id, endpoints.c.address, {row["address"] for row in rows})


def _find_subscription_ids(tx: Tx, rows: BackupRows) -> dict[str, int]:
    wanted = {row["subscription"] for row in rows}
    return _find_ids(tx, subscriptions.c.id, subscriptions.c.uuid, wanted)


def _drop_columns(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def _restore_subscriptions(tx: Tx, rows: BackupRows) -> int:
    """Restore subscriptions, and count changes so that caches of stored queries are refreshed."""
    places = _upsert_endpoints(tx, rows)
    values = [
        {**_drop_columns(row, "address"), "endpoint_id": places[row["address"]]} for row in rows
    ]
    fresh = _insert_missing(tx, subscriptions, values, subscriptions.c.uuid)
    for replica, kind in sorted({(row["replica"], row["type"]) for row in fresh}):
        subscription_rows.count_change(tx, replica, kind)
    return len(fresh)


def _restore_deliveries(tx: Tx, rows: BackupRows) -> int:
    places, owners = _upsert_endpoints(tx, rows), _find_subscription_ids(tx, rows)
    ended, now = _find_superseded(tx, rows), now_us(tx)
    over = {"state": "superseded", "finished_us": now, "reason": delivery_rows.SUPERSEDED_REASON}
    values = [
        {
            **_drop_columns(row, "address", "subscription", "replica"),
            "endpoint_id": places[row["address"]],
            "subscription_id": owners[row["subscription"]],
            **(over if row["uuid"] in ended else {}),
        }
        for row in rows
        if row["address"] in places and row["subscription"] in owners
    ]
    return len(_insert_missing(tx, deliveries, values, deliveries.c.uuid))


def _find_superseded(tx: Tx, rows: BackupRows) -> set[str]:
    """Return uuids of pending CREATE deliveries whose versions have ended."""
    ends = {
        row["uuid"]: events.make_end_event_ids(
            row["replica"], FQID(row["bundle_uuid"], row["bundle_version"])
        )
        for row in rows
        if row["state"] == "pending" and row["event_type"] == "CREATE"
    }
    wanted = {event_id for event_ids in ends.values() for event_id in event_ids}
    existing = events.filter_existing(tx, wanted)
    return {uuid for uuid, event_ids in ends.items() if not existing.isdisjoint(event_ids)}


def _restore_attempts(tx: Tx, rows: BackupRows) -> int:
    wanted = {row["delivery"] for row in rows}
    owners = _find_ids(tx, deliveries.c.id, deliveries.c.uuid, wanted)
    values = [
        {**_drop_columns(row, "delivery"), "delivery_id": owners[row["delivery"]]}
        for row in rows
        if row["delivery"] in owners
    ]
    return sql.insert_missing(tx, attempts, values)


def _restore_replays(tx: Tx, rows: BackupRows) -> int:
    owners = _find_subscription_ids(tx, rows)
    values = [
        {**_drop_columns(row, "subscription"), "subscription_id": owners[row["subscription"]]}
        for row in rows
        if row["subscription"] in owners
    ]
    return len(_insert_missing(tx, replays, values))


_ADDRESS = endpoints.c.address.label("address")
_SUBSCRIPTION = subscriptions.c.uuid.label("subscription")


def _plain_table(
    table: Table,
    query: Select[Any] | None = None,
    restore: Callable[[Table, Tx, BackupRows], int] = _restore_plain,
) -> BackupTable:
    """Return a table whose rows refer to no others, in the order of its primary key."""
    query = select(*_plain_columns(table)) if query is None else query
    ordered = query.order_by(*table.primary_key.columns)
    return BackupTable(table.name, ordered, partial(restore, table))


BACKUP_TABLES: tuple[BackupTable, ...] = (
    # In this order rows come after those they refer to.
    _plain_table(
        accounts,
        select(*_plain_columns(accounts, "id")).where(~accounts.c.built_in),
        _restore_accounts,
    ),
    _plain_table(
        memberships,
        select(*_plain_columns(memberships)).where(~memberships.c.built_in),
        _restore_accounts,
    ),
    _plain_table(audit),
    _plain_table(quotas),
    _plain_table(passwords),
    _plain_table(clients, select(*_plain_columns(clients, "id"))),
    _plain_table(consents),
    _plain_table(service_keys),
    _plain_table(
        areas,
        _join_jobs(select(areas), todo.c.ref == areas.c.uuid, "area_remove"),
        _restore_areas,
    ),
    _plain_table(
        area_files,
        _join_jobs(
            select(area_files),
            todo.c.ref == area_files.c.area + "/" + area_files.c.name,
            *("area_checksum", "area_checksum_large"),
        ),
        _restore_areas,
    ),
    _plain_table(answers),
    BackupTable("tasks", _select_with_jobs(tasks, "verify", "verify_large"), _restore_tasks),
    _plain_table(
        deposits,
        _join_jobs(select(*_plain_columns(deposits, "id")), todo.c.ref == deposits.c.id, "deposit"),
        _restore_areas,
    ),
    BackupTable("checkouts", _select_with_jobs(checkouts, "checkout", "mail"), _restore_checkouts),
    _plain_table(endpoints),
    BackupTable(
        "subscriptions",
        select(*_plain_columns(subscriptions), _ADDRESS)
        .join(endpoints, endpoints.c.id == subscriptions.c.endpoint_id)
        .order_by(subscriptions.c.id),
        _restore_subscriptions,
    ),
    BackupTable(
        "deliveries",
        select(*_plain_columns(deliveries), _ADDRESS, _SUBSCRIPTION, subscriptions.c.replica)
        .join(endpoints, endpoints.c.id == deliveries.c.endpoint_id)
        .join(subscriptions, subscriptions.c.id == deliveries.c.subscription_id)
        .order_by(deliveries.c.id),
        _restore_deliveries,
    ),
    BackupTable(
        "attempts",
        select(*_plain_columns(attempts), deliveries.c.uuid.label("delivery"))
        .join(deliveries, deliveries.c.id == attempts.c.delivery_id)
        .order_by(attempts.c.delivery_id, attempts.c.number),
        _restore_attempts,
    ),
    BackupTable(
        "replays",
        _select_with_jobs(replays, "replay")
        .add_columns(_SUBSCRIPTION)
        .join(subscriptions, subscriptions.c.id == replays.c.subscription_id),
        _restore_replays,
    ),
)
