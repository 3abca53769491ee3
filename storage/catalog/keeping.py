"""What no bucket can restore, as plain rows: subscriptions and deliveries, tasks, checkouts, areas,
answers, replays; who uses the store, what they may do, and who changed that.

Rows name others by what outlives a catalog (uuids, addresses), never by its own ids, and come back
as they were where they are not there yet; what waits to be done comes back with them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Select, Table, and_, select

from storage.catalog import deliveries as delivery_rows
from storage.catalog import (
    events,
    keeping_accounts,
    keeping_areas,
    purges,
    refilling,
    rejournalling,
    todo,
)
from storage.catalog import subscriptions as subscription_rows
from storage.catalog.engine import Tx, now_us
from storage.catalog.keeping_areas import REQUEST, STEP
from storage.catalog.schema import (
    accounts,
    answers,
    attempts,
    audit,
    checkouts,
    clients,
    consents,
    deliveries,
    endpoints,
    memberships,
    passwords,
    replays,
    service_keys,
    subscriptions,
    tasks,
)
from storage.catalog.schema import todo as todo_table
from storage.model import FQID, Todo

Rows = Sequence[Mapping[str, Any]]
PAGE = 500

_OWN = {"id", "endpoint_id", "subscription_id", "delivery_id", "bundle_id", "token", "lease_us"}


@dataclass(frozen=True, slots=True)
class Kept:
    """A table of a backup; `columns` are what a row of it has there."""

    name: str
    query: Select[Any]
    restore: Callable[[Tx, Rows], int]

    @property
    def columns(self) -> frozenset[str]:
        """The names of what a row has."""
        return frozenset(self.query.selected_columns.keys())


def _plain(table: Table, *kept: str) -> list[Column[Any]]:
    return [column for column in table.c if column.name not in _OWN or column.name in kept]


def _with_work(query: Select[Any], table: Table, *steps: str) -> Select[Any]:
    """With the open row of one of these steps, if there is one."""
    ours = and_(
        todo_table.c.step.in_(steps),
        todo_table.c.replica == table.c.replica,
        todo_table.c.ref == table.c.id,
    )
    more = (todo_table.c.step.label(STEP), todo_table.c.request_id.label(REQUEST))
    return query.add_columns(*more).outerjoin(todo_table, ours)


def read(tx: Tx) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row, table by table, in an order in which they can be restored."""
    for kept in TABLES:
        paged = {"yield_per": PAGE}
        for row in tx.execute(kept.query, execution_options=paged).mappings():
            yield kept.name, {str(name): value for name, value in row.items()}


def _simple(table: Table) -> Callable[[Tx, Rows], int]:
    def restore(tx: Tx, rows: Rows) -> int:
        return refilling.add(tx, table, rows)

    return restore


def _ids(tx: Tx, ident: Column[Any], name: Column[Any], wanted: set[str]) -> dict[str, int]:
    found = tx.execute(select(name, ident).where(name.in_(sorted(wanted))))
    return {row[0]: row[1] for row in found}


def _known(tx: Tx, name: Column[Any], rows: Rows) -> set[str]:
    wanted = [row[name.name] for row in rows]
    return set(tx.execute(select(name).where(name.in_(wanted))).scalars())


def _fresh(tx: Tx, table: Table, name: Column[Any], rows: Rows) -> list[dict[str, Any]]:
    """Insert those that are not there, and the work on them; returns them."""
    known = _known(tx, name, rows)
    fresh = [dict(row) for row in rows if row[name.name] not in known]
    work = [(row.pop(STEP, None), row.pop(REQUEST, None), row) for row in fresh]
    refilling.add(tx, table, fresh)
    there = _known(tx, name, fresh)
    for step, request_id, row in work:
        if step is not None and row[name.name] in there:
            wanted = Todo(step, row["replica"], row[name.name])
            todo.add(tx, [wanted], request_id=request_id or "", sent=False)
    return [row for row in fresh if row[name.name] in there]


def _restore_tasks(tx: Tx, rows: Rows) -> int:
    """But for those of what was purged, which are not to be known any more."""
    fqids = [FQID(row["uuid"], row["version"]) for row in rows]
    purged = purges.among(tx, "file", sorted(set(fqids)))
    wanted = [row for row, fqid in zip(rows, fqids, strict=True) if fqid not in purged]
    return len(_fresh(tx, tasks, tasks.c.id, wanted))


def _restore_checkouts(tx: Tx, rows: Rows) -> int:
    fqids = [FQID(row["uuid"], row["version"]) for row in rows]
    idents = refilling.digests(tx, "bundle", sorted(set(fqids)))
    made = [
        {**row, "bundle_id": idents.get(fqid, (0, ""))[0]}
        for row, fqid in zip(rows, fqids, strict=True)
    ]
    return len(_fresh(tx, checkouts, checkouts.c.id, made))


def _endpoints(tx: Tx, rows: Rows) -> dict[str, int]:
    return _ids(tx, endpoints.c.id, endpoints.c.address, {row["address"] for row in rows})


def _subscriptions(tx: Tx, rows: Rows) -> dict[str, int]:
    wanted = {row["subscription"] for row in rows}
    return _ids(tx, subscriptions.c.id, subscriptions.c.uuid, wanted)


def _without(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def _restore_subscriptions(tx: Tx, rows: Rows) -> int:
    """Whoever keeps compiled stored queries is to see that there are more."""
    places = _endpoints(tx, rows)
    made = [{**_without(row, "address"), "endpoint_id": places[row["address"]]} for row in rows]
    fresh = _fresh(tx, subscriptions, subscriptions.c.uuid, made)
    for replica, kind in sorted({(row["replica"], row["type"]) for row in fresh}):
        subscription_rows.changed(tx, replica, kind)
    return len(fresh)


def _restore_deliveries(tx: Tx, rows: Rows) -> int:
    places, owners = _endpoints(tx, rows), _subscriptions(tx, rows)
    ended, now = _ended(tx, rows), now_us(tx)
    over = {"state": "superseded", "finished_us": now, "reason": delivery_rows.SUPERSEDED}
    made = [
        {
            **_without(row, "address", "subscription", "replica"),
            "endpoint_id": places[row["address"]],
            "subscription_id": owners[row["subscription"]],
            **(over if row["uuid"] in ended else {}),
        }
        for row in rows
        if row["address"] in places and row["subscription"] in owners
    ]
    return len(_fresh(tx, deliveries, deliveries.c.uuid, made))


def _ended(tx: Tx, rows: Rows) -> set[str]:
    """Deliveries that wait to tell of a version that has ended since, by their uuids."""
    ends = {row["uuid"]: _ends(row) for row in rows if row["state"] == "pending"}
    wanted = sorted({one for few in ends.values() for one in few})
    unknown = rejournalling.without(tx, wanted)
    return {uuid for uuid, few in ends.items() if not few <= unknown}


def _ends(row: Mapping[str, Any]) -> set[str]:
    if row["event_type"] != "CREATE":
        return set()
    fqid = FQID(row["bundle_uuid"], row["bundle_version"])
    return {events.event_id(kind, row["replica"], fqid) for kind in ("TOMBSTONE", "DELETE")}


def _restore_attempts(tx: Tx, rows: Rows) -> int:
    wanted = {row["delivery"] for row in rows}
    owners = _ids(tx, deliveries.c.id, deliveries.c.uuid, wanted)
    made = [
        {**_without(row, "delivery"), "delivery_id": owners[row["delivery"]]}
        for row in rows
        if row["delivery"] in owners
    ]
    return refilling.add(tx, attempts, made)


def _restore_replays(tx: Tx, rows: Rows) -> int:
    owners = _subscriptions(tx, rows)
    made = [
        {**_without(row, "subscription"), "subscription_id": owners[row["subscription"]]}
        for row in rows
        if row["subscription"] in owners
    ]
    return len(_fresh(tx, replays, replays.c.id, made))


_ADDRESS = endpoints.c.address.label("address")
_SUBSCRIPTION = subscriptions.c.uuid.label("subscription")

TABLES: tuple[Kept, ...] = (
    # In this order: rows come after those that they name.
    Kept(
        "accounts",
        select(*_plain(accounts, "id"))
        .where(~accounts.c.built_in)
        .order_by(accounts.c.kind, accounts.c.id),
        keeping_accounts.restorer(accounts),
    ),
    Kept(
        "memberships",
        select(*_plain(memberships))
        .where(~memberships.c.built_in)
        .order_by(*memberships.primary_key.columns),
        keeping_accounts.restorer(memberships),
    ),
    Kept("audit", select(*_plain(audit)).order_by(audit.c.id), _simple(audit)),
    Kept("passwords", select(*_plain(passwords)).order_by(passwords.c.email), _simple(passwords)),
    Kept("clients", select(*_plain(clients, "id")).order_by(clients.c.id), _simple(clients)),
    Kept(
        "consents",
        select(*_plain(consents)).order_by(consents.c.email, consents.c.client),
        _simple(consents),
    ),
    Kept(
        "service_keys",
        select(*_plain(service_keys)).order_by(service_keys.c.email, service_keys.c.kid),
        _simple(service_keys),
    ),
    Kept("areas", keeping_areas.AREAS, keeping_areas.restore_areas),
    Kept("area_files", keeping_areas.FILES, keeping_areas.restore_files),
    Kept(
        "answers",
        select(*_plain(answers)).order_by(answers.c.owner, answers.c.key),
        _simple(answers),
    ),
    Kept(
        "tasks",
        _with_work(select(*_plain(tasks, "id")), tasks, "verify", "verify_large").order_by(
            tasks.c.id
        ),
        _restore_tasks,
    ),
    Kept(
        "checkouts",
        _with_work(select(*_plain(checkouts, "id")), checkouts, "checkout", "mail").order_by(
            checkouts.c.id
        ),
        _restore_checkouts,
    ),
    Kept("endpoints", select(*_plain(endpoints)).order_by(endpoints.c.id), _simple(endpoints)),
    Kept(
        "subscriptions",
        select(*_plain(subscriptions), _ADDRESS)
        .join(endpoints, endpoints.c.id == subscriptions.c.endpoint_id)
        .order_by(subscriptions.c.id),
        _restore_subscriptions,
    ),
    Kept(
        "deliveries",
        select(*_plain(deliveries), _ADDRESS, _SUBSCRIPTION, subscriptions.c.replica)
        .join(endpoints, endpoints.c.id == deliveries.c.endpoint_id)
        .join(subscriptions, subscriptions.c.id == deliveries.c.subscription_id)
        .order_by(deliveries.c.id),
        _restore_deliveries,
    ),
    Kept(
        "attempts",
        select(*_plain(attempts), deliveries.c.uuid.label("delivery"))
        .join(deliveries, deliveries.c.id == attempts.c.delivery_id)
        .order_by(attempts.c.delivery_id, attempts.c.number),
        _restore_attempts,
    ),
    Kept(
        "replays",
        _with_work(select(*_plain(replays, "id"), _SUBSCRIPTION), replays, "replay")
        .join(subscriptions, subscriptions.c.id == replays.c.subscription_id)
        .order_by(replays.c.id),
        _restore_replays,
    ),
)
